//! What the kernel says about this process.

use rustix::time::{ClockId, clock_gettime};
use std::fs;

/// Memory and time of the process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Process {
    /// Resident memory in bytes; `None` where `/proc` is not mounted.
    pub(super) resident_bytes: Option<u64>,
    /// Processor time of all threads in seconds.
    pub(super) cpu_s: f64,
}

impl Process {
    /// As it is now. Two system calls and a short file.
    pub(super) fn read() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let time = clock_gettime(ClockId::ProcessCPUTime);
        #[allow(clippy::cast_precision_loss, reason = "seconds of a running process are far below 2^53")]
        let cpu_s = time.tv_sec as f64 + time.tv_nsec as f64 / 1e9;
        Process { resident_bytes: resident_bytes(&status), cpu_s }
    }
}

/// The `VmRSS` line of `/proc/self/status`, which counts in KiB.
fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_and_used_time() {
        let process = Process::read();
        assert!(process.resident_bytes.is_some_and(|bytes| bytes > 100_000));
        assert!(process.cpu_s > 0.0);
    }

    #[test]
    fn a_strange_file_is_no_answer() {
        assert_eq!(resident_bytes("Name:\tx\nVmRSS:\t   12 kB\n"), Some(12 * 1024));
        for text in ["", "VmRSS: 12", "VmRSS: x kB", "VmRSS: 99999999999999999999 kB"] {
            assert_eq!(resident_bytes(text), None, "{text}");
        }
    }
}
