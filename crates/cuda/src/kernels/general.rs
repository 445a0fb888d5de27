//! The general kernels: one for every op, of any layout and any type that `supports` accepts.

use bytemuck::{Pod, Zeroable};
use orlop_backend::{DeviceError, Step};
use orlop_graph::{Interpolation, Node, Op, Patch, Pool, PoolKind, SortDirection, TensorDesc, Window};

use super::numbers::{self, *};
use super::rotate::yarn;
use super::{Launch, LaunchContext, Spread, TensorParameter, misfit, rows};
use crate::modules::{Source, Variant};

/// Parameters of every general kernel.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Task {
    inputs: [TensorParameter; 8],
    output: TensorParameter,
    integers: [i64; 12],
    floats: [f32; 10],
    op: i32,
    step: i32,
    marks: u64,
}

/// Shared with `general.cu`.
pub(super) const STRUCTURES: &[(&str, usize)] = &[("Task", size_of::<Task>())];

/// A kernel and its parameters beside the tensors.
#[derive(Clone, Copy, Debug, Default)]
struct Call {
    kernel: &'static str,
    op: i32,
    integers: [i64; 12],
    floats: [f32; 10],
    /// What determines the number of threads.
    work: Work,
}

#[derive(Clone, Copy, Debug, Default)]
enum Work {
    /// A thread for each element of the result.
    #[default]
    Results,
    /// A thread for each element of the first operand.
    Elements,
    /// A block for each row of the first operand.
    Rows,
    /// This number of blocks.
    Blocks(u64),
}

/// An array filled up with zeros.
fn filled<T: Copy + Default, const N: usize>(values: &[T]) -> [T; N] {
    std::array::from_fn(|index| values.get(index).copied().unwrap_or_default())
}

fn blocks_of(desc: &TensorDesc) -> [i64; 12] {
    let mut integers = [0; 12];
    (integers[8], integers[9]) = (desc.dtype.block_bytes() as i64, desc.dtype.block_elements() as i64);
    integers
}

fn window(window: &Window) -> [i64; 12] {
    let Window { stride, padding, dilation } = window;
    filled(&[stride, padding, dilation].map(|pair| pair.map(i64::from)).concat())
}

