//! What the kernel says of this host, read from files below a root directory.
//!
//! Owns where each number stands and how it is written. Judges nothing. What cannot be read is `None`: a container hides
//! some of it, another kernel has other files.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// A host, as far as it says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// `uname -r`.
    pub kernel: Option<String>,
    /// Open files of this process, soft limit.
    pub open_files_soft: Option<u64>,
    /// Open files of this process, hard limit.
    pub open_files_hard: Option<u64>,
    /// What a hard limit may be at most (`fs.nr_open`).
    pub nr_open: Option<u64>,
    /// Open files of the whole host (`fs.file-max`).
    pub file_max: Option<u64>,
    /// Of those, what is in use.
    pub files_used: Option<u64>,
    /// `MemAvailable`, in bytes.
    pub memory_available_bytes: Option<u64>,
    /// What the cgroups of this process leave of their memory limits, in bytes; `None`: they have none.
    pub cgroup_memory_left_bytes: Option<u64>,
    /// CPU time the cgroups of this process may use, in thousandths of a core; `None`: all.
    pub cgroup_cpu_millis: Option<u64>,
    /// `net.ipv4.tcp_mem`: low, pressure, high, in pages.
    pub tcp_memory_pages: Option<[u64; 3]>,
    /// `net.ipv4.tcp_rmem`: least, default, most of a receive buffer, in bytes.
    pub tcp_receive_bytes: Option<[u64; 3]>,
    /// `net.ipv4.tcp_wmem`: the same of a send buffer.
    pub tcp_send_bytes: Option<[u64; 3]>,
    /// `net.ipv4.ip_local_port_range`.
    pub local_ports: Option<[u64; 2]>,
    /// `net.core.somaxconn`.
    pub backlog_max: Option<u64>,
    /// `net.netfilter.nf_conntrack_max`, where connections are tracked.
    pub tracked_max: Option<u64>,
    /// `kernel.io_uring_disabled`; older kernels have no such switch.
    pub ring_disabled: Option<u64>,
}

impl Host {
    /// Reads `proc` and `sys` below `root`.
    pub fn read(root: &Path) -> Host {
        let proc = Proc(root);
        let limits = proc.text("proc/self/limits");
        let open_files = limits.as_deref().and_then(open_files);
        let files = proc.numbers::<3>("proc/sys/fs/file-nr");
        let groups = Groups::read(root);
        Host {
            kernel: proc.text("proc/sys/kernel/osrelease").map(|text| text.trim().to_owned()),
            open_files_soft: open_files.map(|(soft, _)| soft),
            open_files_hard: open_files.map(|(_, hard)| hard),
            nr_open: proc.number("proc/sys/fs/nr_open"),
            file_max: proc.number("proc/sys/fs/file-max"),
            files_used: files.map(|[used, ..]| used),
            memory_available_bytes: proc.text("proc/meminfo").and_then(|text| memory_available(&text)),
            cgroup_memory_left_bytes: groups.memory_left_bytes(),
            cgroup_cpu_millis: groups.cpu_millis(),
            tcp_memory_pages: proc.numbers("proc/sys/net/ipv4/tcp_mem"),
            tcp_receive_bytes: proc.numbers("proc/sys/net/ipv4/tcp_rmem"),
            tcp_send_bytes: proc.numbers("proc/sys/net/ipv4/tcp_wmem"),
            local_ports: proc.numbers("proc/sys/net/ipv4/ip_local_port_range"),
            backlog_max: proc.number("proc/sys/net/core/somaxconn"),
            tracked_max: proc.number("proc/sys/net/netfilter/nf_conntrack_max"),
            ring_disabled: proc.number("proc/sys/kernel/io_uring_disabled"),
        }
    }
}

struct Proc<'a>(&'a Path);

impl Proc<'_> {
    fn text(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.0.join(path)).ok()
    }

    fn number(&self, path: &str) -> Option<u64> {
        self.numbers::<1>(path).map(|[number]| number)
    }

    fn numbers<const N: usize>(&self, path: &str) -> Option<[u64; N]> {
        let text = self.text(path)?;
        let numbers: Option<Vec<u64>> = text.split_whitespace().map(|word| word.parse().ok()).collect();
        numbers?.try_into().ok()
    }
}

/// Soft and hard limit in the table of `/proc/self/limits`; `unlimited` is the largest number there is.
fn open_files(limits: &str) -> Option<(u64, u64)> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    let number = |word: &str| if word == "unlimited" { Some(u64::MAX) } else { word.parse().ok() };
    let mut words = line.split_whitespace();
    Some((number(words.next()?)?, number(words.next()?)?))
}

fn memory_available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

// --- Control groups -----------------------------------------------------------------------------

/// The directories of the groups this process is in, from its own up to the root, for version 2 and for the controllers
/// of version 1 that matter here.
struct Groups {
    unified: Vec<PathBuf>,
    memory: Vec<PathBuf>,
    cpu: Vec<PathBuf>,
}

