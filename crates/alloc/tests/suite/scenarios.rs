//! Small arenas with small limits: what a graph allocator must get right with chunks, buffer types and growth.

use std::sync::Arc;

use orlop_alloc::{
    Assignment, Error, Externals, GraphAllocator, Growth, MemoryPlan, PlanOptions, RegionAllocator,
    SetTensor, TensorAllocator, TensorSet, ValueId,
};
use orlop_graph::{Graph, GraphBuilder, TensorId};

use crate::support::{Spy, build, bytes, host, in_place, input, op};

const BOTH: [PlanOptions; 2] = [
    PlanOptions {
        search: orlop_plan::SolveOptions {
            effort: 1 << 16,
            ..orlop_plan::SolveOptions::with(orlop_plan::Strategy::Best)
        },
        sharing: orlop_alloc::Sharing::Full,
    },
    PlanOptions::GGML,
];

/// The plan of a graph, after it was allocated for real.
fn plan(graph: &Graph, alignment: u64, max: u64, options: PlanOptions) -> Arc<MemoryPlan> {
    let mut allocator = GraphAllocator::new([host(alignment, max)]).expect("one type").with_options(options);
    let allocation = allocator.alloc(graph, &Externals::new()).expect("it fits");
    let plan = Arc::clone(allocation.plan());
    plan.check().expect("it is sound");
    for (id, slot) in graph.tensor_ids().zip(allocation.slots()) {
        let slot = slot.as_ref().expect("nothing is external");
        assert!(slot.offset + graph.tensor(id).desc.bytes() <= slot.buffer.bytes(), "it straddles");
        assert!(slot.buffer.bytes() <= max);
    }
    plan
}

fn chunk(plan: &MemoryPlan, id: TensorId) -> u32 {
    plan.place(ValueId::new(id.index())).expect("it has a place").chunk
}

fn offset(plan: &MemoryPlan, id: TensorId) -> u64 {
    plan.place(ValueId::new(id.index())).expect("it has a place").offset
}

/// Inputs of some sizes, all read by one last node of 8 bytes.
fn all_at_once(sizes: &[u64]) -> Graph {
    let mut b = GraphBuilder::new();
    let ids: Vec<TensorId> =
        sizes.iter().enumerate().map(|(i, size)| input(&mut b, &format!("x{i}"), *size)).collect();
    let y = op(&mut b, "y", &ids, 8);
    b.output(y);
    build(b)
}

#[test]
fn a_graph_larger_than_one_chunk_gets_two() {
    for options in BOTH {
        let plan = plan(&all_at_once(&[8, 8]), 8, 16, options);
        assert_eq!(plan.arenas[0].chunks, [16, 8]);
    }
}

#[test]
fn what_does_not_fit_the_rest_of_a_chunk_goes_to_the_next() {
    for options in BOTH {
        let graph = all_at_once(&[8, 16]);
        let plan = plan(&graph, 8, 20, options);
        assert_eq!(plan.arenas[0].chunks.len(), 2);
        assert_eq!(plan.total(), 32);
    }
}

#[test]
fn a_tensor_larger_than_any_buffer_has_a_marked_chunk_that_the_buffer_type_refuses_by_name() {
    let graph = all_at_once(&[8, 24]);
    for options in BOTH {
        let mut allocator = GraphAllocator::new([host(8, 16)]).unwrap().with_options(options);
        let too_large =
            Error::TooLarge { tensor: "x1".to_owned(), bytes: 24, max: 16, buffer_type: "host".to_owned() };
        assert_eq!(allocator.reserve(&graph).unwrap_err(), too_large);
        assert!(allocator.plan().is_none());
        let usage = Arc::new(allocator.usage(&graph, &Assignment::default()).unwrap());
        let plan = orlop_alloc::plan_memory(&usage, &options).unwrap();
        plan.check().unwrap();
        let oversize = chunk(&plan, graph.find("x1").unwrap());
        assert_eq!(plan.arenas[0].oversize, [oversize]);
        assert_eq!(plan.arenas[0].chunks[oversize as usize], 24);
        // The object still serves what fits.
        assert!(allocator.alloc(&all_at_once(&[8]), &Externals::new()).is_ok());
    }
    let set = TensorSet::allocate(&host(8, 16), &[SetTensor::new("w", bytes(24))]);
    let refused =
        Error::TooLarge { tensor: "w".to_owned(), bytes: 24, max: 16, buffer_type: "host".to_owned() };
    assert_eq!(set.unwrap_err(), refused);
}

