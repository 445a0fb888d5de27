//! Several runs in flight, copies that are made early, and times.

use std::sync::Arc;
use std::time::Duration;

use orlop_alloc::Externals;
use orlop_backend::{Cancel, CopyRoute, DeviceError, Link, RunOptions};
use orlop_graph::{DType, Graph, GraphBuilder, TensorId};
use orlop_sched::{
    Constraints, DeviceId, Error, Machine, PlanId, RunId, Session, SessionOptions, SpanWork, Timeline,
    estimate, place_by_rules, split,
};
use orlop_testkit::devices::{FaultKind, FaultPoint, TestDevice, VirtualClock};
use orlop_testkit::{f32_bytes, f32s};

use crate::support::{get, machine, private, run, set};

const STEP: f64 = 1e-3;
const COPY: f64 = 1e-4;

/// Devices on which every step takes a millisecond and every copy a tenth.
fn clocked(clock: &VirtualClock, asynchronous: bool) -> [Arc<TestDevice>; 2] {
    let link = Link { bytes_per_second: 1e15, latency_seconds: COPY };
    ["g", "c"].map(|name| {
        private(name)
            .asynchronous(asynchronous)
            .launch_seconds(STEP)
            .flops(1e15)
            .bytes_per_second(1e15)
            .host_link(link)
            .clock(clock, |_, _| STEP)
            .build()
    })
}

/// A number of steps on each of two devices.
struct Halves {
    graph: Graph,
    x: TensorId,
    y: TensorId,
    constraints: Constraints,
}

fn halves(machine: &Machine, each: usize) -> Halves {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[4]);
    let mut y = x;
    let mut constraints = Constraints::default();
    for device in machine.indices() {
        for _ in 0..each {
            y = b.scale(y, 2.0);
            constraints.assigned.insert(y, device);
        }
    }
    b.output(y);
    Halves { graph: b.build().unwrap(), x, y, constraints }
}

fn prepare(session: &mut Session, halves: &Halves) -> PlanId {
    let placement = place_by_rules(&halves.graph, session.machine(), &halves.constraints).unwrap();
    session.prepare_placed(&halves.graph, &Externals::new(), &halves.constraints, placement).unwrap()
}

fn deep(depth: usize) -> SessionOptions {
    SessionOptions { depth, ..SessionOptions::default() }
}

fn get_of(session: &Session, run: RunId, output: TensorId) -> Vec<f32> {
    let mut bytes = vec![0; 16];
    session.get_of(run, output, &mut bytes).unwrap();
    f32s(&bytes)
}

#[test]
fn with_two_runs_in_flight_two_devices_work_at_the_same_time() {
    let runs = 8;
    let seconds = |depth: usize| {
        let clock = VirtualClock::new();
        let machine = machine(&clocked(&clock, true));
        let halves = halves(&machine, 5);
        let mut session = Session::new(machine, deep(depth)).unwrap();
        let plan = prepare(&mut session, &halves);
        session.check_races(plan).unwrap();
        clock.reset();
        let mut started = Vec::new();
        for number in 0..runs {
            if number >= depth {
                let first: RunId = started[number - depth];
                session.wait(first).unwrap();
                assert_eq!(get_of(&session, first, halves.y), [1024.0 * (number - depth) as f32; 4]);
            }
            set(&mut session, plan, halves.x, &[number as f32; 4]);
            started.push(session.start(plan, &RunOptions::default()).unwrap());
        }
        for (number, run) in started.iter().enumerate().skip(runs - depth) {
            session.wait(*run).unwrap();
            assert_eq!(get_of(&session, *run, halves.y), [1024.0 * number as f32; 4]);
        }
        clock.makespan()
    };
    let (one, two) = (seconds(1), seconds(2));
    let alone = 10.0 * STEP + COPY;
    assert!((one - runs as f64 * alone).abs() < 1e-9, "{one}");
    // The first device is never idle; the second ends last.
    assert!(two < one * 0.6, "{two} against {one}");
}

