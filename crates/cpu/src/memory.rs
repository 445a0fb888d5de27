//! Memory that this process may use: the machine's, within the limits of its control groups.

use std::path::Path;

use orlop_backend::Memory;

/// Memory of the machine below a root folder (`/`), where the system tells.
pub(crate) fn memory(root: &Path) -> Option<Memory> {
    let text = std::fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let kib = |key| Some(number_behind(&text, key)?.saturating_mul(1024));
    let machine = Memory { total: kib("MemTotal:")?, free: kib("MemAvailable:")? };
    let groups = std::fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    Some(groups.lines().filter_map(Hierarchy::of).fold(machine, |memory, hierarchy| {
        let folders = Path::new(hierarchy.group).ancestors();
        let folder = |group: &Path| {
            root.join(hierarchy.mounted).join(group.strip_prefix("/").unwrap_or(Path::new("")))
        };
        folders.filter_map(|group| hierarchy.limited(&folder(group))).fold(memory, |one, other| Memory {
            total: one.total.min(other.total),
            free: one.free.min(other.free),
        })
    }))
}

/// A hierarchy of control groups that limits memory, and the process's group in it.
struct Hierarchy<'a> {
    mounted: &'static str,
    group: &'a str,
    /// Names of the files with the limit and the use.
    limit: &'static str,
    used: &'static str,
    /// Of the files' pages that count as used, those that are dropped first where memory is short.
    dropped: &'static str,
}

impl Hierarchy<'_> {
    /// That of a line of `/proc/self/cgroup`: number, controllers and group.
    fn of(line: &str) -> Option<Hierarchy<'_>> {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, group) = (fields.next()?, fields.next()?, fields.next()?);
        match controllers {
            "" => Some(Hierarchy {
                mounted: "sys/fs/cgroup",
                group,
                limit: "memory.max",
                used: "memory.current",
                dropped: "inactive_file ",
            }),
            _ if controllers.split(',').any(|name| name == "memory") => Some(Hierarchy {
                mounted: "sys/fs/cgroup/memory",
                group,
                limit: "memory.limit_in_bytes",
                used: "memory.usage_in_bytes",
                dropped: "total_inactive_file ",
            }),
            _ => None,
        }
    }

    /// The limit of a group, if it has one, and what is left of it.
    fn limited(&self, folder: &Path) -> Option<Memory> {
        let number = |name| std::fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
        let (total, used) = (number(self.limit)?, number(self.used)?);
        let counts = std::fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
        let dropped = number_behind(&counts, self.dropped).unwrap_or(0);
        Some(Memory { total, free: total.saturating_sub(used.saturating_sub(dropped)) })
    }
}

/// The number behind a key that a line begins with.
fn number_behind(text: &str, key: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The memory below a folder with these files.
    fn with_files(name: &str, files: &[(&str, &str)]) -> Option<Memory> {
        let root = std::env::temp_dir().join(format!("orlop-memory-{}-{name}", std::process::id()));
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let found = memory(&root);
        fs::remove_dir_all(&root).unwrap();
        found
    }

    const MACHINE: (&str, &str) =
        ("proc/meminfo", "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 800 kB\n");

    #[test]
    fn memory_is_the_machines_without_a_limit() {
        let all = Some(Memory { total: 1_024_000, free: 819_200 });
        assert_eq!(with_files("plain", &[MACHINE]), all);
        let unlimited = [
            MACHINE,
            ("proc/self/cgroup", "0::/a\n"),
            ("sys/fs/cgroup/a/memory.max", "max\n"),
            ("sys/fs/cgroup/a/memory.current", "5\n"),
        ];
        assert_eq!(with_files("unlimited", &unlimited), all);
    }

    #[test]
    fn the_least_limit_of_a_group_and_those_around_it_counts() {
        let second = [
            MACHINE,
            ("proc/self/cgroup", "0::/outer/inner\n"),
            ("sys/fs/cgroup/outer/inner/memory.max", "500000\n"),
            ("sys/fs/cgroup/outer/inner/memory.current", "100000\n"),
            ("sys/fs/cgroup/outer/inner/memory.stat", "anon 1\ninactive_file 40000\n"),
            ("sys/fs/cgroup/outer/memory.max", "450000\n"),
            ("sys/fs/cgroup/outer/memory.current", "420000\n"),
        ];
        assert_eq!(with_files("second", &second), Some(Memory { total: 450_000, free: 30_000 }));
        // A container sees its group at the root of the mount, whatever its name outside.
        let first = [
            MACHINE,
            ("proc/self/cgroup", "5:cpu,memory:/docker/abc\n4:pids:/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "300000"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "100000"),
            ("sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 20000\n"),
        ];
        assert_eq!(with_files("first", &first), Some(Memory { total: 300_000, free: 220_000 }));
    }
}