#[test]
fn rounding_up_can_make_a_tensor_too_large() {
    let mut allocator = GraphAllocator::new([host(8, 12)]).unwrap();
    let error = allocator.reserve(&all_at_once(&[10])).unwrap_err();
    assert!(matches!(error, Error::TooLarge { bytes: 16, max: 12, .. }), "{error:?}");
}

#[test]
fn there_may_be_more_than_sixteen_chunks() {
    for options in BOTH {
        let plan = plan(&all_at_once(&[12; 40]), 4, 16, options);
        assert!(plan.arenas[0].chunks.len() >= 40);
        assert!(plan.arenas[0].chunks.iter().all(|chunk| *chunk <= 16));
        assert_eq!(plan.total(), 40 * 12 + 8);
    }
}

#[test]
fn what_is_left_of_an_earlier_chunk_is_filled() {
    for options in BOTH {
        let graph = all_at_once(&[12, 16, 4]);
        let plan = plan(&graph, 4, 16, options);
        let [x0, x2] = ["x0", "x2"].map(|name| graph.find(name).unwrap());
        assert_eq!(chunk(&plan, x0), chunk(&plan, x2));
        assert_eq!(plan.total(), 12 + 16 + 4 + 8);
    }
}

#[test]
fn views_cost_nothing() {
    let mut b = GraphBuilder::new();
    let x = input(&mut b, "x", 16);
    let rows = b.view(x, [4, 2, 1, 1], [1, 8, 16, 16], 4);
    let inner = b.view(rows, [2, 2, 1, 1], [1, 8, 16, 16], 1);
    let flat = b.reshape(x, &[4, 4]);
    let y = op(&mut b, "y", &[inner, flat], 4);
    b.output(y);
    let graph = build(b);
    for options in BOTH {
        let plan = plan(&graph, 4, 32, options);
        assert_eq!(plan.total(), 20);
        let base = offset(&plan, x);
        assert_eq!([rows, inner, flat].map(|id| offset(&plan, id)), [base + 4, base + 5, base]);
        assert_eq!([rows, inner, flat].map(|id| chunk(&plan, id)), [chunk(&plan, x); 3]);
    }
}

#[test]
fn memory_is_reused_in_every_chunk() {
    let mut b = GraphBuilder::new();
    let mut layer = [input(&mut b, "x", 16), input(&mut b, "y", 16)];
    for depth in 0..6 {
        let [p, q] = layer;
        let left = op(&mut b, &format!("p{depth}"), &[p], 16);
        let right = op(&mut b, &format!("q{depth}"), &[q], 16);
        layer = [left, right];
    }
    let last = op(&mut b, "last", &layer, 16);
    b.output(last);
    let graph = build(b);
    for options in BOTH {
        let plan = plan(&graph, 4, 16, options);
        assert_eq!(plan.arenas[0].chunks, [16, 16, 16]);
    }
}

/// `x0`, `x1` and `x2` are read one after the other; then a result takes the room of two of them.
fn merging(size: u64) -> Graph {
    let mut b = GraphBuilder::new();
    let x: Vec<TensorId> = (0..3).map(|i| input(&mut b, &format!("x{i}"), size)).collect();
    let keep = op(&mut b, "keep", &x[..2], size);
    let large = op(&mut b, "large", &[keep], 2 * size);
    let end = op(&mut b, "end", &[large, x[2]], size);
    b.output(end);
    build(b)
}

#[test]
fn freed_neighbours_merge_in_a_bounded_chunk() {
    for options in BOTH {
        let plan = plan(&merging(8), 8, 64, options);
        assert_eq!(plan.total(), 32);
        assert_eq!(plan.arenas[0].chunks.len(), 1);
    }
}

#[test]
fn freed_neighbours_merge_without_a_limit() {
    for options in BOTH {
        assert_eq!(plan(&merging(8), 8, u64::MAX, options).total(), 32);
    }
}

#[test]
fn memory_that_was_used_before_is_preferred_to_new() {
    let mut b = GraphBuilder::new();
    let x = input(&mut b, "x", 64);
    let small = input(&mut b, "small", 8);
    let first = op(&mut b, "first", &[x], 24);
    let second = op(&mut b, "second", &[first, small], 48);
    b.output(second);
    let graph = build(b);
    for options in BOTH {
        // `second` goes where `x` was, in whichever chunk that is.
        let plan = plan(&graph, 8, 72, options);
        assert_eq!(plan.total(), 64 + 8 + 24);
    }
}

