//! Which kernels compute which op, one file per family.
//!
//! [`accepts`] says whether there are kernels for operands of these descriptions, [`build`] makes them: text and numbers.
//! Both are pure functions and name every op.

mod attention;
mod check;
mod convolution;
mod elementwise;
mod image;
mod movement;
mod norm;
mod product;
mod reduce;
mod rope;
mod rows;
mod soft_max;
mod sort;
mod ssm;

use orlop_backend::Reason;
use orlop_graph::{DType, Op, SortDirection, TensorDesc};

pub(crate) use self::check::Check;
use crate::wgsl::{Kernel, Place, can_read, can_write};

/// Twice the longest table among a kernel's parameters, which every adapter takes.
const MAX_TABLE: u32 = 4096;

/// A node at its places.
#[derive(Debug)]
pub(crate) struct Task<'a> {
    pub(crate) op: &'a Op,
    pub(crate) inputs: Vec<Place>,
    pub(crate) output: Place,
    pub(crate) subgroups: bool,
    /// Whether invocations of a workgroup share work for which they must wait for one another.
    pub(crate) cooperative: bool,
    /// Where bad indices are noted.
    pub(crate) status: Place,
}

/// Whether there are kernels for an op on these operands.
pub(crate) fn accepts(op: &Op, inputs: &[TensorDesc], output: &TensorDesc) -> Result<(), Reason> {
    // Elements of views begin at whole words, too.
    if let Op::View { offset, .. } = op
        && !offset.is_multiple_of(if output.dtype.block_bytes().is_multiple_of(4) { 4 } else { 2 })
    {
        return Err(Reason::Strides { operand: 1 });
    }
    for (operand, desc) in inputs.iter().chain([output]).enumerate() {
        words_are_whole(operand, desc)?;
    }
    match op {
        Op::View { .. } | Op::Reshape { .. } | Op::Permute { .. } | Op::Transpose => Ok(()),
        Op::Dup
        | Op::Cast { .. }
        | Op::Copy
        | Op::Cont
        | Op::Set(_)
        | Op::Acc(_)
        | Op::Repeat { .. }
        | Op::Concat { .. }
        | Op::Pad { .. }
        | Op::Roll { .. }
        | Op::Arange { .. } => movement::accepts(op, inputs, output),
        Op::GetRows | Op::SetRows => rows::accepts(op, inputs),
        Op::ArgMax | Op::ArgSort { .. } | Op::TopK { .. } => sort::accepts(op, inputs),
        Op::MulMat | Op::MulMatId | Op::MulMatSome | Op::OutProd => {
            floats(inputs.get(..2).unwrap_or(inputs), output)
        }
        Op::FlashAttention(params) => attention::accepts(params, inputs),
        Op::SsmScan | Op::DeltaScan => Ok(()),
        Op::TimestepEmbedding { dim, .. } if *dim > MAX_TABLE => {
            Err(Reason::Limit { limit: "the embedding's size", value: (*dim).into(), max: MAX_TABLE.into() })
        }
        Op::Rope(params) if params.dims > MAX_TABLE => {
            Err(Reason::Limit { limit: "the rotated part", value: params.dims.into(), max: MAX_TABLE.into() })
        }
        Op::Rope(_) => floats(&inputs[..1], output),
        Op::Add
        | Op::Add1
        | Op::Sub
        | Op::Mul
        | Op::Div
        | Op::Scale { .. }
        | Op::Clamp { .. }
        | Op::Unary(_)
        | Op::LeakyRelu { .. }
        | Op::Gated { .. }
        | Op::DiagMaskInf { .. }
        | Op::DiagMaskZero { .. } => floats(inputs, output),
        Op::Upscale { mode, .. } => image::accepts(*mode, &inputs[0], output).and(floats(inputs, output)),
        Op::Sum
        | Op::SumRows
        | Op::Mean
        | Op::CumSum
        | Op::Norm { .. }
        | Op::RmsNorm { .. }
        | Op::GroupNorm { .. }
        | Op::L2Norm { .. }
        | Op::SoftMax(_)
        | Op::Im2Col { .. }
        | Op::Conv1d(_)
        | Op::Conv2d(_)
        | Op::ConvDepthwise2d(_)
        | Op::ConvTranspose1d { .. }
        | Op::ConvTranspose2d { .. }
        | Op::Pool1d(_)
        | Op::Pool2d(_)
        | Op::TimestepEmbedding { .. }
        | Op::SsmConv => floats(inputs, output),
        Op::Custom { .. } => Err(Reason::Op),
    }
}

