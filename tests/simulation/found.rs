//! Faults that were found by a seed, each cut down to the few steps that show it.
