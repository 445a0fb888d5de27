//! Results that only an observer reads: they keep their bytes until the observer has seen them, whatever the order of
//! steps.

use std::collections::HashMap;
use std::sync::Arc;

use orlop_alloc::{Flaw, MemoryPlan, SavedMemoryPlan, SavedMemoryPlanError, StepOrder};
use orlop_backend::{Device, RunOptions};
use orlop_graph::{DType, Graph, GraphBuilder, Hazard, NodeId, TensorId};
use orlop_sched::{
    Constraints, DeviceId, Error, Machine, PlanId, Session, SessionOptions, SplitId, constraints,
    place_by_rules,
};
use orlop_testkit::{Feeds, Interpreter, Random, ReferenceDevice, f32_bytes, f32s, generate};

use crate::equality::{assignments, packed, private_machine};
use crate::property::memory;
use crate::support::{externals, stored};

/// `a = x + x`, `out = 100 w` (the output), `seen = a - y`, which nothing reads; `w` is a weight.
struct Unread {
    graph: Graph,
    inputs: [TensorId; 2],
    weight: TensorId,
    out: TensorId,
    seen: TensorId,
}

fn unread() -> Unread {
    let mut b = GraphBuilder::new();
    let inputs @ [x, y] = ["x", "y"].map(|name| b.input(name, DType::F32, &[64]));
    let weight = b.weight("w", DType::F32, &[64]);
    let a = b.add(x, x);
    let out = b.scale(weight, 100.0);
    let seen = b.sub(a, y);
    b.output(out);
    Unread { graph: b.build().unwrap(), inputs, weight, out, seen }
}

/// As [`unread`], but what is observed is a write into `a`, which nothing reads afterwards.
fn unread_write() -> Unread {
    let mut b = GraphBuilder::new();
    let inputs @ [x, y] = ["x", "y"].map(|name| b.input(name, DType::F32, &[64]));
    let weight = b.weight("w", DType::F32, &[64]);
    let a = b.add(x, x);
    let sum = b.sub(a, y);
    let out = b.scale(weight, 100.0);
    let seen = b.copy(sum, a);
    b.output(out);
    Unread { graph: b.build().unwrap(), inputs, weight, out, seen }
}

fn reference() -> Machine {
    Machine::new([ReferenceDevice::new() as Arc<dyn Device>]).unwrap()
}

/// A session of `case` on the reference device; `observed` says whether the observer is there.
fn prepared(case: &Unread, observed: bool, options: SessionOptions) -> Result<(Session, PlanId), Error> {
    let (machine, graph) = (reference(), &case.graph);
    let weight = stored(&*machine.devices()[0], graph, case.weight, &[1.0; 64]);
    let externals = externals(&[(case.weight, weight)]);
    let observed = Some(case.seen).filter(|_| observed).into_iter().collect();
    let constraints = Constraints { observed, ..constraints(graph, &externals) };
    let placement = place_by_rules(graph, &machine, &constraints)?;
    let mut session = Session::new(machine, options)?;
    let plan = session.prepare_placed(graph, &externals, &constraints, placement)?;
    Ok((session, plan))
}

fn seen_in_a_run(session: &mut Session, plan: PlanId, case: &Unread) -> HashMap<TensorId, Vec<f32>> {
    for (input, value) in case.inputs.into_iter().zip([5.0, 3.0]) {
        session.set(plan, input, &f32_bytes(&[value; 64])).unwrap();
    }
    let mut found = HashMap::new();
    let mut observe = |id: TensorId, bytes: &[u8]| {
        found.insert(id, f32s(bytes));
        true
    };
    session.run_observed(plan, &RunOptions::default(), &mut observe).unwrap();
    let mut bytes = vec![0; 256];
    session.get(plan, case.out, &mut bytes).unwrap();
    assert_eq!(f32s(&bytes), [100.0; 64]);
    found
}

#[test]
fn a_result_that_only_an_observer_reads_shows_its_own_bytes() {
    for order in [StepOrder::Smallest, StepOrder::Given] {
        let case = unread();
        let options = SessionOptions { order, ..SessionOptions::default() };
        let (mut session, plan) = prepared(&case, true, options).unwrap();
        assert_eq!(seen_in_a_run(&mut session, plan, &case)[&case.seen], [7.0; 64], "{order:?}");
    }
}

