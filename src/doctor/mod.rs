//! `moorline doctor`: what this host can hold, what binds first, and the command that lifts it.
//!
//! Owns the judgement. [`Host`] has what the kernel says, [`Report`] what follows from it for a number of streams. Nothing
//! here changes anything, except that one small ring is made and dropped again: whether a seccomp filter allows it is
//! written nowhere.
//!
//! A stream that is held costs one open file, the memory of its session and the kernel's memory of its socket. Limits
//! that count something else (ports, the backlog, memory of data under way) are said, and never bind a number of streams.

pub use self::host::Host;
use crate::{
    config::Machine,
    limits::{self, LISTEN_BACKLOG, RING_ENTRIES, SESSION_BYTES, SESSIONS_MAX, SOCKET_BYTES},
    server::{self, CONNECTIONS_MIN, KERNEL_MIN, StartError, kernel_version},
    shell::files,
    units::ByteSize,
};
use schemars::JsonSchema;
use serde::Serialize;
use std::path::Path;

mod host;
mod text;

/// The smallest page of every machine this runs on; what one segment on its way takes at least of `tcp_mem`.
const PAGE_BYTES: u64 = 4096;
/// What the kernel writes for "no limit" is larger, whatever it is; JSON has no exact numbers beyond.
const COUNTLESS: u64 = 1 << 53;
/// Memory that is left to the rest of the host: a tenth.
const MEMORY_KEPT_TENTHS: u64 = 1;

/// What this host can hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Report {
    /// Whether the server runs here at all.
    pub able: bool,
    /// How many streams it can hold open at one time, as far as anyone can tell.
    pub streams: u64,
    /// The check that allows the fewest; `None`: nothing was found that limits it.
    pub binds_first: Option<String>,
    /// How many were asked for.
    pub wanted: u64,
    /// One after the other, what was looked at.
    pub checks: Vec<Check>,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Check {
    /// Its name, which does not change.
    pub name: &'static str,
    /// What it means.
    pub verdict: Verdict,
    /// What was found, for people.
    pub found: String,
    /// Streams it permits; `null`: it does not limit them.
    pub streams: Option<u64>,
    /// How to lift it; empty if there is no need.
    pub remedy: Vec<String>,
}

/// What a check has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Enough for what was asked.
    Good,
    /// It says something that is worth to know, and limits nothing.
    Note,
    /// Less than was asked for.
    Short,
    /// The server cannot run.
    Unable,
}

impl Report {
    /// Looks at the host whose `proc` and `sys` are below `root`, and tries to make a ring in this process.
    pub fn of_host(root: &Path, wanted: u64) -> Report {
        Report::of(&Host::read(root), &Machine::read(), server::probe_ring(RING_ENTRIES), wanted)
    }

    fn of(host: &Host, machine: &Machine, ring: Result<(), StartError>, wanted: u64) -> Report {
        let files = Files { shards: machine.shards(), wanted };
        let checks = vec![
            io_uring(ring, host),
            kernel(host),
            files.of_process(host),
            files.of_host(host),
            memory(host, wanted),
            sessions(wanted),
            tracked_connections(host, wanted),
            tcp_memory(host, wanted),
            tcp_buffers(host),
            backlog(host),
            ports(host),
            processors(host, machine),
        ];
        let checks: Vec<_> = checks.into_iter().flatten().collect();
        let able = checks.iter().all(|check| check.verdict != Verdict::Unable);
        let first = checks.iter().filter(|check| check.streams.is_some()).min_by_key(|check| check.streams);
        let streams = if able { first.and_then(|check| check.streams).unwrap_or(0) } else { 0 };
        Report { able, streams, binds_first: first.map(|check| check.name.to_owned()), wanted, checks }
    }

    /// As JSON, indented.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report has only strings for keys") + "\n"
    }
}

fn note(name: &'static str, found: String) -> Check {
    Check { name, verdict: Verdict::Note, found, streams: None, remedy: Vec::new() }
}

