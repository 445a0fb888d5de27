//! Dependencies that follow from reads and writes.

use orlop_graph::{Access, AccessKind, DType, Edge, GraphBuilder, Hazard, dependencies};
use proptest::prelude::*;

const STEPS: u32 = 24;

/// Everything that must come before something, directly or through others.
fn closure(pairs: impl Iterator<Item = (u32, u32)>) -> Vec<Vec<bool>> {
    let steps = STEPS as usize;
    let mut before = vec![vec![false; steps]; steps];
    for (a, b) in pairs {
        before[a as usize][b as usize] = true;
    }
    for via in 0..steps {
        for from in 0..steps {
            for to in 0..steps {
                before[from][to] |= before[from][via] && before[via][to];
            }
        }
    }
    before
}

/// Every conflicting pair, compared one by one.
fn conflicts(accesses: &[Access]) -> Vec<(u32, u32)> {
    let mut pairs = Vec::new();
    for (index, later) in accesses.iter().enumerate() {
        for earlier in &accesses[..index] {
            let overlap = earlier.range.start.max(later.range.start) < earlier.range.end.min(later.range.end);
            let writes = earlier.kind == AccessKind::Write || later.kind == AccessKind::Write;
            if earlier.root == later.root && earlier.step != later.step && overlap && writes {
                pairs.push((earlier.step, later.step));
            }
        }
    }
    pairs
}

fn accesses() -> impl Strategy<Value = Vec<Access>> {
    let one = (0..STEPS, 0..3u32, 0..20u64, 0..12u64, any::<bool>(), any::<bool>());
    prop::collection::vec(one, 0..60).prop_map(|raw| {
        let mut accesses: Vec<Access> = raw
            .into_iter()
            .map(|(step, root, start, length, write, far)| {
                let kind = if write { AccessKind::Write } else { AccessKind::Read };
                let start = if far { u64::MAX - 32 + start } else { start };
                Access { step, root: root * 1_000_000_007, range: start..start + length, kind }
            })
            .collect();
        accesses.sort_by_key(|access| access.step);
        accesses
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn edges_order_exactly_what_conflicts(accesses in accesses()) {
        let edges = dependencies(&accesses);
        prop_assert!(edges.is_sorted() && edges.iter().all(|edge| edge.before < edge.after));
        let expected = closure(conflicts(&accesses).into_iter());
        let found = closure(edges.iter().map(|edge| (edge.before, edge.after)));
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn roots_are_any_numbers() {
    let touch = |step, kind| Access { step, root: u32::MAX, range: 0..u64::MAX, kind };
    let edges = dependencies(&[touch(0, AccessKind::Write), touch(u32::MAX, AccessKind::Read)]);
    assert_eq!(edges, [Edge { before: 0, after: u32::MAX, hazard: Hazard::ReadAfterWrite }]);
}

#[test]
fn backward_ranges_touch_nothing() {
    #[expect(clippy::reversed_empty_ranges)]
    let backward = Access { step: 1, root: 0, range: 9..3, kind: AccessKind::Write };
    let all = Access { step: 0, root: 0, range: 0..16, kind: AccessKind::Write };
    assert_eq!(dependencies(&[all, backward]), []);
}

/// A chain with one written cache that every step reads in part, and one weight that all read.
#[test]
fn a_hundred_thousand_accesses_are_little_work() {
    let touch = |step, root, range, kind| Access { step, root, range, kind };
    let mut accesses = Vec::new();
    for step in 0..20_000u32 {
        let at = u64::from(step.wrapping_mul(2_654_435_761) % 100_000);
        accesses.push(touch(step, 0, at..at + 64, AccessKind::Read));
        accesses.push(touch(step, 1, at..at + 4096, AccessKind::Read));
        accesses.push(touch(step, 2, 0..100_000, AccessKind::Read));
        accesses.push(touch(step, 0, at / 2..at / 2 + 64, AccessKind::Write));
        accesses.push(touch(step, 3 + step, 0..4096, AccessKind::Write));
    }
    assert_eq!(accesses.len(), 100_000);
    let edges = dependencies(&accesses);
    assert!(!edges.is_empty() && edges.len() < 400_000, "{}", edges.len());
}

#[test]
fn a_graph_touches_storage_through_its_views() {
    let mut b = GraphBuilder::new();
    let cache = b.state("cache", DType::F32, &[4, 8]);
    let x = b.input("x", DType::F32, &[4]);
    let low = b.view(cache, [4, 1, 1, 1], [4, 16, 16, 16], 0);
    let high = b.view(cache, [4, 1, 1, 1], [4, 16, 16, 16], 16);
    b.copy(x, low); // n2
    b.sqr(high); // n3: other bytes
    b.sqr(low); // n4: reads what n2 wrote, though not from its result
    b.copy(x, low); // n5
    let graph = b.build().unwrap();
    let edge = |before, after, hazard| Edge { before, after, hazard };
    assert_eq!(
        graph.storage_edges(),
        [
            edge(2, 4, Hazard::ReadAfterWrite),
            edge(2, 5, Hazard::WriteAfterWrite),
            edge(4, 5, Hazard::WriteAfterRead)
        ]
    );
    let before: Vec<Vec<usize>> =
        graph.predecessors().iter().map(|list| list.iter().map(|id| id.index()).collect()).collect();
    assert_eq!(before, [vec![], vec![], vec![0], vec![1], vec![0, 2], vec![0, 2, 4]]);
}