#[test]
fn runs_in_flight_have_inputs_and_results_of_their_own_which_the_plan_counts() {
    let devices = [private("g").asynchronous(true).build(), private("c").build()];
    let machine = machine(&devices);
    let halves = halves(&machine, 3);
    let bytes = |depth: usize| {
        let mut session = Session::new(machine.clone(), deep(depth)).unwrap();
        let plan = prepare(&mut session, &halves);
        for device in machine.indices() {
            assert_eq!(session.arena_bytes(device), session.memory_plan(plan, device).unwrap().total());
        }
        machine.indices().map(|device| session.arena_bytes(device)).collect::<Vec<_>>()
    };
    let (one, three) = (bytes(1), bytes(3));
    assert!(one.iter().zip(&three).all(|(one, three)| one < three), "{one:?} {three:?}");
    let mut session = Session::new(machine.clone(), deep(2)).unwrap();
    let plan = prepare(&mut session, &halves);
    set(&mut session, plan, halves.x, &[1.0; 4]);
    let first = session.start(plan, &RunOptions::default()).unwrap();
    let missing = session.start(plan, &RunOptions::default()).unwrap_err();
    assert_eq!(missing, Error::InputNotSet("x".to_owned()));
    set(&mut session, plan, halves.x, &[2.0; 4]);
    let second = session.start(plan, &RunOptions::default()).unwrap();
    assert_eq!(session.set(plan, halves.x, &f32_bytes(&[3.0; 4])).unwrap_err(), Error::InFlight { runs: 2 });
    assert_eq!(session.start(plan, &RunOptions::default()).unwrap_err(), Error::InFlight { runs: 2 });
    // Waiting for the second includes the first.
    session.wait(second).unwrap();
    assert_eq!(get_of(&session, first, halves.y), [64.0; 4]);
    assert_eq!(get_of(&session, second, halves.y), [128.0; 4]);
    assert_eq!(get(&session, plan, halves.y, 4), [128.0; 4]);
    session.wait(first).unwrap();
    set(&mut session, plan, halves.x, &[3.0; 4]);
    assert_eq!(session.wait(first).unwrap_err(), Error::UnknownRun { run: 0 });
    let gone = session.get_of(first, halves.y, &mut [0; 16]).unwrap_err();
    assert!(matches!(gone, Error::NotRun { .. }), "{gone:?}");
    assert_eq!(get_of(&session, second, halves.y), [128.0; 4], "the other's results stay");
}

#[test]
fn a_run_that_fails_takes_those_behind_it_along_and_the_next_one_works() {
    for (kind, nth) in
        [(FaultPoint::Submit, 1), (FaultPoint::Submit, 2), (FaultPoint::Copy, 1), (FaultPoint::Copy, 2)]
    {
        let devices = ["g", "c"]
            .map(|name| private(name).asynchronous(true).step_delay(Duration::from_millis(1)).build());
        let machine = machine(&devices);
        let halves = halves(&machine, 2);
        let mut session = Session::new(machine, deep(3)).unwrap();
        let plan = prepare(&mut session, &halves);
        let broken = DeviceError::BadAlignment(3);
        devices[1].faults().fail(kind, nth, FaultKind::Error(broken));
        let mut started = Vec::new();
        for value in [1.0, 2.0, 3.0] {
            set(&mut session, plan, halves.x, &[value; 4]);
            started.push(session.start(plan, &RunOptions::default()).unwrap());
        }
        let outcomes: Vec<_> = started.iter().map(|run| session.wait(*run)).collect();
        let well = outcomes.iter().take_while(|outcome| outcome.is_ok()).count();
        assert_eq!(well as u64, nth - 1, "{outcomes:?}");
        let named = |outcome: &Result<(), Error>| matches!(outcome, Err(Error::Device { device, .. }) if device == "c");
        assert!(named(&outcomes[well]), "{outcomes:?}");
        assert!(outcomes[well..].iter().all(Result::is_err), "{outcomes:?}");
        set(&mut session, plan, halves.x, &[4.0; 4]);
        run(&mut session, plan);
        assert_eq!(get(&session, plan, halves.y, 4), [64.0; 4]);
    }
}

#[test]
fn a_cancelled_run_says_so_while_others_are_in_flight() {
    let devices = ["g", "c"].map(|name| private(name).asynchronous(true).build());
    let machine = machine(&devices);
    let halves = halves(&machine, 2);
    let mut session = Session::new(machine, deep(2)).unwrap();
    let plan = prepare(&mut session, &halves);
    set(&mut session, plan, halves.x, &[1.0; 4]);
    let first = session.start(plan, &RunOptions::default()).unwrap();
    set(&mut session, plan, halves.x, &[1.0; 4]);
    let cancel = Cancel::new();
    cancel.cancel();
    let refused =
        session.start(plan, &RunOptions { cancel: Some(cancel), ..RunOptions::default() }).unwrap_err();
    assert!(
        matches!(&refused, Error::Device { source, .. } if matches!(**source, DeviceError::Cancelled { .. }))
    );
    session.wait(first).unwrap();
    assert_eq!(get_of(&session, first, halves.y), [16.0; 4]);
}

