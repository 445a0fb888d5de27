//! What cannot be done is an error with names and numbers, and the object is as it was before.

use std::sync::Arc;

use orlop_alloc::{
    ArenaId, Assignment, Error, Externals, Flags, GraphAllocator, LinearAllocator, OverwritePair,
    PlanOptions, RegionAllocator, SetPlace, SetTensor, StepView, TensorAllocator, TensorSet, Unread, ValueId,
    ValueInfo, plan_as_ggml, plan_memory,
};
use orlop_backend::{DeviceError, ForeignBufferType, Slot};
use orlop_graph::{DType, Graph, GraphBuilder, GraphError, Order, TensorId};
use orlop_plan::PlanError;

use crate::support::{Foreign, Spy, arena, build, bytes, host, input, op};

/// `x`, a view of it, a weight, a result, and a tensor without bytes.
fn mixed() -> (Graph, [TensorId; 5]) {
    let mut b = GraphBuilder::new();
    let x = input(&mut b, "x", 64);
    let view = b.view(x, [8, 1, 1, 1], [1, 8, 8, 8], 8);
    b.name(view, "view");
    let weight = b.weight("w", DType::I8, &[64]);
    let y = op(&mut b, "y", &[view, weight], 64);
    let empty = input(&mut b, "empty", 0);
    (build(b), [x, view, weight, y, empty])
}

#[test]
fn alignments_are_powers_of_two_everywhere() {
    for alignment in [0, 3, 96] {
        let (crooked, _) = Spy::with_state(alignment, 1024);
        let bad = |name: &str| Error::BadAlignment { arena: name.to_owned(), alignment };
        assert_eq!(TensorAllocator::measure(alignment).unwrap_err(), bad("a measuring region"));
        assert_eq!(TensorAllocator::measure_for(Arc::clone(&crooked)).unwrap_err(), bad("spy"));
        assert_eq!(TensorAllocator::in_memory(Box::new([0; 64]), alignment).unwrap_err(), bad("memory"));
        assert_eq!(GraphAllocator::new([Arc::clone(&crooked)]).unwrap_err(), bad("spy"));
        assert_eq!(TensorSet::allocate(&crooked, &[SetTensor::new("t", bytes(4))]).unwrap_err(), bad("spy"));
        let buffer = || Arc::clone(&crooked).allocate(64).unwrap();
        assert_eq!(TensorAllocator::in_buffer(buffer()).unwrap_err(), bad("spy"));
        assert_eq!(LinearAllocator::new(buffer()).alloc("t", bytes(4)).unwrap_err(), bad("spy"));
    }
}

#[test]
fn views_foreign_and_allocated_tensors_get_no_memory() {
    let (graph, [x, view, weight, ..]) = mixed();
    let mut allocator = TensorAllocator::with_buffer(&host(32, 1024), 128).unwrap();
    allocator.alloc(&graph, x).unwrap();
    let again = |name: &str| Error::AlreadyAllocated { tensor: name.to_owned() };
    assert_eq!(allocator.alloc(&graph, view), Err(Error::IsView { tensor: "view".to_owned() }));
    assert_eq!(allocator.alloc(&graph, x), Err(again("x")));
    assert_eq!(allocator.alloc(&graph, weight), Err(again("w")));
    let tiny = build({
        let mut b = GraphBuilder::new();
        input(&mut b, "t", 4);
        b
    });
    let foreign = Error::ForeignTensor { tensor: weight, tensors: 1 };
    assert_eq!(allocator.alloc(&tiny, weight), Err(foreign));
    assert_eq!(allocator.offset(x), Some(0));
    assert_eq!((allocator.offset(view), allocator.offset(weight)), (None, None));
    assert_eq!(allocator.max_bytes(), 64);
}

