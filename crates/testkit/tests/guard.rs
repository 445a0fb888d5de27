//! The guard catches what is broken on purpose, and lets alone what is not.

mod faulty;

use std::sync::Arc;

use faulty::{Fault, faulty};
use orlop_alloc::{PlanOptions, StepOrder};
use orlop_backend::{
    Bindings, BufferType, Claims, Device, DeviceError, LowerOptions, Role, RunOptions, Segment, Slot,
};
use orlop_graph::{DType, Graph, GraphBuilder, NodeId, TensorId};
use orlop_sched::{DeviceId, Machine, Session, SessionOptions};
use orlop_testkit::conformance::{ConformanceOptions, cases, run};
use orlop_testkit::guard::{Guarded, Offence, Trespass, Victim};
use orlop_testkit::{
    Feeds, PlannedOptions, ReferenceDevice, decode_elements, f32_bytes, generate, run_in, run_planned,
    run_unplanned,
};

fn guarded(fault: Fault) -> (Arc<Guarded>, Arc<dyn Device>) {
    let guard = Guarded::new(faulty(fault));
    let device: Arc<dyn Device> = guard.clone();
    (guard, device)
}

/// `x + neg(x)`, so that the negated value has a place of its own.
fn negated() -> (Graph, Feeds) {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[7]);
    let n = b.unary(orlop_graph::Unary::Neg, x);
    b.name(n, "negated");
    let y = b.add(x, n);
    b.output(y);
    b.output(n);
    (b.build().expect("a graph"), vec![(x, f32_bytes(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]))])
}

fn planned(device: &Arc<dyn Device>, graph: &Graph, feeds: &Feeds) -> Result<Feeds, orlop_sched::Error> {
    run_planned(device, graph, feeds, &PlannedOptions::default())
}

/// The only trespass of a run, which failed.
fn caught(fault: Fault, graph: &Graph, feeds: &Feeds) -> Trespass {
    let (guard, device) = guarded(fault);
    let error = planned(&device, graph, feeds).expect_err("the guard stops the run");
    let found = guard.trespasses();
    assert_eq!(found.len(), 1, "{found:?}");
    let Some(DeviceError::Lost { reason, .. }) = error.device_error() else { panic!("{error:?}") };
    assert_eq!(*reason, found[0].to_string());
    guard.forget();
    assert!(guard.trespasses().is_empty());
    found[0].clone()
}

#[test]
fn an_element_written_too_far_is_in_the_red_zone() {
    let (graph, feeds) = negated();
    let trespass = caught(Fault::WritesTooFar, &graph, &feeds);
    assert_eq!((trespass.step, &*trespass.kernel, &*trespass.node), (0, "neg", "negated"));
    let Offence::WroteOutside { bytes, victim, .. } = trespass.offence else { panic!("{trespass}") };
    assert_eq!((bytes.end - bytes.start, victim), (4, Victim::Zone("negated".to_owned())));
}

#[test]
fn an_element_written_too_early_is_seen() {
    let (graph, feeds) = negated();
    let trespass = caught(Fault::WritesTooEarly, &graph, &feeds);
    assert!(matches!(trespass.offence, Offence::WroteOutside { .. }), "{trespass}");
    assert_eq!(trespass.kernel, "neg");
}

#[test]
fn temporaries_have_red_zones_too() {
    let (graph, feeds) = negated();
    let (guard, device) = guarded(Fault::Scratch);
    planned(&device, &graph, &feeds).expect("temporaries may be written");
    run_unplanned(&device, &graph, &feeds).expect("here, too");
    assert!(guard.trespasses().is_empty());
    let trespass = caught(Fault::ScratchTooFar, &graph, &feeds);
    let Offence::WroteOutside { bytes, victim, .. } = trespass.offence else { panic!("{trespass}") };
    assert_eq!((bytes.end - bytes.start, victim), (4, Victim::Zone("scratch 0".to_owned())));
}

#[test]
fn a_changed_operand_is_seen() {
    let (graph, feeds) = negated();
    let trespass = caught(Fault::WritesOperand, &graph, &feeds);
    let Offence::WroteOutside { victim, .. } = &trespass.offence else { panic!("{trespass}") };
    assert_eq!(*victim, Victim::Value("x".to_owned()));
}

