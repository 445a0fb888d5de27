//! Random ops and graphs from a list of numbers, so that a failing case shrinks to small numbers.

use orlop_graph::{Arity, DType, Graph, GraphBuilder, Leaf, OPS, Op, SampleSource, TensorId, infer};

pub(crate) struct Dice {
    numbers: std::vec::IntoIter<u64>,
    extents: &'static [u64],
}

/// Extents that make most ops fit.
pub(crate) const SMALL: &[u64] = &[4, 1, 2, 32, 0, 64];
/// Extents that overflow in as many ways as there are.
pub(crate) const HOSTILE: &[u64] =
    &[1, 0, 2, 32, 256, 1 << 31, 1 << 32, 1 << 40, u64::MAX / 4, u64::MAX / 2, u64::MAX - 1, u64::MAX];

impl Dice {
    pub(crate) fn new(numbers: Vec<u64>, extents: &'static [u64]) -> Dice {
        Dice { numbers: numbers.into_iter(), extents }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.numbers.next().unwrap_or(0)
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    fn leaf(&mut self) -> Leaf {
        self.one(&[Leaf::Input, Leaf::State, Leaf::Persistent, Leaf::Weight])
    }

    pub(crate) fn any_op(&mut self) -> Op {
        let info = self.one(OPS);
        (info.sample)(self)
    }

    /// How many operands to try with an op: usually as many as it takes.
    pub(crate) fn operands(&mut self, op: &Op) -> usize {
        let wild = self.below(4);
        let Arity { min, max, .. } = op.info().operands;
        match op {
            Op::FlashAttention(params) => params.operands(),
            Op::SoftMax(params) => params.operands(),
            _ if min == max => min,
            Op::Rope(_) => 2 + wild % 2,
            _ => wild,
        }
    }

    pub(crate) fn some_of(&mut self, tensors: &[TensorId], count: usize) -> Vec<TensorId> {
        (0..count).map(|_| self.one(tensors)).collect()
    }

    pub(crate) fn any_leaf(&mut self, builder: &mut GraphBuilder) -> TensorId {
        let dtype = self.dtype();
        let (leaf, extents) = (self.leaf(), self.extents());
        let dims = self.below(5);
        builder.leaf(leaf, "leaf", orlop_graph::TensorDesc::contiguous(dtype, &extents[..dims]))
    }
}

impl SampleSource for Dice {
    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn extent(&mut self) -> u64 {
        self.one(self.extents)
    }

    fn small(&mut self) -> u32 {
        self.one(&[1, 2, 0, 3, 4, 32, u32::MAX])
    }

    fn float(&mut self) -> f32 {
        let bits = f32::from_bits(self.next() as u32);
        let value = self.one(&[1.0, 0.0, -0.5, f32::INFINITY, f32::NEG_INFINITY, bits]);
        if value.is_nan() { 0.1 } else { value } // NaN is not equal to itself
    }

    fn dtype(&mut self) -> DType {
        use DType::{BF16, F16, F32, F64, I32, I64, Q4_0, Q6_K};
        self.one(&[F32, F32, F32, F16, I32, Q4_0, BF16, I64, F64, Q6_K])
    }
}

/// One op of every variant.
pub(crate) fn one_of_each() -> impl Iterator<Item = Op> {
    OPS.iter().map(|info| (info.sample)(&mut Dice::new(Vec::new(), SMALL)))
}

/// A graph that builds: every node that would be refused is left out.
pub(crate) fn graph(numbers: Vec<u64>) -> Graph {
    let mut dice = Dice::new(numbers, SMALL);
    let mut builder = GraphBuilder::new();
    let mut tensors = Vec::new();
    let mut constant = Vec::new();
    for (leaf, dtype, extents) in [
        (Leaf::Input, DType::F32, [4, 4, 1, 1]),
        (Leaf::State, DType::F16, [4, 32, 1, 1]),
        (Leaf::Weight, DType::Q4_0, [32, 4, 1, 1]),
        (Leaf::Persistent, DType::I32, [4, 1, 1, 1]),
    ] {
        let desc = orlop_graph::TensorDesc::contiguous(dtype, &extents);
        tensors.push(builder.leaf(leaf, &format!("{leaf:?} \"{dtype}\""), desc));
        constant.push(leaf == Leaf::Weight);
    }
    for _ in 0..60 {
        let op = dice.any_op();
        let count = dice.operands(&op);
        let inputs = dice.some_of(&tensors, count);
        let descs: Vec<_> = inputs.iter().map(|input| builder.desc(*input)).collect();
        let root = op.storage_operand().and_then(|slot| inputs.get(slot));
        let fixed = root.is_some_and(|root| constant[root.index()]);
        if infer(&op, &descs).is_err() || (fixed && !op.is_view()) {
            continue;
        }
        tensors.push(builder.node(op, &inputs));
        constant.push(fixed);
        if dice.flag() {
            let output = dice.one(&tensors);
            builder.output(output);
        }
    }
    builder.build().expect("only nodes that fit were added")
}