#[test]
fn what_does_not_fit_says_how_much_is_left_and_changes_nothing() {
    let mut b = GraphBuilder::new();
    let [small, large, rest] =
        [("small", 40), ("large", 100), ("rest", 64)].map(|(n, s)| input(&mut b, n, s));
    let graph = build(b);
    let mut allocator = TensorAllocator::with_buffer(&host(32, 1024), 128).unwrap();
    allocator.alloc(&graph, small).unwrap();
    let full = Error::OutOfSpace { tensor: "large".to_owned(), needed: 128, largest: 64 };
    assert_eq!(allocator.alloc(&graph, large), Err(full));
    assert_eq!(allocator.max_bytes(), 64);
    assert_eq!(allocator.alloc(&graph, rest), Ok(64), "it goes where it would have gone");

    let mut linear = LinearAllocator::new(host(32, 1024).allocate(128).unwrap());
    linear.alloc("small", bytes(40)).unwrap();
    let full = Error::OutOfSpace { tensor: "large".to_owned(), needed: 128, largest: 64 };
    assert_eq!(linear.alloc("large", bytes(100)).unwrap_err(), full);
    assert_eq!(linear.available(), 64);
    assert_eq!(linear.alloc("rest", bytes(64)).unwrap().slot().offset, 64);
    assert_eq!(linear.available(), 0);
    assert_eq!(linear.alloc("empty", bytes(0)).unwrap().slot().offset, 128);
}

#[test]
fn only_what_was_allocated_here_is_given_back_and_only_once() {
    let (graph, [x, view, weight, y, _]) = mixed();
    let mut allocator = TensorAllocator::measure(32).unwrap();
    allocator.alloc(&graph, x).unwrap();
    for (id, name) in [(view, "view"), (weight, "w"), (y, "y")] {
        assert_eq!(allocator.free(&graph, id), Err(Error::NotAllocated { tensor: name.to_owned() }));
    }
    allocator.free(&graph, x).unwrap();
    assert_eq!(allocator.free(&graph, x), Err(Error::NotAllocated { tensor: "x".to_owned() }));
    assert_eq!(allocator.alloc(&graph, y), Ok(0));
    allocator.reset();
    assert_eq!(allocator.free(&graph, y), Err(Error::NotAllocated { tensor: "y".to_owned() }));
    assert_eq!(allocator.max_bytes(), 64, "a reset keeps the mark");
}

#[test]
fn tensors_without_bytes_take_nothing_anywhere() {
    let (graph, [x, _, _, y, empty]) = mixed();
    let mut allocator = TensorAllocator::with_buffer(&host(32, 1024), 128).unwrap();
    allocator.alloc(&graph, x).unwrap();
    allocator.alloc(&graph, y).unwrap();
    allocator.alloc(&graph, empty).unwrap();
    assert_eq!(allocator.free(&graph, empty), Ok(()));
    assert_eq!(allocator.max_bytes(), 128);
    allocator.free(&graph, x).unwrap();
    assert_eq!(allocator.alloc(&graph, x), Ok(0));

    let mut b = GraphBuilder::new();
    let nothing = input(&mut b, "nothing", 0);
    let view = b.reshape(nothing, &[0, 3]);
    let result = op(&mut b, "result", &[nothing, view], 0);
    b.output(result);
    let graph = build(b);
    let mut allocator = GraphAllocator::new([host(32, 64)]).unwrap();
    let allocation = allocator.alloc(&graph, &Externals::new()).unwrap();
    allocation.plan().check().unwrap();
    assert!(allocation.slots().iter().all(Option::is_some));
    assert_eq!(allocator.buffer_bytes(0), Ok(0));

    let set = TensorSet::allocate(&host(32, 64), &[SetTensor::new("t", bytes(0))]).unwrap();
    assert_eq!((set.tensors().len(), set.bytes()), (1, 0));
    let none = TensorSet::allocate(&host(32, 64), &[]).unwrap();
    assert_eq!((none.tensors().len(), none.buffers().len()), (0, 0));
}

