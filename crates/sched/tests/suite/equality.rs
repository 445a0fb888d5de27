use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use orlop_alloc::{Externals, SetTensor, TensorSet};
use orlop_backend::{Device, Role, RunOptions};
use orlop_graph::{Graph, Leaf};
use orlop_sched::{DeviceId, Machine, Session, SessionOptions, constraints, place_by_rules};
use orlop_testkit::devices::TestDevice;
use orlop_testkit::{Feeds, Forward, Random, ReferenceDevice, generate, kept, run_unplanned};

use crate::open_machine;
use crate::support::{Twin, private};

/// Runs a graph on a machine with the devices that `choose` gives by node, and returns what is kept.
pub(crate) fn run_on(
    machine: &Machine,
    graph: &Graph,
    feeds: &Feeds,
    choose: impl Fn(usize) -> Option<DeviceId>,
) -> Feeds {
    let last = machine.devices().last().unwrap();
    let mut externals = Externals::new();
    for (id, leaf) in graph.leaves().filter(|(_, leaf)| leaf.is_external()) {
        let tensor = graph.tensor(id);
        let set = [SetTensor::new(tensor.name.as_str(), tensor.desc)];
        let set = TensorSet::allocate(&last.buffer_types(Role::Weight)[0], &set).unwrap();
        if let Some((_, bytes)) = feeds.iter().find(|(fed, _)| *fed == id) {
            set.tensors()[0].set(0, bytes).unwrap();
        } else {
            assert_eq!(leaf, Leaf::State);
        }
        externals.insert(id, set.tensors()[0].clone());
    }
    let mut all = constraints(graph, &externals);
    all.assigned = assignments(graph, choose);
    let placement = place_by_rules(graph, machine, &all).unwrap();
    let mut session = Session::new(machine.clone(), SessionOptions::default()).unwrap();
    let table = placement.table(graph, machine).to_string();
    let plan = session
        .prepare_placed(graph, &externals, &all, placement)
        .unwrap_or_else(|error| panic!("{error:?}\n{table}"));
    for (id, bytes) in feeds {
        if graph.root_leaf(*id).is_some_and(|leaf| !leaf.is_external()) {
            session.set(plan, *id, bytes).unwrap();
        }
    }
    session.check_races(plan).unwrap();
    for device in machine.devices() {
        let ix = machine.find(device.name()).unwrap();
        session.memory_plan(plan, ix).unwrap().check().unwrap();
        assert_eq!(session.arena_bytes(ix), session.memory_plan(plan, ix).unwrap().total());
    }
    session.run(plan, &RunOptions::default()).unwrap();
    let read = |id| {
        let mut bytes = vec![0; graph.tensor(id).desc.bytes() as usize];
        session.get(plan, id, &mut bytes).unwrap();
        (id, packed(graph, id, &bytes))
    };
    kept(graph).into_iter().map(read).collect()
}

pub(crate) fn packed(graph: &Graph, id: orlop_graph::TensorId, bytes: &[u8]) -> Vec<u8> {
    let runs = graph.tensor(id).desc.runs();
    let length = runs.run_bytes() as usize;
    runs.flat_map(|at| bytes[at as usize..at as usize + length].to_vec()).collect()
}

/// Choices that can be honoured: nodes that write into storage go where that is.
pub(crate) fn assignments(
    graph: &Graph,
    choose: impl Fn(usize) -> Option<DeviceId>,
) -> HashMap<orlop_graph::TensorId, DeviceId> {
    let mut assigned = HashMap::new();
    let mut written = vec![false; graph.tensors().len()];
    for node in graph.nodes() {
        if !node.op.is_view() && node.op.storage_operand().is_some() {
            written[graph.tensor(node.output).storage.root.index()] = true;
        }
    }
    for (index, node) in graph.nodes().iter().enumerate() {
        let root = graph.tensor(node.output).storage.root;
        if let Some(device) = choose(index)
            && !node.op.is_view()
            && !written[root.index()]
        {
            assigned.insert(node.output, device);
        }
    }
    assigned
}

