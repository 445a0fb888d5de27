//! What a random graph can be continued with.

use orlop_graph::{DType, Glu, Leaf, Op, Patch, Rope, RopeMode, SoftMax, SortDirection, TensorDesc, Unary};

use super::chance::{Entry, Sketch};
use crate::fill::Fill;

impl Sketch {
    /// Adds an op, or a few that belong together. Moves that do not fit what there is are replaced by a scaling.
    pub(super) fn one_move(&mut self) {
        let moved = match self.random.below(19) {
            0..=2 => self.unary(),
            3..=5 => self.binary(),
            6 => self.shift(),
            7 => self.normalise(),
            8 => self.product_with_weight(),
            9 => self.product(),
            10 => self.look_differently(),
            11 => self.convert(),
            12 => self.rearrange(),
            13 => self.reduce(),
            14 => self.look_up(),
            15 => self.write_rows(),
            16 => self.copy_over(),
            17 => self.gate(),
            _ => self.rotate_or_patch(),
        };
        if moved.is_none() {
            let x = self.pick();
            let bound = self.bound(x) * 0.75;
            self.compute(Op::Scale { scale: -0.75, bias: 0.0 }, &[x.id], bound);
        }
    }

    fn unary(&mut self) -> Option<Entry> {
        let x = self.pick();
        let bound = self.bound(x);
        let bounded = [
            Unary::Sin,
            Unary::Cos,
            Unary::Sgn,
            Unary::Step,
            Unary::Sigmoid,
            Unary::Tanh,
            Unary::HardSigmoid,
        ];
        let others = [
            Unary::Neg,
            Unary::Abs,
            Unary::Relu,
            Unary::Gelu,
            Unary::GeluErf,
            Unary::GeluQuick,
            Unary::Silu,
            Unary::Elu,
            Unary::HardSwish,
        ];
        if self.random.one_in(3) {
            let function = self.random.pick(&bounded);
            return self.compute(Op::Unary(function), &[x.id], 1.0);
        }
        if self.random.one_in(8) {
            return self.compute(Op::Unary(Unary::Sqr), &[x.id], bound * bound);
        }
        if self.random.one_in(8) {
            return self.compute(Op::LeakyRelu { slope: 0.1 }, &[x.id], bound);
        }
        let function = self.random.pick(&others);
        self.compute(Op::Unary(function), &[x.id], bound.max(1.0))
    }

    fn binary(&mut self) -> Option<Entry> {
        let a = self.pick();
        let extents = self.desc(a).extents;
        let repeats =
            |part: &[u64; 4]| (0..4).all(|dim| part[dim] > 0 && extents[dim].is_multiple_of(part[dim]));
        let b = self.pick_where(|_, desc| repeats(&desc.extents))?;
        let (x, y) = (self.bound(a), self.bound(b));
        match self.random.below(5) {
            0 => self.compute(Op::Sub, &[a.id, b.id], x + y),
            1 => self.compute(Op::Mul, &[a.id, b.id], x * y),
            2 => {
                let fill = Fill::Uniform { low: 1.0, high: 2.0 };
                let divisor = self.hidden_leaf(Leaf::Input, DType::F32, &extents[..1], fill);
                self.compute(Op::Div, &[a.id, divisor], x)
            }
            _ => self.compute(Op::Add, &[a.id, b.id], x + y),
        }
    }

    fn shift(&mut self) -> Option<Entry> {
        let x = self.pick();
        let bound = self.bound(x);
        if self.random.one_in(2) {
            return self.compute(Op::Clamp { min: -0.5, max: 0.75 }, &[x.id], 0.75);
        }
        self.compute(Op::Scale { scale: 0.5, bias: 0.25 }, &[x.id], bound * 0.5 + 0.25)
    }

    fn normalise(&mut self) -> Option<Entry> {
        let x = self.pick();
        let desc = self.desc(x);
        let length = desc.extents[0] as f64;
        match self.random.below(6) {
            0 => self.compute(Op::Norm { eps: 1e-5 }, &[x.id], length.sqrt()),
            1 => self.compute(Op::L2Norm { eps: 1e-5 }, &[x.id], 1.0),
            2 => {
                let group = (desc.extents[0] * desc.extents[1] * desc.extents[2]) as f64;
                self.compute(Op::GroupNorm { groups: 1, eps: 1e-5 }, &[x.id], group.sqrt())
            }
            3 => {
                let plain = SoftMax { scale: 0.5, max_bias: 0.0, mask: false, sinks: false };
                self.compute(Op::SoftMax(plain), &[x.id], 1.0)
            }
            4 => {
                let bound = self.bound(x);
                self.compute(Op::DiagMaskZero { past: 1 }, &[x.id], bound)
            }
            _ => self.compute(Op::RmsNorm { eps: 1e-5 }, &[x.id], length.sqrt()),
        }
    }

