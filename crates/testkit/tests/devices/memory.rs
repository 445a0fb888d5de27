//! Private memory: budgets, copies, what is reachable.

use std::sync::Arc;

use orlop_alloc::{Error, Externals};
use orlop_backend::{
    BufferType, Claim, CopyRoute, Device, DeviceClass, DeviceError, HostBufferType, Link, Memory, NodeQuery,
    Operand, Reason, Role, Support, copy, same_type,
};
use orlop_graph::{AccessKind, DType, GraphBuilder, Op, TensorDesc, Unary};
use orlop_sched::{DeviceId, Machine, Session, SessionOptions};
use orlop_testkit::devices::TestDevice;
use orlop_testkit::{PlannedOptions, ReferenceDevice, f32_bytes, generate, kept, run_planned, run_unplanned};

use crate::support::{DOUBLED, Rig, X, arena, builder, claims, compile, floats, submit, values};

fn ask(device: &TestDevice, op: &Op, places: [&Arc<dyn BufferType>; 2]) -> Support {
    let desc = TensorDesc::contiguous(DType::F32, &[4]).expect("a description");
    let [input, output] = places.map(|found| Operand { desc: &desc, buffer_type: Some(found) });
    device.supports(&NodeQuery { op, inputs: &[input], output })
}

fn refused(operand: usize, buffer_type: &str) -> Support {
    Support::No(Reason::BufferType { operand, buffer_type: buffer_type.to_owned() })
}

const SCALE: Op = Op::Scale { scale: 2.0, bias: 0.0 };

#[test]
fn memory_is_the_devices_own() {
    let (a, b) = (builder("a").build(), builder("b").build());
    assert!(!same_type(arena(&a), arena(&b)));
    assert!(same_type(&a.buffer_types(Role::Weight)[0], arena(&a)));
    assert_eq!((arena(&a).name(), arena(&a).is_host()), ("a", false));
    let stored = floats(arena(&a));
    assert!(stored.slot().buffer.host().is_none());

    assert_eq!(ask(&a, &SCALE, [arena(&a), arena(&a)]), Support::YES);
    assert_eq!(ask(&b, &SCALE, [arena(&a), arena(&b)]), refused(0, "a"));
    assert_eq!(ask(&b, &SCALE, [arena(&b), arena(&a)]), refused(1, "a"));
    let error = compile(&b, &stored, &floats(arena(&b))).unwrap_err();
    assert_eq!(error.to_string(), "b cannot run scale for `t1`: operand 0 lies in a");
}

#[test]
fn programs_name_the_devices_own_buffers() {
    let device = builder("gpu").build();
    let rig = Rig::new(&device);
    let touched: Vec<_> =
        rig.program.touches().iter().map(|(buffer, kind)| (buffer.buffer_type().name(), *kind)).collect();
    assert_eq!(touched, [("gpu", AccessKind::Read), ("gpu", AccessKind::Write)]);
    for (touch, stored) in rig.program.touches().iter().zip([&rig.x, &rig.y]) {
        assert!(Arc::ptr_eq(&touch.0, &stored.slot().buffer));
    }
}

#[test]
fn steps_of_one_device_do_not_compile_at_places_of_another() {
    let (a, b) = (builder("a").build(), builder("b").build());
    let rig = Rig::new(&a);
    let graph = crate::support::doubled();
    let nodes: Vec<_> = graph.node_ids().collect();
    let segment = orlop_backend::Segment {
        graph: &graph,
        nodes: &nodes,
        buffer_types: &[None, None],
        escapes: &[true, true],
    };
    let steps = b.lower(&segment, &orlop_backend::LowerOptions::default()).unwrap();
    let slots = [rig.x.slot().clone(), floats(arena(&b)).slot().clone()];
    let tensors = graph.tensor_ids().zip(slots).collect();
    let bindings = orlop_backend::Bindings { graph, tensors, temporaries: Vec::new() };
    let foreign = DeviceError::Foreign { what: "a buffer", owner: "a".to_owned(), device: "b".to_owned() };
    assert_eq!(b.compile(&steps, &bindings).unwrap_err(), foreign);

    let claims = claims(&[&rig.x, &rig.y]);
    let refused = submit(&mut *b.queue().unwrap(), &rig, &claims);
    assert!(matches!(refused, Err(DeviceError::Foreign { what: "a program", .. })));
}