#[test]
fn another_graph_waits_for_the_runs_in_flight_of_the_one_before() {
    let devices =
        ["g", "c"].map(|name| private(name).asynchronous(true).step_delay(Duration::from_millis(1)).build());
    let machine = machine(&devices);
    let (short, long) = (halves(&machine, 1), halves(&machine, 4));
    let mut session = Session::new(machine, deep(2)).unwrap();
    let [first, second] = [&short, &long].map(|halves| prepare(&mut session, halves));
    set(&mut session, first, short.x, &[1.0; 4]);
    let started = session.start(first, &RunOptions::default()).unwrap();
    set(&mut session, second, long.x, &[1.0; 4]);
    run(&mut session, second);
    assert_eq!(get(&session, second, long.y, 4), [256.0; 4]);
    // It ended well, but the arenas are another's.
    session.wait(started).unwrap();
    let gone = session.get_of(started, short.y, &mut [0; 16]).unwrap_err();
    assert!(matches!(gone, Error::NotRun { .. }), "{gone:?}");
    set(&mut session, first, short.x, &[1.0; 4]);
    run(&mut session, first);
    assert_eq!(get(&session, first, short.y, 4), [4.0; 4]);
}

/// Two inputs that lie on `g` are needed on `c`, which also waits for a long split of `g`.
fn early(machine: &Machine) -> (Graph, [TensorId; 3], TensorId, Constraints) {
    let [g, c]: [DeviceId; 2] = machine.indices().collect::<Vec<_>>().try_into().unwrap();
    let mut b = GraphBuilder::new();
    let inputs = ["a", "b", "x"].map(|name| b.input(name, DType::F32, &[4]));
    let mut constraints = Constraints::default();
    let mut on = |b: &mut GraphBuilder, device: DeviceId, id: TensorId| {
        constraints.assigned.insert(id, device);
        b.name(id, format!("{id}"));
        id
    };
    // Read on g first, so they lie there.
    let ab = b.add(inputs[0], inputs[1]);
    let ab = on(&mut b, g, ab);
    let mut y = b.add(ab, inputs[2]);
    y = on(&mut b, g, y);
    for _ in 0..8 {
        y = b.scale(y, 2.0);
        y = on(&mut b, g, y);
    }
    let mut z = b.add(y, inputs[0]);
    z = on(&mut b, c, z);
    z = b.add(z, inputs[1]);
    z = on(&mut b, c, z);
    b.output(z);
    (b.build().unwrap(), inputs, z, constraints)
}

#[test]
fn copies_of_what_is_there_are_made_while_the_device_waits() {
    for asynchronous in [true, false] {
        let clock = VirtualClock::new();
        let machine = machine(&clocked(&clock, asynchronous));
        let (graph, inputs, z, constraints) = early(&machine);
        let placement = place_by_rules(&graph, &machine, &constraints).unwrap();
        let schedule = split(&graph, &machine, &constraints, &placement);
        assert_eq!(schedule.splits.len(), 2);
        assert_eq!(schedule.transfers.iter().filter(|copy| copy.after == 0).count(), 2);
        let estimated = estimate(&graph, &machine, &schedule).unwrap();
        let mut session = Session::new(machine, SessionOptions::default()).unwrap();
        let plan = session.prepare_placed(&graph, &Externals::new(), &constraints, placement).unwrap();
        session.check_races(plan).unwrap();
        for input in inputs {
            set(&mut session, plan, input, &[1.0; 4]);
        }
        clock.reset();
        run(&mut session, plan);
        assert_eq!(get(&session, plan, z, 4), [3.0 * 256.0 + 2.0; 4]);
        // Ten steps there, two here, and only one copy between them.
        let wanted = 12.0 * STEP + COPY;
        assert!((clock.makespan() - wanted).abs() < 1e-9, "{} for {wanted}", clock.makespan());
        assert!((estimated - wanted).abs() < 1e-6, "{estimated} for {wanted}");
    }
}

