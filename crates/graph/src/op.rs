//! Ops with typed parameters, and the table of what is known about each.
//!
//! [`Op`] is what graphs hold. `table` has one line per op; it ties a variant to its entry ([`OpInfo`]) and to the rule
//! for its result's shape. Both stand in the file of the op's family, beside its parameters and its builder method.

mod attention;
mod checks;
mod convolution;
mod custom;
mod elementwise;
mod error;
mod image;
mod info;
mod movement;
mod norm;
mod product;
mod reduce;
mod rope;
mod rows;
mod sample;
mod soft_max;
mod sort;
mod ssm;
mod table;
mod views;

use std::borrow::Cow;
use std::fmt;

pub use attention::{FlashAttention, PagedRows};
pub use convolution::Window;
pub use elementwise::{Glu, Unary};
pub use error::OpError;
pub use image::{Interpolation, Pool, PoolKind};
pub use info::{Arity, Cost, CostOf, OpInfo};
pub use movement::Patch;
pub use rope::{Rope, RopeMode};
pub use sample::SampleSource;
pub use soft_max::SoftMax;
pub use sort::SortDirection;
pub use table::{OPS, infer};

use crate::{DIMS, DType};

/// What a node computes, with its parameters. Operands are the node's inputs, in the order given here.
///
/// Extents are written innermost first. Broadcasting follows ggml: the second operand of a binary op is repeated
/// along every dimension in which its extent divides the first one's. Values that change from run to run
/// (positions, row indices, the filled part of a cache) are operands, never parameters.
///
/// The enum is exhaustive on purpose: a new op does not compile until every device has a kernel for it or refuses
/// it. [`Op::info`] has what is known about an op besides its parameters.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case", deny_unknown_fields))]
pub enum Op {
    // --- views: no computation, no storage of their own ---
    /// Part of an operand's storage, read with other extents and strides.
    View {
        /// Extents of the view.
        extents: [u64; DIMS],
        /// Byte strides of the view.
        strides: [u64; DIMS],
        /// Bytes from the operand's first element to the view's.
        offset: u64,
    },
    /// A contiguous operand read with other extents.
    Reshape {
        /// New extents, as many elements as before.
        extents: [u64; DIMS],
    },
    /// Dimensions in another order: dimension `i` of the operand becomes dimension `axes[i]`.
    Permute {
        /// A permutation of `0..4`.
        axes: [u8; DIMS],
    },
    /// The two innermost dimensions exchanged.
    Transpose,

    // --- movement ---
    /// A contiguous copy.
    Dup,
    /// A contiguous copy in another element type.
    Cast {
        /// Element type of the result.
        dtype: DType,
    },
    /// `[source, destination]`: writes the source's elements, converted, into the destination's storage.
    /// The result is the destination.
    Copy,
    /// The operand's elements made contiguous.
    Cont,
    /// `[table, indices]`: the rows of a table that the indices (I32) name, as F32 (I32 for an I32 table).
    GetRows,
    /// `[destination, rows, indices]`: writes rows, converted, at the destination's rows that the indices
    /// (I32 or I64) name; -1 skips a row. The result is the destination.
    SetRows,
    /// `[base, patch]`: the base with the patch laid over it at an offset.
    Set(Patch),
    /// `[base, patch]`: the base with the patch added at an offset.
    Acc(Patch),
    /// The operand repeated to these extents.
    Repeat {
        /// Extents of the result, multiples of the operand's.
        extents: [u64; DIMS],
    },
    /// Operands one after the other along an axis.
    Concat {
        /// The axis.
        axis: u8,
    },
    /// Zeros around the operand, whose type has no blocks.
    Pad {
        /// Elements before, per dimension.
        before: [u64; DIMS],
        /// Elements after, per dimension.
        after: [u64; DIMS],
    },
    /// Elements of a type without blocks moved cyclically.
    Roll {
        /// By how many elements, per dimension.
        shifts: [i64; DIMS],
    },
    /// `start, start + step, …` below `stop`; no operands.
    Arange {
        /// First value.
        #[cfg_attr(feature = "serde", serde(with = "crate::float"))]
        start: f32,
        /// End, not included.
        #[cfg_attr(feature = "serde", serde(with = "crate::float"))]
        stop: f32,
        /// Distance.
        #[cfg_attr(feature = "serde", serde(with = "crate::float"))]
        step: f32,
    },

