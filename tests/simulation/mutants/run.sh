#!/bin/sh
# Puts one deliberate fault after the other into a copy of the core and lets the simulation meet it.
#
#   tests/simulation/mutants/run.sh [NAME…]
#   tests/simulation/mutants/run.sh --fit     only sees whether every patch still fits
#
# Prints a row per fault: its name, what the first failing seed complained of, and how many of the seeds failed
# before the run was broken off. Ends with 1 if a fault was not caught or its patch does not fit any more.
# MOORLINE_SEEDS as for the simulation itself. Builds in target/mutants, or where MUTANTS_TARGET_DIR says.
set -u
root=$(cd "$(dirname "$0")/../../.." && pwd)
target=${MUTANTS_TARGET_DIR:-$root/target/mutants}
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT INT TERM
cp -r "$root/Cargo.toml" "$root/Cargo.lock" "$root/src" "$root/tests" "$root/benches" "$root/loadtest" "$copy/"

fit_only=
if [ "${1:-}" = --fit ]; then
    fit_only=yes
    shift
fi
names=${*:-$(cd "$root/tests/simulation/mutants" && ls *.patch | sed 's/\.patch$//')}
missed=0
for name in $names; do
    patch=$root/tests/simulation/mutants/$name.patch
    rm -rf "$copy/src"
    cp -r "$root/src" "$copy/src"
    if ! patch -d "$copy" -p1 -s -F3 <"$patch" >/dev/null; then
        printf '%s | the patch does not fit\n' "$name"
        missed=1
        continue
    fi
    [ -z "$fit_only" ] || continue
    find "$copy/src" -newer "$patch" -name '*.rs' -exec touch {} +
    log=$copy/log
    if (cd "$copy" && RUST_BACKTRACE=0 CARGO_TARGET_DIR=$target cargo test --test simulation every_seed >"$log" 2>&1); then
        if (cd "$copy" && RUST_BACKTRACE=0 CARGO_TARGET_DIR=$target cargo test --lib --test core >"$log" 2>&1); then
            printf '%s | NOT CAUGHT\n' "$name"
            missed=1
        else
            printf '%s | not by the simulation, but by %s\n' "$name" "$(sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' "$log" | head -1)"
        fi
    elif grep -q '^error\[' "$log" || grep -q 'could not compile' "$log"; then
        printf '%s | does not compile\n' "$name"
        missed=1
    else
        seeds=$(grep -c '^\^ seed' "$log")
        complaint=$(grep -A1 -m1 ' panicked at ' "$log" | tail -1 | cut -c1-100)
        printf '%s | %s | %s\n' "$name" "$complaint" "$seeds"
    fi
done
exit $missed
