//! Memory and CPU time of the server's processes, from `/proc`.
//!
//! Owns the reading of `/proc/PID`; children are found anew at each sample, so workers that a server
//! starts later count too. CPU time of children that ended and were waited for is included by the kernel.

use std::fs;

use serde::{Deserialize, Serialize};

/// Kernel clock ticks per second in `/proc/PID/stat` (fixed for user space on Linux).
const TICKS_PER_SECOND: u64 = 100;

/// Memory and CPU time of a set of processes at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// Resident memory, in bytes.
    pub(crate) rss_bytes: u64,
    /// The part of it that belongs to no file: heap, stacks.
    pub(crate) anonymous_bytes: u64,
    /// CPU time so far, in milliseconds (user and system).
    pub(crate) cpu_ms: u64,
    /// CPU time in user mode so far, in milliseconds.
    pub(crate) cpu_user_ms: u64,
    /// Processes that were read.
    pub(crate) processes_count: u64,
}

/// Samples this process.
pub(crate) fn own() -> Sample {
    sample_one(std::process::id()).unwrap_or_default()
}

/// Samples the processes and all their descendants; those that are gone count as nothing.
pub(crate) fn sample(pids: &[u32]) -> Sample {
    let mut sum = Sample::default();
    for pid in with_descendants(pids) {
        if let Some(one) = sample_one(pid) {
            sum.rss_bytes += one.rss_bytes;
            sum.anonymous_bytes += one.anonymous_bytes;
            sum.cpu_ms += one.cpu_ms;
            sum.cpu_user_ms += one.cpu_user_ms;
            sum.processes_count += 1;
        }
    }
    sum
}

fn with_descendants(pids: &[u32]) -> Vec<u32> {
    let mut all = Vec::new();
    let mut waiting = pids.to_vec();
    while let Some(pid) = waiting.pop() {
        // A server under test may have started this program: its own part is not the server's.
        if !all.contains(&pid) && pid != std::process::id() {
            all.push(pid);
            waiting.extend(children(pid));
        }
    }
    all
}

fn children(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

fn sample_one(pid: u32) -> Option<Sample> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (user, system) = cpu_ticks(&stat)?;
    let ms = |ticks: u64| ticks * 1_000 / TICKS_PER_SECOND;
    Some(Sample {
        rss_bytes: kilobytes(&status, "VmRSS:")? * 1_024,
        anonymous_bytes: kilobytes(&status, "RssAnon:")? * 1_024,
        cpu_ms: ms(user + system),
        cpu_user_ms: ms(user),
        processes_count: 1,
    })
}

fn kilobytes(status: &str, field: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix(field))?.split_whitespace().next()?.parse().ok()
}

/// User and system ticks, waited-for children included; the name may hold spaces and parentheses.
fn cpu_ticks(stat: &str) -> Option<(u64, u64)> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some((field(14)? + field(16)?, field(15)? + field(17)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_and_time() {
        let sample = own();
        assert!(sample.rss_bytes > 100_000 && sample.anonymous_bytes > 0, "{sample:?}");
    }

    #[test]
    fn a_name_with_parentheses() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 0 0 0 0 0 11 22 3 4 20 0";
        assert_eq!(cpu_ticks(stat), Some((14, 26)));
    }

    #[test]
    fn the_generator_is_not_part_of_the_server_that_started_it() {
        assert_eq!(sample(&[std::process::id()]), Sample::default());
    }

    #[test]
    fn a_process_that_is_gone_is_nothing() {
        assert_eq!(sample(&[u32::MAX]), Sample::default());
    }
}
