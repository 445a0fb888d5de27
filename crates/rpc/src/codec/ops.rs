//! Ops: their numbers by version, and their parameters, in both directions.

use orlop_graph::{
    DType, FlashAttention, Glu, Op, Patch, Rope, RopeMode, SoftMax, SortDirection, TensorDesc, Unary,
};

/// An op as messages have it: its number and its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GgmlOp {
    /// Its number, which depends on the version.
    pub number: u32,
    /// 32-bit integers, and floats by their bits.
    pub params: [i32; 16],
}

impl GgmlOp {
    /// That of leaves.
    pub const NONE: GgmlOp = GgmlOp { number: 0, params: [0; 16] };
}

/// How a version numbers its ops: by how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpNumbers {
    count: u32,
}

/// Numbers among 101 ops.
mod number {
    pub(super) const DUP: u32 = 1;
    pub(super) const ADD: u32 = 2;
    pub(super) const ADD1: u32 = 4;
    pub(super) const ACC: u32 = 5;
    pub(super) const SUB: u32 = 6;
    pub(super) const MUL: u32 = 7;
    pub(super) const DIV: u32 = 8;
    pub(super) const SQR: u32 = 9;
    pub(super) const SQRT: u32 = 10;
    pub(super) const LOG: u32 = 11;
    pub(super) const SIN: u32 = 12;
    pub(super) const COS: u32 = 13;
    pub(super) const SUM: u32 = 14;
    pub(super) const SUM_ROWS: u32 = 15;
    pub(super) const CUMSUM: u32 = 16;
    pub(super) const MEAN: u32 = 17;
    pub(super) const ARGMAX: u32 = 18;
    pub(super) const REPEAT: u32 = 20;
    pub(super) const CONCAT: u32 = 22;
    pub(super) const NORM: u32 = 24;
    pub(super) const RMS_NORM: u32 = 25;
    pub(super) const GROUP_NORM: u32 = 27;
    pub(super) const L2_NORM: u32 = 28;
    pub(super) const MUL_MAT: u32 = 29;
    pub(super) const MUL_MAT_ID: u32 = 30;
    pub(super) const SCALE: u32 = 32;
    pub(super) const SET: u32 = 33;
    pub(super) const CPY: u32 = 34;
    pub(super) const CONT: u32 = 35;
    pub(super) const VIEWS: std::ops::RangeInclusive<u32> = 36..=39;
    pub(super) const GET_ROWS: u32 = 40;
    pub(super) const SET_ROWS: u32 = 42;
    pub(super) const DIAG_MASK_INF: u32 = 44;
    pub(super) const DIAG_MASK_ZERO: u32 = 45;
    pub(super) const SOFT_MAX: u32 = 46;
    pub(super) const ROPE: u32 = 48;
    pub(super) const CLAMP: u32 = 50;
    pub(super) const PAD: u32 = 64;
    pub(super) const ROLL: u32 = 66;
    pub(super) const ARANGE: u32 = 67;
    pub(super) const ARGSORT: u32 = 69;
    pub(super) const LEAKY_RELU: u32 = 71;
    pub(super) const FLASH_ATTN_EXT: u32 = 74;
    pub(super) const SSM_CONV: u32 = 76;
    pub(super) const SSM_SCAN: u32 = 77;
    pub(super) const UNARY: u32 = 91;
    pub(super) const GLU: u32 = 100;
}

/// Functions of UNARY and their numbers.
const UNARY: [(Unary, i32); 16] = [
    (Unary::Abs, 0),
    (Unary::Sgn, 1),
    (Unary::Neg, 2),
    (Unary::Step, 3),
    (Unary::Tanh, 4),
    (Unary::Elu, 5),
    (Unary::Relu, 6),
    (Unary::Sigmoid, 7),
    (Unary::Gelu, 8),
    (Unary::GeluQuick, 9),
    (Unary::Silu, 10),
    (Unary::HardSwish, 11),
    (Unary::HardSigmoid, 12),
    (Unary::Exp, 13),
    (Unary::Softplus, 15),
    (Unary::GeluErf, 16),
];