#[test]
fn a_timed_run_says_what_each_device_did_until_when() {
    for asynchronous in [true, false] {
        let clock = VirtualClock::new();
        let machine = machine(&clocked(&clock, asynchronous));
        let (graph, inputs, z, constraints) = early(&machine);
        let placement = place_by_rules(&graph, &machine, &constraints).unwrap();
        let mut session = Session::new(machine, SessionOptions::default()).unwrap();
        let plan = session.prepare_placed(&graph, &Externals::new(), &constraints, placement).unwrap();
        for round in 0..2 {
            for input in inputs {
                set(&mut session, plan, input, &[1.0; 4]);
            }
            let timeline = session.run_timed(plan, &RunOptions::default()).unwrap();
            assert_eq!(get(&session, plan, z, 4), [3.0 * 256.0 + 2.0; 4]);
            let close = |time: Duration, seconds: f64| {
                let wrong = (time.as_secs_f64() - seconds).abs();
                assert!(wrong < 1e-8, "round {round}: {time:?} for {seconds}\n{timeline}");
            };
            close(timeline.total(), 12.0 * STEP + COPY);
            let [g, c] = timeline.device_times()[..] else { panic!("{timeline}") };
            close(g.compute, 10.0 * STEP);
            close(c.compute, 2.0 * STEP);
            close(c.transfer, 3.0 * COPY);
            assert_eq!((g.transfers, c.transfers, c.bytes, c.bounced, g.splits), (0, 3, 48, 48, 1));
            assert!(timeline.spans.iter().any(|span| matches!(
                &span.work,
                SpanWork::Transfer { name, route: Some(CopyRoute::Bounced), .. } if name == "c#a"
            )));
            let table = timeline.to_string();
            assert!(table.contains("12.100 ms") && table.lines().count() == 4, "{table}");
        }
    }
}

#[test]
fn times_of_devices_that_do_not_measure_are_taken_by_the_host() {
    let slow = Duration::from_millis(3);
    let devices =
        [private("g").asynchronous(true).step_delay(slow).build(), private("c").step_delay(slow).build()];
    let machine = machine(&devices);
    let halves = halves(&machine, 2);
    let mut session = Session::new(machine, SessionOptions::default()).unwrap();
    let plan = prepare(&mut session, &halves);
    set(&mut session, plan, halves.x, &[1.0; 4]);
    let timeline = session.run_timed(plan, &RunOptions::default()).unwrap();
    // Completion, not launch: the first device returns at once.
    for time in timeline.device_times() {
        assert!(time.compute >= 2 * slow, "{timeline}");
    }
    assert!(timeline.total() >= 4 * slow, "{timeline}");
}

/// A timed run of [`early`], with its session and its plan.
fn timed() -> (Session, PlanId, Timeline) {
    let clock = VirtualClock::new();
    let machine = machine(&clocked(&clock, true));
    let (graph, inputs, _, constraints) = early(&machine);
    let placement = place_by_rules(&graph, &machine, &constraints).unwrap();
    let mut session = Session::new(machine, SessionOptions::default()).unwrap();
    let plan = session.prepare_placed(&graph, &Externals::new(), &constraints, placement).unwrap();
    for input in inputs {
        set(&mut session, plan, input, &[1.0; 4]);
    }
    let timeline = session.run_timed(plan, &RunOptions::default()).unwrap();
    (session, plan, timeline)
}

#[test]
fn a_timed_run_is_a_trace_that_chrome_reads() {
    let (_, _, timeline) = timed();
    let trace: serde_json::Value = serde_json::from_str(&timeline.chrome_trace()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    assert_eq!(events.len(), 2 + timeline.spans.len() + timeline.memory.len());
    let counters: Vec<_> = events.iter().filter(|event| event["ph"] == "C").collect();
    assert_eq!(counters.len(), timeline.memory.len());
    assert!(counters.iter().any(|counter| counter["name"] == "c: arena in use, as planned"), "{counters:?}");
    assert_eq!((&events[0]["args"]["name"], &events[1]["args"]["name"]), (&"g".into(), &"c".into()));
    let copies: Vec<_> = events.iter().filter(|event| event["cat"] == "transfer").collect();
    assert!(copies.iter().all(|copy| copy["tid"] == 1 && copy["args"]["bytes"] == 16), "{copies:?}");
    assert!(copies.iter().any(|copy| copy["args"]["route"] == "bounced" && copy["ts"] == 0.0), "{copies:?}");
    let computed: f64 =
        events.iter().filter(|e| e["cat"] == "compute").map(|e| e["dur"].as_f64().unwrap()).sum();
    assert!((computed - 12_000.0).abs() < 0.1, "{computed}");
}

#[test]
fn a_timed_run_says_what_its_arenas_hold_as_they_are_planned() {
    let (session, plan, timeline) = timed();
    for device in session.machine().indices() {
        let memory = session.memory_plan(plan, device).unwrap();
        let (_, peak) = memory.peak(orlop_alloc::ArenaId::new(0));
        assert_eq!(timeline.most_in_use(device), peak.iter().map(|storage| storage.bytes).sum::<u64>());
        let own: Vec<_> = timeline.memory.iter().filter(|sample| sample.device == device).collect();
        assert!(own.is_sorted_by_key(|sample| sample.at), "{own:?}");
        assert_eq!(own.last().map(|sample| (sample.bytes, sample.at)), Some((0, timeline.total())));
    }
}
