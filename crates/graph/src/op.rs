use std::borrow::Cow;
use std::fmt;

use crate::{DIMS, DType};

/// What a node computes, with its parameters. Operands are the node's inputs, in the order given here.
///
/// Extents are written innermost first. Broadcasting follows GGUF models' habits: the second operand of
/// a binary op is repeated along every dimension in which its extent divides the first one's. Whatever
/// changes from run to run (positions, row indices, how much of a cache is filled) is an operand, never
/// a parameter.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case", deny_unknown_fields))]
#[non_exhaustive]
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

    // --- normalisation ---
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
    /// `[a: m k …, b: n k …]` → `m n …`: the sum over `k` of outer products.
    OutProd,

    // --- transformers ---
    /// `[x, positions]`, then frequency factors where given: rotary position embedding.
    Rope(Rope),
    /// `[q: dk tokens heads seqs, k: dk kv kv_heads seqs, v: dv kv kv_heads seqs]`, then `kv_len`, a mask and
    /// sinks where present → `dv heads tokens seqs`.
    FlashAttention(FlashAttention),

    // --- convolution and pictures ---
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

/// Functions of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
#[allow(missing_docs)] // the names say it
pub enum Unary {
    Sqr,
    Sqrt,
    Log,
    Exp,
    Sin,
    Cos,
    Neg,
    Abs,
    /// -1, 0 or 1.
    Sgn,
    /// 1 for positive elements, else 0.
    Step,
    Relu,
    /// The tanh approximation.
    Gelu,
    GeluErf,
    /// `x * sigmoid(1.702 x)`.
    GeluQuick,
    Silu,
    Sigmoid,
    Tanh,
    Elu,
    HardSwish,
    HardSigmoid,
    Softplus,
}

impl Unary {
    /// Every function.
    pub const ALL: [Unary; 21] = [
        Unary::Sqr,
        Unary::Sqrt,
        Unary::Log,
        Unary::Exp,
        Unary::Sin,
        Unary::Cos,
        Unary::Neg,
        Unary::Abs,
        Unary::Sgn,
        Unary::Step,
        Unary::Relu,
        Unary::Gelu,
        Unary::GeluErf,
        Unary::GeluQuick,
        Unary::Silu,
        Unary::Sigmoid,
        Unary::Tanh,
        Unary::Elu,
        Unary::HardSwish,
        Unary::HardSigmoid,
        Unary::Softplus,
    ];
}

/// The function of a gated op's first half.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
#[allow(missing_docs)] // the names say it
pub enum Glu {
    Relu,
    Gelu,
    GeluErf,
    GeluQuick,
    Silu,
}

/// Where a patch lies in its base.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Patch {
    /// Byte strides of the patched region in dimensions 1, 2 and 3.
    pub strides: [u64; 3],
    /// Bytes from the base's first element.
    pub offset: u64,
}

/// Order of a sort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[allow(missing_docs)] // the names say it
pub enum SortDirection {
    Ascending,
    Descending,
}

/// Parameters of [`Op::SoftMax`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct SoftMax {
    /// Factor of the operand.
    #[cfg_attr(feature = "serde", serde(with = "crate::float"))]
    pub scale: f32,
    /// ALiBi: 0, or the bias from which the heads' slopes follow; needs a mask.
    #[cfg_attr(feature = "serde", serde(with = "crate::float"))]
    pub max_bias: f32,
    /// A mask (F16 or F32) is the next operand.
    pub mask: bool,
    /// Sinks (F32, one per head) are the last operand.
    pub sinks: bool,
}

/// Parameters of [`Op::FlashAttention`].
///
/// Optional operands follow `q, k, v` in the order of the fields. `kv_len` is I32 with one entry a token:
/// query `i` sees KV rows `0..kv_len[i]`, so causal attention needs no mask; with a window, the last of them.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct FlashAttention {
    /// Factor of `q · k`.
    #[cfg_attr(feature = "serde", serde(with = "crate::float"))]
    pub scale: f32,
    /// ALiBi: 0, or the bias from which the heads' slopes follow; needs a mask.
    #[cfg_attr(feature = "serde", serde(with = "crate::float"))]
    pub max_bias: f32,
    /// 0, or the limit of `limit * tanh(x / limit)`.
    #[cfg_attr(feature = "serde", serde(with = "crate::float"))]
    pub soft_cap: f32,
    /// 0, or how many rows a query sees: the last ones of those it would see without a window.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "is_zero"))]
    pub window: u32,
    /// Rows of K and V that each query sees are an operand.
    pub kv_len: bool,
    /// A mask (F16 or F32) is an operand.
    pub mask: bool,
    /// Sinks (F32, one per head) are an operand.
    pub sinks: bool,
}

