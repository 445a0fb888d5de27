use std::sync::Arc;

use orlop_alloc::{Error as AllocError, Externals, Growth};
use orlop_backend::{Claims, Device, DeviceError, RunOptions};
use orlop_graph::{AccessKind, DType, Graph, GraphBuilder, TensorId};
use orlop_sched::{
    Constraints, DeviceId, Error, Machine, Planned, Session, SessionOptions, SplitId, constraints,
    place_by_rules,
};
use orlop_testkit::devices::{FaultKind, FaultPoint};
use orlop_testkit::{Forward, f32_bytes};

use crate::support::{Twin, externals, get, machine, private, run, set, stored, two};

/// `y = x + w` with the weight on `c` and the sum on `g`.
struct Sum {
    graph: Graph,
    x: TensorId,
    w: TensorId,
    y: TensorId,
}

fn sum() -> Sum {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[4]);
    let w = b.weight("w", DType::F32, &[4]);
    let y = b.add(x, w);
    b.output(y);
    Sum { graph: b.build().unwrap(), x, w, y }
}

/// A chain of squares and roots over both devices, this long, of rows of this length.
fn chain(length: usize, elements: u64) -> (Graph, TensorId, TensorId) {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[elements]);
    let mut y = x;
    for _ in 0..length {
        y = b.scale(y, 2.0);
    }
    b.output(y);
    (b.build().unwrap(), x, y)
}

fn alternate(graph: &Graph, machine: &Machine) -> Constraints {
    let devices: Vec<DeviceId> = machine.indices().collect();
    let nodes = graph.nodes().iter().enumerate();
    let assigned = nodes.map(|(index, node)| (node.output, devices[index % devices.len()])).collect();
    Constraints { assigned, ..Constraints::default() }
}

fn prepare(session: &mut Session, graph: &Graph) -> Result<orlop_sched::PlanId, Error> {
    let constraints = alternate(graph, session.machine());
    let placement = place_by_rules(graph, session.machine(), &constraints)?;
    session.prepare_placed(graph, &Externals::new(), &constraints, placement)
}

#[test]
fn weights_stay_on_the_device_that_borrowed_them_until_they_change() {
    let (devices, machine) = two();
    let Sum { graph, x, w, y } = sum();
    let weight = stored(&*devices[1], &graph, w, &[1.0; 4]);
    let given = externals(&[(w, weight.clone())]);
    let mut all = constraints(&graph, &given);
    all.assigned.insert(y, machine.find("g").unwrap());
    let placement = place_by_rules(&graph, &machine, &all).unwrap();
    let mut session = Session::new(machine, SessionOptions::default()).unwrap();
    let plan = session.prepare_placed(&graph, &given, &all, placement.clone()).unwrap();
    let copy_of_w = devices[0].counters().live_bytes;
    let again = session.prepare_placed(&graph, &given, &all, placement).unwrap();
    assert_eq!(devices[0].counters().live_bytes, copy_of_w, "both plans share the copy and the arena");
    for (plan, value) in [(plan, 1.0), (plan, 1.0), (again, 1.0), (plan, 5.0), (again, 5.0)] {
        if value == 5.0 {
            weight.set(0, &f32_bytes(&[value; 4])).unwrap();
        }
        set(&mut session, plan, x, &[10.0; 4]);
        run(&mut session, plan);
        assert_eq!(get(&session, plan, y, 4), [10.0 + value; 4]);
    }
    assert_eq!(devices[0].counters().copies, 0, "no run copied anything");
}

#[test]
fn graphs_of_one_object_share_its_arenas() {
    let (devices, machine) = two();
    let mut session = Session::new(machine, SessionOptions::default()).unwrap();
    let (small, x, y) = chain(4, 8);
    let (large, u, v) = chain(6, 64);
    let first = prepare(&mut session, &small).unwrap();
    let second = prepare(&mut session, &large).unwrap();
    let bytes: Vec<u64> = devices.iter().map(|device| device.counters().live_bytes).collect();
    for device in session.machine().indices() {
        assert_eq!(session.arena_bytes(device), bytes[device.index()]);
        assert_eq!(session.memory_plan(second, device).unwrap().total(), bytes[device.index()]);
    }
    for _ in 0..2 {
        set(&mut session, first, x, &[1.0; 8]);
        run(&mut session, first);
        assert_eq!(get(&session, first, y, 8), [16.0; 8]);
        set(&mut session, second, u, &[1.0; 64]);
        let gone = session.get(first, y, &mut [0; 32]).unwrap_err();
        assert!(matches!(gone, Error::NotRun { .. }), "{gone:?}");
        run(&mut session, second);
        assert_eq!(get(&session, second, v, 64), [64.0; 64]);
    }
    drop(session);
    assert!(devices.iter().all(|device| device.counters().live_buffers == 0));
}