#[test]
fn accesses_are_checked_in_the_devices_name() {
    let device = builder("gpu").build();
    let stored = floats(arena(&device));
    let buffer = &stored.slot().buffer;
    let claim = Claim::take(&**buffer, AccessKind::Read).unwrap();
    let unclaimed = DeviceError::NotClaimed { buffer_type: "gpu".to_owned() };
    assert_eq!(buffer.write(&claim, 0, &[1]), Err(unclaimed.clone()));
    assert_eq!(buffer.fill(&claim, 0..16, 1), Err(unclaimed));
    let beyond = DeviceError::OutOfBounds { tensor: "gpu".to_owned(), offset: 15, bytes: 2, available: 16 };
    assert_eq!(buffer.read(&claim, 15, &mut [0; 2]), Err(beyond));
}

#[test]
fn host_memory_is_read_where_that_is_allowed() {
    let host: Arc<dyn BufferType> = HostBufferType::new("host");
    let (shut, open) = (builder("shut").build(), builder("open").reads_host(true).build());
    assert_eq!(ask(&shut, &SCALE, [&host, arena(&shut)]), refused(0, "host"));
    assert_eq!(ask(&open, &SCALE, [&host, arena(&open)]), Support::YES);
    assert_eq!(ask(&open, &SCALE, [arena(&open), &host]), refused(1, "host"));
    assert_eq!(ask(&open, &Op::Reshape { extents: [4, 1, 1, 1] }, [&host, &host]), Support::YES);

    let (x, y) = (floats(&host), floats(arena(&open)));
    x.set(0, &f32_bytes(&X)).unwrap();
    let rig = Rig { program: compile(&open, &x, &y).unwrap(), x, y };
    let claims = claims(&[&rig.x, &rig.y]);
    submit(&mut *open.queue().unwrap(), &rig, &claims).unwrap();
    drop(claims);
    assert_eq!(values(&rig.y).unwrap(), DOUBLED);
}

#[test]
fn visible_memory_is_host_memory() {
    let device = builder("host").host_visible(true).build();
    let other = builder("gpu").reads_host(true).build();
    assert!(arena(&device).is_host());
    assert!(floats(arena(&device)).slot().buffer.host().is_some());
    assert_eq!(ask(&other, &SCALE, [arena(&device), arena(&other)]), Support::YES);
}

#[test]
fn copies_between_private_memories_pass_through_the_host() {
    let host: Arc<dyn BufferType> = HostBufferType::new("host");
    let plain = builder("plain").build();
    let direct = builder("direct").direct_copies(true).build();
    let given = floats(&host);
    given.set(0, &f32_bytes(&X)).unwrap();
    let hop = |from, device: &Arc<TestDevice>| {
        let to = floats(arena(device));
        let route = copy(from, &to).unwrap();
        assert_eq!(values(&to).unwrap(), X);
        (route, to)
    };
    let (route, there) = hop(&given, &plain);
    assert_eq!(route, CopyRoute::Pushed);
    let (route, again) = hop(&there, &plain);
    assert_eq!(route, CopyRoute::Bounced);
    let (route, across) = hop(&again, &direct);
    assert_eq!(route, CopyRoute::Bounced);
    assert_eq!(hop(&across, &direct).0, CopyRoute::Pulled);
    assert_eq!(copy(&across, &given).unwrap(), CopyRoute::Pulled);
}

#[test]
fn ops_are_refused_on_order() {
    let picky = builder("picky").only(|op| matches!(op, Op::Scale { .. })).build();
    let own = arena(&picky);
    assert_eq!(ask(&picky, &SCALE, [own, own]), Support::YES);
    assert_eq!(ask(&picky, &Op::Unary(Unary::Sqr), [own, own]), Support::No(Reason::Op));
    assert!(ask(&picky, &Op::Reshape { extents: [4, 1, 1, 1] }, [own, own]).is_yes());

    let lacking = builder("lacking").without(["sqr"]).without(["scale"]).wants_offload(true).build();
    let own = arena(&lacking);
    assert_eq!(ask(&lacking, &Op::Unary(Unary::Sqr), [own, own]), Support::No(Reason::Op));
    assert_eq!(ask(&lacking, &SCALE, [own, own]), Support::No(Reason::Op));
    assert_eq!(ask(&lacking, &Op::Unary(Unary::Sqrt), [own, own]), Support::Yes { wants_offload: true });
    let (x, y) = (floats(own), floats(own));
    assert!(matches!(compile(&lacking, &x, &y), Err(DeviceError::Unsupported { reason: Reason::Op, .. })));
}