/// Functions that are ops by themselves.
const ALONE: [(Unary, u32); 5] = [
    (Unary::Sqr, number::SQR),
    (Unary::Sqrt, number::SQRT),
    (Unary::Log, number::LOG),
    (Unary::Sin, number::SIN),
    (Unary::Cos, number::COS),
];

/// Functions of GLU and their numbers.
const GLU: [(Glu, i32); 5] =
    [(Glu::Relu, 0), (Glu::Gelu, 1), (Glu::Silu, 2), (Glu::GeluErf, 4), (Glu::GeluQuick, 5)];

/// Products and attention that sum in F32.
const PRECISION_F32: i32 = 10;

/// The mode of rotations with four position streams.
const MODE_SECTIONS: i32 = 8;

/// What the sources of a node are, from the operands of an [`Op`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceOrder {
    /// The operands in their order.
    AsGiven,
    /// The first operand, a destination, comes last.
    DestinationLast,
    /// The operand, and the result itself.
    AndResult,
}

impl OpNumbers {
    pub(super) const fn of_count(count: u32) -> OpNumbers {
        OpNumbers { count }
    }

    /// The number in this version of an op among 101.
    fn here(self, of_101: u32) -> u32 {
        let later = |from: u32, since: u32| u32::from(of_101 > from && self.count < since);
        of_101 - later(55, 97) - later(87, 98) - 3 * later(90, 101)
    }

    /// The number among 101 of an op of this version; `None` for numbers that this version does not have.
    fn of_101(self, here: u32) -> Option<u32> {
        (0..101).find(|number| self.here(*number) == here && !self.lacks(*number))
    }

    fn lacks(self, of_101: u32) -> bool {
        match of_101 {
            55 => self.count < 97,
            87 => self.count < 98,
            88..=90 => self.count < 101,
            _ => false,
        }
    }