    // --- arithmetic ---
    /// `a + b`.
    Add,
    /// `a + b` for a one-element `b`.
    Add1,
    /// `a - b`.
    Sub,
    /// `a * b`.
    Mul,
    /// `a / b`.
    Div,
    /// `scale * x + bias`.
    Scale {
        /// Factor.
        #[cfg_attr(feature = "serde", serde(with = "crate::float"))]
        scale: f32,
        /// Added afterwards.
        #[cfg_attr(feature = "serde", serde(with = "crate::float"))]
        bias: f32,
    },
    /// Values limited to a range.
    Clamp {
        /// Smallest value.
        #[cfg_attr(feature = "serde", serde(with = "crate::float"))]
        min: f32,
        /// Largest value.
        #[cfg_attr(feature = "serde", serde(with = "crate::float"))]
        max: f32,
    },
    /// A function of each element.
    Unary(Unary),
    /// `x` for positive `x`, else `slope * x`.
    LeakyRelu {
        /// Slope below zero.
        #[cfg_attr(feature = "serde", serde(with = "crate::float"))]
        slope: f32,
    },
    /// `gate(a) * b`: `[a, b]`, or one operand whose rows hold `a` and then `b`.
    Gated {
        /// The function of the gated half.
        gate: Glu,
        /// With one operand: rows hold `b` first.
        swapped: bool,
    },

    // --- reductions ---
    /// The sum of all elements.
    Sum,
    /// The sum of each row.
    SumRows,
    /// The mean of each row.
    Mean,
    /// Running sums along each row.
    #[cfg_attr(feature = "serde", serde(rename = "cumsum"))]
    CumSum,
    /// The index (I32) of each row's largest element, the first of equals.
    #[cfg_attr(feature = "serde", serde(rename = "argmax"))]
    ArgMax,
    /// Indices (I32) that sort each row; equal elements keep their order.
    #[cfg_attr(feature = "serde", serde(rename = "argsort"))]
    ArgSort {
        /// Smallest or largest first.
        direction: SortDirection,
    },
    /// Indices (I32) of each row's `k` largest elements, largest first.
    TopK {
        /// How many.
        k: u64,
    },

    // --- normalization ---
    /// Rows shifted and scaled to mean 0 and variance 1.
    Norm {
        /// Added to the variance.
        #[cfg_attr(feature = "serde", serde(with = "crate::float"))]
        eps: f32,
    },
    /// Rows divided by their root mean square.
    RmsNorm {
        /// Added to the mean square.
        #[cfg_attr(feature = "serde", serde(with = "crate::float"))]
        eps: f32,
    },
    /// Groups of channels (dimension 2) shifted and scaled to mean 0 and variance 1.
    GroupNorm {
        /// Number of groups.
        groups: u32,
        /// Added to the variance.
        #[cfg_attr(feature = "serde", serde(with = "crate::float"))]
        eps: f32,
    },
    /// Rows divided by their length.
    L2Norm {
        /// Smallest length divided by.
        #[cfg_attr(feature = "serde", serde(with = "crate::float"))]
        eps: f32,
    },
    /// `[x]`, then a mask and sinks where present: `soft_max(scale * x + slope * mask)` of each row.
    SoftMax(SoftMax),
    /// Elements whose column exceeds row + `past` become minus infinity.
    DiagMaskInf {
        /// Columns that every row keeps.
        past: u32,
    },
    /// Elements whose column exceeds row + `past` become zero.
    DiagMaskZero {
        /// Columns that every row keeps.
        past: u32,
    },

    // --- products ---
    /// `[a: k m …, b: k n …]` → `m n …`: each row of `b` times each row of `a`, `a` repeated over the outer
    /// dimensions.
    MulMat,
    /// `[a: k m experts, b: k used|1 tokens, ids: used tokens]` → `m used tokens`: rows times the matrix that
    /// the ids (I32) choose.
    MulMatId,
    /// As `MulMatId`, where -1 chooses no matrix: that row of the result is zero.
    MulMatSome,
    /// `[a: m k …, b: n k …]` → `m n …`: the sum over `k` of outer products.
    OutProd,

    // --- transformers ---
    /// `[x, positions]`, then frequency factors where given: rotary position embedding.
    Rope(Rope),
    /// `[q: dk tokens heads seqs, k: dk kv kv_heads seqs, v: dv kv kv_heads seqs]`, then `kv_len`, a mask and
    /// sinks where present → `dv heads tokens seqs`.
    FlashAttention(FlashAttention),