#[test]
fn sizes_at_the_end_of_64_bits_are_errors_and_no_plans() {
    let plans = |sizes: &[u64], alignment: u64| {
        let mut g = Foreign::new(Unread::LivesOn);
        g.0.arenas[0].alignment = alignment;
        let ids: Vec<ValueId> =
            sizes.iter().enumerate().map(|(i, size)| g.leaf(&format!("x{i}"), *size)).collect();
        g.step(&ids, &[]);
        let usage = g.done();
        let options = [PlanOptions::default(), PlanOptions::GGML];
        let planned = options.map(|options| plan_memory(&usage, &options));
        [planned[0].clone(), planned[1].clone(), plan_as_ggml(&usage)]
    };
    let overflows = |error: &Error| match error {
        Error::OutOfSpace { .. } => true,
        Error::Plan { source, .. } => {
            matches!(**source, PlanError::SizesOverflow { .. } | PlanError::AddressesOverflow { .. })
        }
        _ => false,
    };
    for sizes in [&[u64::MAX][..], &[u64::MAX - 30], &[1 << 63, 1 << 63], &[u64::MAX - 63, 64]] {
        for plan in plans(sizes, 32) {
            let error = plan.expect_err("no 64 bits hold this");
            assert!(overflows(&error), "{sizes:?}: {error}");
        }
    }
    for plan in plans(&[u64::MAX - 31], 32) {
        let plan = plan.unwrap();
        assert_eq!(plan.total(), u64::MAX - 31);
        plan.check().unwrap();
    }
    let mut allocator = GraphAllocator::new([host(64, u64::MAX)]).unwrap();
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::I8, &[1 << 62]);
    let y = op(&mut b, "y", &[x], 1 << 62);
    b.output(y);
    let graph = build(b);
    let error = allocator.reserve(&graph).unwrap_err();
    assert!(matches!(error, Error::AllocFailed { bytes: 0x8000_0000_0000_0000, .. }), "{error:?}");
}

#[test]
fn totals_of_several_arenas_stop_at_the_end_of_64_bits() {
    let mut g = Foreign::new(Unread::LivesOn);
    g.0.arenas.push(arena("other", 32, u64::MAX));
    let (a, b) = (g.leaf("a", 1 << 63), g.value("b", 1 << 63));
    g.0.leaves.push((b, ArenaId::new(1)));
    g.step(&[a, b], &[]);
    let plan = plan_memory(&g.done(), &PlanOptions::default()).unwrap();
    assert_eq!(plan.total(), u64::MAX);
    plan.check().unwrap();
}

#[test]
fn memory_that_begins_anywhere_is_used_from_its_first_aligned_byte() {
    let mut b = GraphBuilder::new();
    let [x, y] = ["x", "y"].map(|name| input(&mut b, name, 64));
    let graph = build(b);
    let aligned = Arc::clone(&host(64, 1024)).allocate(257).unwrap();
    let base = aligned.host().unwrap().base.as_ptr();
    for crooked in [0_usize, 1, 31, 63] {
        let memory = ForeignBufferType::writable("lent", 1).unwrap();
        let at = std::ptr::NonNull::new(base.wrapping_add(crooked)).unwrap();
        // SAFETY: `over_raw` asks for bytes that live as long as the keeper and that nothing else touches: they
        // are part of `aligned`, which the keeper holds and nothing reads.
        let odd = unsafe { memory.over_raw(at, 192, Box::new(Arc::clone(&aligned))) }.unwrap();
        let address = |slot: &Slot| slot.buffer.host().unwrap().base.addr().get() as u64 + slot.offset;
        // Its type promises no alignment, so the first byte will do.
        assert_eq!(LinearAllocator::new(odd).alloc("t", bytes(8)).unwrap().slot().offset, 0);

        let (spy, state) = Spy::with_state(64, 1024);
        state.crooked_by.store(crooked as u64, std::sync::atomic::Ordering::Relaxed);
        let buffer = spy.allocate(192).unwrap();
        let mut linear = LinearAllocator::new(Arc::clone(&buffer));
        let first = linear.alloc("first", bytes(64)).unwrap();
        assert!(address(first.slot()).is_multiple_of(64) && first.slot().offset < 64);
        let mut allocator = TensorAllocator::in_buffer(buffer).unwrap();
        allocator.alloc(&graph, x).unwrap();
        assert_eq!(allocator.slot(x).map(|slot| address(&slot) % 64), Some(0));
        let gap = (64 - crooked as u64) % 64;
        assert_eq!(allocator.max_bytes(), gap + 64, "the gap counts");
    }
    for size in [0, 1, 7, 63, 64, 200] {
        let mut allocator = TensorAllocator::in_memory(vec![0; size].into(), 64).unwrap();
        let fits = allocator.alloc(&graph, x).and_then(|_| allocator.alloc(&graph, y));
        assert!(size >= 128 || fits.is_err());
        if let Some(slot) = allocator.slot(x) {
            assert_eq!((slot.buffer.host().unwrap().base.addr().get() as u64 + slot.offset) % 64, 0);
        }
    }
}