    /// An op as a node of this version, if there is one that computes it alone.
    pub fn encode(self, op: &Op) -> Option<(GgmlOp, SourceOrder)> {
        let mut params = [0; 16];
        let mut order = SourceOrder::AsGiven;
        let number = match op {
            Op::Dup => number::DUP,
            Op::Cont => number::CONT,
            Op::Cast { .. } => {
                order = SourceOrder::AndResult;
                number::CPY
            }
            Op::Copy => number::CPY,
            Op::GetRows => number::GET_ROWS,
            Op::SetRows => {
                order = SourceOrder::DestinationLast;
                number::SET_ROWS
            }
            Op::Set(patch) => {
                params = patched(patch)?;
                number::SET
            }
            Op::Acc(patch) => {
                params = patched(patch)?;
                number::ACC
            }
            Op::Repeat { .. } => number::REPEAT,
            Op::Concat { axis } => {
                params[0] = i32::from(*axis);
                number::CONCAT
            }
            Op::Pad { before, after } => {
                for dim in 0..4 {
                    params[2 * dim] = i32::try_from(before[dim]).ok()?;
                    params[2 * dim + 1] = i32::try_from(after[dim]).ok()?;
                }
                number::PAD
            }
            Op::Roll { shifts } => {
                for (param, shift) in params.iter_mut().zip(shifts) {
                    *param = i32::try_from(*shift).ok()?;
                }
                number::ROLL
            }
            Op::Arange { start, stop, step } => {
                params = floats(params, 0, &[*start, *stop, *step]);
                number::ARANGE
            }
            Op::Add => number::ADD,
            Op::Add1 => number::ADD1,
            Op::Sub => number::SUB,
            Op::Mul => number::MUL,
            Op::Div => number::DIV,
            Op::Scale { scale, bias } => {
                params = floats(params, 0, &[*scale, *bias]);
                number::SCALE
            }
            Op::Clamp { min, max } => {
                params = floats(params, 0, &[*min, *max]);
                number::CLAMP
            }
            Op::Unary(function) => match ALONE.iter().find(|(known, _)| known == function) {
                Some((_, number)) => *number,
                None => {
                    params[0] = UNARY.iter().find(|(known, _)| known == function)?.1;
                    number::UNARY
                }
            },
            Op::LeakyRelu { slope } => {
                params = floats(params, 0, &[*slope]);
                number::LEAKY_RELU
            }
            Op::Gated { gate, swapped } => {
                params[0] = GLU.iter().find(|(known, _)| known == gate)?.1;
                params[1] = i32::from(*swapped);
                number::GLU
            }
            Op::Sum => number::SUM,
            Op::SumRows => number::SUM_ROWS,
            Op::Mean => number::MEAN,
            Op::CumSum => number::CUMSUM,
            Op::ArgMax => number::ARGMAX,
            Op::ArgSort { direction } => {
                params[0] = i32::from(*direction == SortDirection::Descending);
                number::ARGSORT
            }
            Op::Norm { eps } => {
                params = floats(params, 0, &[*eps]);
                number::NORM
            }
            Op::RmsNorm { eps } => {
                params = floats(params, 0, &[*eps]);
                number::RMS_NORM
            }
            Op::L2Norm { eps } => {
                params = floats(params, 0, &[*eps]);
                number::L2_NORM
            }
            Op::GroupNorm { groups, eps } => {
                params[0] = i32::try_from(*groups).ok()?;
                params = floats(params, 1, &[*eps]);
                number::GROUP_NORM
            }
            Op::SoftMax(soft_max) => {
                params = floats(params, 0, &[soft_max.scale, soft_max.max_bias]);
                number::SOFT_MAX
            }
            Op::DiagMaskInf { past } => {
                params[0] = i32::try_from(*past).ok()?;
                number::DIAG_MASK_INF
            }
            Op::DiagMaskZero { past } => {
                params[0] = i32::try_from(*past).ok()?;
                number::DIAG_MASK_ZERO
            }
            Op::MulMat => {
                params[0] = PRECISION_F32;
                number::MUL_MAT
            }
            Op::MulMatId => number::MUL_MAT_ID,
            Op::Rope(rope) => {
                params = rotation(rope)?;
                number::ROPE
            }
            // Rows that are seen come as a mask here.
            Op::FlashAttention(attention) => {
                let FlashAttention { scale, max_bias, soft_cap, .. } = *attention;
                params = floats(params, 0, &[scale, max_bias, soft_cap]);
                params[3] = PRECISION_F32;
                number::FLASH_ATTN_EXT
            }
            Op::SsmConv => number::SSM_CONV,
            Op::SsmScan => {
                params[0] = 1;
                number::SSM_SCAN
            }
            Op::View { .. }
            | Op::Reshape { .. }
            | Op::Permute { .. }
            | Op::Transpose
            | Op::TopK { .. }
            | Op::MulMatSome
            | Op::OutProd
            | Op::Im2Col { .. }
            | Op::Conv1d(_)
            | Op::Conv2d(_)
            | Op::ConvDepthwise2d(_)
            | Op::ConvTranspose1d { .. }
            | Op::ConvTranspose2d { .. }
            | Op::Pool1d(_)
            | Op::Pool2d(_)
            | Op::Upscale { .. }
            | Op::TimestepEmbedding { .. }
            | Op::DeltaScan
            | Op::Custom { .. } => return None,
        };
        Some((GgmlOp { number: self.here(number), params }, order))
    }

    /// Whether a node only reads its source in another way.
    pub fn is_view(self, op: &GgmlOp) -> bool {
        op.number == 0 || number::VIEWS.contains(&op.number)
    }