    fn product_with_weight(&mut self) -> Option<Entry> {
        let x = self.pick_where(|_, desc| desc.dtype == DType::F32 && desc.extents[0] > 1)?;
        let length = self.desc(x).extents[0];
        let plain = [DType::F32, DType::F16, DType::BF16];
        let blocks = [DType::Q8_0, DType::Q4_0, DType::Q5_1, DType::F16];
        let dtype =
            if length.is_multiple_of(32) { self.random.pick(&blocks) } else { self.random.pick(&plain) };
        let rows = self.random.pick(&[self.width, 3, 1]);
        let weight = self.hidden_leaf(Leaf::Weight, dtype, &[length, rows], Fill::SIGNED);
        let bound = self.bound(x) * length as f64 * 1.1;
        self.compute(Op::MulMat, &[weight, x.id], bound)
    }

    fn product(&mut self) -> Option<Entry> {
        let b = self.pick_where(|_, desc| desc.extents[0] > 1)?;
        let wanted = self.desc(b).extents;
        let fits = |desc: &TensorDesc| {
            desc.extents[0] == wanted[0]
                && desc.extents[2] > 0
                && desc.extents[3] > 0
                && wanted[2].is_multiple_of(desc.extents[2])
                && wanted[3].is_multiple_of(desc.extents[3])
        };
        let a = self.pick_where(|_, desc| fits(desc))?;
        let bound = self.bound(a) * self.bound(b) * wanted[0] as f64;
        self.compute(Op::MulMat, &[a.id, b.id], bound)
    }

    fn look_differently(&mut self) -> Option<Entry> {
        let x = self.pick();
        let desc = self.desc(x);
        let [a, b, c, d] = desc.extents;
        match self.random.below(4) {
            0 => self.look(Op::Transpose, x),
            1 => {
                let axes = self.random.pick(&[[0, 2, 1, 3], [1, 0, 2, 3], [2, 0, 1, 3], [1, 2, 0, 3]]);
                self.look(Op::Permute { axes }, x)
            }
            2 => {
                let extents = self.random.pick(&[
                    [a * b, c, d, 1],
                    [a, b * c, d, 1],
                    [a * b * c * d, 1, 1, 1],
                    [a, 1, b, c * d],
                ]);
                self.look(Op::Reshape { extents }, x)
            }
            _ => {
                let mut part = desc.extents;
                let mut offset = 0;
                for (dim, extent) in part.iter_mut().enumerate() {
                    let first = self.random.below(*extent);
                    *extent = 1 + self.random.below(*extent - first);
                    offset += first * desc.strides[dim];
                }
                self.look(Op::View { extents: part, strides: desc.strides, offset }, x)
            }
        }
    }

    fn convert(&mut self) -> Option<Entry> {
        let x = self.pick();
        let bound = self.bound(x);
        match self.random.below(4) {
            0 => self.compute(Op::Cont, &[x.id], bound),
            1 => self.compute(Op::Dup, &[x.id], bound),
            _ => {
                let dtype = self.random.pick(&[DType::F32, DType::F32, DType::F16, DType::BF16]);
                self.compute(Op::Cast { dtype }, &[x.id], bound)
            }
        }
    }

    fn rearrange(&mut self) -> Option<Entry> {
        let x = self.pick();
        let desc = self.desc(x);
        let bound = self.bound(x);
        match self.random.below(4) {
            0 => {
                let axis = self.random.below(4) as u8;
                let same = |other: &TensorDesc| {
                    other.dtype == desc.dtype
                        && (0..4)
                            .all(|dim| dim == usize::from(axis) || other.extents[dim] == desc.extents[dim])
                };
                let other = self.pick_where(|_, desc| same(desc))?;
                let bound = bound.max(self.bound(other));
                self.compute(Op::Concat { axis }, &[x.id, other.id], bound)
            }
            1 => {
                let times = self.random.pick(&[[2, 1, 1, 1], [1, 2, 1, 1], [1, 1, 2, 1]]);
                let extents = std::array::from_fn(|dim| desc.extents[dim] * times[dim]);
                self.compute(Op::Repeat { extents }, &[x.id], bound)
            }
            2 => self.compute(Op::Pad { before: [1, 0, 0, 0], after: [1, 1, 0, 0] }, &[x.id], bound),
            _ => self.compute(Op::Roll { shifts: [1, -1, 0, 0] }, &[x.id], bound),
        }
    }

