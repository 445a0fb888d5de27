//! Launches of attention, and the structures that its kernels are given.

use bytemuck::{Pod, Zeroable};
use orlop_backend::{DeviceError, Step};
use orlop_graph::{DType, FlashAttention, Node, Op};

use super::{
    AttentionPlan, BLOCK_ROWS, BUSY, FEW, RotatedAttention, SPLIT_BLOCKS, TILE, attention_plan, beside,
    in_blocks, places, tables,
};
use crate::kernels::rotate::{OneToken, TurnParameter};
use crate::kernels::{DECODE, Launch, LaunchContext, PROMPT, Spread, is_unwritten, misfit};
use crate::modules::{Source, Variant};

/// Bytes behind rows in blocks, which are read with the last of them.
const BEHIND: u64 = 16;

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

/// Where the rows of sequences lie.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct PagesParameter {
    ids: u64,
    sequences: u64,
    stride: i64,
    each: i32,
    count: i32,
    total: i32,
    few: i32,
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
    q_token: i64,
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
    tokens: i32,
    beside: i32,
    marks: u64,
    pages: PagesParameter,
    own: OwnRow,
}

/// Shared with `decode.cu`.
pub(in crate::kernels) const DECODE_STRUCTURES: &[(&str, usize)] =
    &[("Pages", size_of::<PagesParameter>()), ("Decode", size_of::<DecodeParameter>())];

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
    pages: PagesParameter,
}

/// Shared with `prompt.cu`.
pub(in crate::kernels) const PROMPT_STRUCTURES: &[(&str, usize)] =
    &[("Pages", size_of::<PagesParameter>()), ("Prompt", size_of::<PromptParameter>())];

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

/// An attention node and its kernels.
struct Attention<'a> {
    node: &'a Node,
    parameters: &'a FlashAttention,
    plan: AttentionPlan,
    index: i32,
}