/// A check that permits `streams`; so many that nobody counts them are no limit. The remedy is for those who want more.
fn limit(name: &'static str, found: String, streams: u64, wanted: u64, remedy: Vec<String>) -> Check {
    let is_enough = streams >= wanted;
    let remedy = if is_enough { Vec::new() } else { remedy };
    let verdict = if is_enough { Verdict::Good } else { Verdict::Short };
    Check { name, verdict, found, streams: Some(streams).filter(|streams| *streams < COUNTLESS), remedy }
}

// --- Whether it runs ----------------------------------------------------------------------------

fn io_uring(ring: Result<(), StartError>, host: &Host) -> Option<Check> {
    let name = "io_uring";
    let Err(error) = ring else {
        let switch =
            host.ring_disabled.map_or(String::new(), |it| format!(" (kernel.io_uring_disabled = {it})"));
        return Some(Check { verdict: Verdict::Good, ..note(name, format!("works{switch}")) });
    };
    let remedy: &[&str] = match &error {
        StartError::RingSwitchedOff(_) => &["sysctl -w kernel.io_uring_disabled=0"],
        StartError::RingForbidden => &[
            "docker run --security-opt seccomp=packaging/container/seccomp.json …",
            "podman run --security-opt seccomp=packaging/container/seccomp.json …",
        ],
        StartError::RingMemory(_) => &[
            "ulimit -l unlimited    # or LimitMEMLOCK=infinity in the service unit, or a higher memory limit",
        ],
        _ => &[],
    };
    let remedy = remedy.iter().map(ToString::to_string).collect();
    Some(Check { verdict: Verdict::Unable, remedy, ..note(name, error.to_string()) })
}

fn kernel(host: &Host) -> Option<Check> {
    let release = host.kernel.clone()?;
    let is_old = kernel_version(&release)? < KERNEL_MIN;
    let found = if is_old { format!("{release}; Linux 6.0 or later is required") } else { release };
    let verdict = if is_old { Verdict::Unable } else { Verdict::Good };
    Some(Check { verdict, ..note("kernel", found) })
}

// --- How much it holds --------------------------------------------------------------------------

struct Files {
    shards: u16,
    wanted: u64,
}

impl Files {
    /// Descriptors the server keeps for itself.
    fn reserved(&self) -> u64 {
        files::reserved(self.shards, 1, 0) as u64
    }

    fn needed(&self) -> u64 {
        self.wanted.saturating_add(self.reserved())
    }

    fn of_process(&self, host: &Host) -> Option<Check> {
        let (soft, hard) = (host.open_files_soft?, host.open_files_hard?);
        let found = format!("soft {}, hard {}; the server raises the soft one", shown(soft), shown(hard));
        let needed = self.needed();
        let mut remedy = Vec::new();
        if host.nr_open.is_some_and(|most| most < needed) {
            remedy.push(format!("sysctl -w fs.nr_open={needed}"));
        }
        remedy.push(format!("ulimit -Hn {needed}    # as root, or LimitNOFILE={needed} in the service unit"));
        let check = limit("open_files", found, hard.saturating_sub(self.reserved()), self.wanted, remedy);
        let is_able = hard >= self.reserved() + CONNECTIONS_MIN as u64;
        Some(if is_able { check } else { Check { verdict: Verdict::Unable, ..check } })
    }

    fn of_host(&self, host: &Host) -> Option<Check> {
        let (most, used) = (host.file_max?, host.files_used.unwrap_or(0));
        let found = format!("fs.file-max {}, {} in use", shown(most), shown(used));
        let left = most.saturating_sub(used).saturating_sub(self.reserved());
        let needed = self.needed().saturating_add(used);
        Some(limit(
            "open_files_host",
            found,
            left,
            self.wanted,
            vec![format!("sysctl -w fs.file-max={needed}")],
        ))
    }
}