#[test]
fn inputs_that_lay_in_an_arena_that_was_replaced_must_be_set_again() {
    let (_, machine) = two();
    let mut session = Session::new(machine, SessionOptions::default()).unwrap();
    let (small, x, y) = chain(4, 8);
    let (large, ..) = chain(4, 64);
    let plan = prepare(&mut session, &small).unwrap();
    set(&mut session, plan, x, &[1.0; 8]);
    prepare(&mut session, &large).unwrap();
    let missing = session.run(plan, &RunOptions::default()).unwrap_err();
    assert_eq!(missing, Error::InputNotSet("x".to_owned()));
    set(&mut session, plan, x, &[1.0; 8]);
    run(&mut session, plan);
    assert_eq!(get(&session, plan, y, 8), [16.0; 8]);
}

#[test]
fn planning_allocates_nothing_and_says_what_running_takes() {
    let (devices, machine) = two();
    let (graph, ..) = chain(5, 64);
    let options = SessionOptions::default();
    let all = alternate(&graph, &machine);
    let placement = place_by_rules(&graph, &machine, &all).unwrap();
    let planned = Planned::new(&graph, &machine, &all, placement, &options).unwrap();
    assert!(devices.iter().all(|device| device.counters().peak_bytes == 0));
    let mut session = Session::new(machine, options).unwrap();
    prepare(&mut session, &graph).unwrap();
    for device in session.machine().indices() {
        let bytes = planned.memory_plan(session.machine(), device).total();
        assert!(bytes > 0);
        assert_eq!(session.arena_bytes(device), bytes);
        assert_eq!(devices[device.index()].counters().peak_bytes, bytes);
    }
}

#[test]
fn growth_that_fails_on_one_device_changes_nothing_on_any() {
    for refuses in 0..2 {
        let (devices, machine) = two();
        let mut session = Session::new(machine, SessionOptions::default()).unwrap();
        let (small, x, y) = chain(4, 8);
        let (large, ..) = chain(4, 64);
        let plan = prepare(&mut session, &small).unwrap();
        set(&mut session, plan, x, &[1.0; 8]);
        run(&mut session, plan);
        let before: Vec<u64> = devices.iter().map(|device| device.counters().live_bytes).collect();
        devices[refuses].faults().fail(FaultPoint::Allocation, 1, FaultKind::OutOfMemory);
        let error = prepare(&mut session, &large).unwrap_err();
        let name = ["g", "c"][refuses];
        assert!(matches!(&error, Error::Memory { device, .. } if device == name), "{error:?}");
        let after: Vec<u64> = devices.iter().map(|device| device.counters().live_bytes).collect();
        assert_eq!(before, after);
        assert_eq!(get(&session, plan, y, 8), [16.0; 8], "results are still there");
        prepare(&mut session, &large).unwrap();
    }
}

#[test]
fn replaced_memory_is_freed_before_the_new_is_asked_for() {
    let (small, x, y) = chain(4, 8);
    let (large, ..) = chain(4, 64);
    // Room for the large graph's arena, but not for both.
    let room = 64 * 4 * 3;
    let devices = [private("g").alignment(32).memory(room).build(), private("c").memory(room).build()];
    let options = SessionOptions { growth: Growth::Replace, ..SessionOptions::default() };
    let mut session = Session::new(machine(&devices), options).unwrap();
    let plan = prepare(&mut session, &small).unwrap();
    set(&mut session, plan, x, &[1.0; 8]);
    run(&mut session, plan);
    devices[1].faults().fail(FaultPoint::Allocation, 2, FaultKind::OutOfMemory);
    prepare(&mut session, &large).unwrap_err();
    // The small graph's memory is gone, and comes back when it is used.
    set(&mut session, plan, x, &[1.0; 8]);
    run(&mut session, plan);
    assert_eq!(get(&session, plan, y, 8), [16.0; 8]);
    let bigger = prepare(&mut session, &large).unwrap();
    for device in session.machine().indices() {
        let total = session.memory_plan(bigger, device).unwrap().total();
        assert_eq!(devices[device.index()].counters().peak_bytes, total, "never more than one arena");
    }
}