impl Attention<'_> {
    fn pages(&self, site: &LaunchContext<'_>) -> Result<PagesParameter, DeviceError> {
        let Some([pages, sequences]) = self.parameters.page_slots() else {
            return Ok(PagesParameter::zeroed());
        };
        let desc = site.desc(self.node.inputs[pages]);
        let rows = site.desc(self.node.inputs[1]).extents[1];
        Ok(PagesParameter {
            ids: site.at(self.node.inputs[pages])?,
            sequences: site.at(self.node.inputs[sequences])?,
            stride: desc.strides[1] as i64,
            each: desc.extents[0] as i32,
            count: desc.extents[1] as i32,
            total: (rows / u64::from(self.parameters.page_rows)) as i32,
            few: self.plan.few as i32,
        })
    }

    fn sinks(&self, site: &LaunchContext<'_>) -> Result<u64, DeviceError> {
        self.parameters.sinks_slot().map_or(Ok(0), |slot| site.at(self.node.inputs[slot]))
    }

    /// Runs of tokens, on tensor cores.
    fn prompt(&self, site: &LaunchContext<'_>) -> Result<Launch, DeviceError> {
        let Attention { node, parameters, plan, index } = self;
        let [q, k, v] = [0, 1, 2].map(|slot| site.desc(node.inputs[slot]));
        let stride = |stride: u64| stride as i64;
        let pages = self.pages(site)?;
        let (head, tokens, heads) = (q.extents[0], q.extents[1], q.extents[2]);
        let parameter = PromptParameter {
            q: site.at(node.inputs[0])?,
            k: site.at(node.inputs[1])?,
            v: site.at(node.inputs[2])?,
            seen: site.at(node.inputs[3])?,
            sinks: self.sinks(site)?,
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
            kv_heads: k.extents[2] as i32,
            kv: k.extents[1] as i32,
            step: *index,
            scale: parameters.scale,
            cap: parameters.soft_cap,
            window: parameters.window as i32,
            marks: site.errors,
            pages,
        };
        let defines = [
            format!("HEAD={head}"),
            format!("KVTYPE={}", k.dtype.gguf_id()),
            format!("PAGE={}", parameters.page_rows),
        ];
        let variant = Variant { source: Source::Prompt, defines: defines.into() };
        // Two stages of keys and of values, rows a little apart; the queries fit there too. Rows in blocks come as they are,
        // and become one of F16.
        let rows = if head <= 128 { 64 } else { 32 };
        let tiles = 2 * rows * (2 * head + 16);
        let next = if in_blocks(k.dtype) { 4 * rows * k.row_bytes() + BEHIND } else { tiles };
        let shared_bytes = (tiles + next) as u32;
        let runs = if plan.few == 0 { 1 } else { (TILE.min(tokens) / FEW).min(pages.count as u64) };
        let grid = [tokens.div_ceil(TILE) as u32, heads as u32, runs as u32];
        site.launch(&variant, "prompt", Spread { grid, block: 128, shared_bytes }, &parameter)
    }

    /// Tokens one by one.
    fn decode(
        &self,
        site: &LaunchContext<'_>,
        step: &Step,
        rotated: Option<&RotatedAttention>,
        launches: &mut Vec<Launch>,
    ) -> Result<(), DeviceError> {
        let Attention { node, parameters, plan, index } = self;
        let [q, k, v] = [0, 1, 2].map(|slot| site.desc(node.inputs[slot]));
        let stride = |stride: u64| stride as i64;
        let (q_at, q_head) = match rotated {
            Some(rotated) => (site.at(rotated.token.q.0)?, site.desc(rotated.token.q.0).strides[1]),
            None => (site.at(node.inputs[0])?, q.strides[2]),
        };
        let (head, tokens, heads, kv_heads) = (q.extents[0], q.extents[1], q.extents[2], k.extents[2]);
        let parameter = DecodeParameter {
            q: q_at,
            k: site.at(node.inputs[1])?,
            v: site.at(node.inputs[2])?,
            seen: site.at(node.inputs[3])?,
            sinks: self.sinks(site)?,
            y: site.at(node.output)?,
            parts: if plan.scratch > 0 { site.temporary(&step.writes)? } else { 0 },
            q_token: stride(q.strides[1]),
            q_head: stride(q_head),
            k_row: stride(k.strides[1]),
            k_head: stride(k.strides[2]),
            v_row: stride(v.strides[1]),
            v_head: stride(v.strides[2]),
            heads: heads as i32,
            kv_heads: kv_heads as i32,
            kv: k.extents[1] as i32,
            splits: plan.splits as i32,
            step: *index,
            scale: parameters.scale,
            cap: parameters.soft_cap,
            window: parameters.window as i32,
            tokens: tokens as i32,
            beside: beside(tokens) as i32,
            marks: site.errors,
            pages: self.pages(site)?,
            own: rotated.map_or(Ok(OwnRow::zeroed()), |rotated| own_row(site, rotated))?,
        };
        let group =
            [4, 2, 1].into_iter().find(|group| (heads / kv_heads).is_multiple_of(*group)).unwrap_or(1);
        let tables = tables(node);
        let early = in_blocks(k.dtype)
            && tokens == 1
            && tables.into_iter().all(|table| is_unwritten(site.graph(), table));
        // Rows in blocks come by way of shared memory, of which few GPUs have more for long heads.
        let stages = if head <= 128 { 3 } else { 2 };
        let shared_bytes =
            if in_blocks(k.dtype) { (stages * 2 * BLOCK_ROWS * k.row_bytes() + BEHIND) as u32 } else { 0 };
        let defines = [
            format!("HEAD={head}"),
            format!("GROUP={group}"),
            format!("KVTYPE={}", k.dtype.gguf_id()),
            format!("ROTATED={}", u8::from(rotated.is_some())),
            format!("PAGE={}", parameters.page_rows),
            format!("MANY={}", u8::from(tokens > 1)),
            format!("SPLIT_BLOCKS={SPLIT_BLOCKS}"),
            format!("STAGES={stages}"),
            format!("EARLY={}", u8::from(early)),
        ];
        let variant = Variant { source: Source::Decode, defines: defines.into() };
        let places = places(tokens);
        let splits = blocks_of_splits(tokens, places * heads / group, plan.splits);
        let grid = [(heads / group) as u32, splits as u32, places as u32];
        launches.push(site.launch(
            &variant,
            "decode",
            Spread { grid, block: 256, shared_bytes },
            &parameter,
        )?);
        if splits > 1 {
            let (grid, block) = ([heads as u32, 1, places as u32], head.next_multiple_of(32) as u32);
            launches.push(site.launch(
                &variant,
                "combine",
                Spread { grid, block, shared_bytes: 0 },
                &parameter,
            )?);
        }
        Ok(())
    }
}

/// Blocks among which the splits of a token are divided. Where it is one, it puts them together by itself: the memory that
/// they are in is the next token's.
fn blocks_of_splits(tokens: u64, blocks: u64, splits: u64) -> u64 {
    match tokens {
        1 => splits,
        2..=TILE => (BUSY / blocks).clamp(1, splits),
        _ => 1,
    }
}

pub(in crate::kernels) fn attention(
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
    let attention = Attention { node, parameters, plan, index };
    if plan.kernel == PROMPT {
        launches.push(attention.prompt(site)?);
    }
    if plan.kernel == DECODE || plan.few > 0 {
        attention.decode(site, step, rotated.as_ref(), launches)?;
    }
    Ok(())
}