#[test]
fn buffers_that_are_not_what_their_type_promises_are_refused() {
    let mut b = GraphBuilder::new();
    let x = input(&mut b, "x", 64);
    b.output(x);
    let graph = build(b);
    for short in [false, true] {
        let (spy, state) = Spy::with_state(64, 1024);
        let lie = if short { &state.short_by } else { &state.crooked_by };
        lie.store(8, std::sync::atomic::Ordering::Relaxed);
        let refused = |error: Error| match error {
            Error::AllocFailed { source, .. } => match *source {
                DeviceError::OutOfMemory { bytes: 64, .. } => short,
                DeviceError::MisalignedBase { alignment: 64, .. } => !short,
                _ => false,
            },
            _ => false,
        };
        let mut allocator = GraphAllocator::new([Arc::clone(&spy)]).unwrap();
        assert!(refused(allocator.reserve(&graph).unwrap_err()));
        assert!(allocator.plan().is_none());
        assert!(refused(TensorSet::allocate(&spy, &[SetTensor::new("t", bytes(64))]).unwrap_err()));
        assert!(refused(TensorAllocator::with_buffer(&spy, 64).unwrap_err()));
        lie.store(0, std::sync::atomic::Ordering::Relaxed);
        assert!(allocator.reserve(&graph).is_ok());
    }
}

#[test]
fn assignments_name_every_node_and_leaf_and_only_buffers_there_are() {
    let (graph, _) = mixed();
    let mut allocator = GraphAllocator::new([host(8, 1024), host(8, 1024)]).unwrap();
    let nodes = |nodes: &[usize]| Assignment { nodes: Some(nodes.to_vec()), ..Assignment::default() };
    let leaves = |leaves: &[usize]| Assignment { leaves: Some(leaves.to_vec()), ..Assignment::default() };
    let length = |what, expected, given| Error::AssignmentLength { what, expected, given };
    let mut refused = |assignment: &Assignment| {
        let error = allocator.reserve_with(&graph, assignment).unwrap_err();
        assert_eq!(allocator.reserve_size(&graph, assignment), Err(error.clone()));
        assert!(allocator.plan().is_none());
        error
    };
    assert_eq!(refused(&nodes(&[0])), length("nodes", 2, 1));
    assert_eq!(refused(&nodes(&[0, 0, 0])), length("nodes", 2, 3));
    assert_eq!(refused(&leaves(&[])), length("leaves", 3, 0));
    let bad = |user: &str| Error::BadBufferId { id: 2, buffers: 2, user: user.to_owned() };
    assert_eq!(refused(&nodes(&[0, 2])), bad("number 1 of the nodes"));
    assert_eq!(refused(&leaves(&[2, 0, 0])), bad("number 0 of the leaves"));
    assert_eq!(allocator.buffer_bytes(2), Err(bad("a size query")));
    assert!(allocator.reserve_with(&graph, &nodes(&[1, 1])).is_ok());
    assert_eq!(GraphAllocator::new([]).unwrap_err(), Error::NoBuffers);
}

