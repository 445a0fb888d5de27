//! When a reserved plan serves another graph, when it does not, and what the plans themselves must respect.

use std::sync::Arc;

use orlop_alloc::{
    ArenaId, Assignment, Externals, Flags, GraphAllocator, Misfit, OverwritePair, PlanOptions, Sharing,
    StepView, Unread, ValueId, Verdict, plan_as_ggml, plan_memory,
};
use orlop_backend::{BufferType, StoredTensor};
use orlop_graph::{DType, Graph, GraphBuilder, TensorId};

use crate::support::{Foreign, Note, Notes, apart, arena, build, host, in_place, input, offsets, op};

fn observed(types: impl IntoIterator<Item = Arc<dyn BufferType>>) -> (GraphAllocator, Notes) {
    let notes = Notes::default();
    let allocator = GraphAllocator::new(types).expect("there are types");
    (allocator.with_observer(notes.observer()), notes)
}

/// `unused` is never read.
fn with_unused_leaf(unused: u64, size: u64) -> Graph {
    let mut b = GraphBuilder::new();
    input(&mut b, "unused", unused);
    let x = input(&mut b, "x", size);
    let y = op(&mut b, "y", &[x], size);
    let z = op(&mut b, "z", &[y], size);
    b.output(z);
    build(b)
}

#[test]
fn a_leaf_that_no_node_reads_is_looked_at_too() {
    let (mut allocator, notes) = observed([host(32, u64::MAX)]);
    allocator.reserve(&with_unused_leaf(64, 64)).unwrap();
    notes.take();
    let graph = with_unused_leaf(128, 64);
    let allocation = allocator.alloc(&graph, &Externals::new()).unwrap();
    let grown = Misfit::Grown { value: "unused".to_owned(), planned: 64, given: 128 };
    assert_eq!(notes.plans(), [Some(grown)]);
    let value = |name| ValueId::new(graph.find(name).unwrap().index());
    assert!(apart(allocation.plan(), value("unused"), value("x")));
}

#[test]
fn growth_within_the_alignment_needs_no_new_plan() {
    let (mut allocator, notes) = observed([host(32, u64::MAX)]);
    allocator.reserve(&with_unused_leaf(33, 33)).unwrap();
    notes.take();
    allocator.alloc(&with_unused_leaf(64, 64), &Externals::new()).unwrap();
    allocator.alloc(&with_unused_leaf(1, 0), &Externals::new()).unwrap();
    assert_eq!(notes.take(), []);
}

#[test]
fn a_leaf_that_was_external_is_planned_when_it_is_not() {
    let graph = |external: bool| {
        let mut b = GraphBuilder::new();
        let w = if external { b.weight("w", DType::I8, &[64]) } else { input(&mut b, "w", 64) };
        let y = op(&mut b, "y", &[w], 64);
        b.output(y);
        (build(b), w)
    };
    let (mut allocator, notes) = observed([host(32, u64::MAX)]);
    allocator.reserve(&graph(true).0).unwrap();
    let (placed, w) = graph(false);
    let allocation = allocator.alloc(&placed, &Externals::new()).unwrap();
    assert!(allocation.slot(w).is_some());
    assert_eq!(notes.plans(), [None, Some(Misfit::Leaves)]);
    allocator.alloc(&graph(true).0, &Externals::new()).unwrap();
    assert_eq!(notes.plans(), [Some(Misfit::Leaves)]);
}

#[test]
fn memory_of_an_earlier_allocation_outlives_growth() {
    let mut allocator = GraphAllocator::new([host(32, u64::MAX)]).unwrap();
    let small = with_unused_leaf(0, 64);
    let x = small.find("x").unwrap();
    let before = allocator.alloc(&small, &Externals::new()).unwrap();
    let stored = StoredTensor::new("x", small.tensor(x).desc, before.slot(x).unwrap().clone()).unwrap();
    stored.set(0, &[7; 64]).unwrap();
    let after = allocator.alloc(&with_unused_leaf(0, 4096), &Externals::new()).unwrap();
    let (old, new) = (&before.slot(x).unwrap().buffer, &after.slot(x).unwrap().buffer);
    assert!(!Arc::ptr_eq(old.gate(), new.gate()));
    let mut contents = [0; 64];
    stored.get(0, &mut contents).unwrap();
    assert_eq!(contents, [7; 64]);
}

