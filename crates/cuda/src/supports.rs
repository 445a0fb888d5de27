//! What the GPU computes: the ops, types and layouts that its kernels take.

use std::sync::Arc;

use orlop_backend::{BufferType, MemoryLayout, NodeQuery, Reason, Support, same_type};
use orlop_graph::{DType, Op, TensorDesc};

use crate::kernels::suits_bringing;
use crate::planes::Planes;
use crate::types_header::is_block;

/// Whether a node can run with its operands where they are. `tiles`: thread blocks have shared memory for F16 tiles.
pub(crate) fn supports(
    node: &NodeQuery<'_>,
    plain: &Arc<dyn BufferType>,
    weights: &[Arc<dyn BufferType>],
    tiles: bool,
) -> Support {
    for (operand, tensor) in node.inputs.iter().chain([&node.output]).enumerate() {
        let Some(memory) = tensor.buffer_type else { continue };
        let in_planes =
            memory.layout() == MemoryLayout::Private && weights.iter().any(|own| same_type(own, memory));
        let reached = same_type(plain, memory) || (in_planes && takes_planes(node.op, operand, tensor.desc));
        if !reached {
            return Support::No(Reason::BufferType { operand, buffer_type: memory.name().to_owned() });
        }
    }
    let tensors = node.inputs.iter().chain([&node.output]);
    if let Some(operand) = tensors.map(|tensor| tensor.desc).position(|desc| !words_are_whole(desc)) {
        return Support::No(Reason::Strides { operand });
    }
    if let Op::View { offset, .. } = node.op
        && !offset.is_multiple_of(word(node.output.desc.dtype))
    {
        return Support::No(Reason::Strides { operand: node.inputs.len() });
    }
    if node.op.is_view() {
        return Support::YES;
    }
    let inputs: Vec<&TensorDesc> = node.inputs.iter().map(|operand| operand.desc).collect();
    match check(node.op, &inputs, node.output.desc) {
        Ok(()) => Support::Yes { wants_offload: tiles && is_worth_bringing(node.op, &inputs) },
        Err(reason) => Support::No(reason),
    }
}

/// Alignment of a type's elements in bytes; the GPU faults on reads that are not aligned.
pub(crate) fn word(dtype: DType) -> u64 {
    match dtype.block_bytes() {
        bytes if !dtype.is_quantized() => bytes,
        // Blocks are read by bytes, but their scales may be written as F16.
        bytes if bytes.is_multiple_of(2) => 2,
        _ => 1,
    }
}

fn words_are_whole(desc: &TensorDesc) -> bool {
    let word = word(desc.dtype);
    let whole = |dim: usize| desc.extents[dim] <= 1 || desc.strides[dim].is_multiple_of(word);
    desc.is_empty() || (0..4).all(whole)
}

/// Whether tensor cores should compute a product even if its weights must be copied to the GPU first.
fn is_worth_bringing(op: &Op, inputs: &[&TensorDesc]) -> bool {
    *op == Op::MulMat && suits_bringing(inputs[0], inputs[1])
}

fn takes_planes(op: &Op, operand: usize, desc: &TensorDesc) -> bool {
    operand == 0
        && matches!(op, Op::MulMat | Op::MulMatId | Op::MulMatSome | Op::GetRows)
        && Planes::of(desc).is_some()
}

fn is_float(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::BF16)
}

/// Block types that kernels can write: `encode_block` in `general.cu`.
fn is_written(dtype: DType) -> bool {
    matches!(dtype, DType::Q4_0 | DType::Q4_1 | DType::Q5_0 | DType::Q5_1 | DType::Q8_0)
}

/// Whether elements can be converted to another type through F32 without loss in F32.
fn convertible([from, to]: [DType; 2], operands: [usize; 2]) -> Result<(), Reason> {
    let readable = is_float(from) || is_block(from) || matches!(from, DType::I8 | DType::I16 | DType::I32);
    let refused = |index: usize, dtype| Err(Reason::DType { operand: operands[index], dtype });
    match to {
        _ if from == to => Ok(()),
        _ if !readable => refused(0, from),
        DType::I8 | DType::I16 => Ok(()),
        DType::I32 if is_float(from) => Ok(()),
        _ if is_float(to) || is_written(to) => Ok(()),
        _ => refused(1, to),
    }
}

fn all(wanted: impl Fn(DType) -> bool, tensors: &[&TensorDesc], first: usize) -> Result<(), Reason> {
    let bad = tensors.iter().enumerate().find(|(_, desc)| !wanted(desc.dtype));
    bad.map_or(Ok(()), |(index, desc)| Err(Reason::DType { operand: first + index, dtype: desc.dtype }))
}