#[test]
fn external_tensors_cost_nothing_in_either_buffer_type() {
    let mut b = GraphBuilder::new();
    let weight = b.weight("w", orlop_graph::DType::I8, &[1 << 20]);
    let state = b.state("s", orlop_graph::DType::I8, &[1 << 20]);
    let x = input(&mut b, "x", 16);
    let head = b.view(state, [16, 1, 1, 1], [1, 16, 16, 16], 32);
    let a = op(&mut b, "a", &[weight, x], 16);
    let c = op(&mut b, "c", &[a, head], 16);
    b.output(c);
    let graph = build(b);
    let types = [host(8, 64), host(8, 64)];
    let mut allocator = GraphAllocator::new(types).unwrap();
    // Nodes are the view, `a` and `c`; leaves are `w`, `s` and `x`.
    let assignment = Assignment { nodes: Some(vec![0, 0, 1]), leaves: Some(vec![1, 0, 0]), order: None };
    let stored = TensorSet::allocate(&host(8, u64::MAX), &[SetTensor::new("s", graph.tensor(state).desc)]);
    let stored = stored.unwrap();
    let mut externals = Externals::new();
    externals.insert(state, stored.tensors()[0].clone());
    let allocation = allocator.alloc_with(&graph, &assignment, &externals).unwrap();
    allocation.plan().check().unwrap();
    assert_eq!([allocator.buffer_bytes(0), allocator.buffer_bytes(1)], [Ok(32), Ok(16)]);
    assert!(allocation.slot(weight).is_none());
    let view = allocation.slot(head).unwrap();
    assert!(Arc::ptr_eq(view.buffer.gate(), stored.buffers()[0].gate()));
    assert_eq!(view.offset, 32);
}

#[test]
fn a_buffer_type_that_nothing_uses_gets_no_bytes() {
    let mut allocator = GraphAllocator::new([host(8, 64), host(8, 64)]).unwrap();
    let graph = all_at_once(&[8]);
    allocator.alloc(&graph, &Externals::new()).unwrap();
    assert_eq!([allocator.buffer_bytes(0), allocator.buffer_bytes(1)], [Ok(16), Ok(0)]);
    let empty = GraphBuilder::new().build().unwrap();
    let mut allocator = GraphAllocator::new([host(8, 64)]).unwrap();
    allocator.alloc(&empty, &Externals::new()).unwrap();
    assert_eq!(allocator.buffer_bytes(0), Ok(0));
}

#[test]
fn a_second_graph_with_the_same_total_but_a_larger_chunk_reallocates_that_chunk() {
    for growth in [Growth::Keep, Growth::Replace] {
        let (spy, state) = Spy::with_state(4, 16);
        let mut allocator = GraphAllocator::new([spy]).unwrap().with_growth(growth);
        let first = allocator.alloc(&all_at_once(&[12, 12]), &Externals::new()).unwrap();
        let before = first.plan().arenas[0].chunks.clone();
        let graph = all_at_once(&[16, 8]);
        let second = allocator.alloc(&graph, &Externals::new()).unwrap();
        let after = &second.plan().arenas[0].chunks;
        assert_eq!(first.plan().total(), second.plan().total());
        assert_ne!(&before, after);
        for (id, slot) in graph.tensor_ids().zip(second.slots()) {
            let slot = slot.as_ref().unwrap();
            assert!(slot.offset + graph.tensor(id).desc.bytes() <= slot.buffer.bytes());
        }
        assert!(crate::support::State::count(&state.allocations) > before.len() as u64);
    }
}

#[test]
fn a_result_takes_the_place_of_its_operand_through_a_view() {
    let mut b = GraphBuilder::new();
    let x = input(&mut b, "x", 64);
    let a = op(&mut b, "a", &[x], 64);
    let matrix = b.reshape(a, &[8, 8]);
    let y = b.custom("in place", &[matrix], orlop_graph::DType::I8, &[8, 8], &[0]);
    b.output(y);
    let graph = build(b);
    let plan = plan(&graph, 4, u64::MAX, PlanOptions::default());
    assert_eq!(offset(&plan, a), offset(&plan, y));
    assert_eq!(plan.total(), 128);
    let mut region = RegionAllocator::new(TensorAllocator::measure(4).unwrap());
    assert_eq!(region.alloc_graph(&graph), Ok(128));
    assert_eq!(region.offset(&graph, a), region.offset(&graph, y));
}

#[test]
fn unread_results_are_freed_at_once_where_outputs_are_declared() {
    let graph = |declared: bool| {
        let mut b = GraphBuilder::new();
        let x = input(&mut b, "x", 4096);
        for index in 0..10 {
            op(&mut b, &format!("unused{index}"), &[x], 4096);
        }
        let y = op(&mut b, "y", &[x], 4096);
        if declared {
            b.output(y);
        }
        build(b)
    };
    for options in BOTH {
        assert_eq!(plan(&graph(true), 64, u64::MAX, options).total(), 2 * 4096);
        assert_eq!(plan(&graph(false), 64, u64::MAX, options).total(), 12 * 4096);
    }
}