#[test]
fn graphs_of_different_size_take_turns() {
    let chain = |nodes: usize, size: u64| {
        let mut b = GraphBuilder::new();
        let mut x = input(&mut b, "x", size);
        for index in 0..nodes {
            x = op(&mut b, &format!("n{index}"), &[x], size);
        }
        b.output(x);
        build(b)
    };
    let graphs = [chain(50, 8), chain(2, 64), chain(200, 16), chain(0, 8), chain(1, 1)];
    let mut allocator = GraphAllocator::new([host(8, u64::MAX), host(8, u64::MAX)]).unwrap();
    for round in 0..3 {
        for graph in &graphs {
            let nodes = graph.nodes().len();
            let second = Assignment {
                nodes: Some((0..nodes).map(|node| node % 2).collect()),
                ..Assignment::default()
            };
            for assignment in [Assignment::default(), second] {
                let allocation = allocator.alloc_with(graph, &assignment, &Externals::new()).unwrap();
                allocation.plan().check().unwrap();
            }
        }
        assert_eq!(allocator.buffer_bytes(0), Ok(128), "round {round}");
        assert_eq!(allocator.buffer_bytes(1), Ok(64));
    }
}

#[test]
fn another_assignment_is_planned_by_itself_on_several_buffers() {
    let (mut allocator, notes) = observed([host(32, u64::MAX), host(32, u64::MAX)]);
    let graph = with_unused_leaf(0, 64);
    allocator.reserve(&graph).unwrap();
    let moved = Assignment { nodes: Some(vec![0, 1]), ..Assignment::default() };
    allocator.alloc_with(&graph, &moved, &Externals::new()).unwrap();
    assert_eq!(notes.plans(), [None, Some(Misfit::Step { step: 1 })]);
    assert_eq!(allocator.buffer_bytes(1), Ok(64));
    allocator.alloc_with(&graph, &moved, &Externals::new()).unwrap();
    assert_eq!(notes.plans(), []);
}

/// `y` may take the place of `x`, of which it reads a second part, too.
fn reads_twice(second: std::ops::Range<u64>) -> Graph {
    let mut b = GraphBuilder::new();
    let x = input(&mut b, "x", 64);
    let bytes = second.end - second.start;
    let part = b.view(x, [bytes, 1, 1, 1], [1, bytes, bytes, bytes], second.start);
    let y = b.custom("add", &[x, part], DType::I8, &[64], &[0, 1]);
    b.name(y, "y");
    b.output(y);
    build(b)
}

#[test]
fn in_place_holds_only_while_all_that_is_read_lies_under_the_result() {
    let (mut allocator, notes) = observed([host(32, u64::MAX)]);
    allocator.alloc(&reads_twice(0..64), &Externals::new()).unwrap();
    assert_eq!(allocator.buffer_bytes(0), Ok(64));
    notes.take();
    let shifted = reads_twice(32..64);
    let allocation = allocator.alloc(&shifted, &Externals::new()).unwrap();
    assert_eq!(notes.plans(), [Some(Misfit::InPlace { value: "y".to_owned() })]);
    let value = |name| ValueId::new(shifted.find(name).unwrap().index());
    assert!(apart(allocation.plan(), value("x"), value("y")));
}

#[test]
fn in_place_holds_only_while_layouts_agree() {
    let graph = |first: u64| {
        let mut b = GraphBuilder::new();
        let x = input(&mut b, "x", 64);
        let a = op(&mut b, "a", &[x], first);
        let y = in_place(&mut b, "y", &[a, x], 64);
        b.output(y);
        build(b)
    };
    let (mut allocator, notes) = observed([host(32, u64::MAX)]);
    allocator.alloc(&graph(64), &Externals::new()).unwrap();
    notes.take();
    allocator.alloc(&graph(32), &Externals::new()).unwrap();
    assert_eq!(notes.plans(), [Some(Misfit::InPlace { value: "y".to_owned() })]);
}