/// The kernels of an op that was accepted, in order. None for a result without elements.
pub(crate) fn build(task: &Task<'_>) -> Vec<Kernel> {
    if task.output.desc.is_empty() {
        return Vec::new();
    }
    let one = |kernel: Kernel| vec![kernel];
    match task.op {
        // Views compute nothing, and custom ops are refused.
        Op::View { .. } | Op::Reshape { .. } | Op::Permute { .. } | Op::Transpose | Op::Custom { .. } => {
            Vec::new()
        }
        Op::Dup | Op::Cast { .. } | Op::Cont | Op::Copy => movement::copy(&task.inputs[0], &task.output),
        Op::Set(patch) => movement::set(task, patch),
        Op::Acc(patch) => movement::accumulate(task, patch),
        Op::Repeat { .. } => one(movement::repeat(task)),
        Op::Concat { axis } => movement::concat(task, usize::from(*axis)),
        Op::Pad { before, .. } => one(movement::pad(task, before)),
        Op::Roll { shifts } => one(movement::roll(task, shifts)),
        Op::Arange { start, step, .. } => one(movement::arange(task, *start, *step)),
        Op::GetRows => one(rows::get(task)),
        Op::SetRows => one(rows::set(task)),
        Op::Add | Op::Add1 => one(elementwise::binary(task, "x + b")),
        Op::Sub => one(elementwise::binary(task, "x - b")),
        Op::Mul => one(elementwise::binary(task, "x * b")),
        Op::Div => one(elementwise::binary(task, "x / b")),
        Op::Scale { scale, bias } => one(elementwise::scale(task, *scale, *bias)),
        Op::Clamp { min, max } => one(elementwise::clamp(task, *min, *max)),
        Op::Unary(function) => one(elementwise::unary(task, *function)),
        Op::LeakyRelu { slope } => one(elementwise::leaky_relu(task, *slope)),
        Op::Gated { gate, swapped } => one(elementwise::gated(task, *gate, *swapped)),
        Op::DiagMaskInf { past } => one(elementwise::masked(task, *past, f32::NEG_INFINITY)),
        Op::DiagMaskZero { past } => one(elementwise::masked(task, *past, 0.0)),
        Op::Sum => one(reduce::sum(task)),
        Op::SumRows => one(reduce::rows(task, "sum")),
        Op::Mean => one(reduce::rows(task, "sum / f32(p.x_n0)")),
        Op::CumSum => one(reduce::running_sums(task)),
        Op::ArgMax => one(sort::largest(task)),
        Op::ArgSort { direction } => one(sort::sorted(task, *direction)),
        Op::TopK { .. } => one(sort::sorted(task, SortDirection::Descending)),
        Op::Norm { eps } => one(norm::rows(task, norm::Kind::Mean, *eps)),
        Op::RmsNorm { eps } => one(norm::rows(task, norm::Kind::RootMeanSquare, *eps)),
        Op::L2Norm { eps } => one(norm::rows(task, norm::Kind::Length, *eps)),
        Op::GroupNorm { groups, eps } => one(norm::groups(task, *groups, *eps)),
        Op::SoftMax(params) => one(soft_max::build(task, params)),
        Op::MulMat => one(product::mul_mat(task)),
        Op::MulMatId | Op::MulMatSome => one(product::mul_mat_id(task)),
        Op::OutProd => one(product::out_prod(task)),
        Op::Rope(params) => one(rope::build(task, params)),
        Op::FlashAttention(params) => one(attention::build(task, params)),
        Op::Im2Col { window, two_d, .. } => one(convolution::im2col(task, window, *two_d)),
        Op::Conv1d(window) => one(convolution::conv_1d(task, window)),
        Op::Conv2d(window) => one(convolution::conv_2d(task, window)),
        Op::ConvDepthwise2d(window) => one(convolution::depthwise(task, window)),
        Op::ConvTranspose1d { stride } => one(convolution::transposed_1d(task, *stride)),
        Op::ConvTranspose2d { stride } => one(convolution::transposed_2d(task, *stride)),
        Op::Pool1d(pool) => one(image::pool(task, pool, false)),
        Op::Pool2d(pool) => one(image::pool(task, pool, true)),
        Op::Upscale { mode, .. } => one(image::upscale(task, *mode)),
        Op::TimestepEmbedding { dim, max_period } => one(image::timesteps(task, *dim, *max_period)),
        Op::SsmConv => one(ssm::conv(task)),
        Op::SsmScan => one(ssm::scan(task)),
        Op::DeltaScan => one(ssm::delta_scan(task)),
    }
}