    fn reduce(&mut self) -> Option<Entry> {
        let x = self.pick();
        let (bound, length) = (self.bound(x), self.desc(x).extents[0] as f64);
        match self.random.below(3) {
            0 => self.compute(Op::SumRows, &[x.id], bound * length),
            1 => self.compute(Op::CumSum, &[x.id], bound * length),
            _ => self.compute(Op::Mean, &[x.id], bound),
        }
    }

    /// Rows of a value, chosen by the order of their sums.
    fn look_up(&mut self) -> Option<Entry> {
        let table = self.pick();
        let [_, rows, c, d] = self.desc(table).extents;
        let sums = self.aside(Op::SumRows, &[table.id])?;
        let sums = self.aside(Op::Reshape { extents: [rows, c, d, 1] }, &[sums])?;
        let order = if self.random.one_in(2) {
            Op::ArgSort { direction: SortDirection::Ascending }
        } else {
            Op::TopK { k: 1 + self.random.below(rows) }
        };
        let indices = self.aside(order, &[sums])?;
        let bound = self.bound(table);
        self.compute(Op::GetRows, &[table.id, indices], bound)
    }

    fn write_rows(&mut self) -> Option<Entry> {
        let rows = self.pick();
        let desc = self.desc(rows);
        let [length, count, c, d] = desc.extents;
        let fits = |entry: &Entry, into: &TensorDesc| {
            // Results that others may still read in another way are left alone.
            entry.leaf.is_some_and(|leaf| leaf != Leaf::Weight)
                && entry.root != rows.root
                && [into.extents[0], into.extents[2], into.extents[3]] == [length, c, d]
                && into.extents[1] >= count
        };
        let into = self.pick_where(fits)?;
        let dtype = self.random.pick(&[DType::I32, DType::I64]);
        let below = self.desc(into).extents[1];
        let indices = self.hidden_leaf(Leaf::Input, dtype, &[count], Fill::Distinct { run: count, below });
        let bound = self.bound(rows);
        self.write(Op::SetRows, &[into.id, rows.id, indices], into, bound)
    }

    fn copy_over(&mut self) -> Option<Entry> {
        let source = self.pick();
        let desc = self.desc(source);
        let bound = self.bound(source);
        let fits = |entry: &Entry, into: &TensorDesc| {
            entry.leaf.is_some() && entry.root != source.root && into.elements() == desc.elements()
        };
        let into = match self.pick_where(fits) {
            Some(into) => into,
            None => {
                let leaf = self.random.pick(&[Leaf::State, Leaf::Persistent, Leaf::Input]);
                self.leaf(leaf, DType::F32, &desc.extents, Fill::SIGNED, 1.0)
            }
        };
        self.write(Op::Copy, &[source.id, into.id], into, bound)
    }

    fn gate(&mut self) -> Option<Entry> {
        let gate = self.random.pick(&[Glu::Relu, Glu::Gelu, Glu::GeluErf, Glu::GeluQuick, Glu::Silu]);
        let a = self.pick();
        let desc = self.desc(a);
        let bound = self.bound(a).max(1.0);
        if self.random.one_in(3) {
            let swapped = self.random.one_in(2);
            return self.compute(Op::Gated { gate, swapped }, &[a.id], bound * bound);
        }
        let same = |other: &TensorDesc| (other.dtype, other.extents) == (desc.dtype, desc.extents);
        let b = self.pick_where(|_, desc| same(desc))?;
        let bound = bound * self.bound(b);
        self.compute(Op::Gated { gate, swapped: false }, &[a.id, b.id], bound)
    }

    fn rotate_or_patch(&mut self) -> Option<Entry> {
        let x = self.pick();
        let desc = self.desc(x);
        let bound = self.bound(x);
        if self.random.one_in(2) {
            let dims = (desc.extents[0] / 2 * 2) as u32;
            let mode = self.random.pick(&[RopeMode::Normal, RopeMode::Neox]);
            let rope = Rope { mode, dims, ..Rope::default() };
            let positions = self.hidden_leaf(
                Leaf::Input,
                DType::I32,
                &[desc.extents[2]],
                Fill::Whole { low: 0, high: 64 },
            );
            return self.compute(Op::Rope(rope), &[x.id, positions], bound * 1.5);
        }
        let smaller = |other: &TensorDesc| {
            other.dtype == desc.dtype && (0..4).all(|dim| other.extents[dim] <= desc.extents[dim])
        };
        let patch = self.pick_where(|_, desc| smaller(desc))?;
        let [_, s1, s2, s3] = desc.strides;
        let at = Patch { strides: [s1, s2, s3], offset: 0 };
        let bound = bound + self.bound(patch);
        let op = if self.random.one_in(2) { Op::Set(at) } else { Op::Acc(at) };
        self.compute(op, &[x.id, patch.id], bound)
    }
}
