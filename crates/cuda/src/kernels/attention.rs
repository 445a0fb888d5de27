use bytemuck::{Pod, Zeroable};
use orlop_backend::{DeviceError, Precision, Step};
use orlop_graph::{DType, FlashAttention, Graph, Leaf, Node, NodeId, Op, TensorId};

use super::rotate::{OneToken, Rotation, TurnParameter};
use super::{DECODE, Launch, LaunchContext, PROMPT, Spread, misfit, wide_rows};
use crate::modules::{Source, Variant};

/// Rows of a cache for which one block is enough.
const SPLIT_ROWS: u64 = 512;
/// Longest heads that registers have room for.
const LONGEST_HEAD: u64 = 256;
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
    let FlashAttention { max_bias, kv_len, mask, window, .. } = *parameters;
    let [q, k, v] = [0, 1, 2].map(|slot| &graph.tensor(node.inputs[slot]).desc);
    let head = q.extents[0];
    let lists = [parameters.kv_len_slot(), parameters.sinks_slot()].into_iter().flatten();
    let mut lists = lists.map(|slot| &graph.tensor(node.inputs[slot]).desc);
    let fits = kv_len
        && !graph.tensor(node.output).desc.is_empty()
        && lists.all(|list| list.is_contiguous())
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
        _ if head > LONGEST_HEAD || !head.is_multiple_of(16) => None,
        1 if matches!(k.dtype, DType::F16 | DType::BF16 | DType::F32) => {
            let seen = if window == 0 { k.extents[1] } else { k.extents[1].min(window.into()) };
            let splits = (seen / SPLIT_ROWS).clamp(1, MOST_SPLITS);
            let scratch = if splits == 1 { 0 } else { heads * splits * (head + 2) * 4 };
            Some(AttentionPlan { kernel: DECODE, splits, scratch })
        }
        1 => None,
        _ if k.dtype == DType::F16 && precision != Precision::F32 => {
            Some(AttentionPlan { kernel: PROMPT, splits: 1, scratch: 0 })
        }
        _ => None,
    }
}

/// Attention of one token that turns its own heads and writes its own row of the cache.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RotatedAttention {
    rotation: Rotation,
    token: OneToken,
    flash: NodeId,
}

impl RotatedAttention {
    /// What nodes mean as one step: a rotation of one token, then attention to the caches that it writes.
    pub(crate) fn parse(graph: &Graph, nodes: &[NodeId], precision: Precision) -> Option<RotatedAttention> {
        let (flash, before) = nodes.split_last()?;
        let rotation = Rotation::parse(graph, before)?;
        let token = rotation.one_token()?;
        let node = graph.node(*flash);
        attention_plan(graph, node, precision).filter(|plan| plan.kernel == DECODE)?;
        let [q, k, v] = [0, 1, 2].map(|slot| graph.tensor(node.inputs[slot]));
        let head = q.desc.extents[0];
        let same = |read: &orlop_graph::Tensor, written: TensorId| {
            let written = graph.tensor(written);
            (written.storage, written.desc) == (read.storage, read.desc)
        };
        let heads = |id: TensorId, count: u64| {
            let desc = &graph.tensor(id).desc;
            desc.extents[0] == head && desc.extents[1] == count && wide_rows(graph, id)
        };
        let fits = q.storage.root == token.q.1
            && q.storage.offset == 0
            && same(k, token.k.1)
            && same(v, token.v.1)
            && heads(token.q.0, q.desc.extents[2])
            && heads(token.k.0, k.desc.extents[2])
            && [token.positions, token.indices, node.inputs[3]]
                .iter()
                .all(|id| graph.root_leaf(*id) == Some(Leaf::Input));
        fits.then_some(RotatedAttention { rotation, token, flash: *flash })
    }

    /// The rotated queries, which are nowhere in memory.
    pub(crate) fn queries(&self) -> TensorId {
        self.token.q.1
    }

    /// What it reads before the kernels in front of it have ended, but for its own row of the caches.
    pub(crate) fn reads_early(&self, graph: &Graph) -> Vec<TensorId> {
        let seen = graph.node(self.flash).inputs[3];
        let early = [self.token.positions, self.token.indices, seen, self.token.k.1, self.token.v.1];
        early.into_iter().chain(self.rotation.factors()).collect()
    }

    pub(crate) fn reads(&self, graph: &Graph) -> Vec<TensorId> {
        let flash = &graph.node(self.flash).inputs[1..];
        self.rotation.reads(graph).into_iter().chain(flash.iter().copied()).collect()
    }