    /// What a node of this version computes. `present` says which sources it has, `result` is what it says of its result.
    ///
    /// # Errors
    /// [`OpRefusal`] for ops and parameters that are not on the list.
    pub fn decode(self, op: &GgmlOp, present: &[bool], result: &TensorDesc) -> Result<Decoded, OpRefusal> {
        let GgmlOp { number: here, params } = op;
        let f = |slot: usize| f32::from_bits(params[slot] as u32);
        let has = |slot: usize| present.get(slot).copied().unwrap_or(false);
        let natural =
            |slot: usize, rule| u64::try_from(params[slot]).map_err(|_| refused(slot, params, rule));
        let small = |slot: usize, rule| u32::try_from(params[slot]).map_err(|_| refused(slot, params, rule));
        const NEGATIVE: &str = "must not be negative";
        let alone = ALONE.iter().find(|(_, number)| Some(*number) == self.of_101(*here));
        if let Some((function, _)) = alone {
            return Ok(Decoded::new(Op::Unary(*function), present));
        }
        let decoded = match self.of_101(*here).ok_or(OpRefusal::Unknown { number: *here })? {
            number::DUP | number::CONT => Op::Cont,
            number::ADD => Op::Add,
            number::ADD1 => Op::Add1,
            number::SUB => Op::Sub,
            number::MUL => Op::Mul,
            number::DIV => Op::Div,
            number::ACC => Op::Acc(patch(params)?),
            number::SET => Op::Set(patch(params)?),
            number::SUM => Op::Sum,
            number::SUM_ROWS => Op::SumRows,
            number::CUMSUM => Op::CumSum,
            number::MEAN => Op::Mean,
            number::ARGMAX => Op::ArgMax,
            number::REPEAT => Op::Repeat { extents: result.extents },
            number::CONCAT => {
                let axis = u8::try_from(params[0]).ok().filter(|axis| *axis < 4);
                Op::Concat { axis: axis.ok_or_else(|| refused(0, params, "must be an axis"))? }
            }
            number::NORM => Op::Norm { eps: f(0) },
            number::RMS_NORM => Op::RmsNorm { eps: f(0) },
            number::L2_NORM => Op::L2Norm { eps: f(0) },
            number::GROUP_NORM => Op::GroupNorm { groups: small(0, NEGATIVE)?, eps: f(1) },
            number::MUL_MAT => Op::MulMat,
            number::MUL_MAT_ID => Op::MulMatId,
            number::SCALE => Op::Scale { scale: f(0), bias: f(1) },
            number::CLAMP => Op::Clamp { min: f(0), max: f(1) },
            // The second source is the destination, or the result itself: either way the place of the result.
            number::CPY => return Ok(Decoded { op: Op::Copy, sources: vec![0], into_result: Some(1) }),
            number::GET_ROWS => Op::GetRows,
            number::SET_ROWS => {
                return Ok(Decoded { op: Op::SetRows, sources: vec![0, 1], into_result: Some(0) });
            }
            number::DIAG_MASK_INF => Op::DiagMaskInf { past: small(0, NEGATIVE)? },
            number::DIAG_MASK_ZERO => Op::DiagMaskZero { past: small(0, NEGATIVE)? },
            number::SOFT_MAX => {
                Op::SoftMax(SoftMax { scale: f(0), max_bias: f(1), mask: has(1), sinks: has(2) })
            }
            number::ROPE => Op::Rope(rope(params)?),
            number::PAD => {
                let side = |from: usize| {
                    let mut extents = [0; 4];
                    for (dim, extent) in extents.iter_mut().enumerate() {
                        *extent = natural(2 * dim + from, NEGATIVE)?;
                    }
                    Ok(extents)
                };
                if params[8] != 0 {
                    return Err(refused(8, params, "must be 0"));
                }
                Op::Pad { before: side(0)?, after: side(1)? }
            }
            number::ROLL => Op::Roll { shifts: std::array::from_fn(|dim| i64::from(params[dim])) },
            number::ARANGE => Op::Arange { start: f(0), stop: f(1), step: f(2) },
            number::ARGSORT => Op::ArgSort {
                direction: match params[0] {
                    0 => SortDirection::Ascending,
                    1 => SortDirection::Descending,
                    _ => return Err(refused(0, params, "must be 0 or 1")),
                },
            },
            number::LEAKY_RELU => Op::LeakyRelu { slope: f(0) },
            number::FLASH_ATTN_EXT => Op::FlashAttention(FlashAttention {
                max_bias: f(1),
                soft_cap: f(2),
                mask: has(3),
                sinks: has(4),
                ..FlashAttention::scaled(f(0))
            }),
            number::SSM_CONV => Op::SsmConv,
            number::SSM_SCAN => Op::SsmScan,
            number::UNARY => {
                let found = UNARY.iter().find(|(_, number)| *number == params[0]);
                Op::Unary(found.ok_or_else(|| refused(0, params, "is no function that is known"))?.0)
            }
            number::GLU => {
                let found = GLU.iter().find(|(_, number)| *number == params[0]);
                let gate = found.ok_or_else(|| refused(0, params, "is no function that is known"))?.0;
                Op::Gated { gate, swapped: params[1] != 0 }
            }
            _ => return Err(OpRefusal::Unknown { number: *here }),
        };
        Ok(Decoded::new(decoded, present))
    }
}