#[test]
fn facts_are_as_ordered() {
    let link = Link { bytes_per_second: 4.0, latency_seconds: 5.0 };
    let device = builder("gpu").class(DeviceClass::Gpu).memory(100).flops(1.0).bytes_per_second(2.0);
    let device = device.launch_seconds(3.0).host_link(link).asynchronous(true).build();
    let _sixteen = floats(arena(&device));
    let facts = device.facts();
    assert_eq!((facts.class, facts.memory), (DeviceClass::Gpu, Some(Memory { total: 100, free: 84 })));
    assert_eq!((facts.flops, facts.bytes_per_second, facts.launch_seconds), (1.0, 2.0, 3.0));
    assert_eq!((facts.host_link, facts.asynchronous, facts.lost), (link, true, false));
    let plain = builder("plain").build().facts();
    assert_eq!((plain.class, plain.memory, plain.flops), (DeviceClass::Test, None, 1e8));
}

#[test]
fn small_buffers_make_plans_of_many_chunks() {
    let (graph, feeds) = generate::graph(7, &generate::Size::default());
    let reference: Arc<dyn Device> = ReferenceDevice::new();
    let expected = run_unplanned(&reference, &graph, &feeds).unwrap();
    let largest = graph.tensors().iter().map(|tensor| tensor.desc.bytes()).max().unwrap();
    let max = largest.next_multiple_of(64);
    let device: Arc<dyn Device> = builder("gpu").max_bytes(max).build();
    let planned = run_planned(&device, &graph, &feeds, &PlannedOptions::default()).unwrap();
    for (id, bytes) in kept(&graph).into_iter().zip(planned).map(|(id, (_, bytes))| (id, bytes)) {
        assert_eq!(expected.bytes(id).unwrap(), bytes, "{id}");
    }

    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[64]);
    let (sqr, scaled) = (b.sqr(x), b.scale(x, 2.0));
    b.add(sqr, scaled);
    let graph = b.build().unwrap();
    let device = builder("gpu").max_bytes(256).build();
    let mut session =
        Session::new(Machine::new([device.clone() as _]).unwrap(), SessionOptions::default()).unwrap();
    let plan = session.prepare(&graph, &Externals::new()).unwrap();
    assert_eq!(session.memory_plan(plan, DeviceId::default()).unwrap().arenas[0].chunks, [256, 256]);
    assert_eq!((device.counters().live_buffers, device.counters().live_bytes), (2, 512));
    drop(session);
    assert_eq!(device.counters().live_bytes, 0);
}

#[test]
fn limits_are_errors() {
    let device = builder("gpu").max_bytes(100).memory(150).build();
    let allocate = |bytes| Arc::clone(arena(&device)).allocate(bytes);
    let too_large = DeviceError::TooLarge { buffer_type: "gpu".to_owned(), bytes: 101, max: 100 };
    assert_eq!(allocate(101).unwrap_err(), too_large);
    let held = allocate(100).unwrap();
    let full = DeviceError::OutOfMemory { buffer_type: "gpu".to_owned(), bytes: 51 };
    assert_eq!(allocate(51).unwrap_err(), full);
    assert_eq!(allocate(50).unwrap().bytes(), 50);
    drop(held);
    assert_eq!(device.facts().memory, Some(Memory { total: 150, free: 150 }));
    let counters = device.counters();
    assert_eq!((counters.allocations, counters.live_buffers, counters.peak_bytes), (2, 0, 150));

    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[100]);
    b.sqr(x);
    let graph = b.build().unwrap();
    let prepare = |device: Arc<TestDevice>| {
        let machine = Machine::new([device as _]).unwrap();
        Session::new(machine, SessionOptions::default()).unwrap().prepare(&graph, &Externals::new())
    };
    let error = prepare(builder("gpu").max_bytes(100).build()).unwrap_err();
    assert!(matches!(error.alloc_error(), Some(Error::TooLarge { max: 100, .. })), "{error:?}");
    let error = prepare(builder("gpu").memory(100).build()).unwrap_err();
    assert!(matches!(error.alloc_error(), Some(Error::AllocFailed { .. })), "{error:?}");
    assert!(matches!(error.device_error(), Some(DeviceError::OutOfMemory { .. })), "{error:?}");
    let error = prepare(builder("gpu").alignment(3).build()).unwrap_err();
    assert!(matches!(error.alloc_error(), Some(Error::BadAlignment { .. })), "{error:?}");
}