    pub(crate) fn writes(&self, graph: &Graph) -> Vec<TensorId> {
        vec![graph.node(self.flash).output, self.token.k.1, self.token.v.1]
    }
}

/// What a token brings of its own.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct OwnRow {
    new_k: u64,
    new_v: u64,
    row: u64,
    new_k_head: i64,
    new_v_head: i64,
    wide: i32,
    gap: u32,
    turn: TurnParameter,
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
    window: i32,
    marks: u64,
    own: OwnRow,
}

/// Shared with `decode.cu`.
pub(super) const DECODE_STRUCTURES: &[(&str, usize)] = &[("Decode", size_of::<DecodeParameter>())];

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
    window: i32,
    marks: u64,
}

/// Shared with `prompt.cu`.
pub(super) const PROMPT_STRUCTURES: &[(&str, usize)] = &[("Prompt", size_of::<PromptParameter>())];

fn own_row(site: &LaunchContext<'_>, rotated: &RotatedAttention) -> Result<OwnRow, DeviceError> {
    let OneToken { k, v, indices, .. } = rotated.token;
    Ok(OwnRow {
        new_k: site.at(k.0)?,
        new_v: site.at(v.0)?,
        row: site.at(indices)?,
        new_k_head: site.desc(k.0).strides[1] as i64,
        new_v_head: site.desc(v.0).strides[2] as i64,
        wide: i32::from(site.desc(indices).dtype == DType::I64),
        gap: 0,
        turn: rotated.rotation.turn(site)?,
    })
}

pub(super) fn attention(
    site: &LaunchContext<'_>,
    step: &Step,
    index: i32,
    launches: &mut Vec<Launch>,
) -> Result<(), DeviceError> {
    let rotated = if step.nodes.len() == 1 {
        None
    } else {
        let rotated = RotatedAttention::parse(site.graph(), &step.nodes, site.options.precision);
        Some(rotated.ok_or_else(|| misfit(site, step))?)
    };
    let node = step.nodes.last().map(|node| site.graph().node(*node)).ok_or_else(|| misfit(site, step))?;
    let plan = attention_plan(site.graph(), node, site.options.precision);
    let (Some(plan), Op::FlashAttention(parameters)) = (plan, &node.op) else {
        return Err(misfit(site, step));
    };
    let [q, k, v] = [0, 1, 2].map(|slot| site.desc(node.inputs[slot]));
    let [k_at, v_at, seen] = [1, 2, 3].map(|slot| site.at(node.inputs[slot]));
    let (q_at, q_head) = match &rotated {
        Some(rotated) => (site.at(rotated.token.q.0), site.desc(rotated.token.q.0).strides[1]),
        None => (site.at(node.inputs[0]), q.strides[2]),
    };
    let sinks = parameters.sinks_slot().map_or(Ok(0), |slot| site.at(node.inputs[slot]))?;
    let (head, heads, kv_heads) = (q.extents[0], q.extents[2], k.extents[2]);
    let stride = |stride: u64| stride as i64;
    let window = parameters.window as i32;
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
            window,
            marks: site.errors,
        };
        let variant = Variant { source: Source::Prompt, defines: vec![format!("HEAD={head}")] };
        // Two stages of keys and of values, rows a little apart; the queries fit there too.
        let rows = if head <= 128 { 64 } else { 32 };
        let shared_bytes = (4 * rows * (2 * head + 16)) as u32;
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
        q_head: stride(q_head),
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
        window,
        marks: site.errors,
        own: rotated.as_ref().map_or(Ok(OwnRow::zeroed()), |rotated| own_row(site, rotated))?,
    };
    let defines = [
        format!("HEAD={head}"),
        format!("GROUP={group}"),
        format!("KVTYPE={}", k.dtype.gguf_id()),
        format!("ROTATED={}", u8::from(rotated.is_some())),
    ];
    let variant = Variant { source: Source::Decode, defines: defines.into() };
    let spread =
        Spread { grid: [(heads / group) as u32, plan.splits as u32, 1], block: 256, shared_bytes: 0 };
    launches.push(site.launch(&variant, "decode", spread, &parameter)?);
    if plan.splits > 1 {
        let spread = Spread { grid: [heads as u32, 1, 1], block: head as u32, shared_bytes: 0 };
        launches.push(site.launch(&variant, "combine", spread, &parameter)?);
    }
    Ok(())
}