/// The call that computes a node by one kernel, from its operands as they are; the others are [`general`]'s.
fn call(node: &Node, inputs: &[TensorDesc], output: &TensorDesc) -> Option<Call> {
    let of = |kernel, op| Call { kernel, op, ..Call::default() };
    let rows = |call: Call| Call { work: Work::Rows, ..call };
    let floats = |call: Call, values: &[f32]| Call { floats: filled(values), ..call };
    let integers = |call: Call, values: &[i64]| Call { integers: filled(values), ..call };
    Some(match &node.op {
        Op::Dup | Op::Cont | Op::Cast { .. } | Op::Copy => {
            let same = inputs[0].dtype == output.dtype;
            let block =
                [output.dtype.block_bytes(), output.dtype.block_elements()].map(|number| number as i64);
            integers(of("op_copy", 0), if same { &block } else { &[] })
        }
        Op::Repeat { .. } => Call { integers: blocks_of(output), ..of("op_rearrange", REARRANGE_REPEAT) },
        Op::Pad { before, .. } => {
            let mut integers = blocks_of(output);
            integers.iter_mut().zip(before).for_each(|(to, from)| *to = *from as i64);
            Call { integers, ..of("op_rearrange", REARRANGE_PAD) }
        }
        Op::Roll { shifts } => {
            let mut integers = blocks_of(output);
            integers[..4].copy_from_slice(shifts);
            Call { integers, ..of("op_rearrange", REARRANGE_ROLL) }
        }
        Op::Arange { start, step, .. } => floats(of("op_arange", 0), &[*start, *step]),
        Op::GetRows => of("op_get_rows", 0),
        Op::SetRows => Call { work: Work::Elements, ..of("op_set_rows", 0) },
        Op::Add | Op::Add1 => of("op_binary", BINARY_ADD),
        Op::Sub => of("op_binary", BINARY_SUB),
        Op::Mul => of("op_binary", BINARY_MUL),
        Op::Div => of("op_binary", BINARY_DIV),
        Op::Unary(unary) => of("op_unary", numbers::unary(*unary)),
        Op::Scale { scale, bias } => floats(of("op_unary", UNARY_SCALE), &[*scale, *bias]),
        Op::Clamp { min, max } => floats(of("op_unary", UNARY_CLAMP), &[*min, *max]),
        Op::LeakyRelu { slope } => floats(of("op_unary", UNARY_LEAKY_RELU), &[*slope]),
        Op::Gated { gate, swapped } => {
            integers(of("op_gated", numbers::gate(*gate)), &[inputs.len() as i64, i64::from(*swapped)])
        }
        Op::Sum => Call { work: Work::Blocks(1), ..of("op_sum", 0) },
        Op::SumRows => rows(of("op_sum_rows", ROWS_SUM)),
        Op::Mean => rows(of("op_sum_rows", ROWS_MEAN)),
        Op::CumSum => of("op_cumsum", 0),
        Op::ArgMax => rows(of("op_argmax", 0)),
        Op::ArgSort { direction } => sorted(*direction),
        Op::TopK { .. } => sorted(SortDirection::Descending),
        Op::Norm { eps } => floats(rows(of("op_norm", NORM_MEAN)), &[*eps]),
        Op::RmsNorm { eps } => floats(rows(of("op_norm", NORM_RMS)), &[*eps]),
        Op::L2Norm { eps } => floats(rows(of("op_norm", NORM_L2)), &[*eps]),
        Op::GroupNorm { groups, eps } => {
            let work = Work::Blocks(u64::from(*groups) * output.extents[3]);
            floats(integers(Call { work, ..of("op_group_norm", 0) }, &[i64::from(*groups)]), &[*eps])
        }
        Op::SoftMax(soft_max) => {
            let call = integers(rows(of("op_soft_max", 0)), &[soft_max.mask, soft_max.sinks].map(i64::from));
            floats(call, &[soft_max.scale, soft_max.max_bias])
        }
        Op::DiagMaskInf { past } => {
            floats(integers(of("op_diag_mask", 0), &[i64::from(*past)]), &[f32::NEG_INFINITY])
        }
        Op::DiagMaskZero { past } => integers(of("op_diag_mask", 0), &[i64::from(*past)]),
        Op::MulMat => {
            let [m, n, a, b] = output.extents;
            Call { work: Work::Blocks(m.div_ceil(16) * n.div_ceil(16) * a * b), ..of("op_mul_mat", 0) }
        }
        Op::MulMatId | Op::MulMatSome => {
            let work = Work::Blocks(output.elements().div_ceil(8));
            integers(Call { work, ..of("op_mul_mat_id", 0) }, &[i64::from(node.op == Op::MulMatSome)])
        }
        Op::OutProd => of("op_out_prod", 0),
        Op::Rope(rope) => {
            let (mode, sections) = numbers::rope(rope.mode);
            let [a, b, c, d] = sections.map(i64::from);
            let (ramp, magnitude) = yarn(rope);
            let factors = i64::from(inputs.len() > 2);
            let call = integers(of("op_rope", mode), &[i64::from(rope.dims), factors, a, b, c, d]);
            floats(call, &[rope.freq_base, rope.freq_scale, rope.ext_factor, ramp[0], ramp[1], magnitude])
        }
        Op::FlashAttention(flash) => {
            let slots = [flash.kv_len_slot(), flash.mask_slot(), flash.sinks_slot()];
            let [kv_len, mask, sinks] = slots.map(|slot| slot.unwrap_or(0) as i64);
            let pages = flash.page_slots().map_or(0, |[pages, _]| pages as i64);
            let queries = inputs[0].extents[1..].iter().product::<u64>();
            let call = integers(
                Call { work: Work::Blocks(queries.div_ceil(8)), ..of("op_flash_attention", 0) },
                &[kv_len, mask, sinks, i64::from(flash.window), pages, i64::from(flash.page_rows)],
            );
            floats(call, &[flash.scale, flash.max_bias, flash.soft_cap])
        }
        Op::Im2Col { window: w, two_d, .. } => {
            let dimensions = if *two_d { IM2COL_2D } else { IM2COL_1D };
            Call { integers: window(w), ..of("op_im2col", dimensions) }
        }
        Op::Conv1d(w) => Call { integers: window(w), ..of("op_conv", CONV_1D) },
        Op::Conv2d(w) => Call { integers: window(w), ..of("op_conv", CONV_2D) },
        Op::ConvDepthwise2d(w) => Call { integers: window(w), ..of("op_conv", CONV_DEPTHWISE_2D) },
        Op::ConvTranspose1d { stride } => {
            integers(of("op_conv_transpose", CONV_TRANSPOSE_1D), &[i64::from(*stride)])
        }
        Op::ConvTranspose2d { stride } => {
            integers(of("op_conv_transpose", CONV_TRANSPOSE_2D), &[i64::from(*stride)])
        }
        Op::Pool1d(pool) => pooled(pool, 1),
        Op::Pool2d(pool) => pooled(pool, 2),
        Op::Upscale { mode: Interpolation::Nearest, .. } => of("op_upscale", UPSCALE_NEAREST),
        Op::Upscale { mode: Interpolation::Bilinear, .. } => of("op_upscale", UPSCALE_BILINEAR),
        Op::TimestepEmbedding { dim, max_period } => {
            integers(of("op_timestep_embedding", 0), &[i64::from(*dim), i64::from(*max_period)])
        }
        Op::SsmConv => of("op_ssm_conv", 0),
        Op::SsmScan => of("op_ssm_scan", 0),
        Op::DeltaScan => of("op_delta_scan", 0),
        // Several launches each.
        Op::Concat { .. } | Op::Set(_) | Op::Acc(_) => return None,
        // No kernel: views compute nothing, and custom ops are refused.
        Op::View { .. } | Op::Reshape { .. } | Op::Permute { .. } | Op::Transpose | Op::Custom { .. } => {
            return None;
        }
    })
}

