use std::time::{Duration, Instant};

use orlop_alloc::Externals;
use orlop_graph::{DType, Graph, GraphBuilder, TensorId};
use orlop_sched::{Constraints, DeviceId, Session, SessionOptions, place_by_rules};

use crate::support::{get, machine, private, run, set};

/// Each value is the mean of the one before and one some steps back.
fn means(count: usize) -> (Graph, TensorId, Vec<TensorId>) {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[4]);
    let mut made = Vec::with_capacity(count);
    for index in 0..count {
        let [near, far] = [1, 7].map(|back| if index < back { x } else { made[index - back] });
        let sum = b.add(near, far);
        made.push(b.scale(sum, if index == 0 { 1.5 } else { 0.5 }));
    }
    b.output(made[count - 1]);
    (b.build().unwrap(), x, made)
}

fn expected(x: f32, count: usize) -> f32 {
    let mut made: Vec<f32> = Vec::with_capacity(count);
    for index in 0..count {
        let [near, far] = [1, 7].map(|back| if index < back { x } else { made[index - back] });
        made.push((near + far) * if index == 0 { 1.5 } else { 0.5 });
    }
    made[count - 1]
}

#[test]
fn ten_thousand_splits_over_sixteen_devices_run_right_and_in_seconds() {
    let begun = Instant::now();
    let count = 10_000;
    let (graph, x, made) = means(count);
    let devices: Vec<_> =
        (0..16).map(|index| private(&format!("d{index}")).asynchronous(index % 2 == 0).build()).collect();
    let machine = machine(&devices);
    let all: Vec<DeviceId> = machine.indices().collect();
    let assign = |(index, id): (usize, &TensorId)| {
        let sum = graph.nodes()[2 * index].output;
        [(sum, all[index % 16]), (*id, all[index % 16])]
    };
    let assigned = made.iter().enumerate().flat_map(assign).collect();
    let constraints = Constraints { assigned, ..Constraints::default() };
    let placement = place_by_rules(&graph, &machine, &constraints).unwrap();
    let mut session = Session::new(machine, SessionOptions::default()).unwrap();
    let plan = session.prepare_placed(&graph, &Externals::new(), &constraints, placement).unwrap();
    assert_eq!(session.schedule(plan).unwrap().splits.len(), count);
    session.check_races(plan).unwrap();
    for value in [1.0, 3.0] {
        set(&mut session, plan, x, &[value; 4]);
        run(&mut session, plan);
        assert_eq!(get(&session, plan, made[count - 1], 4), [expected(value, count); 4]);
    }
    for device in session.machine().indices() {
        // Values live for a few splits, so memory does not grow with their number.
        assert!(session.arena_bytes(device) < 8 * 1024, "{}", session.arena_bytes(device));
    }
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
}