#[cfg(feature = "serde")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl FlashAttention {
    /// Attention with this factor and nothing else.
    pub const fn scaled(scale: f32) -> FlashAttention {
        let [max_bias, soft_cap] = [0.0; 2];
        FlashAttention { scale, max_bias, soft_cap, window: 0, kv_len: false, mask: false, sinks: false }
    }

    /// The first row that a query sees of those before `end`.
    pub fn first_row(&self, end: u64) -> u64 {
        if self.window == 0 { 0 } else { end.saturating_sub(self.window.into()) }
    }

    /// Position of `kv_len` among the operands.
    pub fn kv_len_slot(&self) -> Option<usize> {
        self.kv_len.then_some(3)
    }

    /// Position of the mask among the operands.
    pub fn mask_slot(&self) -> Option<usize> {
        self.mask.then_some(3 + usize::from(self.kv_len))
    }

    /// Position of the sinks among the operands.
    pub fn sinks_slot(&self) -> Option<usize> {
        self.sinks.then_some(3 + usize::from(self.kv_len) + usize::from(self.mask))
    }
}

/// Which elements of a head a rotation pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum RopeMode {
    /// Neighbours.
    Normal,
    /// Elements half the rotated part apart.
    Neox,
    /// As [`RopeMode::Neox`], the pairs divided among four position streams by these section sizes;
    /// positions hold the streams one after the other.
    Sections([u32; 4]),
}

/// Parameters of [`Op::Rope`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Rope {
    /// Which elements are paired.
    pub mode: RopeMode,
    /// Rotated elements of each head; the rest is passed through.
    pub dims: u32,
    /// Base of the frequencies.
    #[cfg_attr(feature = "serde", serde(with = "crate::float"))]
    pub freq_base: f32,
    /// Factor of the positions (linear scaling).
    #[cfg_attr(feature = "serde", serde(with = "crate::float"))]
    pub freq_scale: f32,
    /// YaRN: weight of the extrapolated part, 0 for none.
    #[cfg_attr(feature = "serde", serde(with = "crate::float"))]
    pub ext_factor: f32,
    /// Factor of the magnitudes.
    #[cfg_attr(feature = "serde", serde(with = "crate::float"))]
    pub attn_factor: f32,
    /// YaRN: rotations above which a frequency is extrapolated.
    #[cfg_attr(feature = "serde", serde(with = "crate::float"))]
    pub beta_fast: f32,
    /// YaRN: rotations below which a frequency is interpolated.
    #[cfg_attr(feature = "serde", serde(with = "crate::float"))]
    pub beta_slow: f32,
    /// YaRN: context length of training.
    pub original_context: u32,
}

impl Default for Rope {
    /// Plain rotation of 128 dimensions with base 10,000.
    fn default() -> Rope {
        Rope {
            mode: RopeMode::Normal,
            dims: 128,
            freq_base: 10_000.0,
            freq_scale: 1.0,
            ext_factor: 0.0,
            attn_factor: 1.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
            original_context: 0,
        }
    }
}

/// How a convolution's kernel moves; one-dimensional ops use the first entry of each pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Window {
    /// Distance between positions.
    pub stride: [u32; 2],
    /// Zeros on both sides.
    pub padding: [u32; 2],
    /// Distance between kernel elements.
    pub dilation: [u32; 2],
}

impl Default for Window {
    /// Stride 1, no padding, no dilation.
    fn default() -> Window {
        Window { stride: [1; 2], padding: [0; 2], dilation: [1; 2] }
    }
}

/// Parameters of pooling; one-dimensional pooling uses the first entry of each pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Pool {
    /// Maximum or mean.
    pub kind: PoolKind,
    /// Window size.
    pub kernel: [u32; 2],
    /// Distance between windows.
    pub stride: [u32; 2],
    /// Elements outside on both sides; they do not count.
    pub padding: [u32; 2],
}

/// What a pooling window yields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum PoolKind {
    /// The largest element.
    Max,
    /// The sum of the elements divided by the window's size.
    Mean,
}

/// How upscaling finds values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Interpolation {
    /// The element that lies there.
    Nearest,
    /// Between the four around it.
    Bilinear,
}

impl Op {
    /// The op's name, such as `mul_mat`; for [`Op::Custom`] its own.
    pub fn name(&self) -> &str {
        match self {
            Op::Custom { name, .. } => name,
            known => known.known_name(),
        }
    }