fn sorted(direction: SortDirection) -> Call {
    Call { kernel: "op_argsort", op: numbers::sort(direction), work: Work::Elements, ..Call::default() }
}

fn pooled(pool: &Pool, dimensions: i64) -> Call {
    let Pool { kind, kernel, stride, padding } = pool;
    let mut integers: [i64; 12] = filled(&[kernel, stride, padding].map(|pair| pair.map(i64::from)).concat());
    integers[6] = dimensions;
    let op = match kind {
        PoolKind::Max => POOL_MAX,
        PoolKind::Mean => POOL_MEAN,
    };
    Call { kernel: "op_pool", op, integers, ..Call::default() }
}

pub(super) fn general(
    site: &LaunchContext<'_>,
    step: &Step,
    index: i32,
    launches: &mut Vec<Launch>,
) -> Result<(), DeviceError> {
    let [node] = step.nodes[..] else { return Err(misfit(site, step)) };
    let node = site.graph().node(node);
    let output = site.tensor(node.output)?;
    let inputs = node.inputs.iter().map(|id| site.tensor(*id)).collect::<Result<Vec<_>, _>>()?;
    let moved = matches!(node.op, Op::Dup | Op::Cont | Op::Copy)
        && site.desc(node.inputs[0]).dtype == site.desc(node.output).dtype
        && site.desc(node.inputs[0]).is_contiguous()
        && site.desc(node.output).is_contiguous()
        && (inputs[0].at | output.at).is_multiple_of(16);
    match &node.op {
        _ if moved => {
            let bytes = site.desc(node.output).bytes();
            let work = Work::Blocks(bytes.div_ceil(16 * 256));
            let call = Call { kernel: "op_move", integers: filled(&[bytes as i64]), work, ..Call::default() };
            start(site, index, &call, &inputs[..1], output, launches)
        }
        Op::ArgMax if rows::largest_takes(site.graph(), node.inputs[0]) => {
            rows::largest(site, [node.inputs[0], node.output], launches)
        }
        Op::Concat { axis } => {
            let mut offset = [0; 4];
            for (id, input) in node.inputs.iter().zip(&inputs) {
                let desc = site.desc(*id);
                let mut integers = blocks_of(desc);
                integers[..4].copy_from_slice(&offset);
                let call = Call {
                    kernel: "op_rearrange",
                    op: REARRANGE_PLACE,
                    integers,
                    work: Work::Elements,
                    ..Call::default()
                };
                start(site, index, &call, std::slice::from_ref(input), output, launches)?;
                let axis = usize::from(*axis);
                let step = if axis == 0 { desc.dtype.block_elements() } else { 1 };
                offset[axis] += (desc.extents[axis] / step) as i64;
            }
            Ok(())
        }
        Op::Set(patch) | Op::Acc(patch) => {
            if inputs[0].at != output.at {
                let desc = site.desc(node.output);
                let block =
                    [desc.dtype.block_bytes(), desc.dtype.block_elements()].map(|number| number as i64);
                let call = Call { kernel: "op_copy", integers: filled(&block), ..Call::default() };
                start(site, index, &call, &inputs[..1], output, launches)?;
            }
            let call = patched(patch, matches!(node.op, Op::Acc(_)), site.desc(node.inputs[1]));
            start(site, index, &call, &inputs[1..2], output, launches)
        }
        _ => {
            let descs: Vec<TensorDesc> = node.inputs.iter().map(|id| *site.desc(*id)).collect();
            let call = call(node, &descs, site.desc(node.output)).ok_or_else(|| misfit(site, step))?;
            start(site, index, &call, &inputs, output, launches)
        }
    }
}