#[test]
fn setting_running_and_reading_keep_to_the_rules() {
    let (devices, machine) = two();
    let Sum { graph, x, w, y } = sum();
    let given = externals(&[(w, stored(&*devices[1], &graph, w, &[1.0; 4]))]);
    let mut session = Session::new(machine, SessionOptions::default()).unwrap();
    let missing = session.prepare(&graph, &Externals::new()).unwrap_err();
    assert_eq!(missing, AllocError::MissingExternal { tensor: "w".to_owned() }.into());
    let plan = session.prepare(&graph, &given).unwrap();
    let not_set = session.run(plan, &RunOptions::default()).unwrap_err();
    assert_eq!(not_set, Error::InputNotSet("x".to_owned()));
    let not_run = session.get(plan, y, &mut [0; 16]).unwrap_err();
    assert!(matches!(not_run, Error::NotRun { .. }));
    for no_input in [w, y] {
        let error = session.set(plan, no_input, &[0; 16]).unwrap_err();
        assert!(matches!(error, Error::NotInput { .. }), "{error:?}");
    }
    let short = session.set(plan, x, &[0; 12]).unwrap_err();
    assert!(matches!(short.device_error(), Some(DeviceError::WrongLength { expected: 16, given: 12, .. })));
    set(&mut session, plan, x, &[2.0; 4]);
    run(&mut session, plan);
    assert_eq!(get(&session, plan, y, 4), [3.0; 4]);
    assert_eq!(get(&session, plan, w, 4), [1.0; 4]);
    let no_output = session.get(plan, x, &mut [0; 16]).unwrap_err();
    assert!(matches!(no_output, Error::NotOutput { .. }));
    let stale = session.run(plan, &RunOptions::default()).unwrap_err();
    assert_eq!(stale, Error::InputNotSet("x".to_owned()));
}

#[test]
fn memory_in_use_elsewhere_is_busy_and_inputs_stay_set() {
    let (devices, machine) = two();
    let Sum { graph, x, w, y } = sum();
    let weight = stored(&*devices[1], &graph, w, &[1.0; 4]);
    let given = externals(&[(w, weight.clone())]);
    for place in ["g", "c"] {
        let mut all = constraints(&graph, &given);
        all.assigned.insert(y, machine.find(place).unwrap());
        let placement = place_by_rules(&graph, &machine, &all).unwrap();
        let mut session = Session::new(machine.clone(), SessionOptions::default()).unwrap();
        let plan = session.prepare_placed(&graph, &given, &all, placement).unwrap();
        set(&mut session, plan, x, &[2.0; 4]);
        let claims = Claims::take([(&weight.slot().buffer, AccessKind::Write)]).unwrap();
        let busy = session.run(plan, &RunOptions::default()).unwrap_err();
        assert!(format!("{busy:?}").contains("Busy"), "{busy:?}");
        drop(claims);
        run(&mut session, plan);
        assert_eq!(get(&session, plan, y, 4), [3.0; 4]);
    }
}

#[test]
fn persistent_leaves_lie_on_any_device_and_keep_their_contents() {
    for place in ["g", "c"] {
        let (devices, machine) = two();
        let mut b = GraphBuilder::new();
        let total = b.persistent("total", DType::F32, &[4]);
        let x = b.input("x", DType::F32, &[4]);
        let sum = b.add(total, x);
        let kept = b.copy(sum, total);
        let other = b.scale(kept, 2.0);
        b.output(other);
        let graph = b.build().unwrap();
        let [on, off] = if place == "g" { ["g", "c"] } else { ["c", "g"] };
        let [on, off] = [on, off].map(|name| machine.find(name).unwrap());
        let assigned = [(sum, on), (kept, on), (other, off)].into();
        let constraints = Constraints { assigned, ..Constraints::default() };
        let placement = place_by_rules(&graph, &machine, &constraints).unwrap();
        assert_eq!(placement.leaf(total), Some(on));
        let mut session = Session::new(machine, SessionOptions::default()).unwrap();
        let plan = session.prepare_placed(&graph, &Externals::new(), &constraints, placement).unwrap();
        session.set(plan, total, &f32_bytes(&[0.0; 4])).unwrap();
        for round in 1..4 {
            set(&mut session, plan, x, &[1.0; 4]);
            run(&mut session, plan);
            assert_eq!(get(&session, plan, total, 4), [round as f32; 4]);
            assert_eq!(get(&session, plan, other, 4), [2.0 * round as f32; 4]);
        }
        drop(session);
        assert!(devices.iter().all(|device| device.counters().live_buffers == 0));
    }
}