#[test]
fn programs_watched_as_a_whole_are_caught_as_well() {
    let (graph, feeds) = negated();
    for (fault, is_one) in [
        (Fault::None, false),
        (Fault::Scratch, false),
        (Fault::WritesTooFar, true),
        (Fault::WritesTooEarly, true),
        (Fault::ScratchTooFar, true),
    ] {
        let guard = Guarded::by_program(faulty(fault));
        let device: Arc<dyn Device> = guard.clone();
        let outcome = planned(&device, &graph, &feeds);
        assert_eq!((outcome.is_err(), guard.trespasses().is_empty()), (is_one, !is_one), "{outcome:?}");
    }
}

#[test]
fn a_stray_read_shows_in_the_result() {
    let (graph, feeds) = negated();
    let plain = faulty(Fault::ReadsTooFar);
    let (_, watched) = guarded(Fault::ReadsTooFar);
    let [plain, watched] = [plain, watched].map(|device| planned(&device, &graph, &feeds).unwrap());
    assert_ne!(plain, watched);
    assert!(decode_elements(DType::F32, &watched[0].1).unwrap()[0].is_nan());
}

#[test]
fn an_operand_taken_against_the_rule_is_refused() {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[5, 3]);
    let made = b.scale(x, 2.0);
    let made = b.name(made, "made");
    let y = b.roll(made, [1, 0, 0, 0]);
    b.name(y, "rolled");
    let graph = b.build().unwrap();
    let feeds = vec![(x, f32_bytes(&[1.0; 15]))];
    let (guard, device) = guarded(Fault::RollsInPlace);
    // A plan is not even made of steps that offer it.
    let error = planned(&device, &graph, &feeds).unwrap_err();
    assert!(matches!(error.alloc_error(), Some(orlop_alloc::Error::BadLowering { .. })), "{error:?}");
    // Places made by hand are for the guard to see.
    compiled_at(&device, &graph, &[0, 256, 256]).unwrap_err();
    let [trespass] = &guard.trespasses()[..] else { panic!("one trespass") };
    let expected = Offence::OverwritesOperand { value: "rolled".to_owned(), operand: "made".to_owned() };
    assert_eq!(trespass.offence, expected);
}

#[test]
fn a_kernel_that_is_wrong_in_place_only_is_seen() {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[5]);
    let made = b.scale(x, 2.0);
    let y = b.cumsum(made);
    b.name(y, "sums");
    let graph = b.build().unwrap();
    let feeds = vec![(x, f32_bytes(&[1.0; 5]))];
    let trespass = caught(Fault::SumsLate, &graph, &feeds);
    assert_eq!(trespass.offence, Offence::DiffersInPlace { value: "sums".to_owned(), byte: 10 });
    let (guard, device) = guarded(Fault::SumsLate);
    run_unplanned(&device, &graph, &feeds).expect("out of place it is right");
    assert!(guard.trespasses().is_empty());
}

/// Lowers a graph on a device and compiles it at the offsets given, all in one buffer.
fn compiled_at(
    device: &Arc<dyn Device>,
    graph: &Graph,
    offsets: &[u64],
) -> Result<Arc<dyn orlop_backend::Program>, DeviceError> {
    compiled_in_order(device, graph, offsets, |steps| (0..steps).collect())
}

/// As before, with the steps in another order.
fn compiled_in_order(
    device: &Arc<dyn Device>,
    graph: &Graph,
    offsets: &[u64],
    order: impl Fn(usize) -> Vec<usize>,
) -> Result<Arc<dyn orlop_backend::Program>, DeviceError> {
    let arena = &device.buffer_types(Role::Arena)[0];
    let buffer = Arc::clone(arena).allocate(1 << 18)?;
    let nodes: Vec<NodeId> = graph.node_ids().collect();
    let buffer_types: Vec<Option<Arc<dyn BufferType>>> = vec![Some(Arc::clone(arena)); offsets.len()];
    let mut escapes = vec![false; offsets.len()];
    graph.results().iter().for_each(|id: &TensorId| escapes[id.index()] = true);
    let segment = Segment { graph, nodes: &nodes, buffer_types: &buffer_types, escapes: &escapes };
    let steps = device.lower(&segment, &LowerOptions::default())?;
    let steps = steps.in_order(&order(steps.steps.len()));
    let place = |offset: &u64| Slot { buffer: Arc::clone(&buffer), offset: *offset };
    let tensors = graph.tensor_ids().zip(offsets.iter().map(place)).collect();
    device.compile(&steps, &Bindings { graph: graph.clone(), tensors, temporaries: Vec::new() })
}

