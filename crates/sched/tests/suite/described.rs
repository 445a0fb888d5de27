//! Machines that are only described.

use orlop_graph::{DType, GraphBuilder};
use orlop_sched::{
    Constraints, DeviceDescription, Error, ExpectedData, FlopsDescription, Limit, LinkDescription, Machine,
    MachineDescription, Planned, Session, SessionOptions, estimate, place_by_rules, split,
};

fn device(name: &str, kind: &str, read_bytes_per_s: f64) -> DeviceDescription {
    DeviceDescription {
        name: name.to_owned(),
        kind: kind.to_owned(),
        memory_bytes: 1 << 30,
        read_bytes_per_s,
        flops: FlopsDescription { f16: 1e12, i8: 2e12 },
        launch_s: 1e-6,
    }
}

fn link(from: &str, to: &str, bytes_per_s: f64) -> LinkDescription {
    LinkDescription { from: from.to_owned(), to: to.to_owned(), latency_s: 1e-5, bytes_per_s }
}

fn described() -> MachineDescription {
    MachineDescription {
        devices: vec![device("gpu", "cuda", 1e12), device("cpu", "cpu", 1e10)],
        links: vec![link("cpu", "gpu", 2e10), link("gpu", "cpu", 1e10)],
    }
}

/// A product with a weight on each device: bytes of each weight at the place of its device.
fn planned(machine: &Machine, bytes: [u64; 2], rows: u64) -> Planned {
    let mut b = GraphBuilder::new();
    let mut x = b.input("x", DType::F32, &[256, rows]);
    let mut constraints = Constraints::default();
    for (device, bytes) in machine.indices().zip(bytes) {
        let count = bytes / (4 * 256 * 256);
        for index in 0..count {
            let w = b.weight(&format!("w{}.{index}", device.index()), DType::F32, &[256, 256]);
            constraints.pinned.insert(w, machine.arena(device).clone());
            x = b.mul_mat(w, x);
        }
    }
    b.output(x);
    let graph = b.build().unwrap();
    Planned::by_rules(&graph, machine, &constraints, &SessionOptions::default()).unwrap()
}

#[test]
fn graphs_are_planned_and_predicted_for_a_described_machine_and_not_run() {
    let machine = described().machine().unwrap();
    let [gpu, cpu] = ["gpu", "cpu"].map(|name| machine.find(name).unwrap());
    assert_eq!(machine.speeds(gpu).quantized_flops, 2e12);
    assert_eq!(
        (machine.speeds(gpu).host_bytes_per_second, machine.speeds(gpu).to_host_bytes_per_second),
        (2e10, 1e10)
    );
    let mib = 1 << 20;
    let fast = planned(&machine, [16 * mib, 0], 1).predict(&machine, &ExpectedData::default());
    let slow = planned(&machine, [0, 16 * mib], 1).predict(&machine, &ExpectedData::default());
    // 64 steps of 1 µs, and 16 MiB at 1 TB/s or 10 GB/s.
    let read = 16.0 * mib as f64;
    assert!((fast.seconds - (64e-6 + read / 1e12)).abs() < 1e-5, "{fast:?}");
    assert!((slow.seconds - (64e-6 + read / 1e10)).abs() < 5e-5, "{slow:?}");
    assert_eq!((fast.limited_by, slow.limited_by), (Limit::Steps(gpu), Limit::Memory(cpu)));
    let both = planned(&machine, [16 * mib, 16 * mib], 1).predict(&machine, &ExpectedData::default());
    assert!(both.seconds > fast.seconds + slow.seconds, "with a copy between them: {both:?}");
    let refused = Session::new(machine, SessionOptions::default());
    assert!(format!("{:?}", refused.unwrap_err()).contains("described"));
}

#[test]
fn estimates_count_the_slower_end_of_a_transfer() {
    // From the GPU back to the host, a link of a megabyte a second.
    let slow =
        MachineDescription { links: vec![link("cpu", "gpu", 2e10), link("gpu", "cpu", 1e6)], ..described() };
    let [fast, slow] = [described(), slow].map(|machine| {
        let machine = machine.machine().unwrap();
        let ids: Vec<_> = machine.indices().collect();
        let mut b = GraphBuilder::new();
        let w = b.weight("w", DType::F32, &[256, 256]);
        let x = b.input("x", DType::F32, &[256, 1]);
        let there = b.mul_mat(w, x);
        let back = b.soft_max(there, None, 1.0, 0.0);
        b.output(back);
        let graph = b.build().unwrap();
        let mut constraints = Constraints::default();
        constraints.pinned.insert(w, machine.arena(ids[0]).clone());
        constraints.assigned.insert(back, ids[1]);
        let placement = place_by_rules(&graph, &machine, &constraints).unwrap();
        let schedule = split(&graph, &machine, &constraints, &placement);
        estimate(&graph, &machine, &schedule).unwrap()
    });
    let kilobyte = 1024.0 / 1e6;
    assert!((slow - fast - kilobyte).abs() < 0.1 * kilobyte, "{slow} {fast}");
}

#[test]
fn descriptions_of_no_machine_are_refused() {
    let refused = |change: &dyn Fn(&mut MachineDescription)| {
        let mut machine = described();
        change(&mut machine);
        matches!(machine.machine(), Err(Error::BadDescription(_)))
    };
    assert!(!refused(&|_| {}));
    assert!(refused(&|machine| machine.devices[0].read_bytes_per_s = 0.0));
    assert!(refused(&|machine| machine.devices[0].flops.i8 = f64::NAN));
    assert!(refused(&|machine| machine.devices[1].launch_s = -1.0));
    assert!(refused(&|machine| machine.links[0].bytes_per_s = f64::INFINITY));
    assert!(refused(&|machine| machine.links[0].to = "cpu".to_owned()));
    assert!(refused(&|machine| machine.links[0].to = "other".to_owned()));
    let none = MachineDescription { devices: Vec::new(), links: Vec::new() };
    assert!(matches!(none.machine(), Err(Error::NoDevices)));
}

#[cfg(feature = "serde")]
#[test]
fn a_machine_is_read_from_json() {
    let text = r#"{"devices": [{"name": "gpu", "kind": "cuda", "memory_bytes": 8000000000, "read_bytes_per_s": 1e12,
        "flops": {"f16": 1e14, "i8": 2e14}, "launch_s": 2e-6}],
        "links": []}"#;
    let machine: MachineDescription = serde_json::from_str(text).unwrap();
    assert_eq!(machine.devices[0].memory_bytes, 8_000_000_000);
    assert_eq!(
        serde_json::from_str::<MachineDescription>(&serde_json::to_string(&machine).unwrap()).unwrap(),
        machine
    );
    assert!(serde_json::from_str::<MachineDescription>(&text.replace("launch_s", "launch")).is_err());
}
