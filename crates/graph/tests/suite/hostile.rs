//! Absurd parameters and operands give a graph or an error, never a panic.

use orlop_graph::{GraphBuilder, Order};
use proptest::prelude::*;

use crate::dice::{Dice, HOSTILE, SMALL};

fn build(numbers: Vec<u64>, extents: &'static [u64]) {
    let mut dice = Dice::new(numbers, extents);
    let mut builder = GraphBuilder::new();
    let mut tensors: Vec<_> = (0..4).map(|_| dice.any_leaf(&mut builder)).collect();
    for _ in 0..12 {
        let op = dice.any_op();
        let count = dice.operands(&op);
        let inputs = dice.some_of(&tensors, count);
        tensors.push(builder.node(op, &inputs));
    }
    for tensor in &tensors {
        let desc = builder.desc(*tensor);
        let _ = (desc.bytes(), desc.rows(), desc.elements(), desc.row_bytes(), desc.is_contiguous());
        let _ = (desc.runs().next(), desc.to_string());
    }
    if let Ok(graph) = builder.build() {
        let _ = (graph.predecessors(), graph.results(), graph.to_dot());
        let _ = Order::new(&graph, &[3, -1, 0, i64::MIN]);
    }
}

/// One op on leaves that are there, so that no refused leaf hides its check.
fn try_op(numbers: Vec<u64>) {
    let mut dice = Dice::new(numbers, HOSTILE);
    let op = dice.any_op();
    let count = dice.operands(&op);
    let mut operands = Vec::new();
    for _ in 0..count * 20 {
        let mut probe = GraphBuilder::new();
        let leaf = dice.any_leaf(&mut probe);
        let desc = probe.desc(leaf);
        if probe.build().is_ok() && operands.len() < count {
            operands.push(desc);
        }
    }
    let _ = orlop_graph::infer(&op, &operands);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn absurd_graphs_never_panic(numbers in prop::collection::vec(any::<u64>(), 0..400)) {
        build(numbers, HOSTILE);
    }

    #[test]
    fn random_graphs_never_panic(numbers in prop::collection::vec(any::<u64>(), 0..400)) {
        build(numbers, SMALL);
    }

    #[test]
    fn absurd_operands_never_panic(numbers in prop::collection::vec(any::<u64>(), 0..600)) {
        try_op(numbers);
    }
}