#[test]
fn an_observed_write_into_storage_that_nothing_reads_afterwards_shows_its_own_bytes() {
    for order in [StepOrder::Smallest, StepOrder::Given] {
        let case = unread_write();
        let options = SessionOptions { order, ..SessionOptions::default() };
        let (mut session, plan) = prepared(&case, true, options).unwrap();
        assert_eq!(seen_in_a_run(&mut session, plan, &case)[&case.seen], [7.0; 64], "{order:?}");
    }
}

#[test]
fn a_plan_that_gives_away_the_bytes_of_an_observed_result_is_refused() {
    for case in [unread(), unread_write()] {
        let (session, plan) = prepared(&case, true, SessionOptions::default()).unwrap();
        let device = session.machine().indices().next().unwrap();
        let sound: &MemoryPlan = session.memory_plan(plan, device).unwrap();
        sound.check().unwrap();
        // The storage of what is observed moves to where the output lies.
        let mut moved = SavedMemoryPlan::new(sound);
        let root = case.graph.tensor(case.seen).storage.root;
        let value = |id: TensorId| {
            let name = &case.graph.tensor(id).name;
            let ids = (0..sound.usage.values().len()).map(orlop_alloc::ValueId::new);
            ids.into_iter().find(|value| sound.usage.name(*value) == name).unwrap()
        };
        let there = sound.place(value(case.out)).unwrap();
        let storage =
            moved.storages.iter_mut().find(|storage| storage.values.contains(&value(root))).unwrap();
        storage.place = there;
        let values = storage.values.clone();
        let of_storage = |id: usize| values.contains(&sound.usage.values()[id].root);
        for (id, place) in moved.places.iter_mut().enumerate().filter(|(id, _)| of_storage(*id)) {
            *place = Some(orlop_alloc::ArenaOffset {
                offset: there.offset + sound.usage.values()[id].offset,
                ..there
            });
        }
        let options = SessionOptions { known: Arc::new([moved]), ..SessionOptions::default() };
        let refused = prepared(&case, true, options);
        assert!(
            matches!(refused, Err(Error::SavedPlan(SavedMemoryPlanError::Damaged(Flaw::Overlap { .. })))),
            "{refused:?}"
        );
    }
}

#[test]
fn the_race_check_sees_an_observer_that_would_read_bytes_of_another_result() {
    for case in [unread(), unread_write()] {
        let (observed, plan) = prepared(&case, true, SessionOptions::default()).unwrap();
        observed.check_races(plan).unwrap();
        // Planned without the observer, the bytes go to the output. What if the observer were there all the same?
        let (session, plan) = prepared(&case, false, SessionOptions::default()).unwrap();
        session.check_races(plan).unwrap();
        let mut schedule = session.schedule(plan).unwrap().clone();
        schedule.splits[0].observed = Some(case.seen);
        match session.check_races_in(plan, &schedule) {
            Err(Error::Race(race)) => {
                assert_eq!(
                    (race.before, race.after),
                    (None, Some(SplitId::new(0))),
                    "the observer, then the split"
                );
                assert_eq!(race.hazard, Hazard::WriteAfterRead);
            }
            other => panic!("{other:?}"),
        }
    }
}