    // --- convolution and images ---
    /// `[kernel, data]`: patches of the data as rows, for a product with the kernel.
    #[cfg_attr(feature = "serde", serde(rename = "im2col"))]
    Im2Col {
        /// How the kernel moves.
        window: Window,
        /// Two dimensions, else one.
        two_d: bool,
        /// Element type of the result.
        dtype: DType,
    },
    /// `[kernel: k in out, data: length in batch]` → `length' out batch`.
    #[cfg_attr(feature = "serde", serde(rename = "conv_1d"))]
    Conv1d(Window),
    /// `[kernel: kw kh in out, data: w h in batch]` → `w' h' out batch`.
    #[cfg_attr(feature = "serde", serde(rename = "conv_2d"))]
    Conv2d(Window),
    /// `[kernel: kw kh 1 channels, data: w h channels batch]` → `w' h' channels batch`.
    #[cfg_attr(feature = "serde", serde(rename = "conv_depthwise_2d"))]
    ConvDepthwise2d(Window),
    /// `[kernel: k out in, data: length in]` → `length' out`.
    #[cfg_attr(feature = "serde", serde(rename = "conv_transpose_1d"))]
    ConvTranspose1d {
        /// Distance between output positions of neighbouring inputs.
        stride: u32,
    },
    /// `[kernel: kw kh out in, data: w h in batch]` → `w' h' out batch`.
    #[cfg_attr(feature = "serde", serde(rename = "conv_transpose_2d"))]
    ConvTranspose2d {
        /// Distance between output positions of neighbouring inputs.
        stride: u32,
    },
    /// Maximum or mean over windows along rows.
    #[cfg_attr(feature = "serde", serde(rename = "pool_1d"))]
    Pool1d(Pool),
    /// Maximum or mean over windows of the two innermost dimensions.
    #[cfg_attr(feature = "serde", serde(rename = "pool_2d"))]
    Pool2d(Pool),
    /// The operand at other extents.
    Upscale {
        /// Extents of the result.
        extents: [u64; DIMS],
        /// How values between are found.
        mode: Interpolation,
    },
    /// `[timesteps: n]` → `dim n`: cosines, then sines, of falling frequencies, then 0 if `dim` is odd.
    TimestepEmbedding {
        /// Row length.
        dim: u32,
        /// Period of the slowest.
        max_period: u32,
    },

    // --- state-space models ---
    /// `[x: k-1+tokens inner seqs, kernel: k inner]` → `inner tokens seqs`.
    SsmConv,
    /// `[s: state head heads seqs, x: head heads tokens seqs, dt: heads tokens seqs, a: state|1 heads,
    /// b: state groups tokens seqs, c: as b, ids: seqs]` → one row: the outputs as `x`, then the new states.
    SsmScan,
    /// The [delta rule](https://arxiv.org/abs/2102.11174) with decays, for a matrix of each head: `s = s w - (s a) b + v k`,
    /// `y = s r`. `[s: value key heads seqs, r: key heads tokens seqs, w: key|1 heads tokens seqs, k: as r,
    /// v: value heads tokens seqs, a: as r, b: as r, ids: seqs]` → one row: the outputs as `v`, then the new states.
    DeltaScan,

    /// An op that this crate does not know; devices recognise it by name.
    Custom {
        /// Its name.
        name: String,
        /// Element type of the result.
        dtype: DType,
        /// Extents of the result.
        extents: [u64; DIMS],
        /// Operands that the result may overwrite.
        overwrites: Vec<u8>,
    },
}

impl Op {
    /// The op's name, such as `mul_mat` or `silu`; for [`Op::Custom`] its own.
    pub fn name(&self) -> &str {
        match self {
            Op::Custom { name, .. } => name,
            known => known.known_name(),
        }
    }

    /// The name, borrowed for all ops but [`Op::Custom`].
    pub fn to_name(&self) -> Cow<'static, str> {
        match self {
            Op::Custom { name, .. } => Cow::Owned(name.clone()),
            known => Cow::Borrowed(known.known_name()),
        }
    }

    fn known_name(&self) -> &'static str {
        match self {
            Op::Unary(function) => function.name(),
            Op::Gated { gate, .. } => gate.name(),
            other => other.info().name,
        }
    }

    /// Whether the op only reads its operand's storage in another way and computes nothing.
    #[inline]
    pub fn is_view(&self) -> bool {
        self.info().view
    }

    /// The operand whose storage the result is: the source of a view, the destination of a write.
    #[inline]
    pub fn storage_operand(&self) -> Option<usize> {
        self.info().storage
    }
}

/// Whether the result of `op` may be written over operand number `operand` when both have the same
/// layout: each element of the operand is read for the last time before, or while, the result's element
/// at the same place is written.
///
/// This is the upper limit: a device may narrow it when it lowers a graph, and an allocator chooses within it.
pub fn may_overwrite(op: &Op, operand: usize) -> bool {
    match op {
        Op::Custom { overwrites, .. } => overwrites.iter().any(|slot| usize::from(*slot) == operand),
        known => known.info().overwrites.contains(&operand),
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_and_matrices_are_never_overwritten() {
        let soft_max = Op::SoftMax(SoftMax { scale: 1.0, max_bias: 0.0, mask: true, sinks: false });
        assert!(may_overwrite(&soft_max, 0));
        assert!(!may_overwrite(&soft_max, 1));
        assert!(!may_overwrite(&Op::MulMat, 1));
        assert!(!may_overwrite(&Op::GetRows, 0));
        assert!(may_overwrite(&Op::Sub, 1));
        assert!(!may_overwrite(&Op::Add1, 1));
    }
}