#[test]
fn two_values_that_live_together_may_not_overlap() {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[16]);
    let a = b.sqr(x);
    b.name(a, "a");
    let c = b.scale(x, 2.0);
    b.name(c, "c");
    b.add(a, c);
    let graph = b.build().unwrap();
    let guard = Guarded::new(ReferenceDevice::new());
    let device: Arc<dyn Device> = guard.clone();

    let program = compiled_at(&device, &graph, &[0, 256, 512, 768]).expect("apart");
    let claims = Claims::take(program.touches().iter().map(|(buffer, kind)| (buffer, *kind))).unwrap();
    // SAFETY: there is no other queue.
    unsafe { device.queue().unwrap().submit(&program, &claims, &RunOptions::default()) }.unwrap();

    let error = compiled_at(&device, &graph, &[0, 256, 288, 768]).unwrap_err();
    assert!(matches!(error, DeviceError::Lost { .. }));
    let [trespass] = &guard.trespasses()[..] else { panic!("one trespass") };
    let expected = Offence::OverwritesLive { value: "c".to_owned(), victim: "a".to_owned() };
    assert_eq!((trespass.step, &trespass.offence), (1, &expected));
}

/// Large values, each read once, that are all there together only in the order given.
fn several_large() -> (Graph, Feeds) {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[4096]);
    let large = [2.0, 3.0, 4.0].map(|factor| b.scale(x, factor));
    let sums = large.map(|large| b.sum(large));
    let sum = b.add(sums[0], sums[1]);
    b.add(sum, sums[2]);
    (b.build().expect("a graph"), vec![(x, f32_bytes(&[0.5; 4096]))])
}

#[test]
fn a_plan_in_another_order_is_watched() {
    let (graph, feeds) = several_large();
    let guard = Guarded::new(ReferenceDevice::new());
    let device: Arc<dyn Device> = guard.clone();
    let [given, smallest] = [StepOrder::Given, StepOrder::Smallest].map(|order| {
        let session = SessionOptions { order, ..SessionOptions::default() };
        let options = PlannedOptions { session: session.clone(), ..PlannedOptions::default() };
        let mut session = Session::new(Machine::new([Arc::clone(&device)]).unwrap(), session).unwrap();
        let found = run_in(&mut session, &graph, &feeds, &options).unwrap();
        assert_eq!(found, run_planned(&device, &graph, &feeds, &PlannedOptions::default()).unwrap());
        session.arena_bytes(DeviceId::default())
    });
    assert!(smallest < given, "{smallest} bytes, {given} as given");
    assert_eq!(guard.trespasses(), []);
}

#[test]
fn what_is_kept_is_kept_to_the_end_whatever_the_order() {
    let (graph, _) = several_large();
    let guard = Guarded::new(ReferenceDevice::new());
    let device: Arc<dyn Device> = guard.clone();
    let kept_first = |steps: usize| [steps - 1].into_iter().chain(0..steps - 1).collect();
    let offsets = [0, 1, 2, 3, 4, 5, 6, 7, 8].map(|tensor| tensor * 16640);
    let program = compiled_in_order(&device, &graph, &offsets, kept_first).unwrap();
    let claims = Claims::take(program.touches().iter().map(|(buffer, kind)| (buffer, *kind))).unwrap();
    // SAFETY: there is no other queue.
    unsafe { device.queue().unwrap().submit(&program, &claims, &RunOptions::default()) }.unwrap();
    assert_eq!(guard.trespasses(), []);
}

#[test]
fn the_reference_device_never_trespasses() {
    let guard = Guarded::new(ReferenceDevice::new());
    let device: Arc<dyn Device> = guard.clone();
    for case in cases() {
        let outcome = run(&device, &case, &ConformanceOptions::default());
        assert!(outcome.is_passed(), "{}: {outcome:?}", case.name());
    }
    assert_eq!(guard.trespasses(), []);
}

#[test]
fn generated_graphs_run_guarded_as_they_do_unguarded() {
    let guard = Guarded::new(ReferenceDevice::new());
    let device: Arc<dyn Device> = guard.clone();
    let plain: Arc<dyn Device> = ReferenceDevice::new();
    for seed in 0..40 {
        let (graph, feeds) = generate::graph(seed, &generate::Size::default());
        let options = PlannedOptions {
            session: SessionOptions { plan: PlanOptions::default(), ..SessionOptions::default() },
            ..PlannedOptions::default()
        };
        let watched = run_planned(&device, &graph, &feeds, &options).unwrap();
        let plain = run_planned(&plain, &graph, &feeds, &options).unwrap();
        assert_eq!(watched, plain, "seed {seed}");
    }
    assert_eq!(guard.trespasses(), []);
}
