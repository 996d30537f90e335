//! What a run measures: counts, latencies, receipts, and the generator's own honesty.

pub(crate) mod histogram;
pub(crate) mod lag;
pub(crate) mod process;
pub(crate) mod receipts;
pub(crate) mod tally;
