//! Which kernel computes attention, and which nodes it takes with it.

mod launches;

pub(super) use launches::{DECODE_STRUCTURES, PROMPT_STRUCTURES, attention};

use orlop_backend::Precision;
use orlop_graph::{DType, FlashAttention, Graph, Leaf, Node, NodeId, Op, TensorDesc, TensorId};

use super::rotate::{OneToken, Rotation};
use super::{DECODE, PROMPT, wide_rows};

/// Rows of a cache for which one block is enough.
const SPLIT_ROWS: u64 = 512;
/// Longest heads that registers have room for.
const LONGEST_HEAD: u64 = 256;
/// Most splits of rows that one block could take.
const MAX_SPLITS: u64 = 32;
/// Splits and pages are multiples of this many rows.
const BLOCK_ROWS: u64 = 64;
/// Most of them in a split.
const SPLIT_BLOCKS: u64 = 128;
/// Tokens that tensor cores take at a time.
const TILE: u64 = 64;
/// Runs of fewer tokens of one sequence go token by token: tensor cores would mostly multiply nothing.
const FEW: u64 = 8;
/// Blocks that keep a GPU busy.
const BUSY: u64 = 1024;

/// How attention is computed where there is more than the general way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AttentionPlan {
    pub(crate) kernel: &'static str,
    /// Most splits of what a token sees.
    pub(crate) splits: u64,
    /// Bytes of their results, before they come together.
    pub(crate) scratch: u64,
    /// Runs of fewer tokens of one sequence within a tile go token by token, all others to tensor cores.
    few: u64,
}

/// Which kernel computes a node, `None` for the general one.
pub(crate) fn attention_plan(graph: &Graph, node: &Node, precision: Precision) -> Option<AttentionPlan> {
    let Op::FlashAttention(parameters) = &node.op else { return None };
    let FlashAttention { max_bias, kv_len, mask, page_rows, .. } = *parameters;
    let [q, k, v] = [0, 1, 2].map(|slot| &graph.tensor(node.inputs[slot]).desc);
    let head = q.extents[0];
    let pages = parameters.page_slots().map(|[pages, _]| &graph.tensor(node.inputs[pages]).desc);
    let sequences = parameters.page_slots().map(|[_, sequences]| sequences);
    let lists = [parameters.kv_len_slot(), parameters.sinks_slot(), sequences].into_iter().flatten();
    let mut lists = lists.map(|slot| &graph.tensor(node.inputs[slot]).desc);
    let blocks = |pages: &TensorDesc| {
        u64::from(page_rows).is_multiple_of(BLOCK_ROWS) && !pages.is_empty() && pages.strides[0] == 4
    };
    let context = pages.map_or(k.extents[1], |pages| pages.extents[0] * u64::from(page_rows));
    let fits = kv_len
        && !graph.tensor(node.output).desc.is_empty()
        && lists.all(|list| list.is_contiguous())
        && pages.is_none_or(blocks)
        && i32::try_from(context).is_ok()
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
        && wide_rows(graph, node.inputs[0])
        && [1, 2].iter().all(|slot| rows_fit(graph, node.inputs[*slot]))
        && graph.tensor(node.output).desc.dtype == DType::F32
        && head <= LONGEST_HEAD
        && head.is_multiple_of(16);
    if !fits {
        return None;
    }
    let (tokens, heads) = (q.extents[1], q.extents[2]);
    let single = in_blocks(k.dtype) || matches!(k.dtype, DType::F16 | DType::BF16 | DType::F32);
    let tiles = tokens > 1 && (in_blocks(k.dtype) || k.dtype == DType::F16) && precision != Precision::F32;
    let (kernel, few) = match pages {
        _ if tokens == 1 && single => (DECODE, TILE + 1),
        Some(_) if single && (tokens < FEW || (!tiles && tokens <= TILE)) => (DECODE, TILE + 1),
        Some(pages) if tiles && pages.extents[1] > 1 => (PROMPT, FEW),
        _ if tiles => (PROMPT, 0),
        _ => return None,
    };
    let splits = if few > 0 { most_splits(parameters, context) } else { 1 };
    let scratch = if splits == 1 { 0 } else { places(tokens) * heads * splits * (head + 2) * 4 };
    Some(AttentionPlan { kernel, splits, scratch, few })
}

/// Whether kernels read a cache of a type in its blocks.
fn in_blocks(cache: DType) -> bool {
    matches!(cache, DType::Q8_0 | DType::Q4_0)
}

/// Whether rows of a cache can be read 16 bytes at a time: those in blocks eight at once, which lie one behind the other.
fn rows_fit(graph: &Graph, cache: TensorId) -> bool {
    let tensor = graph.tensor(cache);
    let desc = &tensor.desc;
    if !in_blocks(desc.dtype) {
        return wide_rows(graph, cache);
    }
    desc.strides[0] == desc.dtype.block_bytes()
        && desc.strides[1] == desc.row_bytes()
        && tensor.storage.offset.is_multiple_of(16)
        && (desc.extents[2] == 1 || desc.strides[2].is_multiple_of(16))
}

/// Splits of a token's rows. They depend on nothing that other tokens bring, so neither does the token's result.
fn most_splits(parameters: &FlashAttention, context: u64) -> u64 {
    let window = u64::from(parameters.window);
    let (rows, blocks) = match window {
        0 => (context, context.div_ceil(BLOCK_ROWS)),
        // A window may begin and end within a block.
        _ => (context.min(window), context.min(window + 2 * BLOCK_ROWS).div_ceil(BLOCK_ROWS)),
    };
    (rows / SPLIT_ROWS).clamp(1, MAX_SPLITS).max(blocks.div_ceil(SPLIT_BLOCKS))
}

/// Blocks that share the tokens of a tile.
fn beside(tokens: u64) -> u64 {
    if tokens <= TILE { tokens } else { FEW }
}

/// Tokens that are computed at a time, each by blocks of its own.
fn places(tokens: u64) -> u64 {
    tokens.div_ceil(TILE) * beside(tokens)
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
            && [token.positions, token.indices]
                .into_iter()
                .chain(tables(node))
                .all(|id| graph.root_leaf(id) == Some(Leaf::Input));
        fits.then_some(RotatedAttention { rotation, token, flash: *flash })
    }

    /// The rotated queries, which are nowhere in memory.
    pub(crate) fn queries(&self) -> TensorId {
        self.token.q.1
    }

    /// What it reads before the kernels in front of it have ended, but for its own row of the caches.
    pub(crate) fn reads_early(&self, graph: &Graph) -> Vec<TensorId> {
        let early = [self.token.positions, self.token.indices, self.token.k.1, self.token.v.1];
        early.into_iter().chain(tables(graph.node(self.flash))).chain(self.rotation.factors()).collect()
    }

    pub(crate) fn reads(&self, graph: &Graph) -> Vec<TensorId> {
        let flash = &graph.node(self.flash).inputs[1..];
        self.rotation.reads(graph).into_iter().chain(flash.iter().copied()).collect()
    }

    pub(crate) fn writes(&self, graph: &Graph) -> Vec<TensorId> {
        vec![graph.node(self.flash).output, self.token.k.1, self.token.v.1]
    }
}

/// The operands that say which rows are seen, and where they are.
fn tables(node: &Node) -> Vec<TensorId> {
    let Op::FlashAttention(parameters) = &node.op else { return Vec::new() };
    let slots = parameters.kv_len_slot().into_iter().chain(parameters.page_slots().into_iter().flatten());
    slots.map(|slot| node.inputs[slot]).collect()
}