#[test]
fn a_plan_over_budget_says_how_much_and_of_what() {
    let (_, machine) = two();
    let (graph, ..) = chain(4, 64);
    let budgets = [(machine.find("c").unwrap(), 100)].into();
    let options = SessionOptions { budgets, ..SessionOptions::default() };
    let mut session = Session::new(machine, options).unwrap();
    let error = prepare(&mut session, &graph).unwrap_err();
    let Error::OverBudget { device, needed, budget: 100, largest, .. } = error else { panic!("{error:?}") };
    assert_eq!(device, "c");
    assert!(needed >= 256, "{needed}");
    assert!(!largest.is_empty() && largest.iter().all(|value| value.ends_with(" 256")), "{largest:?}");
}

#[test]
fn one_graph_runs_twice_in_one_object_and_on_two_machines_and_stays_as_it_is() {
    let (graph, x, y) = chain(5, 8);
    let (rebuilt, ..) = chain(5, 8);
    let (_, first) = two();
    let three = machine(&["p", "q", "r"].map(|name| private(name).asynchronous(true).build()));
    for machine in [first, three] {
        let mut session = Session::new(machine, SessionOptions::default()).unwrap();
        let plans = [prepare(&mut session, &graph).unwrap(), prepare(&mut session, &graph).unwrap()];
        assert_eq!(session.schedule(plans[0]).unwrap(), session.schedule(plans[1]).unwrap());
        for plan in plans {
            set(&mut session, plan, x, &[1.0; 8]);
            run(&mut session, plan);
            assert_eq!(get(&session, plan, y, 8), [32.0; 8]);
        }
        assert_eq!(graph, rebuilt);
    }
}

#[test]
fn devices_that_share_memory_share_an_arena_and_take_turns() {
    let base = private("base").build();
    let twin: Arc<dyn Device> = Forward::new(base.clone(), Twin::new("twin"));
    let machine = Machine::new([base.clone() as Arc<dyn Device>, twin]).unwrap();
    let mut session = Session::new(machine, SessionOptions::default()).unwrap();
    let (graph, x, y) = chain(6, 8);
    let plan = prepare(&mut session, &graph).unwrap();
    let schedule = session.schedule(plan).unwrap();
    assert!(schedule.transfers.is_empty());
    assert!(
        schedule
            .splits
            .iter()
            .enumerate()
            .skip(1)
            .all(|(index, split)| split.waits == [SplitId::new(index - 1)])
    );
    session.check_races(plan).unwrap();
    set(&mut session, plan, x, &[1.0; 8]);
    run(&mut session, plan);
    assert_eq!(get(&session, plan, y, 8), [64.0; 8]);
    assert_eq!(base.counters().live_buffers, 1);
}

#[test]
fn names_of_plans_and_devices_that_are_not_there_are_errors() {
    let (_, machine) = two();
    let (graph, x, _) = chain(2, 8);
    let mut other = Session::new(machine.clone(), SessionOptions::default()).unwrap();
    let plan = prepare(&mut other, &graph).unwrap();
    let mut session = Session::new(machine, SessionOptions::default()).unwrap();
    let unknown = session.set(plan, x, &[0; 32]).unwrap_err();
    assert!(matches!(unknown, Error::UnknownPlan { plan: 0, plans: 0 }));
    let fourth = crate::open_machine(4).find("r3").unwrap();
    assert!(matches!(other.memory_plan(plan, fourth).unwrap_err(), Error::UnknownDevice { .. }));
    assert_eq!(other.arena_bytes(fourth), 0);
    let mut b = GraphBuilder::new();
    let strange = (0..9).map(|_| b.input("z", DType::F32, &[4])).last().unwrap();
    let foreign = other.get(plan, strange, &mut []).unwrap_err();
    assert!(matches!(foreign, Error::ForeignTensor { tensors: 3, .. }), "{foreign:?}");
}

