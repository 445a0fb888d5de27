//! Results that are observed while a graph runs, on CPU devices that fuse steps and share memory.

use std::collections::HashMap;
use std::sync::Arc;

use orlop_alloc::{Externals, SetTensor, StepOrder, TensorSet};
use orlop_backend::{Device, LowerOptions, Role};
use orlop_cpu::CpuDevice;
use orlop_graph::{Graph, TensorId};
use orlop_sched::{Constraints, DeviceId, Machine, Session, SessionOptions, constraints};
use orlop_testkit::{Feeds, Observe, Random, UnplannedOptions, generate, run_unplanned_with};

use crate::{POOL, device, isas, lower, run};

/// The last write into each storage: what is there after a run without a plan is what the observer must see.
fn last_writes(graph: &Graph) -> HashMap<TensorId, TensorId> {
    let nodes = graph.nodes().iter().filter(|node| !node.op.is_view());
    nodes.map(|node| (graph.tensor(node.output).storage.root, node.output)).collect()
}

fn external(graph: &Graph, feeds: &Feeds, device: &dyn Device) -> Externals {
    let mut externals = Externals::new();
    for (id, _) in graph.leaves().filter(|(_, leaf)| leaf.is_external()) {
        let set = [SetTensor::new("external", graph.tensor(id).desc)];
        let set = TensorSet::allocate(&device.buffer_types(Role::Arena)[0], &set).unwrap();
        let tensor = &set.tensors()[0];
        tensor.memset(0, tensor.desc().bytes(), 0).unwrap();
        feeds.iter().filter(|(fed, _)| *fed == id).for_each(|(_, bytes)| tensor.set(0, bytes).unwrap());
        externals.insert(id, tensor.clone());
    }
    externals
}

/// Where nodes go: writes stay with their storage, the others go anywhere.
fn assigned(graph: &Graph, devices: &[DeviceId], seed: u64) -> HashMap<TensorId, DeviceId> {
    let nodes = graph.nodes().iter().enumerate();
    let plain = nodes.filter(|(_, node)| node.op.storage_operand().is_none());
    let device = |index: usize| devices[Random::nth(seed, 700 + index as u64 / 4) as usize % devices.len()];
    plain.map(|(index, node)| (node.output, device(index))).collect()
}

/// How many results were compared, and how many of them nothing reads.
fn compare(seed: u64, machine: &Machine, order: StepOrder) -> (usize, usize) {
    let (graph, feeds) = generate::graph(seed + 52_000, &generate::Size { moves: 24, elements: 300 });
    let first = &machine.devices()[0];
    let plain = UnplannedOptions {
        lower: LowerOptions { fusion: false, ..lower(1) },
        run: run(1),
        observe: Observe::Everything,
    };
    let wanted = run_unplanned_with(first, &graph, &feeds, &plain).unwrap();
    let last = last_writes(&graph);
    let contiguous = |id: &TensorId| graph.tensor(*id).desc.is_contiguous();
    let chosen = last.values().copied().filter(contiguous);
    let observed = chosen.filter(|id| Random::nth(seed, id.index() as u64).is_multiple_of(2)).collect();

    let externals = external(&graph, &feeds, &**first);
    let devices: Vec<DeviceId> = machine.indices().collect();
    let all = Constraints {
        observed,
        assigned: assigned(&graph, &devices, seed),
        ..constraints(&graph, &externals)
    };
    let options = SessionOptions { order, lower: lower(3), ..SessionOptions::default() };
    let mut session = Session::new(machine.clone(), options).unwrap();
    let plan = session.prepare_with(&graph, &externals, &all).unwrap();
    session.check_races(plan).unwrap();
    for (id, bytes) in feeds.iter().filter(|(id, _)| externals.get(*id).is_none()) {
        session.set(plan, *id, bytes).unwrap();
    }
    let read = |id: TensorId| graph.nodes().iter().any(|node| node.inputs.contains(&id));
    let (mut compared, mut unread) = (0, 0);
    let mut observe = |id: TensorId, bytes: &[u8]| {
        assert!(bytes == wanted.bytes(id).unwrap(), "graph {seed}, {order:?}, {}", graph.tensor(id).name);
        compared += 1;
        unread += usize::from(!read(id));
        true
    };
    session.run_observed(plan, &run(1 + seed as usize % 3), &mut observe).unwrap();
    assert_eq!(compared, all.observed.len());
    (compared, unread)
}

#[test]
fn an_observer_sees_what_a_run_without_a_plan_leaves() {
    let isas: Vec<_> = isas().collect();
    let (mut compared, mut unread) = (0, 0);
    for seed in 0..120 {
        let isa = isas[seed as usize % isas.len()];
        let order = if seed % 3 == 0 { StepOrder::Given } else { StepOrder::Smallest };
        let mut devices: Vec<Arc<dyn Device>> = vec![device(isa)];
        if seed % 2 == 1 {
            devices.push(CpuDevice::with_isa("second", Arc::clone(&POOL), isa));
        }
        let (more, more_unread) = compare(seed, &Machine::new(devices).unwrap(), order);
        compared += more;
        unread += more_unread;
    }
    assert!(compared > 400 && unread > 100, "{compared} compared, {unread} of them unread");
}