#[test]
fn a_result_never_moves_into_another_arena_with_its_operand() {
    let mut g = Foreign::new(Unread::LivesOn);
    g.0.arenas.push(arena("other", 32, u64::MAX));
    let x = g.leaf("x", 64);
    let y = g.value("y", 64);
    let overwrites = [OverwritePair { write: 0, read: 0 }];
    let other = ArenaId::new(1);
    g.0.push_step(StepView { arena: other, group: 0, reads: &[x], writes: &[y], overwrites: &overwrites });
    let usage = g.done();
    for options in [PlanOptions::default(), PlanOptions::GGML] {
        let plan = plan_memory(&usage, &options).unwrap();
        assert_eq!(plan.place(y).unwrap().arena, other);
        assert_eq!(plan.decisions[0].verdict, Verdict::OtherArena);
    }
    // ggml itself does move it.
    let plan = plan_as_ggml(&usage).unwrap();
    assert_eq!(plan.place(y).unwrap().arena, ArenaId::new(0));
    plan.check().unwrap();
}

#[test]
fn a_result_that_is_set_from_outside_takes_no_place_of_a_leaf() {
    let mut g = Foreign::new(Unread::LivesOn);
    let x = g.leaf("x", 64);
    let [a, b] = ["a", "b"].map(|name| g.value(name, 64));
    let set = g.flagged("set", 64, Flags { input: true, ..Flags::default() });
    g.step(&[x], &[a]);
    g.step(&[a], &[b]);
    g.step_with(&[x, b], &[set], &[0, 1]);
    let usage = g.done();
    for plan in [plan_as_ggml(&usage), plan_memory(&usage, &PlanOptions::default())] {
        let plan = plan.unwrap();
        plan.check().unwrap();
        for other in [x, a, b] {
            assert!(apart(&plan, set, other), "its contents are there from the beginning");
        }
    }
}

#[test]
fn an_output_that_is_a_view_keeps_its_root() {
    let mut b = GraphBuilder::new();
    let x = input(&mut b, "x", 64);
    let root = op(&mut b, "root", &[x], 64);
    let view = b.view(root, [8, 1, 1, 1], [1, 8, 8, 8], 8);
    let mut last = in_place(&mut b, "a0", &[root], 64);
    for index in 1..5 {
        last = op(&mut b, &format!("a{index}"), &[last], 64);
    }
    b.output(view);
    b.output(last);
    let graph = build(b);
    let mut allocator = GraphAllocator::new([host(32, u64::MAX)]).unwrap();
    let allocation = allocator.alloc(&graph, &Externals::new()).unwrap();
    let plan = allocation.plan();
    plan.check().unwrap();
    let value = |id: TensorId| ValueId::new(id.index());
    for name in ["a0", "a1", "a2", "a3", "a4"] {
        assert!(apart(plan, value(root), value(graph.find(name).unwrap())), "{name}");
    }
}

#[test]
fn memory_lives_to_its_last_write() {
    let mut g = Foreign::new(Unread::Dies);
    let x = g.leaf("x", 64);
    let r = g.value("r", 64);
    let part = g.view("part", r, 0..32);
    let [a, b] = ["a", "b"].map(|name| g.value(name, 64));
    g.step(&[x], &[r]);
    g.step_with(&[r], &[a], &[0]);
    g.step(&[a], &[b]);
    g.step(&[b], &[part]);
    let usage = g.done();
    for options in [PlanOptions::default(), PlanOptions::GGML] {
        let plan = plan_memory(&usage, &options).unwrap();
        plan.check().unwrap();
        assert!(apart(&plan, r, a) && apart(&plan, r, b), "the last step still writes `part`");
    }
    plan_as_ggml(&usage).unwrap().check().unwrap();
}

#[test]
fn a_value_written_again_stays_where_it_is() {
    for unread in [Unread::Dies, Unread::LivesOn] {
        let mut g = Foreign::new(unread);
        let x = g.leaf("x", 64);
        let [r, a, b, c] = ["r", "a", "b", "c"].map(|name| g.value(name, 64));
        g.step(&[x], &[r]);
        g.step(&[r], &[a]);
        g.step(&[a], &[b]);
        g.step(&[b], &[r]);
        g.step(&[b], &[c]);
        let usage = g.done();
        for plan in [plan_as_ggml(&usage), plan_memory(&usage, &PlanOptions::default())] {
            let plan = plan.unwrap();
            plan.check().unwrap();
            assert_eq!(plan.storages.iter().filter(|storage| storage.values.contains(&r)).count(), 1);
        }
    }
}