#[test]
fn tensors_without_elements_cross_devices() {
    let (_, machine) = two();
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[4, 0]);
    let y = b.sqr(x);
    let z = b.relu(y);
    b.output(z);
    let graph = b.build().unwrap();
    let mut session = Session::new(machine, SessionOptions::default()).unwrap();
    let plan = prepare(&mut session, &graph).unwrap();
    session.check_races(plan).unwrap();
    session.set(plan, x, &[]).unwrap();
    run(&mut session, plan);
    session.get(plan, z, &mut []).unwrap();
}

#[test]
fn views_with_strides_cross_devices() {
    let (_, machine) = two();
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[3, 2]);
    let doubled = b.scale(x, 2.0);
    let turned = b.transpose(doubled);
    let laid_out = b.cont(turned);
    let back = b.scale(laid_out, 0.5);
    for output in [laid_out, back] {
        b.output(output);
    }
    let graph = b.build().unwrap();
    let [g, c] = ["g", "c"].map(|name| machine.find(name).unwrap());
    let assigned = [(doubled, g), (laid_out, c), (back, g)].into();
    let constraints = Constraints { assigned, ..Constraints::default() };
    let placement = place_by_rules(&graph, &machine, &constraints).unwrap();
    let mut session = Session::new(machine, SessionOptions::default()).unwrap();
    let plan = session.prepare_placed(&graph, &Externals::new(), &constraints, placement).unwrap();
    set(&mut session, plan, x, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    run(&mut session, plan);
    // Outputs stay where they were computed, and are read from there.
    assert_eq!(session.schedule(plan).unwrap().transfers.len(), 2);
    assert_eq!(get(&session, plan, laid_out, 6), [2.0, 8.0, 4.0, 10.0, 6.0, 12.0]);
    assert_eq!(get(&session, plan, back, 6), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
}

#[test]
fn a_graph_without_nodes_runs() {
    let (_, machine) = two();
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[4]);
    b.output(x);
    let graph = b.build().unwrap();
    let mut session = Session::new(machine, SessionOptions::default()).unwrap();
    let plan = prepare(&mut session, &graph).unwrap();
    set(&mut session, plan, x, &[3.0; 4]);
    run(&mut session, plan);
    assert_eq!(get(&session, plan, x, 4), [3.0; 4]);
}

#[test]
fn a_failed_preparation_keeps_no_copies_of_weights() {
    let (devices, machine) = two();
    let Sum { graph, w, y, .. } = sum();
    let given = externals(&[(w, stored(&*devices[1], &graph, w, &[1.0; 4]))]);
    let mut all = constraints(&graph, &given);
    all.assigned.insert(y, machine.find("g").unwrap());
    let placement = place_by_rules(&graph, &machine, &all).unwrap();
    let mut session = Session::new(machine, SessionOptions::default()).unwrap();
    devices[0].faults().fail(FaultPoint::Allocation, 2, FaultKind::OutOfMemory);
    session.prepare_placed(&graph, &given, &all, placement.clone()).unwrap_err();
    assert_eq!(devices[0].counters().live_buffers, 0);
    session.prepare_placed(&graph, &given, &all, placement).unwrap();
}

#[test]
fn copies_of_different_weights_are_not_mixed_up() {
    let (devices, machine) = two();
    let Sum { graph, x, w, y } = sum();
    let mut session = Session::new(machine.clone(), SessionOptions::default()).unwrap();
    let mut plans = Vec::new();
    for value in [1.0, 2.0] {
        let given = externals(&[(w, stored(&*devices[1], &graph, w, &[value; 4]))]);
        let mut all = constraints(&graph, &given);
        all.assigned.insert(y, machine.find("g").unwrap());
        let placement = place_by_rules(&graph, &machine, &all).unwrap();
        plans.push((session.prepare_placed(&graph, &given, &all, placement).unwrap(), value));
    }
    for (plan, value) in plans {
        set(&mut session, plan, x, &[10.0; 4]);
        run(&mut session, plan);
        assert_eq!(get(&session, plan, y, 4), [10.0 + value; 4]);
    }
}