/// A node's op, and which of its sources are the operands.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// The op.
    pub op: Op,
    /// Numbers of the sources that are operands, in the op's order.
    pub sources: Vec<usize>,
    /// The position among the operands of the result's own place, for ops that write into a destination.
    pub into_result: Option<usize>,
}

impl Decoded {
    /// An op whose operands are the sources there are.
    fn new(op: Op, present: &[bool]) -> Decoded {
        let sources = (0..present.len()).filter(|slot| present[*slot]).collect();
        Decoded { op, sources, into_result: None }
    }
}

/// Why a node is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpRefusal {
    /// An op that is not on the list.
    #[error("op {number} is not supported")]
    Unknown {
        /// Its number.
        number: u32,
    },
    /// A parameter with a value that it cannot have.
    #[error("parameter {slot} is {value}: it {rule}")]
    Parameter {
        /// Its position.
        slot: usize,
        /// Its bits.
        value: i32,
        /// What it must be.
        rule: &'static str,
    },
}

fn refused(slot: usize, params: &[i32; 16], rule: &'static str) -> OpRefusal {
    OpRefusal::Parameter { slot, value: params[slot], rule }
}

fn floats(mut params: [i32; 16], from: usize, values: &[f32]) -> [i32; 16] {
    for (param, value) in params[from..].iter_mut().zip(values) {
        *param = value.to_bits() as i32;
    }
    params
}

fn patched(patch: &Patch) -> Option<[i32; 16]> {
    let mut params = [0; 16];
    for (param, number) in params.iter_mut().zip(patch.strides.iter().chain([&patch.offset])) {
        *param = i32::try_from(*number).ok()?;
    }
    Some(params)
}

fn patch(params: &[i32; 16]) -> Result<Patch, OpRefusal> {
    let mut numbers = [0; 4];
    for (slot, number) in numbers.iter_mut().enumerate() {
        *number = u64::try_from(params[slot]).map_err(|_| refused(slot, params, "must not be negative"))?;
    }
    let [a, b, c, offset] = numbers;
    Ok(Patch { strides: [a, b, c], offset })
}

fn rotation(rope: &Rope) -> Option<[i32; 16]> {
    let mut params = [0; 16];
    params[1] = i32::try_from(rope.dims).ok()?;
    params[2] = match rope.mode {
        RopeMode::Normal => 0,
        RopeMode::Neox => 2,
        RopeMode::Sections(sections) => {
            for (param, section) in params[11..15].iter_mut().zip(sections) {
                *param = i32::try_from(section).ok()?;
            }
            MODE_SECTIONS
        }
    };
    params[4] = i32::try_from(rope.original_context).ok()?;
    let Rope { freq_base, freq_scale, ext_factor, attn_factor, beta_fast, beta_slow, .. } = *rope;
    Some(floats(params, 5, &[freq_base, freq_scale, ext_factor, attn_factor, beta_fast, beta_slow]))
}