/// Which numbers in the data a run must look at before it goes by them.
pub(crate) fn checks(task: &Task<'_>) -> Vec<Check> {
    check::of(task)
}

/// Whether all operands can be read as floats, and the result written as such.
fn floats(inputs: &[TensorDesc], output: &TensorDesc) -> Result<(), Reason> {
    if let Some(operand) = inputs.iter().position(|desc| !can_read(desc.dtype)) {
        return Err(Reason::DType { operand, dtype: inputs[operand].dtype });
    }
    if !can_write(output.dtype) {
        return Err(Reason::DType { operand: inputs.len(), dtype: output.dtype });
    }
    Ok(())
}

/// Elements begin at multiples of their size, as far as words are concerned.
fn words_are_whole(operand: usize, desc: &TensorDesc) -> Result<(), Reason> {
    let word = match desc.dtype {
        dtype if dtype.block_bytes().is_multiple_of(4) => 4,
        dtype if dtype.block_bytes().is_multiple_of(2) => 2,
        _ => 1,
    };
    let steps = |dim: usize| desc.extents[dim] <= 1 || desc.strides[dim].is_multiple_of(word);
    let whole = (1..4).all(steps) && desc.strides[0].is_multiple_of(word);
    if whole || desc.is_empty() { Ok(()) } else { Err(Reason::Strides { operand }) }
}

/// An element type's unit for moves without conversion: 4, 2 or 1 bytes.
fn unit(dtype: DType) -> u64 {
    match dtype.block_bytes() {
        bytes if bytes.is_multiple_of(4) => 4,
        bytes if bytes.is_multiple_of(2) => 2,
        _ => 1,
    }
}

/// `i, j, k, l`: the coordinates of element `index` of an operand.
fn coordinates(name: &str) -> String {
    format!(
        "  let i = index % p.{name}_n0;
  let i1 = index / p.{name}_n0;
  let j = i1 % p.{name}_n1;
  let i2 = i1 / p.{name}_n1;
  let k = i2 % p.{name}_n2;
  let l = i2 / p.{name}_n2;
"
    )
}

/// `j, k, l`: the coordinates of row `index` of an operand.
fn row_coordinates(name: &str) -> String {
    format!(
        "  let j = index % p.{name}_n1;
  let i2 = index / p.{name}_n1;
  let k = i2 % p.{name}_n2;
  let l = i2 / p.{name}_n2;
"
    )
}

#[cfg(test)]
mod tests {
    use orlop_backend::{NodeQuery, Support};
    use orlop_testkit::conformance;

    use super::*;

    #[test]
    fn the_ops_page_has_what_is_accepted() {
        let supports = |node: &NodeQuery<'_>| {
            let inputs: Vec<TensorDesc> = node.inputs.iter().map(|operand| *operand.desc).collect();
            accepts(node.op, &inputs, node.output.desc).map_or_else(Support::No, |()| Support::YES)
        };
        conformance::check_ops_page("wgpu", &conformance::acceptance("wgpu", supports));
    }
}
