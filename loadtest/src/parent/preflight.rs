//! Before the run: which limit of this host would bind, and the command that lifts it.

use std::fs;

use rustix::process::{Resource, getrlimit};

use crate::net::target::Target;

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

/// What the preflight looks at.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    /// Clients in all.
    pub(crate) clients_count: u64,
    /// Workers the user asked for.
    pub(crate) workers_count: Option<u32>,
    /// The servers.
    pub(crate) targets: &'a [Target],
    /// Source addresses the user named.
    pub(crate) sources_count: usize,
    /// The server's processes.
    pub(crate) pids: &'a [u32],
}

/// Says how many workers the clients take, and what stands against them.
pub(crate) fn preflight(wanted: &Wanted<'_>) -> Readiness {
    let clients_count = wanted.clients_count;
    let open_files_max = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let mut readiness = plan_workers(clients_count, wanted.workers_count, open_files_max);
    readiness.warnings.extend(memory_warning(clients_count, &read("/proc/meminfo")));
    readiness.warnings.extend(system_files_warning(clients_count, &read("/proc/sys/fs/file-max")));
    readiness.warnings.extend(ports_warning(wanted, &read("/proc/sys/net/ipv4/ip_local_port_range")));
    readiness.warnings.extend(wanted.pids.iter().filter_map(|pid| {
        let limits = read(&format!("/proc/{pid}/limits"));
        server_files_warning(clients_count.div_ceil(wanted.pids.len() as u64), *pid, &limits)
    }));
    readiness
}

/// To one address and port, each source address has as many connections as there are ports.
fn ports_warning(wanted: &Wanted<'_>, range: &str) -> Option<String> {
    let is_loopback = |target: &Target| target.addr.is_ipv4() && target.addr.ip().is_loopback();
    if wanted.sources_count == 0 && wanted.targets.iter().all(is_loopback) {
        return None;
    }
    let mut bounds = range.split_whitespace().filter_map(|bound| bound.parse::<u64>().ok());
    let ports = bounds.next().zip(bounds.next()).map(|(low, high)| high.saturating_sub(low) + 1)?;
    let room = ports * wanted.sources_count.max(1) as u64 * wanted.targets.len() as u64;
    let needed = wanted.clients_count.div_ceil(ports * wanted.targets.len().max(1) as u64);
    (wanted.clients_count > room).then(|| {
        format!(
            "ports bind first: {room} connections of {}; name {needed} addresses with --source, or `sysctl -w net.ipv4.ip_local_port_range=\"1024 65535\"`",
            wanted.clients_count,
        )
    })
}

/// The server's own limit binds as hard as this side's.
fn server_files_warning(clients_count: u64, pid: u32, limits: &str) -> Option<String> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    let soft: u64 = line.split_whitespace().next()?.parse().ok()?;
    (clients_count >= soft).then(|| {
        let needed = clients_count + 1_024;
        format!("the server's open files bind first: {soft} for process {pid}; `prlimit --pid {pid} --nofile={needed}`")
    })
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
    fn ports_bind_only_where_addresses_are_few() {
        let remote =
            [Target { addr: ([192, 0, 2, 1], 80).into(), authority: String::new(), path: String::new() }];
        let local = [Target { addr: ([127, 0, 0, 1], 80).into(), ..remote[0].clone() }];
        let warning = |targets: &[Target], sources_count| {
            let wanted =
                Wanted { clients_count: 50_000, workers_count: None, targets, sources_count, pids: &[] };
            ports_warning(&wanted, "32768\t60999\n")
        };
        assert!(
            warning(&remote, 0).is_some_and(|text| text.contains("28232") && text.contains("2 addresses"))
        );
        assert_eq!(warning(&remote, 2), None);
        assert_eq!(warning(&local, 0), None);
    }

    #[test]
    fn the_servers_limit_counts_too() {
        let limits = "Limit  Soft  Hard  Units\nMax open files            1024                 524288               files\n";
        assert!(
            server_files_warning(1_024, 7, limits)
                .is_some_and(|text| text.contains("prlimit --pid 7 --nofile=2048"))
        );
        assert_eq!(server_files_warning(1_000, 7, limits), None);
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