fn rope(params: &[i32; 16]) -> Result<Rope, OpRefusal> {
    let f = |slot: usize| f32::from_bits(params[slot] as u32);
    let natural =
        |slot: usize| u32::try_from(params[slot]).map_err(|_| refused(slot, params, "must not be negative"));
    let mode = match params[2] {
        0 => RopeMode::Normal,
        2 => RopeMode::Neox,
        MODE_SECTIONS => RopeMode::Sections([natural(11)?, natural(12)?, natural(13)?, natural(14)?]),
        _ => return Err(refused(2, params, "is no mode that is known")),
    };
    if params[15] != 0 {
        return Err(refused(15, params, "must be 0"));
    }
    Ok(Rope {
        mode,
        dims: natural(1)?,
        original_context: natural(4)?,
        freq_base: f(5),
        freq_scale: f(6),
        ext_factor: f(7),
        attn_factor: f(8),
        beta_fast: f(9),
        beta_slow: f(10),
    })
}

/// Types whose elements may be converted to by CPY and SET_ROWS on every server: no codebooks, which are searched in
/// several ways.
pub(crate) fn can_be_written(dtype: DType) -> bool {
    use DType::{BF16, F16, F32, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};
    matches!(dtype, F32 | F16 | BF16 | Q4_0 | Q4_1 | Q5_0 | Q5_1 | Q8_0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use orlop_graph::OPS;

    #[test]
    fn numbers_are_those_of_each_version() {
        // (of 101, of 98, of 97, of 96)
        let table =
            [(64, 64, 64, 63), (74, 74, 74, 73), (77, 77, 77, 76), (91, 88, 87, 86), (100, 97, 96, 95)];
        for (latest, c, b, a) in table {
            for (count, here) in [(101, latest), (98, c), (97, b), (96, a)] {
                let numbers = OpNumbers::of_count(count);
                assert_eq!((numbers.here(latest), numbers.of_101(here)), (here, Some(latest)), "{count}");
            }
        }
        for count in [96, 97, 98, 101] {
            let numbers = OpNumbers::of_count(count);
            let known = (0..200).filter(|number| numbers.of_101(*number).is_some()).count();
            assert_eq!(known, count as usize);
        }
    }

    #[test]
    fn what_is_encoded_is_decoded_to_the_same_op() {
        let result = TensorDesc::contiguous(DType::F32, &[4, 3]).unwrap();
        let mut ops = 0;
        for dialect in [96, 101].map(OpNumbers::of_count) {
            for op in OPS.iter().map(|info| info.example()) {
                let Some((encoded, order)) = dialect.encode(&op) else { continue };
                let present = match &op {
                    Op::SoftMax(x) => vec![true, x.mask, x.sinks],
                    Op::FlashAttention(x) if x.kv_len || x.page_rows > 0 => continue,
                    Op::FlashAttention(x) => vec![true, true, true, x.mask, x.sinks],
                    _ => vec![true; 3],
                };
                let decoded = dialect.decode(&encoded, &present, &result);
                let expected = match op.clone() {
                    Op::Dup => Op::Cont,
                    Op::Cast { .. } => Op::Copy,
                    Op::Repeat { .. } => Op::Repeat { extents: result.extents },
                    Op::FlashAttention(x) => Op::FlashAttention(FlashAttention { window: 0, ..x }),
                    Op::Rope(x) if x.mode == RopeMode::Sections([0; 4]) => op.clone(),
                    other => other,
                };
                let decoded = decoded.unwrap_or_else(|refusal| panic!("{op:?}: {refusal}"));
                assert_eq!(decoded.op, expected, "{order:?}");
                ops += 1;
            }
        }
        assert!(ops > 70, "{ops}");
    }
}
