use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// Files of a machine, in a folder of their own that is deleted at the end.
struct FakeMachine(SystemFiles);

impl FakeMachine {
    /// A machine whose process may use these CPUs.
    fn new(allowed: &str) -> FakeMachine {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("orlop-cores-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let machine = FakeMachine(SystemFiles { root: std::env::temp_dir().join(name) });
        machine.with("proc/thread-self/status", &format!("Name:\torlop\nCpus_allowed_list:\t{allowed}\n"))
    }

    fn with(self, path: &str, text: &str) -> FakeMachine {
        let path = self.0.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    /// With two hardware threads for each core, neighbours.
    fn with_siblings(self, cpus: usize) -> FakeMachine {
        (0..cpus).fold(self, |machine, cpu| {
            let (first, last) = (cpu / 2 * 2, cpu / 2 * 2 + 1);
            let path = format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
            machine.with(&path, &format!("{first}-{last}\n"))
        })
    }

    fn with_capacities(self, capacities: &[u64]) -> FakeMachine {
        capacities.iter().enumerate().fold(self, |machine, (cpu, capacity)| {
            machine.with(&format!("sys/devices/system/cpu/cpu{cpu}/cpu_capacity"), &format!("{capacity}\n"))
        })
    }

    fn cores(&self) -> Option<usize> {
        self.0.cores()
    }
}

impl Drop for FakeMachine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0.root);
    }
}

#[test]
fn without_a_list_of_cpus_nothing_is_known() {
    let nowhere = SystemFiles { root: std::env::temp_dir().join("orlop-cores-nowhere") };
    assert_eq!(nowhere.cores(), None);
    assert_eq!(FakeMachine::new("").cores(), None);
    assert!(physical_cores() > 0);
}

#[test]
fn hardware_threads_of_one_core_count_once() {
    assert_eq!(FakeMachine::new("0-7").cores(), Some(8));
    assert_eq!(FakeMachine::new("0-7").with_siblings(8).cores(), Some(4));
}

#[test]
fn only_allowed_cpus_count() {
    assert_eq!(FakeMachine::new("0,2,4-5").cores(), Some(4));
    // Both threads of one core, and one of another.
    assert_eq!(FakeMachine::new("0-2").with_siblings(8).cores(), Some(2));
    assert_eq!(FakeMachine::new("0-1").with_siblings(8).cores(), Some(1));
}

#[test]
fn of_hybrid_cores_the_performance_cores_count() {
    let hybrid = |allowed| {
        FakeMachine::new(allowed)
            .with("sys/devices/cpu_core/cpus", "0-3\n")
            .with("sys/devices/cpu_atom/cpus", "4-7\n")
            .with_siblings(4)
    };
    assert_eq!(hybrid("0-7").cores(), Some(2));
    assert_eq!(hybrid("3-7").cores(), Some(1));
    // Efficiency cores are used if there is nothing else.
    assert_eq!(hybrid("4-7").cores(), Some(4));
}

#[test]
fn of_cores_with_capacities_the_large_ones_count() {
    let capacities = [400, 400, 400, 400, 870, 870, 870, 1024];
    assert_eq!(FakeMachine::new("0-7").with_capacities(&capacities).cores(), Some(4));
    assert_eq!(FakeMachine::new("0-4").with_capacities(&capacities).cores(), Some(1));
    assert_eq!(FakeMachine::new("0-3").with_capacities(&capacities).cores(), Some(4));
    assert_eq!(FakeMachine::new("0-7").with_capacities(&[1024; 8]).cores(), Some(8));
}

#[test]
fn quotas_of_the_group_and_those_above_limit_the_number() {
    let machine = || FakeMachine::new("0-15").with("proc/self/cgroup", "0::/kube/pod/app\n");
    assert_eq!(machine().cores(), Some(16));
    assert_eq!(machine().with("sys/fs/cgroup/kube/pod/app/cpu.max", "max 100000\n").cores(), Some(16));
    assert_eq!(machine().with("sys/fs/cgroup/kube/pod/app/cpu.max", "250000 100000\n").cores(), Some(2));
    assert_eq!(machine().with("sys/fs/cgroup/kube/pod/app/cpu.max", "20000 100000\n").cores(), Some(1));
    let above = machine().with("sys/fs/cgroup/kube/pod/app/cpu.max", "800000 100000\n");
    assert_eq!(above.with("sys/fs/cgroup/kube/cpu.max", "300000 100000\n").cores(), Some(3));
    // In a container the group's own path may not exist.
    assert_eq!(machine().with("sys/fs/cgroup/cpu.max", "400000 100000\n").cores(), Some(4));
}

#[test]
fn quotas_of_version_1_count_likewise() {
    let machine = |quota: &str, mount: &str| {
        let file = |name: &str| format!("sys/fs/cgroup/{mount}/docker/1f/{name}");
        FakeMachine::new("0-15")
            .with("proc/self/cgroup", "5:memory:/docker/1f\n4:cpu,cpuacct:/docker/1f\n0::/\n")
            .with(&file("cpu.cfs_quota_us"), quota)
            .with(&file("cpu.cfs_period_us"), "50000\n")
    };
    assert_eq!(machine("-1\n", "cpu").cores(), Some(16));
    assert_eq!(machine("150000\n", "cpu").cores(), Some(3));
    assert_eq!(machine("150000\n", "cpu,cpuacct").cores(), Some(3));
    // Another controller's group is not asked.
    assert_eq!(machine("150000\n", "memory").cores(), Some(16));
}

#[test]
fn damaged_files_are_no_limits() {
    let machine = FakeMachine::new("0-3, x, 9-, 5-4, 7")
        .with("proc/self/cgroup", "nonsense\n0::/a\n1:cpu\n")
        .with("sys/fs/cgroup/a/cpu.max", "much\n")
        .with("sys/devices/cpu_core/cpus", "\n");
    assert_eq!(machine.cores(), Some(5));
    assert_eq!(cpu_list("0-99999999999").len(), (1 << 16) + 1);
}