/// The same graph with its nodes in another order, any that its dependencies allow.
fn in_another_order(seed: u64, graph: &Graph, feeds: &Feeds) -> (Graph, Feeds) {
    let mut b = GraphBuilder::new();
    let mut ids = vec![None; graph.tensors().len()];
    for (id, leaf) in graph.leaves() {
        let tensor = graph.tensor(id);
        ids[id.index()] = Some(b.leaf(leaf, &tensor.name, Ok(tensor.desc)));
    }
    let predecessors = graph.predecessors();
    let mut left: Vec<NodeId> = graph.node_ids().collect();
    let mut done = vec![false; left.len()];
    for round in 0..left.len() {
        let free = |id: &NodeId| predecessors[id.index()].iter().all(|before| done[before.index()]);
        let ready: Vec<usize> = (0..left.len()).filter(|index| free(&left[*index])).collect();
        let chosen = left.remove(ready[Random::nth(seed, 900 + round as u64) as usize % ready.len()]);
        let node = &graph.nodes()[chosen.index()];
        let inputs: Vec<TensorId> = node.inputs.iter().map(|id| ids[id.index()].unwrap()).collect();
        let made = b.node(node.op.clone(), &inputs);
        ids[node.output.index()] = Some(b.name(made, graph.tensor(node.output).name.as_str()));
        done[chosen.index()] = true;
    }
    for id in graph.outputs() {
        b.output(ids[id.index()].unwrap());
    }
    let feeds = feeds.iter().map(|(id, bytes)| (ids[id.index()].unwrap(), bytes.clone())).collect();
    (b.build().unwrap(), feeds)
}

/// Random results are observed, those that nothing reads and writes into storage above all.
fn check_observed(seed: u64, machine: &Machine, order: StepOrder) -> usize {
    let (graph, feeds) = generate::graph(seed + 31_000, &generate::Size { moves: 16, elements: 100 });
    let (graph, feeds) = in_another_order(seed, &graph, &feeds);
    let mut read = vec![false; graph.tensors().len()];
    graph.nodes().iter().flat_map(|node| &node.inputs).for_each(|id| read[id.index()] = true);
    let observed = graph.nodes().iter().enumerate().filter(|(index, node)| {
        let rare = read[node.output.index()] && node.op.storage_operand().is_none();
        !node.op.is_view() && Random::nth(seed, *index as u64).is_multiple_of(if rare { 8 } else { 2 })
    });
    let observed: Vec<TensorId> = observed.map(|(_, node)| node.output).collect();
    let mut wanted = HashMap::new();
    let mut run = Interpreter::new(&graph).unwrap();
    feeds.iter().for_each(|(id, bytes)| run.set(*id, bytes).unwrap());
    run.run_observed(|id, bytes| drop(wanted.insert(id, bytes))).unwrap();

    let last = Arc::clone(machine.devices().last().unwrap());
    let externals = memory(&graph, &feeds, |_| Arc::clone(&last));
    let mut all = constraints(&graph, &externals);
    all.observed = observed.iter().copied().collect();
    let devices: Vec<DeviceId> = machine.indices().collect();
    let ids: Vec<_> = graph.node_ids().collect();
    all.assigned = assignments(&graph, |node| {
        let number = Random::nth(seed, 500 + node as u64 / 6);
        let device = devices[number as usize % devices.len()];
        machine.can_run(device, &graph, ids[node]).then_some(device)
    });
    let placement = place_by_rules(&graph, machine, &all).unwrap();
    let options = SessionOptions { order, depth: 1 + seed as usize % 2, ..SessionOptions::default() };
    let mut session = Session::new(machine.clone(), options).unwrap();
    let plan = session.prepare_placed(&graph, &externals, &all, placement).unwrap();
    for device in machine.indices() {
        session.memory_plan(plan, device).unwrap().check().unwrap();
    }
    session.check_races(plan).unwrap_or_else(|race| panic!("graph {seed}: {race}"));
    for (id, bytes) in feeds.iter().filter(|(id, _)| externals.get(*id).is_none()) {
        session.set(plan, *id, bytes).unwrap();
    }
    let mut seen = 0;
    let mut observe = |id: TensorId, bytes: &[u8]| {
        assert_eq!(packed(&graph, id, bytes), wanted[&id], "graph {seed}, {order:?}, {id}");
        seen += 1;
        true
    };
    session.run_observed(plan, &RunOptions::default(), &mut observe).unwrap();
    assert_eq!(seen, observed.len());
    seen
}

#[test]
fn whatever_is_observed_is_what_plain_arithmetic_gives() {
    let mut seen = 0;
    for seed in 0..200 {
        let order = if seed % 4 == 0 { StepOrder::Given } else { StepOrder::Smallest };
        let machine = if seed % 2 == 0 { reference() } else { private_machine(seed) };
        seen += check_observed(seed, &machine, order);
    }
    assert!(seen > 500, "{seen}");
}
