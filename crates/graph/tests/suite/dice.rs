//! Random ops and graphs from a list of numbers, so that a failing case shrinks to small numbers.

use orlop_graph::{
    DType, FlashAttention, Glu, Graph, GraphBuilder, Interpolation, Leaf, Op, Patch, Pool, PoolKind, Rope,
    RopeMode, SoftMax, SortDirection, TensorId, Unary, Window, infer,
};

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

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    pub(crate) fn extent(&mut self) -> u64 {
        self.one(self.extents)
    }

    fn four(&mut self) -> [u64; 4] {
        std::array::from_fn(|_| self.extent())
    }

    fn pair(&mut self) -> [u32; 2] {
        std::array::from_fn(|_| self.small())
    }

    fn small(&mut self) -> u32 {
        self.one(&[1, 2, 0, 3, 4, 32, u32::MAX])
    }

    fn float(&mut self) -> f32 {
        let bits = f32::from_bits(self.next() as u32);
        let value = self.one(&[1.0, 0.0, -0.5, f32::INFINITY, f32::NEG_INFINITY, bits]);
        if value.is_nan() { 0.1 } else { value } // NaN is not equal to itself
    }

    fn flag(&mut self) -> bool {
        self.below(2) == 1
    }

    fn dtype(&mut self) -> DType {
        use DType::{BF16, F16, F32, F64, I32, I64, Q4_0, Q6_K};
        self.one(&[F32, F32, F32, F16, I32, Q4_0, BF16, I64, F64, Q6_K])
    }

    fn leaf(&mut self) -> Leaf {
        self.one(&[Leaf::Input, Leaf::State, Leaf::Persistent, Leaf::Weight])
    }

    fn window(&mut self) -> Window {
        Window { stride: self.pair(), padding: self.pair(), dilation: self.pair() }
    }

    fn pool(&mut self) -> Pool {
        let kind = self.one(&[PoolKind::Max, PoolKind::Mean]);
        Pool { kind, kernel: self.pair(), stride: self.pair(), padding: self.pair() }
    }

    fn patch(&mut self) -> Patch {
        Patch { strides: std::array::from_fn(|_| self.extent()), offset: self.extent() }
    }

    fn rope(&mut self) -> Rope {
        let sections = RopeMode::Sections(std::array::from_fn(|_| self.small()));
        Rope {
            mode: self.one(&[RopeMode::Normal, RopeMode::Neox, sections]),
            dims: self.small(),
            freq_base: self.float(),
            freq_scale: self.float(),
            ext_factor: self.float(),
            attn_factor: self.float(),
            beta_fast: self.float(),
            beta_slow: self.float(),
            original_context: self.small(),
        }
    }

    /// An op of the given kind, with random parameters.
    fn op(&mut self, kind: usize) -> Op {
        match kind {
            0 => {
                let strides = if self.flag() { self.four() } else { [4, 16, 64, 256] };
                Op::View { extents: self.four(), strides, offset: self.extent() }
            }
            1 => Op::Reshape { extents: self.four() },
            2 => Op::Permute { axes: self.one(&[[0, 2, 1, 3], [3, 1, 0, 2], [1, 0, 2, 3], [9; 4]]) },
            3 => Op::Transpose,
            4 => Op::Dup,
            5 => Op::Cast { dtype: self.dtype() },
            6 => Op::Copy,
            7 => Op::Cont,
            8 => Op::GetRows,
            9 => Op::SetRows,
            10 => Op::Set(self.patch()),
            11 => Op::Acc(self.patch()),
            12 => Op::Repeat { extents: self.four() },
            13 => Op::Concat { axis: self.below(5) as u8 },
            14 => Op::Pad { before: self.four(), after: self.four() },
            15 => Op::Roll { shifts: self.four().map(|shift| shift as i64) },
            16 => Op::Arange { start: self.float(), stop: self.float(), step: self.float() },
            17 => Op::Add,
            18 => Op::Add1,
            19 => Op::Sub,
            20 => Op::Mul,
            21 => Op::Div,
            22 => Op::Scale { scale: self.float(), bias: self.float() },
            23 => Op::Clamp { min: self.float(), max: self.float() },
            24 => Op::Unary(self.one(&Unary::ALL)),
            25 => Op::LeakyRelu { slope: self.float() },
            26 => {
                let gates = [Glu::Silu, Glu::Gelu, Glu::GeluErf, Glu::GeluQuick, Glu::Relu];
                Op::Gated { gate: self.one(&gates), swapped: self.flag() }
            }
            27 => Op::Sum,
            28 => Op::SumRows,
            29 => Op::Mean,
            30 => Op::CumSum,
            31 => Op::ArgMax,
            32 => Op::ArgSort { direction: self.one(&[SortDirection::Ascending, SortDirection::Descending]) },
            33 => Op::TopK { k: self.extent() },
            34 => Op::Norm { eps: self.float() },
            35 => Op::RmsNorm { eps: self.float() },
            36 => Op::GroupNorm { groups: self.small(), eps: self.float() },
            37 => Op::L2Norm { eps: self.float() },
            38 => Op::SoftMax(SoftMax {
                scale: self.float(),
                max_bias: self.float(),
                mask: self.flag(),
                sinks: self.flag(),
            }),
            39 => Op::DiagMaskInf { past: self.small() },
            40 => Op::DiagMaskZero { past: self.small() },
            41 => Op::MulMat,
            42 => Op::MulMatId,
            43 => Op::OutProd,
            44 => Op::Rope(self.rope()),
            45 => Op::FlashAttention(FlashAttention {
                scale: self.float(),
                max_bias: self.float(),
                soft_cap: self.float(),
                window: self.small(),
                kv_len: self.flag(),
                mask: self.flag(),
                sinks: self.flag(),
            }),
            46 => Op::Im2Col { window: self.window(), two_d: self.flag(), dtype: self.dtype() },
            47 => Op::Conv1d(self.window()),
            48 => Op::Conv2d(self.window()),
            49 => Op::ConvDepthwise2d(self.window()),
            50 => Op::ConvTranspose1d { stride: self.small() },
            51 => Op::ConvTranspose2d { stride: self.small() },
            52 => Op::Pool1d(self.pool()),
            53 => Op::Pool2d(self.pool()),
            54 => {
                let mode = self.one(&[Interpolation::Nearest, Interpolation::Bilinear]);
                Op::Upscale { extents: self.four(), mode }
            }
            55 => Op::TimestepEmbedding { dim: self.small(), max_period: self.small() },
            56 => Op::SsmConv,
            57 => Op::SsmScan,
            _ => Op::Custom {
                name: "mine".into(),
                dtype: self.dtype(),
                extents: self.four(),
                overwrites: vec![self.below(3) as u8],
            },
        }
    }

    pub(crate) fn any_op(&mut self) -> Op {
        let kind = self.below(KINDS);
        self.op(kind)
    }

    /// How many operands to try with an op: usually as many as it takes.
    pub(crate) fn operands(&mut self, op: &Op) -> usize {
        let wild = self.below(4);
        match op {
            Op::Arange { .. } => 0,
            Op::SetRows | Op::MulMatId => 3,
            Op::FlashAttention(p) => 3 + usize::from(p.kv_len) + usize::from(p.mask) + usize::from(p.sinks),
            Op::SoftMax(p) => 1 + usize::from(p.mask) + usize::from(p.sinks),
            Op::SsmScan => 7,
            Op::Gated { .. } | Op::Concat { .. } | Op::Custom { .. } => wild,
            Op::Rope(_) => 2 + wild % 2,
            Op::Copy
            | Op::GetRows
            | Op::Set(_)
            | Op::Acc(_)
            | Op::Add
            | Op::Add1
            | Op::Sub
            | Op::Mul
            | Op::Div
            | Op::MulMat
            | Op::OutProd
            | Op::Im2Col { .. }
            | Op::Conv1d(_)
            | Op::Conv2d(_)
            | Op::ConvDepthwise2d(_)
            | Op::ConvTranspose1d { .. }
            | Op::ConvTranspose2d { .. }
            | Op::SsmConv => 2,
            _ => 1,
        }
    }

    pub(crate) fn some_of(&mut self, tensors: &[TensorId], count: usize) -> Vec<TensorId> {
        (0..count).map(|_| self.one(tensors)).collect()
    }

    pub(crate) fn any_leaf(&mut self, builder: &mut GraphBuilder) -> TensorId {
        let dtype = self.dtype();
        let (leaf, extents) = (self.leaf(), self.four());
        let dims = self.below(5);
        builder.leaf(leaf, "leaf", orlop_graph::TensorDesc::contiguous(dtype, &extents[..dims]))
    }
}

const KINDS: usize = 59;

/// One op of every kind.
pub(crate) fn one_of_each() -> impl Iterator<Item = Op> {
    (0..KINDS).map(|kind| Dice::new(Vec::new(), SMALL).op(kind))
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