    /// The name as something that can be kept without a copy, but for [`Op::Custom`].
    pub fn to_name(&self) -> Cow<'static, str> {
        match self {
            Op::Custom { name, .. } => Cow::Owned(name.clone()),
            known => Cow::Borrowed(known.known_name()),
        }
    }

    fn known_name(&self) -> &'static str {
        match self {
            Op::View { .. } => "view",
            Op::Reshape { .. } => "reshape",
            Op::Permute { .. } => "permute",
            Op::Transpose => "transpose",
            Op::Dup => "dup",
            Op::Cast { .. } => "cast",
            Op::Copy => "copy",
            Op::Cont => "cont",
            Op::GetRows => "get_rows",
            Op::SetRows => "set_rows",
            Op::Set(_) => "set",
            Op::Acc(_) => "acc",
            Op::Repeat { .. } => "repeat",
            Op::Concat { .. } => "concat",
            Op::Pad { .. } => "pad",
            Op::Roll { .. } => "roll",
            Op::Arange { .. } => "arange",
            Op::Add => "add",
            Op::Add1 => "add1",
            Op::Sub => "sub",
            Op::Mul => "mul",
            Op::Div => "div",
            Op::Scale { .. } => "scale",
            Op::Clamp { .. } => "clamp",
            Op::Unary(unary) => match unary {
                Unary::Sqr => "sqr",
                Unary::Sqrt => "sqrt",
                Unary::Log => "log",
                Unary::Exp => "exp",
                Unary::Sin => "sin",
                Unary::Cos => "cos",
                Unary::Neg => "neg",
                Unary::Abs => "abs",
                Unary::Sgn => "sgn",
                Unary::Step => "step",
                Unary::Relu => "relu",
                Unary::Gelu => "gelu",
                Unary::GeluErf => "gelu_erf",
                Unary::GeluQuick => "gelu_quick",
                Unary::Silu => "silu",
                Unary::Sigmoid => "sigmoid",
                Unary::Tanh => "tanh",
                Unary::Elu => "elu",
                Unary::HardSwish => "hard_swish",
                Unary::HardSigmoid => "hard_sigmoid",
                Unary::Softplus => "softplus",
            },
            Op::LeakyRelu { .. } => "leaky_relu",
            Op::Gated { gate, .. } => match gate {
                Glu::Relu => "reglu",
                Glu::Gelu => "geglu",
                Glu::GeluErf => "geglu_erf",
                Glu::GeluQuick => "geglu_quick",
                Glu::Silu => "swiglu",
            },
            Op::Sum => "sum",
            Op::SumRows => "sum_rows",
            Op::Mean => "mean",
            Op::CumSum => "cumsum",
            Op::ArgMax => "argmax",
            Op::ArgSort { .. } => "argsort",
            Op::TopK { .. } => "top_k",
            Op::Norm { .. } => "norm",
            Op::RmsNorm { .. } => "rms_norm",
            Op::GroupNorm { .. } => "group_norm",
            Op::L2Norm { .. } => "l2_norm",
            Op::SoftMax(_) => "soft_max",
            Op::DiagMaskInf { .. } => "diag_mask_inf",
            Op::DiagMaskZero { .. } => "diag_mask_zero",
            Op::MulMat => "mul_mat",
            Op::MulMatId => "mul_mat_id",
            Op::OutProd => "out_prod",
            Op::Rope(_) => "rope",
            Op::FlashAttention(_) => "flash_attention",
            Op::Im2Col { .. } => "im2col",
            Op::Conv1d(_) => "conv_1d",
            Op::Conv2d(_) => "conv_2d",
            Op::ConvDepthwise2d(_) => "conv_depthwise_2d",
            Op::ConvTranspose1d { .. } => "conv_transpose_1d",
            Op::ConvTranspose2d { .. } => "conv_transpose_2d",
            Op::Pool1d(_) => "pool_1d",
            Op::Pool2d(_) => "pool_2d",
            Op::Upscale { .. } => "upscale",
            Op::TimestepEmbedding { .. } => "timestep_embedding",
            Op::SsmConv => "ssm_conv",
            Op::SsmScan => "ssm_scan",
            Op::Custom { .. } => "custom",
        }
    }

    /// Whether the op only reads its operand's storage in another way and computes nothing.
    pub fn is_view(&self) -> bool {
        matches!(self, Op::View { .. } | Op::Reshape { .. } | Op::Permute { .. } | Op::Transpose)
    }

    /// The operand whose storage the result is: the source of a view, the destination of a write.
    pub fn storage_operand(&self) -> Option<usize> {
        match self {
            Op::View { .. } | Op::Reshape { .. } | Op::Permute { .. } | Op::Transpose | Op::SetRows => {
                Some(0)
            }
            Op::Copy => Some(1),
            _ => None,
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