fn expected(graph: &Graph, feeds: &Feeds) -> Feeds {
    let device: Arc<dyn Device> = ReferenceDevice::new();
    let outputs = run_unplanned(&device, graph, feeds).unwrap();
    kept(graph).into_iter().map(|id| (id, outputs.bytes(id).unwrap())).collect()
}

/// Devices with memory of their own, some with a queue thread and latency, some without some ops; the last stands for
/// the host and runs everything.
pub(crate) fn private_machine(seed: u64) -> Machine {
    let count = 2 + Random::nth(seed, 1) % 4;
    let device = |index: u64| -> Arc<dyn Device> {
        let salt = Random::nth(seed, 10 + index);
        let mut builder = TestDevice::builder(ReferenceDevice::new())
            .name(&format!("r{index}"))
            .alignment(1 << (3 + salt % 4))
            .fresh_bytes(0xff)
            .asynchronous(salt & 32 != 0)
            .direct_copies(salt & 64 != 0);
        if salt & 128 != 0 {
            builder = builder.copy_delay(Duration::from_micros(50)).step_delay(Duration::from_micros(20));
        }
        if index + 1 == count {
            builder = builder.host_visible(true).reads_host(true);
        } else if salt & 256 != 0 {
            builder = builder.without(["sqr", "soft_max", "rms_norm", "get_rows"]);
        }
        builder.build()
    };
    Machine::new((0..count).map(device)).unwrap()
}

#[test]
fn random_graphs_spread_over_devices_give_what_one_gives() {
    for seed in 0..150u64 {
        let (graph, feeds) = generate::graph(seed, &generate::Size::default());
        let devices = 1 + seed as usize % 4;
        let machine = open_machine(devices);
        let choose = |node: usize| {
            let number = Random::nth(seed, node as u64);
            (!number.is_multiple_of(5))
                .then(|| machine.find(&format!("r{}", number / 7 % devices as u64)).unwrap())
        };
        assert!(run_on(&machine, &graph, &feeds, choose) == expected(&graph, &feeds), "graph {seed}");
    }
}

#[test]
fn random_graphs_over_devices_with_private_memory_give_what_one_gives() {
    for seed in 0..500u64 {
        let (graph, feeds) = generate::graph(seed + 1_000, &generate::Size::default());
        let machine = private_machine(seed);
        let devices = machine.devices().len() as u64;
        let choose = |node: usize| {
            let number = Random::nth(seed, 100 + node as u64);
            // Only what the device runs can be asked of it.
            let device = machine.find(&format!("r{}", number / 7 % devices)).unwrap();
            let node = graph.node_ids().nth(node).unwrap();
            (number.is_multiple_of(3) && machine.can_run(device, &graph, node)).then_some(device)
        };
        assert!(run_on(&machine, &graph, &feeds, choose) == expected(&graph, &feeds), "graph {seed}");
    }
}

/// Two names of one device with a queue each, and a device of its own that stands for the host.
fn shared_machine(seed: u64) -> Machine {
    let base = private("base").asynchronous(seed.is_multiple_of(2)).build();
    let without: &[&str] = if seed.is_multiple_of(3) { &["sqr", "soft_max", "rms_norm"] } else { &[] };
    let twin: Arc<dyn Device> = Forward::new(base.clone(), Twin { without, ..Twin::new("twin") });
    let host = private("host").host_visible(true).reads_host(true).asynchronous(seed % 4 < 2).build();
    let devices = [twin, base as Arc<dyn Device>, host as Arc<dyn Device>];
    Machine::new(devices).unwrap()
}

#[test]
fn random_graphs_over_devices_that_share_memory_give_what_one_gives() {
    for seed in 0..200u64 {
        let (graph, feeds) = generate::graph(seed + 3_000, &generate::Size::default());
        let machine = shared_machine(seed);
        let devices: Vec<DeviceId> = machine.indices().collect();
        let choose = |node: usize| {
            let number = Random::nth(seed, 100 + node as u64);
            let device = devices[number as usize / 7 % devices.len()];
            let node = graph.node_ids().nth(node).unwrap();
            (!number.is_multiple_of(3) && machine.can_run(device, &graph, node)).then_some(device)
        };
        assert!(run_on(&machine, &graph, &feeds, choose) == expected(&graph, &feeds), "graph {seed}");
    }
}