fn memory(host: &Host, wanted: u64) -> Option<Check> {
    let (available, group) = (host.memory_available_bytes, host.cgroup_memory_left_bytes);
    let left = available.into_iter().chain(group).min()?;
    let each = (SESSION_BYTES + SOCKET_BYTES) as u64;
    let is_group = group == Some(left);
    let source = if is_group { "left by the cgroup's limit" } else { "available" };
    let found = format!(
        "{} {source}, a tenth kept free; {SESSION_BYTES} B per session and about {SOCKET_BYTES} B of the kernel's per \
         stream",
        rounded(left)
    );
    let streams = left / 10 * (10 - MEMORY_KEPT_TENTHS) / each;
    let needed = wanted.saturating_mul(each) / (10 - MEMORY_KEPT_TENTHS) * 10;
    let remedy = match is_group {
        true => {
            format!("raise the memory limit so that {} are left (MemoryMax=, or --memory)", rounded(needed))
        }
        false => format!("free or add memory: {} have to be available", rounded(needed)),
    };
    Some(limit("memory", found, streams, wanted, vec![remedy]))
}

fn sessions(wanted: u64) -> Option<Check> {
    let most = SESSIONS_MAX as u64;
    let remedy = vec![format!("moorline serve --max-sessions {wanted} --max-connections {wanted}")];
    Some(limit("max_sessions", format!("--max-sessions {} unless set", shown(most)), most, wanted, remedy))
}

fn tracked_connections(host: &Host, wanted: u64) -> Option<Check> {
    let most = host.tracked_max?;
    let found =
        format!("net.netfilter.nf_conntrack_max {}, if rules of the firewall track them", shown(most));
    let is_enough = most >= wanted;
    let remedy = if is_enough {
        Vec::new()
    } else {
        vec![format!("sysctl -w net.netfilter.nf_conntrack_max={wanted}    # or exempt the port (notrack)")]
    };
    Some(Check { remedy, ..note("tracked_connections", found) })
}

// --- What is worth to know ----------------------------------------------------------------------

fn tcp_memory(host: &Host, wanted: u64) -> Option<Check> {
    let [_, pressure, high] = host.tcp_memory_pages?;
    let found = format!(
        "net.ipv4.tcp_mem {} at most: {} streams with a message under way at one moment; silent ones take none",
        rounded(high.saturating_mul(PAGE_BYTES)),
        shown(high)
    );
    let remedy = if high >= wanted {
        Vec::new()
    } else {
        let (more, most) = (wanted.max(pressure), wanted.saturating_mul(2).max(high));
        vec![format!("sysctl -w net.ipv4.tcp_mem=\"{more} {more} {most}\"    # if all are notified at once")]
    };
    Some(Check { remedy, ..note("tcp_memory", found) })
}

fn tcp_buffers(host: &Host) -> Option<Check> {
    let [_, receive, receive_most] = host.tcp_receive_bytes?;
    let [_, send, send_most] = host.tcp_send_bytes?;
    let size = |bytes| rounded(bytes);
    let found = format!(
        "receive {} (tcp_rmem, to {}), send {} (tcp_wmem, to {}; the server sets {} itself): room, not memory in use",
        size(receive),
        size(receive_most),
        size(send),
        size(send_most),
        ByteSize(limits::SEND_BUFFER_BYTES)
    );
    Some(note("tcp_buffers", found))
}

fn backlog(host: &Host) -> Option<Check> {
    let (most, asked) = (host.backlog_max?, u64::from(LISTEN_BACKLOG.unsigned_abs()));
    let found = format!("net.core.somaxconn {most}; the server asks for {asked} for each thread");
    let is_enough = most >= asked;
    let remedy = if is_enough { vec![] } else { vec![format!("sysctl -w net.core.somaxconn={asked}")] };
    Some(Check { remedy, ..note("backlog", found) })
}

fn ports(host: &Host) -> Option<Check> {
    let [first, last] = host.local_ports?;
    let count = (last + 1).saturating_sub(first);
    let found = format!(
        "{} (net.ipv4.ip_local_port_range {first}-{last}): what one address of a proxy or load generator can open to one \
         address and port; the server itself needs none",
        shown(count)
    );
    Some(note("local_ports", found))
}