#[test]
fn orders_of_other_graphs_are_refused() {
    let chain = |nodes: usize| {
        let mut b = GraphBuilder::new();
        let mut x = input(&mut b, "x", 8);
        for index in 0..nodes {
            x = op(&mut b, &format!("n{index}"), &[x], 8);
        }
        build(b)
    };
    let two_from_one = build({
        let mut b = GraphBuilder::new();
        let x = input(&mut b, "x", 8);
        op(&mut b, "a", &[x], 8);
        op(&mut b, "b", &[x], 8);
        b
    });
    let (short, long) = (chain(2), chain(4));
    let backwards = Order::new(&two_from_one, &[1, 0]).unwrap();
    let mut allocator = GraphAllocator::new([host(8, 1024)]).unwrap();
    let mut region = RegionAllocator::new(TensorAllocator::measure(8).unwrap());
    let mut refused = |order: Order| {
        let error = region.alloc_graph_in(&short, &order).unwrap_err();
        assert_eq!(region.max_bytes(), 0);
        let assignment = Assignment { order: Some(order), ..Assignment::default() };
        assert_eq!(allocator.reserve_with(&short, &assignment).unwrap_err(), error);
        error
    };
    assert!(matches!(refused(long.order()), Error::Graph(GraphError::NoSuchNode { node: 2, nodes: 2, .. })));
    assert!(matches!(refused(backwards), Error::Graph(GraphError::TooEarly { .. })));
}

#[test]
fn usages_that_refer_to_nothing_are_refused_by_name() {
    let ok = || {
        let mut g = Foreign::new(Unread::LivesOn);
        let x = g.leaf("x", 64);
        let y = g.value("y", 64);
        g.step_with(&[x], &[y], &[0]);
        (g, x, y)
    };
    let refused = |g: Foreign| {
        let error = g.0.validate().unwrap_err();
        let usage = g.done();
        assert_eq!(plan_memory(&usage, &PlanOptions::default()).unwrap_err(), error);
        assert_eq!(plan_as_ggml(&usage).unwrap_err(), error);
        error
    };
    assert_eq!(ok().0.0.validate(), Ok(()));

    let (mut g, x, _) = ok();
    g.view("v", x, 32..96);
    let outside = Error::ViewOutside { view: "v".to_owned(), end: 96, root: "x".to_owned(), bytes: 64 };
    assert_eq!(refused(g), outside);

    let (mut g, x, _) = ok();
    g.0.push_value(
        "v",
        ValueInfo { bytes: 2, root: x, offset: u64::MAX, layout: 0, flags: Flags::default() },
    );
    assert!(matches!(refused(g), Error::ViewOutside { end: u64::MAX, .. }));

    let (mut g, x, _) = ok();
    let v = g.view("v", x, 0..32);
    g.view("w", v, 0..16);
    assert_eq!(refused(g), Error::ViewOfView { view: "w".to_owned(), of: "v".to_owned() });

    let (mut g, ..) = ok();
    let root = ValueId::new(2);
    g.0.push_value("r", ValueInfo { bytes: 8, root, offset: 8, layout: 0, flags: Flags::default() });
    assert!(matches!(refused(g), Error::ViewOutside { end: 16, bytes: 8, .. }), "a root begins at 0");

    let (mut g, ..) = ok();
    g.view("v", ValueId::new(9), 0..0);
    assert_eq!(refused(g), Error::UnknownValue { value: 9, values: 3, user: "`v`".to_owned() });

    let (mut g, ..) = ok();
    g.step(&[ValueId::new(9)], &[]);
    assert_eq!(refused(g), Error::UnknownValue { value: 9, values: 2, user: "step 1".to_owned() });

    let (mut g, ..) = ok();
    g.0.leaves.push((ValueId::new(7), ArenaId::new(0)));
    assert!(matches!(refused(g), Error::UnknownValue { value: 7, .. }));

    let (mut g, x, _) = ok();
    g.0.leaves.push((x, ArenaId::new(1)));
    assert_eq!(refused(g), Error::BadBufferId { id: 1, buffers: 1, user: "leaf `x`".to_owned() });

    let (mut g, x, y) = ok();
    let arena = ArenaId::new(3);
    g.0.push_step(StepView { arena, group: 1, reads: &[x], writes: &[y], overwrites: &[] });
    assert!(matches!(refused(g), Error::BadBufferId { id: 3, .. }));

    let (mut g, x, y) = ok();
    let (arena, pair) = (ArenaId::new(0), OverwritePair { write: 0, read: 1 });
    g.0.push_step(StepView { arena, group: 1, reads: &[x], writes: &[y], overwrites: &[pair] });
    assert_eq!(refused(g), Error::BadOverwrite { step: 1 });

    let (mut g, ..) = ok();
    g.0.arenas[0].alignment = 24;
    assert_eq!(refused(g), Error::BadAlignment { arena: "arena".to_owned(), alignment: 24 });
}