#[test]
fn as_many_holes_as_there_are_tensors_are_no_problem() {
    let mut b = GraphBuilder::new();
    let live: Vec<TensorId> = (0..520).map(|i| input(&mut b, &format!("x{i}"), 16)).collect();
    let even: Vec<TensorId> = live.iter().copied().step_by(2).collect();
    let odd: Vec<TensorId> = live.iter().copied().skip(1).step_by(2).collect();
    let half = op(&mut b, "half", &even, 16);
    let fills: Vec<TensorId> = (0..260).map(|i| op(&mut b, &format!("fill{i}"), &[half], 16)).collect();
    let all: Vec<TensorId> = odd.into_iter().chain(fills).collect();
    let last = op(&mut b, "last", &all, 16);
    b.output(last);
    let graph = build(b);
    for options in BOTH {
        // All of `fill` but the last go where the even inputs were.
        assert_eq!(plan(&graph, 16, u64::MAX, options).total(), (520 + 1) * 16);
    }
}

#[test]
fn growth_that_fails_leaves_the_old_plan_in_force() {
    let small = all_at_once(&[8, 8]);
    let large = all_at_once(&[32, 32, 32]);
    for failing in 0..2 {
        let (spy, state) = Spy::with_state(8, 64);
        let mut allocator = GraphAllocator::new([spy]).unwrap();
        let before = allocator.alloc(&small, &Externals::new()).unwrap();
        let bytes = allocator.buffer_bytes(0);
        state.fail_allocation_after(failing);
        let error = allocator.alloc(&large, &Externals::new()).unwrap_err();
        assert!(matches!(&error, Error::AllocFailed { buffer_type, .. } if buffer_type == "spy"), "{error}");
        assert_eq!(allocator.buffer_bytes(0), bytes);
        assert!(Arc::ptr_eq(allocator.plan().unwrap(), before.plan()));
        let after = allocator.alloc(&small, &Externals::new()).unwrap();
        for (old, new) in before.slots().iter().zip(after.slots()) {
            let (old, new) = (old.as_ref().unwrap(), new.as_ref().unwrap());
            assert!(Arc::ptr_eq(old.buffer.gate(), new.buffer.gate()) && old.offset == new.offset);
        }
        allocator.alloc(&large, &Externals::new()).unwrap();
    }
}

#[test]
fn growth_that_replaces_and_fails_can_be_reserved_anew() {
    let (spy, state) = Spy::with_state(8, 256);
    let mut allocator = GraphAllocator::new([spy]).unwrap().with_growth(Growth::Replace);
    allocator.reserve(&all_at_once(&[8])).unwrap();
    state.fail_allocation_after(0);
    assert!(allocator.reserve(&all_at_once(&[64])).is_err());
    assert!(allocator.plan().is_none());
    assert_eq!(allocator.buffer_bytes(0), Ok(0));
    let allocation = allocator.alloc(&all_at_once(&[64]), &Externals::new()).unwrap();
    assert_eq!(allocation.slot(all_at_once(&[64]).find("y").unwrap()).unwrap().buffer.bytes(), 72);
}

#[test]
fn a_buffer_type_given_twice_counts_once() {
    let shared = host(8, u64::MAX);
    let mut allocator =
        GraphAllocator::new([Arc::clone(&shared), host(8, u64::MAX), Arc::clone(&shared)]).unwrap();
    let mut b = GraphBuilder::new();
    let x = input(&mut b, "x", 16);
    let y = in_place(&mut b, "y", &[x], 16);
    let z = op(&mut b, "z", &[y], 8);
    b.output(z);
    let graph = build(b);
    let assignment = Assignment { nodes: Some(vec![2, 1]), leaves: Some(vec![0]), order: None };
    assert_eq!(allocator.reserve_size(&graph, &assignment), Ok(vec![16, 8, 0]));
    assert!(allocator.plan().is_none(), "nothing was reserved");
    let allocation = allocator.alloc_with(&graph, &assignment, &Externals::new()).unwrap();
    let sizes: Vec<u64> = (0..3).map(|index| allocator.buffer_bytes(index).unwrap()).collect();
    assert_eq!(sizes, [16, 8, 0]);
    // Both numbers mean one arena, so `y` takes the place of `x`.
    assert_eq!(allocation.slot(x).unwrap().offset, allocation.slot(y).unwrap().offset);
}
