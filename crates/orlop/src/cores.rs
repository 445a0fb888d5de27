//! How many threads a process should use: one for each core that it may use and that is worth it.
//!
//! On Linux: CPUs of the affinity mask; of those the performance cores, where there are several kinds; hardware threads of one
//! core count once; and no more than the CPU quotas of its control groups
//! ([version 1](https://docs.kernel.org/scheduler/sched-bwc.html),
//! [version 2](https://docs.kernel.org/admin-guide/cgroup-v2.html)) allow.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Cores that this process may use and that are worth a thread: hardware threads of one core count once, of several kinds of
/// cores only the fast ones count, and CPU quotas of containers limit the number.
pub fn physical_cores() -> usize {
    let usable = std::thread::available_parallelism().map_or(1, usize::from);
    SystemFiles { root: PathBuf::from("/") }.cores().map_or(usable, |cores| cores.min(usable))
}

/// Where control groups are mounted.
const CGROUPS: &str = "sys/fs/cgroup";

/// What the system says about itself, below a folder that is `/` except in tests.
struct SystemFiles {
    root: PathBuf,
}

impl SystemFiles {
    /// `None` if the system does not say which CPUs there are.
    fn cores(&self) -> Option<usize> {
        let cpus = self.fast_ones(self.allowed()?);
        let siblings = |cpu: &usize| {
            self.read(format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"))
                .unwrap_or_else(|| cpu.to_string())
        };
        let cores = cpus.iter().map(siblings).collect::<HashSet<String>>().len();
        let quota = self.quota().map_or(usize::MAX, |cpus| cpus as usize);
        Some(cores.min(quota).max(1))
    }

    /// The affinity mask of this thread.
    fn allowed(&self) -> Option<BTreeSet<usize>> {
        let status = self.read("proc/thread-self/status")?;
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        Some(cpu_list(list)).filter(|cpus| !cpus.is_empty())
    }

    /// Those of the fastest kind: Intel's performance cores; by capacity, those with at least half of the largest.
    fn fast_ones(&self, allowed: BTreeSet<usize>) -> BTreeSet<usize> {
        let performance = self.read("sys/devices/cpu_core/cpus").map(|list| cpu_list(&list));
        let fast: BTreeSet<usize> = match performance {
            Some(performance) => allowed.intersection(&performance).copied().collect(),
            None => {
                let capacity = |cpu: &usize| {
                    self.read(format!("sys/devices/system/cpu/cpu{cpu}/cpu_capacity"))?.parse::<u64>().ok()
                };
                let most = allowed.iter().filter_map(capacity).max().unwrap_or(0);
                let is_fast = |cpu: &usize| capacity(cpu).is_none_or(|capacity| 2 * capacity >= most);
                allowed.iter().copied().filter(is_fast).collect()
            }
        };
        if fast.is_empty() { allowed } else { fast }
    }

    /// CPUs by the tightest quota of the control groups that this process is in.
    fn quota(&self) -> Option<f64> {
        let groups = self.read("proc/self/cgroup")?;
        groups.lines().filter_map(|line| self.quota_of(line)).reduce(f64::min)
    }

    /// The quota of one line of the list of groups: `number:controllers:path`.
    fn quota_of(&self, line: &str) -> Option<f64> {
        let [number, controllers, path] = line.splitn(3, ':').collect::<Vec<_>>().try_into().ok()?;
        let version_2 = (number, controllers) == ("0", "");
        let mounts = match version_2 {
            true => ["", "unified"],
            false if controllers.split(',').any(|controller| controller == "cpu") => ["cpu", "cpu,cpuacct"],
            false => return None,
        };
        let quota = |folder: PathBuf| if version_2 { self.quota_v2(&folder) } else { self.quota_v1(&folder) };
        // A group and all above it; in a container, only the mount itself may exist.
        let groups = || Path::new(path.trim_start_matches('/')).ancestors();
        let folders = mounts
            .iter()
            .flat_map(|mount| groups().map(move |group| Path::new(CGROUPS).join(mount).join(group)));
        folders.filter_map(quota).reduce(f64::min)
    }

    fn quota_v2(&self, group: &Path) -> Option<f64> {
        let text = self.read(group.join("cpu.max"))?;
        let (quota, period) = text.split_once(' ')?;
        share(quota, period)
    }

    fn quota_v1(&self, group: &Path) -> Option<f64> {
        share(&self.read(group.join("cpu.cfs_quota_us"))?, &self.read(group.join("cpu.cfs_period_us"))?)
    }

    fn read(&self, path: impl AsRef<Path>) -> Option<String> {
        Some(fs::read_to_string(self.root.join(path)).ok()?.trim().to_owned())
    }
}

/// CPUs of a quota; `None` for `max`, -1 and anything else that is no limit.
fn share(quota: &str, period: &str) -> Option<f64> {
    let [quota, period] = [quota.trim().parse::<f64>().ok()?, period.trim().parse::<f64>().ok()?];
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

/// The CPUs of a list such as `0-3,8`. Anything but numbers and ranges is left out.
fn cpu_list(list: &str) -> BTreeSet<usize> {
    /// The kernel has no more.
    const MOST: usize = 1 << 16;
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse().ok()?..=last.trim().parse::<usize>().ok()?.min(MOST))
    };
    list.split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests;
