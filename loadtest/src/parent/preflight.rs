//! Before the run: which limit of this host would bind, and the command that lifts it.

use std::fs;

use rustix::process::{Resource, getrlimit};

/// Descriptors of a worker that are not connections.
const DESCRIPTORS_RESERVED: u64 = 64;
/// Memory one held stream takes in the generator, kernel included, in bytes (measured).
const BYTES_PER_CLIENT: u64 = 6 * 1024;

/// What the host allows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Readiness {
    /// Worker processes to use.
    pub(crate) workers_count: u32,
    /// Limits that will bind, with what lifts them.
    pub(crate) warnings: Vec<String>,
}

/// Says how many workers `clients_count` clients take, and what stands against them.
pub(crate) fn preflight(clients_count: u64, workers_wished: Option<u32>) -> Readiness {
    let open_files_max = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let mut readiness = plan_workers(clients_count, workers_wished, open_files_max);
    readiness.warnings.extend(memory_warning(clients_count, &read("/proc/meminfo")));
    readiness.warnings.extend(system_files_warning(clients_count, &read("/proc/sys/fs/file-max")));
    readiness
}

fn plan_workers(clients_count: u64, wished: Option<u32>, open_files_max: u64) -> Readiness {
    let room = open_files_max.saturating_sub(DESCRIPTORS_RESERVED).max(1);
    let needed = u32::try_from(clients_count.div_ceil(room).max(1)).unwrap_or(u32::MAX);
    let workers_count = wished.unwrap_or(needed).max(1);
    let mut warnings = Vec::new();
    if workers_count < needed {
        warnings.push(format!(
            "open files bind first: {workers_count} workers hold {} clients of {clients_count}; use --workers {needed}, or `ulimit -n {}`",
            room * u64::from(workers_count),
            clients_count.div_ceil(u64::from(workers_count)) + DESCRIPTORS_RESERVED,
        ));
    }
    Readiness { workers_count, warnings }
}

fn memory_warning(clients_count: u64, meminfo: &str) -> Option<String> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let available_bytes = line.split_whitespace().next()?.parse::<u64>().ok()? * 1_024;
    let needed_bytes = clients_count.saturating_mul(BYTES_PER_CLIENT);
    (needed_bytes > available_bytes).then(|| {
        format!(
            "memory binds first: {clients_count} clients take about {} MB on this side, {} MB are available",
            needed_bytes >> 20,
            available_bytes >> 20,
        )
    })
}

fn system_files_warning(clients_count: u64, file_max: &str) -> Option<String> {
    let file_max: u64 = file_max.trim().parse().ok()?;
    // Both ends may live on this host.
    let needed = clients_count.saturating_mul(2) + 1_024;
    (needed > file_max).then(|| format!("the host's open files bind first: `sysctl -w fs.file-max={needed}`"))
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_follow_from_the_limit_of_open_files() {
        assert_eq!(plan_workers(60_000, None, 20_000).workers_count, 4);
        assert_eq!(plan_workers(10, None, 20_000), Readiness { workers_count: 1, warnings: vec![] });
        let bound = plan_workers(60_000, Some(2), 20_000);
        assert_eq!(bound.workers_count, 2);
        assert!(
            bound.warnings[0].contains("--workers 4") && bound.warnings[0].contains("ulimit -n 30064"),
            "{bound:?}"
        );
    }

    #[test]
    fn memory_and_files_of_the_host() {
        assert!(memory_warning(1_000_000, "MemTotal: 1 kB\nMemAvailable:   1000000 kB\n").is_some());
        assert!(memory_warning(1_000, "MemAvailable: 1000000 kB\n").is_none());
        assert!(
            system_files_warning(1_000_000, "100000\n")
                .is_some_and(|text| text.contains("fs.file-max=2001024"))
        );
        assert!(system_files_warning(10, "100000").is_none());
    }
}
