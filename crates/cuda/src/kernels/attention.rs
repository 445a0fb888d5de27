use bytemuck::{Pod, Zeroable};
use orlop_backend::{DeviceError, Precision, Step};
use orlop_graph::{DType, FlashAttention, Graph, Node, Op};

use super::{DECODE, Launch, PROMPT, Site, Spread, misfit, wide_rows};
use crate::modules::{Source, Variant};

/// Rows of a cache for which one block is enough.
const SPLIT_ROWS: u64 = 512;
/// Most blocks that one head's rows are divided among.
const MOST_SPLITS: u64 = 32;

/// How attention is computed where there is more than the general way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AttentionPlan {
    pub(crate) kernel: &'static str,
    /// Blocks that one head's rows are divided among.
    pub(crate) splits: u64,
    /// Bytes of their results, before they come together.
    pub(crate) scratch: u64,
}

/// Which kernel computes a node, `None` for the general one.
pub(crate) fn attention_plan(graph: &Graph, node: &Node, precision: Precision) -> Option<AttentionPlan> {
    let Op::FlashAttention(parameters) = &node.op else { return None };
    let FlashAttention { max_bias, kv_len, mask, .. } = *parameters;
    let [q, k, v] = [0, 1, 2].map(|slot| &graph.tensor(node.inputs[slot]).desc);
    let head = q.extents[0];
    let fits = kv_len
        && !mask
        && max_bias == 0.0
        && q.dtype == DType::F32
        && q.extents[3] == 1
        && k.extents[3] == 1
        && k.dtype == v.dtype
        && k.extents == v.extents
        && k.extents[1] > 0
        && k.extents[2] > 0
        && q.extents[2].is_multiple_of(k.extents[2])
        && (0..3).all(|slot| wide_rows(graph, node.inputs[slot]))
        && graph.tensor(node.output).desc.dtype == DType::F32;
    if !fits {
        return None;
    }
    let heads = q.extents[2];
    match q.extents[1] {
        0 => None,
        1 if matches!(head, 64 | 128 | 256) && matches!(k.dtype, DType::F16 | DType::BF16 | DType::F32) => {
            let splits = (k.extents[1] / SPLIT_ROWS).clamp(1, MOST_SPLITS);
            let scratch = if splits == 1 { 0 } else { heads * splits * (head + 2) * 4 };
            Some(AttentionPlan { kernel: DECODE, splits, scratch })
        }
        1 => None,
        _ if matches!(head, 64 | 128) && k.dtype == DType::F16 && precision == Precision::Fast => {
            Some(AttentionPlan { kernel: PROMPT, splits: 1, scratch: 0 })
        }
        _ => None,
    }
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct DecodeParameter {
    q: u64,
    k: u64,
    v: u64,
    seen: u64,
    sinks: u64,
    y: u64,
    parts: u64,
    q_head: i64,
    k_row: i64,
    k_head: i64,
    v_row: i64,
    v_head: i64,
    heads: i32,
    kv_heads: i32,
    kv: i32,
    splits: i32,
    step: i32,
    scale: f32,
    cap: f32,
    gap: u32,
    marks: u64,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct PromptParameter {
    q: u64,
    k: u64,
    v: u64,
    seen: u64,
    sinks: u64,
    y: u64,
    q_token: i64,
    q_head: i64,
    k_row: i64,
    k_head: i64,
    v_row: i64,
    v_head: i64,
    y_token: i64,
    tokens: i32,
    heads: i32,
    kv_heads: i32,
    kv: i32,
    step: i32,
    scale: f32,
    cap: f32,
    gap: u32,
    marks: u64,
}

pub(super) fn attention(
    site: &Site<'_>,
    step: &Step,
    index: i32,
    launches: &mut Vec<Launch>,
) -> Result<(), DeviceError> {
    let [node] = step.nodes[..] else { return Err(misfit(site, step)) };
    let node = site.graph().node(node);
    let plan = attention_plan(site.graph(), node, site.options.precision);
    let (Some(plan), Op::FlashAttention(parameters)) = (plan, &node.op) else { return Err(misfit(site, step)) };
    let [q, k, v] = [0, 1, 2].map(|slot| site.desc(node.inputs[slot]));
    let [q_at, k_at, v_at, seen] = [0, 1, 2, 3].map(|slot| site.at(node.inputs[slot]));
    let sinks = parameters.sinks_slot().map_or(Ok(0), |slot| site.at(node.inputs[slot]))?;
    let (head, heads, kv_heads) = (q.extents[0], q.extents[2], k.extents[2]);
    let stride = |stride: u64| stride as i64;
    if plan.kernel == PROMPT {
        let tokens = q.extents[1];
        let parameter = PromptParameter {
            q: q_at?,
            k: k_at?,
            v: v_at?,
            seen: seen?,
            sinks,
            y: site.at(node.output)?,
            q_token: stride(q.strides[1]),
            q_head: stride(q.strides[2]),
            k_row: stride(k.strides[1]),
            k_head: stride(k.strides[2]),
            v_row: stride(v.strides[1]),
            v_head: stride(v.strides[2]),
            y_token: stride(site.desc(node.output).strides[2]),
            tokens: tokens as i32,
            heads: heads as i32,
            kv_heads: kv_heads as i32,
            kv: k.extents[1] as i32,
            step: index,
            scale: parameters.scale,
            cap: parameters.soft_cap,
            gap: 0,
            marks: site.marks,
        };
        let variant = Variant { source: Source::Prompt, defines: vec![format!("HEAD={head}")] };
        let shared_bytes = (4 * 64 * head * 2) as u32;
        let spread = Spread { grid: [tokens.div_ceil(64) as u32, heads as u32, 1], block: 128, shared_bytes };
        launches.push(site.launch(&variant, "prompt", spread, &parameter)?);
        return Ok(());
    }
    let group = [4, 2, 1].into_iter().find(|group| (heads / kv_heads).is_multiple_of(*group)).unwrap_or(1);
    let parameter = DecodeParameter {
        q: q_at?,
        k: k_at?,
        v: v_at?,
        seen: seen?,
        sinks,
        y: site.at(node.output)?,
        parts: if plan.scratch > 0 { site.temporary(&step.writes)? } else { 0 },
        q_head: stride(q.strides[2]),
        k_row: stride(k.strides[1]),
        k_head: stride(k.strides[2]),
        v_row: stride(v.strides[1]),
        v_head: stride(v.strides[2]),
        heads: heads as i32,
        kv_heads: kv_heads as i32,
        kv: k.extents[1] as i32,
        splits: plan.splits as i32,
        step: index,
        scale: parameters.scale,
        cap: parameters.soft_cap,
        gap: 0,
        marks: site.marks,
    };
    let defines = [format!("HEAD={head}"), format!("GROUP={group}"), format!("KVTYPE={}", k.dtype.gguf_id())];
    let variant = Variant { source: Source::Decode, defines: defines.into() };
    let spread = Spread { grid: [(heads / group) as u32, plan.splits as u32, 1], block: 256, shared_bytes: 0 };
    launches.push(site.launch(&variant, "decode", spread, &parameter)?);
    if plan.splits > 1 {
        let spread = Spread { grid: [heads as u32, 1, 1], block: head as u32, shared_bytes: 0 };
        launches.push(site.launch(&variant, "combine", spread, &parameter)?);
    }
    Ok(())
}
