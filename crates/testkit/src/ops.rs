//! The ops as pure functions: those that only move elements work on bytes, all others on `f64`.

mod arithmetic;
mod attention;
mod convolution;
mod coordinates;
mod image;
mod movement;
mod norm;
mod patch;
mod product;
mod reduce;
mod rope;
mod rows;
mod soft_max;
mod sort;
mod ssm;
mod timestep;
mod unary;

use orlop_graph::{Op, TensorDesc, infer};

pub use self::movement::{rearrange, rearranges};
pub use self::rows::{RowWrite, set_rows};

use crate::{Elements, OpFailure};

/// The elements of an op's result, in element order, not rounded to the result's type.
///
/// Computes every op but views, [`Op::SetRows`] (see [`set_rows`]), [`Op::Custom`], and those that exist as
/// [`rearrange`] only. Details that [`Op`] leaves open:
///
/// - Sorting and searching count NaN as smaller than every number; equal elements keep their order.
/// - Rows of [`Op::SoftMax`] that are minus infinity throughout become zeros, as do queries of
///   [`Op::FlashAttention`] that see no row. Rows that a mask hides with minus infinity may hold anything.
/// - Pooling leaves out what lies in the padding; the mean still divides by the whole window, and the maximum of
///   a window that lies wholly in the padding is minus infinity.
/// - [`Op::Upscale`] takes, for output position `i`, the source element `floor(i * source / result)`, or between
///   those around `(i + 0.5) * source / result - 0.5`, kept within the source. Outer dimensions are never
///   blended.
/// - NaN stays NaN under [`Op::Clamp`].
///
/// # Errors
/// [`OpFailure::Operands`] and [`OpFailure::Output`] if the descriptions do not fit, [`OpFailure::BadIndex`] for an
/// index in the data that is out of range, [`OpFailure::NotComputed`] for other ops.
pub fn compute(op: &Op, operands: &[Elements], output: &TensorDesc) -> Result<Vec<f64>, OpFailure> {
    let descs: Vec<TensorDesc> = operands.iter().map(|operand| *operand.desc()).collect();
    check(op, &descs, output)?;
    let x = operands;
    Ok(match op {
        Op::Dup | Op::Cont | Op::Cast { .. } | Op::Copy => x[0].values().to_vec(),
        Op::GetRows => return rows::get_rows(&x[0], &x[1]),
        Op::Arange { start, step, .. } => arithmetic::arange(*start, *step, output.elements()),
        Op::Add | Op::Add1 => arithmetic::binary(&x[0], &x[1], |a, b| a + b),
        Op::Sub => arithmetic::binary(&x[0], &x[1], |a, b| a - b),
        Op::Mul => arithmetic::binary(&x[0], &x[1], |a, b| a * b),
        Op::Div => arithmetic::binary(&x[0], &x[1], |a, b| a / b),
        Op::Scale { scale, bias } => arithmetic::scale(&x[0], *scale, *bias),
        Op::Clamp { min, max } => arithmetic::clamp(&x[0], *min, *max),
        Op::Unary(function) => unary::unary(*function, &x[0]),
        Op::LeakyRelu { slope } => unary::leaky_relu(&x[0], *slope),
        Op::Gated { gate, swapped } => unary::gated(*gate, *swapped, x),
        Op::Sum => vec![x[0].values().iter().sum()],
        Op::SumRows => reduce::each_row(&x[0], |row| row.iter().sum()),
        Op::Mean => reduce::each_row(&x[0], |row| row.iter().sum::<f64>() / row.len() as f64),
        Op::CumSum => reduce::running_sums(&x[0]),
        Op::ArgMax => sort::arg_max(&x[0]),
        Op::ArgSort { direction } => sort::arg_sort(&x[0], *direction),
        Op::TopK { k } => sort::top_k(&x[0], *k),
        Op::Norm { eps } => norm::norm(&x[0], *eps),
        Op::RmsNorm { eps } => norm::rms_norm(&x[0], *eps),
        Op::GroupNorm { groups, eps } => norm::group_norm(&x[0], *groups, *eps),
        Op::L2Norm { eps } => norm::l2_norm(&x[0], *eps),
        Op::SoftMax(params) => soft_max::soft_max(params, x),
        Op::DiagMaskInf { past } => soft_max::diag_mask(&x[0], *past, f64::NEG_INFINITY),
        Op::DiagMaskZero { past } => soft_max::diag_mask(&x[0], *past, 0.0),
        Op::MulMat => product::mul_mat(&x[0], &x[1]),
        Op::MulMatId => return product::mul_mat_id(&x[0], &x[1], &x[2], product::Chosen::All),
        Op::MulMatSome => return product::mul_mat_id(&x[0], &x[1], &x[2], product::Chosen::Some),
        Op::OutProd => product::out_prod(&x[0], &x[1]),
        Op::Rope(params) => rope::rope(params, &x[0], &x[1], x.get(2)),
        Op::FlashAttention(params) => return attention::flash_attention(params, x),
        Op::Im2Col { window, two_d, .. } => convolution::im2col(window, *two_d, &x[0], &x[1], output),
        Op::Conv1d(window) => convolution::conv_1d(window, &x[0], &x[1], output),
        Op::Conv2d(window) => convolution::conv_2d(window, &x[0], &x[1], output),
        Op::ConvDepthwise2d(window) => convolution::conv_depthwise_2d(window, &x[0], &x[1], output),
        Op::ConvTranspose1d { stride } => convolution::conv_transpose_1d(*stride, &x[0], &x[1], output),
        Op::ConvTranspose2d { stride } => convolution::conv_transpose_2d(*stride, &x[0], &x[1], output),
        Op::Pool1d(pool) => image::pool_1d(pool, &x[0], output),
        Op::Pool2d(pool) => image::pool_2d(pool, &x[0], output),
        Op::Upscale { mode, .. } => image::upscale(*mode, &x[0], output),
        Op::TimestepEmbedding { dim, max_period } => timestep::embedding(*dim, *max_period, &x[0]),
        Op::SsmConv => ssm::conv(&x[0], &x[1], output),
        Op::SsmScan => return ssm::scan(x),
        Op::DeltaScan => return ssm::delta_scan(x),
        Op::View { .. }
        | Op::Reshape { .. }
        | Op::Permute { .. }
        | Op::Transpose
        | Op::SetRows
        | Op::Set(_)
        | Op::Acc(_)
        | Op::Repeat { .. }
        | Op::Concat { .. }
        | Op::Pad { .. }
        | Op::Roll { .. }
        | Op::Custom { .. } => return Err(OpFailure::NotComputed),
    })
}

/// Whether the op uses an operand's contents; if not, its description is enough.
pub(crate) fn reads(op: &Op, operand: usize) -> bool {
    match op {
        Op::Im2Col { .. } | Op::SetRows => operand != 0,
        Op::Copy => operand != 1,
        _ => true,
    }
}

fn check(op: &Op, operands: &[TensorDesc], output: &TensorDesc) -> Result<(), OpFailure> {
    let expected = infer(op, operands)?;
    if expected.dtype != output.dtype || expected.extents != output.extents {
        return Err(OpFailure::Output { descs: Box::new([*output, expected]) });
    }
    Ok(())
}
