//! A random graph under construction: what there is to build on, and how large its numbers can be.

use orlop_graph::{DType, GraphBuilder, Leaf, Op, TensorDesc, TensorId, infer};

use super::Size;
use crate::fill::Fill;
use crate::random::Random;

/// No value exceeds this, so that squares and sums of many stay far from any limit.
const LARGEST: f64 = 64.0;

/// A value of floating-point type that later moves can use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) id: TensorId,
    /// Position in `bounds` of the storage that it reads.
    pub(super) root: usize,
    pub(super) leaf: Option<Leaf>,
}

pub(super) struct Sketch {
    pub(super) b: GraphBuilder,
    pub(super) random: Random,
    pub(super) size: Size,
    pub(super) pool: Vec<Entry>,
    /// For each storage, what no element exceeds.
    bounds: Vec<f64>,
    fills: Vec<(TensorId, Fill)>,
    /// The row length that most values have.
    pub(super) width: u64,
    /// Results of nodes, the candidates for outputs.
    made: Vec<TensorId>,
}

impl Sketch {
    pub(super) fn new(mut random: Random, size: Size) -> Sketch {
        let width = random.pick(&[4, 6, 8, 32]);
        let mut sketch = Sketch {
            b: GraphBuilder::new(),
            random,
            size,
            pool: Vec::new(),
            bounds: Vec::new(),
            fills: Vec::new(),
            width,
            made: Vec::new(),
        };
        let rows = 2 + sketch.random.below(4);
        for extents in [&[width, rows][..], &[width, rows], &[width], &[width, rows, 2], &[1, rows]] {
            let dtype = sketch.random.pick(&[DType::F32, DType::F32, DType::F32, DType::F16, DType::BF16]);
            sketch.leaf(Leaf::Input, dtype, extents, Fill::SIGNED, 1.0);
        }
        let lasting = sketch.random.pick(&[Leaf::State, Leaf::Persistent]);
        let dtype = sketch.random.pick(&[DType::F32, DType::F16]);
        sketch.leaf(lasting, dtype, &[width, rows + 3], Fill::SIGNED, 1.0);
        sketch
    }

    /// A leaf that later moves can use.
    pub(super) fn leaf(
        &mut self,
        leaf: Leaf,
        dtype: DType,
        extents: &[u64],
        fill: Fill,
        bound: f64,
    ) -> Entry {
        let id = self.hidden_leaf(leaf, dtype, extents, fill);
        self.bounds.push(bound);
        let entry = Entry { id, root: self.bounds.len() - 1, leaf: Some(leaf) };
        self.pool.push(entry);
        entry
    }

    /// A leaf of its own for one node: indices, weights.
    pub(super) fn hidden_leaf(&mut self, leaf: Leaf, dtype: DType, extents: &[u64], fill: Fill) -> TensorId {
        let name = format!("leaf {}", self.fills.len());
        let id = self.b.leaf(leaf, &name, TensorDesc::contiguous(dtype, extents));
        self.fills.push((id, fill));
        id
    }

    pub(super) fn pick(&mut self) -> Entry {
        // Recent values are more likely, so that graphs grow deep.
        let recent = self.pool.len().saturating_sub(8);
        let from = if self.random.one_in(3) { 0 } else { recent };
        self.pool[from + self.random.below((self.pool.len() - from) as u64) as usize]
    }

    /// One of the values that fit, if there are any.
    pub(super) fn pick_where(&mut self, fits: impl Fn(&Entry, &TensorDesc) -> bool) -> Option<Entry> {
        let fitting: Vec<Entry> =
            self.pool.iter().copied().filter(|entry| fits(entry, &self.b.desc(entry.id))).collect();
        (!fitting.is_empty()).then(|| self.random.pick(&fitting))
    }

    pub(super) fn desc(&self, entry: Entry) -> TensorDesc {
        self.b.desc(entry.id)
    }

    pub(super) fn bound(&self, entry: Entry) -> f64 {
        self.bounds[entry.root]
    }

    /// Whether the op takes these operands and its result is not too large.
    pub(super) fn fits(&self, op: &Op, operands: &[TensorId]) -> bool {
        let descs: Vec<TensorDesc> = operands.iter().map(|id| self.b.desc(*id)).collect();
        infer(op, &descs).is_ok_and(|desc| desc.elements() <= self.size.elements)
    }

    /// Adds a node whose result is new memory, if the op takes the operands. Results that could become too large
    /// are scaled down.
    pub(super) fn compute(&mut self, op: Op, operands: &[TensorId], bound: f64) -> Option<Entry> {
        if !self.fits(&op, operands) {
            return None;
        }
        let id = self.b.node(op, operands);
        self.made.push(id);
        let id = if bound > LARGEST {
            let scaled = self.b.scale(id, (1.0 / bound) as f32);
            self.made.push(scaled);
            scaled
        } else {
            id
        };
        let bound = if bound > LARGEST { 1.0 } else { bound };
        self.bounds.push(bound);
        let entry = Entry { id, root: self.bounds.len() - 1, leaf: None };
        self.pool.push(entry);
        Some(entry)
    }

    /// Adds a node without a place among the values to build on, such as indices.
    pub(super) fn aside(&mut self, op: Op, operands: &[TensorId]) -> Option<TensorId> {
        self.fits(&op, operands).then(|| self.b.node(op, operands))
    }

    /// Adds a view of a value.
    pub(super) fn look(&mut self, op: Op, of: Entry) -> Option<Entry> {
        if !self.fits(&op, &[of.id]) {
            return None;
        }
        let id = self.b.node(op, &[of.id]);
        self.made.push(id);
        let entry = Entry { id, ..of };
        self.pool.push(entry);
        Some(entry)
    }

    /// Adds a node that writes into a value's storage.
    pub(super) fn write(&mut self, op: Op, operands: &[TensorId], into: Entry, bound: f64) -> Option<Entry> {
        if !self.fits(&op, operands) {
            return None;
        }
        let id = self.b.node(op, operands);
        self.made.push(id);
        self.bounds[into.root] = self.bounds[into.root].max(bound);
        let entry = Entry { id, ..into };
        self.pool.push(entry);
        Some(entry)
    }

    /// Declares some outputs, mostly.
    pub(super) fn finish(mut self) -> (GraphBuilder, Vec<(TensorId, Fill)>) {
        if !self.made.is_empty() && !self.random.one_in(6) {
            let last = self.made.len() - 1;
            self.b.output(self.made[last]);
            for _ in 0..self.random.below(4) {
                let chosen = self.random.pick(&self.made);
                self.b.output(chosen);
            }
        }
        (self.b, self.fills)
    }
}