/// Longer heads exceed the registers of a warp.
const LONGEST_HEAD: u64 = 512;

fn check(op: &Op, inputs: &[&TensorDesc], output: &TensorDesc) -> Result<(), Reason> {
    let (count, result) = (inputs.len(), [output]);
    let floats = |tensors: &[&TensorDesc], first| all(is_float, tensors, first);
    let numbers = |operand: usize| all(|dtype| dtype == DType::I32, &inputs[operand..operand + 1], operand);
    let read = |operand: usize| {
        all(|dtype| is_float(dtype) || is_block(dtype), &inputs[operand..operand + 1], operand)
    };
    match op {
        Op::View { .. }
        | Op::Reshape { .. }
        | Op::Permute { .. }
        | Op::Transpose
        | Op::Dup
        | Op::Cont
        | Op::Repeat { .. }
        | Op::Concat { .. }
        | Op::Pad { .. }
        | Op::Roll { .. }
        | Op::Set(_) => Ok(()),
        Op::Cast { .. } | Op::Copy => convertible([inputs[0].dtype, output.dtype], [0, count]),
        Op::GetRows => {
            numbers(1)?;
            if output.dtype == DType::I32 { Ok(()) } else { read(0).and(floats(&result, count)) }
        }
        Op::SetRows => {
            floats(&inputs[1..2], 1)?;
            all(|dtype| matches!(dtype, DType::I32 | DType::I64), &inputs[2..3], 2)?;
            convertible([inputs[1].dtype, output.dtype], [1, count])
        }
        Op::Acc(patch) => {
            let element = output.dtype.block_bytes();
            if !patch.offset.is_multiple_of(element)
                || patch.strides.iter().any(|stride| !stride.is_multiple_of(element))
            {
                return Err(Reason::Strides { operand: 0 });
            }
            floats(inputs, 0)
        }
        Op::ArgMax | Op::ArgSort { .. } | Op::TopK { .. } => floats(inputs, 0),
        Op::MulMat | Op::OutProd => read(0).and(floats(&inputs[1..], 1)).and(floats(&result, count)),
        Op::MulMatId | Op::MulMatSome => {
            numbers(2)?;
            read(0).and(floats(&inputs[1..2], 1)).and(floats(&result, count))
        }
        Op::Rope(_) => {
            numbers(1)?;
            floats(&inputs[..1], 0).and(floats(&inputs[2..], 2)).and(floats(&result, count))
        }
        // No kernel takes the first row of each query.
        Op::FlashAttention(flash) if flash.kv_first => Err(Reason::Op),
        Op::FlashAttention(flash) => {
            let longest = inputs[0].extents[0].max(inputs[2].extents[0]);
            if longest > LONGEST_HEAD {
                return Err(Reason::Limit {
                    limit: "the length of a head",
                    value: longest,
                    max: LONGEST_HEAD,
                });
            }
            flash.kv_len_slot().map_or(Ok(()), numbers)?;
            let pages = flash.page_slots();
            pages.into_iter().flatten().try_for_each(numbers)?;
            let rest = 3 + usize::from(flash.kv_len)..pages.map_or(count, |[pages, _]| pages);
            floats(&inputs[..1], 0)
                .and(read(1))
                .and(read(2))
                .and(floats(&inputs[rest.clone()], rest.start))
                .and(floats(&result, count))
        }
        Op::SsmScan => {
            numbers(6)?;
            floats(&inputs[..6], 0).and(all(|dtype| dtype == DType::F32, &result, count))
        }
        Op::DeltaScan => {
            numbers(7)?;
            floats(&inputs[..7], 0).and(all(|dtype| dtype == DType::F32, &result, count))
        }
        Op::Arange { .. }
        | Op::Add
        | Op::Add1
        | Op::Sub
        | Op::Mul
        | Op::Div
        | Op::Scale { .. }
        | Op::Clamp { .. }
        | Op::Unary(_)
        | Op::LeakyRelu { .. }
        | Op::Gated { .. }
        | Op::Sum
        | Op::SumRows
        | Op::Mean
        | Op::CumSum
        | Op::Norm { .. }
        | Op::RmsNorm { .. }
        | Op::GroupNorm { .. }
        | Op::L2Norm { .. }
        | Op::SoftMax(_)
        | Op::DiagMaskInf { .. }
        | Op::DiagMaskZero { .. }
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
        | Op::SsmConv => floats(inputs, 0).and(floats(&result, count)),
        Op::Custom { .. } => Err(Reason::Op),
    }
}