#[test]
fn views_of_a_set_lie_in_tensors_of_the_set() {
    let host = host(32, 256);
    let new = SetTensor::new("t", bytes(64));
    let view = |tensor, offset, size| SetTensor {
        place: SetPlace::ViewOf { tensor, offset },
        ..SetTensor::new("v", bytes(size))
    };
    let refused = |tensors: &[SetTensor]| TensorSet::allocate(&host, tensors).unwrap_err();
    let unknown = Error::UnknownValue { value: 5, values: 2, user: "view `v`".to_owned() };
    assert_eq!(refused(&[new.clone(), view(5, 0, 8)]), unknown);
    let outside = |end| Error::ViewOutside { view: "v".to_owned(), end, root: "t".to_owned(), bytes: 64 };
    assert_eq!(refused(&[new.clone(), view(0, 60, 8)]), outside(68));
    assert_eq!(refused(&[new.clone(), view(0, u64::MAX, 8)]), outside(u64::MAX));
    let of_view = Error::ViewOfView { view: "v".to_owned(), of: "v".to_owned() };
    assert_eq!(refused(&[new.clone(), view(0, 0, 8), view(1, 0, 8)]), of_view);
    assert_eq!(refused(&[view(0, 0, 0)]), of_view);

    let elsewhere = Arc::clone(&host).allocate(64).unwrap();
    let stored = |offset| SetTensor {
        place: SetPlace::Stored(Slot { buffer: Arc::clone(&elsewhere), offset }),
        ..SetTensor::new("s", bytes(32))
    };
    // A view may come before what it lies in.
    let set = TensorSet::allocate(&host, &[view(1, 8, 8), stored(32)]).unwrap();
    assert_eq!(set.tensors()[0].slot().offset, 40);
    assert!(set.buffers().is_empty());
    let beyond = refused(&[view(1, 8, 8), stored(u64::MAX)]);
    assert!(matches!(beyond, Error::Device(DeviceError::OutOfBounds { .. })), "{beyond:?}");
}

#[test]
fn a_set_that_fails_half_way_frees_what_it_had() {
    let (spy, state) = Spy::with_state(8, 16);
    state.fail_allocation_after(1);
    let tensors = [("a", 16), ("b", 16), ("c", 16)].map(|(name, size)| SetTensor::new(name, bytes(size)));
    let error = TensorSet::allocate(&spy, &tensors).unwrap_err();
    assert!(matches!(error, Error::AllocFailed { bytes: 16, .. }), "{error:?}");
    assert_eq!(Arc::strong_count(&state), 2, "only the type and this test are left");
    assert_eq!(TensorSet::allocate(&spy, &tensors).unwrap().buffers().len(), 3);
    assert_eq!(TensorSet::sizes(&*spy, &tensors), Ok(vec![16, 16, 16]));
}

#[test]
fn external_tensors_are_what_the_graph_says() {
    let mut b = GraphBuilder::new();
    let weight = b.weight("w", DType::I8, &[64]);
    let view = b.view(weight, [8, 1, 1, 1], [1, 8, 8, 8], 56);
    let y = op(&mut b, "y", &[view], 8);
    b.output(y);
    let graph = build(b);
    let short = TensorSet::allocate(&host(8, 64), &[SetTensor::new("w", bytes(32))]).unwrap();
    let mut externals = Externals::new();
    let mut allocator = GraphAllocator::new([host(8, 64)]).unwrap();
    assert_eq!(externals.check(&graph), Err(Error::MissingExternal { tensor: "w".to_owned() }));
    assert!(allocator.alloc(&graph, &externals).unwrap().slot(view).is_none());
    externals.insert(weight, short.tensors()[0].clone());
    let mismatch = Error::ExternalMismatch {
        tensor: "w".to_owned(),
        expected: Box::new(bytes(64)),
        given: Box::new(bytes(32)),
    };
    assert_eq!(externals.check(&graph), Err(mismatch.clone()));
    assert_eq!(allocator.alloc(&graph, &externals).unwrap_err(), mismatch);
}