impl Groups {
    fn read(root: &Path) -> Groups {
        let text = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
        let mut groups = Groups { unified: Vec::new(), memory: Vec::new(), cpu: Vec::new() };
        for line in text.lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
            let below = |mount: &str| upwards(&root.join("sys/fs/cgroup").join(mount), path);
            match controllers {
                "" => groups.unified = below(""),
                _ if controllers.split(',').any(|name| name == "memory") => groups.memory = below("memory"),
                _ if controllers.split(',').any(|name| name == "cpu") => groups.cpu = below("cpu"),
                _ => {}
            }
        }
        groups
    }

    /// The least that any group leaves.
    fn memory_left_bytes(&self) -> Option<u64> {
        let left = |directory: &PathBuf, limit: &str, used: &str| {
            let limit = number_in(&directory.join(limit))?;
            // Version 1 writes its largest number where there is no limit.
            (limit < 1 << 60).then(|| limit.saturating_sub(number_in(&directory.join(used)).unwrap_or(0)))
        };
        let unified = self.unified.iter().filter_map(|it| left(it, "memory.max", "memory.current"));
        let version_1 = self.memory.iter();
        let version_1 = version_1.filter_map(|it| left(it, "memory.limit_in_bytes", "memory.usage_in_bytes"));
        unified.chain(version_1).min()
    }

    fn cpu_millis(&self) -> Option<u64> {
        let unified = self.unified.iter().filter_map(|it| {
            let text = fs::read_to_string(it.join("cpu.max")).ok()?;
            let (quota, period) = text.trim().split_once(' ')?;
            share(quota.parse().ok()?, period.parse().ok()?)
        });
        let version_1 = self.cpu.iter().filter_map(|it| {
            share(number_in(&it.join("cpu.cfs_quota_us"))?, number_in(&it.join("cpu.cfs_period_us"))?)
        });
        unified.chain(version_1).min()
    }
}

fn share(quota_us: u64, period_us: u64) -> Option<u64> {
    quota_us.checked_mul(1000)?.checked_div(period_us)
}

/// `mount/path` and the directories above it, down to `mount`. A path that a namespace hides may not be there; what is
/// above it still is.
fn upwards(mount: &Path, path: &str) -> Vec<PathBuf> {
    let own = mount.join(path.trim_start_matches('/'));
    own.ancestors().take_while(|directory| directory.starts_with(mount)).map(Path::to_owned).collect()
}

fn number_in(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::super::tests::tree;
    use super::*;

    #[test]
    fn an_empty_root_says_nothing() {
        assert_eq!(Host::read(tree(&[]).path()), Host::default());
    }

    #[test]
    fn files_that_are_odd_are_as_if_they_were_not_there() {
        let root = tree(&[
            ("proc/self/limits", "Max open files  many  4096  files\n"),
            ("proc/sys/net/ipv4/tcp_mem", "1 2\n"),
            ("proc/meminfo", "MemAvailable: a lot\n"),
            ("proc/self/cgroup", "nonsense\n:\n0::/a\n"),
            ("sys/fs/cgroup/a/cpu.max", "10000 0\n"),
        ]);
        assert_eq!(Host::read(root.path()), Host::default());
    }

    #[test]
    fn unlimited_is_more_than_any_number() {
        let root =
            tree(&[("proc/self/limits", "Max open files            1024     unlimited            files\n")]);
        let host = Host::read(root.path());
        assert_eq!((host.open_files_soft, host.open_files_hard), (Some(1024), Some(u64::MAX)));
    }

    #[test]
    fn the_tightest_group_counts() {
        let root = tree(&[
            ("proc/self/cgroup", "0::/system.slice/moorline.service\n"),
            ("sys/fs/cgroup/system.slice/memory.max", "4000\n"),
            ("sys/fs/cgroup/system.slice/memory.current", "1000\n"),
            ("sys/fs/cgroup/system.slice/moorline.service/memory.max", "max\n"),
            ("sys/fs/cgroup/system.slice/moorline.service/cpu.max", "150000 100000\n"),
            ("sys/fs/cgroup/system.slice/cpu.max", "max 100000\n"),
            // Not above the own group.
            ("sys/fs/cgroup/user.slice/memory.max", "1\n"),
        ]);
        let host = Host::read(root.path());
        assert_eq!((host.cgroup_memory_left_bytes, host.cgroup_cpu_millis), (Some(3000), Some(1500)));
    }

    #[test]
    fn version_1_has_its_own_files() {
        let root = tree(&[
            ("proc/self/cgroup", "4:memory:/docker/x\n1:cpu,cpuacct:/docker/x\n0::/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "5000\n"),
            ("sys/fs/cgroup/memory/docker/x/memory.usage_in_bytes", "2000\n"),
            ("sys/fs/cgroup/cpu/docker/x/cpu.cfs_quota_us", "50000\n"),
            ("sys/fs/cgroup/cpu/docker/x/cpu.cfs_period_us", "100000\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
        ]);
        let host = Host::read(root.path());
        assert_eq!((host.cgroup_memory_left_bytes, host.cgroup_cpu_millis), (Some(3000), Some(500)));
    }
}
