//! Random graphs, buffer types, assignments and orders.

use std::sync::Arc;

use orlop_alloc::Assignment;
use orlop_backend::BufferType;
use orlop_graph::{DType, Graph, GraphBuilder, Order, TensorId};
use orlop_testkit::Choices;

use crate::support::host;

/// One to three buffer types, of which two may be the same.
pub(crate) fn random_types(choices: &mut Choices) -> Vec<Arc<dyn BufferType>> {
    let mut types: Vec<Arc<dyn BufferType>> = Vec::new();
    for _ in 0..=choices.below(3) {
        match types.last() {
            Some(last) if choices.once_in(4) => types.push(Arc::clone(last)),
            _ => types.push(host(
                choices.pick(&[4, 1, 8, 16, 32, 64, 128]),
                choices.pick(&[u64::MAX, 100, 128, 256]),
            )),
        }
    }
    types
}

pub(crate) fn random_assignment(choices: &mut Choices, graph: &Graph, types: usize) -> Assignment {
    let mut some = |count: usize| -> Option<Vec<usize>> {
        (!choices.once_in(3)).then(|| (0..count).map(|_| choices.below(types)).collect())
    };
    let nodes = some(graph.nodes().len());
    let leaves = some(graph.leaves().count());
    let order = (!choices.once_in(3)).then(|| random_order(choices, graph));
    Assignment { nodes, leaves, order }
}

/// Any order that dependencies allow, with barriers anywhere, and some of the last nodes left out.
fn random_order(choices: &mut Choices, graph: &Graph) -> Order {
    let before = graph.predecessors();
    let mut left: Vec<usize> = (0..graph.nodes().len()).collect();
    let mut sequence = Vec::new();
    let mut done = vec![false; left.len()];
    let keep = if choices.once_in(4) { left.len() - choices.below(left.len()) } else { left.len() };
    for _ in 0..keep {
        let ready: Vec<usize> = left
            .iter()
            .copied()
            .filter(|node| before[*node].iter().all(|earlier| done[earlier.index()]))
            .collect();
        let node = ready[choices.below(ready.len())];
        done[node] = true;
        left.retain(|other| *other != node);
        sequence.push(node as i64);
        if choices.once_in(2) {
            sequence.push(-1);
        }
    }
    Order::new(graph, &sequence).expect("dependencies were kept")
}

/// What a graph is made of so far. Sizes count in units of `unit` elements.
struct Parts {
    b: GraphBuilder,
    unit: u64,
    tensors: Vec<(TensorId, u64)>,
    /// Those that may be written to.
    writable: Vec<(TensorId, u64)>,
}

impl Parts {
    fn keep(&mut self, id: TensorId, units: u64, writable: bool) {
        self.tensors.push((id, units));
        if writable {
            self.writable.push((id, units));
        }
    }

    fn leaf(&mut self, choices: &mut Choices) {
        let units = choices.pick(&[2, 1, 3, 4, 0]);
        let name = format!("leaf{}", self.tensors.len());
        let extents = [units * self.unit];
        let kind = choices.below(6);
        let id = match kind {
            0 => self.b.weight(&name, DType::F32, &extents),
            1 => self.b.state(&name, DType::F32, &extents),
            2 => self.b.persistent(&name, DType::F32, &extents),
            _ => self.b.input(&name, DType::F32, &extents),
        };
        self.keep(id, units, kind != 0);
    }

    fn node(&mut self, choices: &mut Choices) {
        let (x, units) = choices.pick(&self.tensors);
        let inherits = self.writable.contains(&(x, units));
        match choices.below(8) {
            0 => {
                let result = self.b.sqr(x);
                self.keep(result, units, true);
            }
            1 => {
                let (first, count) = part(choices, units);
                let (elements, bytes) = (count * self.unit, count * self.unit * 4);
                let strides = [4, bytes, bytes, bytes];
                let view = self.b.view(x, [elements, 1, 1, 1], strides, first * self.unit * 4);
                self.keep(view, count, inherits);
            }
            2 => {
                let matrix = self.b.reshape(x, &[self.unit, units]);
                self.keep(matrix, units, inherits);
            }
            3 if !self.writable.is_empty() => {
                let same: Vec<TensorId> =
                    self.writable.iter().filter(|(_, other)| *other == units).map(|(id, _)| *id).collect();
                if let Some(to) = same.get(choices.below(same.len())) {
                    let written = self.b.copy(x, *to);
                    self.keep(written, units, true);
                }
            }
            4 if !self.writable.is_empty() => {
                let (to, rows) = choices.pick(&self.writable);
                let table = self.b.reshape(to, &[self.unit, rows]);
                let patch = self.b.reshape(x, &[self.unit, units]);
                let indices = self.b.input("indices", DType::I32, &[units]);
                let written = self.b.set_rows(table, patch, indices);
                self.keep(written, rows, true);
            }
            kind => {
                let mut inputs = vec![x];
                for _ in 0..choices.below(3) {
                    inputs.push(choices.pick(&self.tensors).0);
                }
                let units = if kind < 6 { units } else { choices.pick(&[1, 2, 3, 4, 0]) };
                let slots: &[u8] = choices.pick(&[&[0], &[], &[0, 1], &[1], &[0, 1, 2]]);
                let result = self.b.custom("op", &inputs, DType::F32, &[units * self.unit], slots);
                self.keep(result, units, true);
            }
        }
    }
}

/// A part of a number of units.
fn part(choices: &mut Choices, units: u64) -> (u64, u64) {
    let first = choices.below(units as usize + 1) as u64;
    (first, choices.below((units - first) as usize + 1) as u64)
}

/// A graph with views of views, in-place chains, writes into leaves and results, and unread results.
/// Equal choices and a smaller unit give the same graph with smaller tensors.
pub(crate) fn random_graph(choices: &mut Choices, unit: u64) -> Graph {
    let mut parts = Parts { b: GraphBuilder::new(), unit, tensors: vec![], writable: vec![] };
    for _ in 0..=choices.below(4) {
        parts.leaf(choices);
    }
    let outputs = choices.below(4);
    while !choices.is_empty() {
        if choices.once_in(8) {
            parts.leaf(choices);
        } else {
            parts.node(choices);
        }
    }
    for index in 0..outputs {
        let at = (parts.tensors.len() - 1).saturating_sub(3 * index);
        let id = parts.tensors[at].0;
        parts.b.output(id);
    }
    parts.b.build().expect("every call was meant")
}