fn processors(host: &Host, machine: &Machine) -> Option<Check> {
    let group =
        host.cgroup_cpu_millis.map(|millis| format!(", {} by the cgroup's quota", thousandths(millis)));
    let found = format!("{} usable{}", machine.cores, group.unwrap_or_default());
    Some(note("processors", found))
}

// --- Numbers for people -------------------------------------------------------------------------

/// With a comma before each group of three digits.
fn shown(number: u64) -> String {
    if number >= COUNTLESS {
        return "unlimited".to_owned();
    }
    let digits = number.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(",")
}

/// Bytes in the largest unit of which there is at least one, with one digit after the point.
fn rounded(bytes: u64) -> String {
    let units = [("GiB", 1u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units.into_iter().find(|(_, size)| bytes >= *size) {
        Some((unit, size)) => {
            let tenths = u128::from(bytes) * 10 / u128::from(size);
            format!("{}.{} {unit}", tenths / 10, tenths % 10)
        }
        None => format!("{bytes} B"),
    }
}

fn thousandths(millis: u64) -> String {
    format!("{}.{}", millis / 1000, millis % 1000 / 100)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use std::{fs, io};

    /// A root directory with these files.
    pub(super) fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    /// A host of 16 GiB as a distribution sets it up.
    const PLAIN: &[(&str, &str)] = &[
        ("proc/sys/kernel/osrelease", "6.8.0-45-generic\n"),
        ("proc/sys/kernel/io_uring_disabled", "0\n"),
        (
            "proc/self/limits",
            "Limit  Soft  Hard  Units\nMax open files            1024                 524288               files\n",
        ),
        ("proc/sys/fs/nr_open", "1048576\n"),
        ("proc/sys/fs/file-max", "9223372036854775807\n"),
        ("proc/sys/fs/file-nr", "2048\t0\t9223372036854775807\n"),
        ("proc/meminfo", "MemTotal:       16384000 kB\nMemAvailable:   12288000 kB\n"),
        ("proc/self/cgroup", "0::/user.slice\n"),
        ("proc/sys/net/ipv4/tcp_mem", "190000\t253333\t380000\n"),
        ("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n"),
        ("proc/sys/net/ipv4/tcp_wmem", "4096\t16384\t4194304\n"),
        ("proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n"),
        ("proc/sys/net/core/somaxconn", "4096\n"),
    ];

    /// The same with other or further files.
    fn host(changes: &[(&str, &str)]) -> Host {
        Host::read(tree(&[PLAIN, changes].concat()).path())
    }

    const MACHINE: Machine = Machine { cores: 4, open_files_max: 524_288 };

    fn report(changes: &[(&str, &str)], wanted: u64) -> Report {
        Report::of(&host(changes), &MACHINE, Ok(()), wanted)
    }

    fn check<'a>(report: &'a Report, name: &str) -> &'a Check {
        report.checks.iter().find(|check| check.name == name).unwrap()
    }

    fn check_golden(name: &str, actual: &str) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/doctor").join(name);
        if std::env::var_os("MOORLINE_UPDATE_GOLDEN").is_some() {
            fs::write(&path, actual).unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap_or_default(), actual, "{}", path.display());
    }

    #[test]
    fn a_report_reads_as_text_and_as_json() {
        let plain = report(&[], 1_000_000);
        check_golden("plain.txt", &plain.to_string());
        check_golden("plain.json", &plain.to_json());
        let schema = schemars::schema_for!(Report);
        check_golden("schema.json", &(serde_json::to_string_pretty(&schema).unwrap() + "\n"));
        check_golden("small.txt", &report(&[], 1_000).to_string());
        let forbidden = Report::of(&host(&[]), &MACHINE, Err(StartError::RingForbidden), 1_000_000);
        check_golden("unable.txt", &forbidden.to_string());
        check_golden("blind.txt", &Report::of(&Host::default(), &MACHINE, Ok(()), 1000).to_string());
    }

    #[test]
    fn the_fewest_streams_bind_first() {
        let binding = |changes: &[(&str, &str)]| {
            let report = report(changes, 1_000_000);
            (report.binds_first.unwrap(), report.streams)
        };
        let plenty = ("proc/self/limits", "Max open files 1024 4000000 files\n");
        assert_eq!(binding(&[]), ("open_files".into(), 524_288 - 64 - 4 * 25));
        assert_eq!(binding(&[plenty]), ("max_sessions".into(), 1_000_000));
        let group = [
            ("sys/fs/cgroup/user.slice/memory.max", "1073741824"),
            ("sys/fs/cgroup/user.slice/memory.current", "73741824"),
        ];
        let streams = 100_000_000 * 9 / (SESSION_BYTES + SOCKET_BYTES) as u64;
        assert_eq!(binding(&[group[0], group[1]]), ("memory".into(), streams));
        let (name, streams) = binding(&[plenty, ("proc/sys/fs/file-max", "100000\n")]);
        assert_eq!((name.as_str(), streams), ("open_files_host", 100_000 - 2_048 - 164));
    }

    #[test]
    fn remedies_are_given_where_something_is_short() {
        let million = report(&[], 1_000_000);
        assert_eq!(
            check(&million, "open_files").remedy,
            ["ulimit -Hn 1000164    # as root, or LimitNOFILE=1000164 in the service unit"]
        );
        let two_million = report(&[], 2_000_000);
        assert_eq!(check(&two_million, "open_files").remedy[0], "sysctl -w fs.nr_open=2000164");
        let small = report(&[("proc/sys/net/core/somaxconn", "128\n")], 1_000);
        let remedies: Vec<_> = small.checks.iter().flat_map(|check| &check.remedy).collect();
        assert_eq!(remedies, ["sysctl -w net.core.somaxconn=4096"]);
    }

    #[test]
    fn without_a_ring_it_cannot_run_and_says_why() {
        let memory = io::Error::from_raw_os_error(libc::ENOMEM);
        for (error, remedy) in [
            (StartError::RingSwitchedOff(2), "sysctl -w kernel.io_uring_disabled=0"),
            (
                StartError::RingForbidden,
                "docker run --security-opt seccomp=packaging/container/seccomp.json …",
            ),
            (StartError::RingMemory(memory), "ulimit -l unlimited"),
        ] {
            let report = Report::of(&host(&[]), &MACHINE, Err(error), 1000);
            assert_eq!((report.able, report.streams), (false, 0));
            assert!(check(&report, "io_uring").remedy[0].starts_with(remedy));
        }
        let unsupported = Report::of(&host(&[]), &MACHINE, Err(StartError::RingUnsupported), 1000);
        assert!(!unsupported.able && check(&unsupported, "io_uring").remedy.is_empty());
    }

    #[test]
    fn old_kernels_and_tiny_limits_cannot_run_it() {
        assert!(!report(&[("proc/sys/kernel/osrelease", "5.15.0\n")], 1).able);
        assert!(report(&[("proc/sys/kernel/osrelease", "6.0.0-rc1\n")], 1).able);
        assert!(report(&[("proc/sys/kernel/osrelease", "something else\n")], 1).able);
        let files =
            |hard: u64| report(&[("proc/self/limits", &format!("Max open files 64 {hard} files\n"))], 1);
        assert!(files(64 + 100 + 16).able);
        assert!(!files(64 + 100 + 15).able);
    }

    #[test]
    fn numbers_are_for_people() {
        assert_eq!(
            [0, 999, 1_000, 1_234_567, u64::MAX].map(shown),
            ["0", "999", "1,000", "1,234,567", "unlimited"]
        );
        assert_eq!([5, 1 << 10, 1_500_000_000].map(rounded), ["5 B", "1.0 KiB", "1.3 GiB"]);
    }
}