fn patched(patch: &Patch, added: bool, desc: &TensorDesc) -> Call {
    let [a, b, c] = patch.strides.map(|stride| stride as i64);
    let (bytes, elements) = (desc.dtype.block_bytes() as i64, desc.dtype.block_elements() as i64);
    let integers = filled(&[a, b, c, patch.offset as i64, bytes, elements]);
    let op = if added { PATCH_ADD } else { PATCH_SET };
    Call { kernel: "op_patch", op, integers, work: Work::Elements, ..Call::default() }
}

fn start(
    site: &LaunchContext<'_>,
    step: i32,
    call: &Call,
    inputs: &[TensorParameter],
    output: TensorParameter,
    launches: &mut Vec<Launch>,
) -> Result<(), DeviceError> {
    let count = |tensor: &TensorParameter| tensor.extents.iter().product::<i64>().max(0) as u64;
    let first = inputs.first().unwrap_or(&output);
    // The result of `set_rows` is all of the destination; its work is the rows that are written.
    let written = if call.kernel == "op_set_rows" { inputs.get(1).unwrap_or(first) } else { first };
    let blocks = match call.work {
        Work::Results => count(&output).div_ceil(256),
        Work::Elements => count(written).div_ceil(256),
        Work::Rows if count(&output) == 0 => 0,
        Work::Rows => first.extents[1..].iter().product::<i64>().max(0) as u64,
        Work::Blocks(blocks) => blocks,
    };
    if blocks == 0 {
        return Ok(());
    }
    let mut task = Task::zeroed();
    for (to, from) in task.inputs.iter_mut().zip(inputs) {
        *to = *from;
    }
    (task.output, task.integers, task.floats) = (output, call.integers, call.floats);
    (task.op, task.step, task.marks) = (call.op, step, site.errors);
    let variant = Variant::plain(Source::General);
    launches.push(site.launch(&variant, call.kernel, Spread::new(blocks, 256), &task)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use orlop_testkit::conformance;

    use super::*;

    /// Every op of the conformance set has a kernel in the source, under the name that its call has.
    #[test]
    fn calls_name_kernels_of_the_source() {
        let source = Source::General.text(None);
        for case in conformance::cases() {
            let graph = case.graph();
            for node in graph.nodes().iter().filter(|node| !node.op.is_view()) {
                let inputs: Vec<TensorDesc> = node.inputs.iter().map(|id| graph.tensor(*id).desc).collect();
                let kernel = match call(node, &inputs, &graph.tensor(node.output).desc) {
                    Some(call) => call.kernel,
                    None => match node.op {
                        Op::Concat { .. } => "op_rearrange",
                        Op::Set(_) | Op::Acc(_) => "op_patch",
                        _ => panic!("no call for {}", node.op),
                    },
                };
                let name = kernel.strip_prefix("op_").unwrap();
                assert!(source.contains(&format!("KERNEL({name})")), "{}: {kernel}", node.op);
            }
        }
    }
}