#[test]
fn roots_that_are_only_reached_through_views_have_a_place() {
    let mut g = Foreign::new(Unread::LivesOn);
    let plain = g.value("plain", 64);
    let set = g.flagged("set", 64, Flags { input: true, ..Flags::default() });
    let written = g.value("written", 64);
    let views = [plain, set, written].map(|root| g.view("view", root, 0..64));
    let y = g.value("y", 64);
    g.step(&[], &[views[2]]);
    g.step(&views, &[y]);
    let plan = plan_memory(&g.done(), &PlanOptions::default()).unwrap();
    plan.check().unwrap();
    assert_eq!(plan.total(), 4 * 64);
}

#[test]
fn every_sharing_can_be_planned_with_every_strategy() {
    let mut g = Foreign::new(Unread::LivesOn);
    let x = g.leaf("x", 64);
    let [a, b] = ["a", "b"].map(|name| g.value(name, 64));
    g.step_with(&[x], &[a], &[0]);
    g.step_with(&[a], &[b], &[0]);
    let usage = g.done();
    for sharing in [Sharing::None, Sharing::Direct, Sharing::Tight, Sharing::Full] {
        for strategy in orlop_plan::Strategy::ALL {
            let search = orlop_plan::SolveOptions::with(strategy);
            let plan = plan_memory(&usage, &PlanOptions { search, sharing }).unwrap();
            plan.check().unwrap();
            let expected = if sharing == Sharing::None { 128 } else { 64 };
            assert_eq!(plan.total(), expected, "{strategy} {sharing:?}");
        }
    }
}

#[test]
fn members_of_a_group_share_in_place_only_what_no_other_member_reads() {
    let group = |second_reads_too: bool| {
        let mut g = Foreign::new(Unread::LivesOn);
        let x = g.leaf("x", 64);
        let [a, b, c] = ["a", "b", "c"].map(|name| g.value(name, 64));
        let pair = [OverwritePair { write: 0, read: 0 }];
        let arena = ArenaId::new(0);
        let mut step = |reads: &[ValueId], writes: &[ValueId]| {
            g.0.push_step(StepView { arena, group: 0, reads, writes, overwrites: &pair });
        };
        step(&[x], &[a]);
        step(&[if second_reads_too { x } else { a }], &[b]);
        step(&[b], &[c]);
        plan_as_ggml(&g.done()).unwrap()
    };
    for second_reads_too in [false, true] {
        group(second_reads_too).check().unwrap();
    }
    assert_eq!(group(false).total(), 64);
    // `x` has two readers; nothing is given back before the barrier.
    assert_eq!(group(true).total(), 3 * 64);
}

#[test]
fn the_peak_names_who_is_there() {
    let graph = with_unused_leaf(0, 64);
    let mut allocator = GraphAllocator::new([host(32, u64::MAX)]).unwrap();
    let plan = allocator.reserve(&graph).unwrap();
    let (step, peak) = plan.peak(ArenaId::new(0));
    assert_eq!(step, 0);
    let names: Vec<&str> = peak.iter().map(|storage| storage.name.as_str()).collect();
    assert_eq!(names, ["x", "y"]);
    assert!(plan.arenas[0].optimal && plan.arenas[0].bound == 128);
}

#[test]
fn an_observer_hears_of_every_allocation_release_and_decision() {
    let mut b = GraphBuilder::new();
    let x = input(&mut b, "x", 64);
    let a = in_place(&mut b, "a", &[x], 64);
    let y = in_place(&mut b, "y", &[a, x], 32);
    b.output(y);
    let (allocator, notes) = observed([host(32, u64::MAX)]);
    let mut allocator = allocator.with_options(PlanOptions::GGML);
    allocator.reserve(&build(b)).unwrap();
    let name = |name: &str| name.to_owned();
    assert_eq!(
        notes.take(),
        [
            Note::Planned(None),
            Note::Allocated(name("x"), 0),
            Note::Allocated(name("a"), 64),
            Note::InPlace(name("a"), false),
            Note::Allocated(name("y"), 128),
            Note::Released(name("x")),
            Note::Released(name("a")),
            Note::Grew(0, 160),
        ]
    );
}

#[test]
fn offsets_of_a_known_chain() {
    let mut g = Foreign::new(Unread::Dies);
    let x = g.leaf("x", 64);
    let [a, b, c] = ["a", "b", "c"].map(|name| g.value(name, 64));
    g.step(&[x], &[a]);
    g.step(&[a], &[b]);
    g.step(&[b], &[c]);
    let plan = plan_as_ggml(&g.done()).unwrap();
    assert_eq!(offsets(&plan, [x, a, b, c]), [0, 64, 0, 64]);
}
