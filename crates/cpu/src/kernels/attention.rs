//! [FlashAttention](https://arxiv.org/abs/2205.14135): the soft-max is computed along the way. Scores of one block of KV rows
//! at a time, a running maximum and sum for each query, and weighted sums of values that are rescaled when the maximum grows.
//!
//! Queries that share a KV head (neighbouring heads, and all tokens) are taken in tiles, so that a row of K or V is decoded
//! once for all of them. Contiguous rows are read in place: hardware prefetchers follow them. Where rows of a token's heads
//! lie side by side, tiles of neighbouring KV heads that have one tile each, as when one token is generated, go through them
//! together, and rows are read into the cache first. Hardware prefetchers start too late for few rows, so those of the next
//! head are prefetched while one is used. Where there are few bundles of tiles, their KV rows are split
//! ([Flash-Decoding](https://pytorch.org/blog/flash-decoding/)), and a second phase merges the parts. Neither tiles nor splits
//! depend on the number of threads.

mod tile;

use std::ops::Range;

use orlop_backend::{DeviceError, Reason, Step};
use orlop_graph::{DType, FlashAttention, Graph, Op, TensorDesc};

use self::tile::{BLOCK, FEW, KvRows, QueryTile, SoftMaxState};
use super::product::{Rounding, decodable, round_row, weights};
use crate::access::{RowIndex, Src};
use crate::task::{
    FloatScratch, Kernel, KernelBody, StepKernel, StepOperand, StepOperands, StepShape, Task, TaskInputs,
    Thread, chain, element_at, float,
};
use crate::vector::{Scaled, ScaledTo, on, touch};

/// Queries in a tile, at most.
const TILE: usize = 64;
/// Pieces of work that splits make of few bundles.
const PIECES: u64 = 32;
/// Tiles of a bundle, at most.
const BUNDLE: usize = 8;
/// Bytes of KV rows that are read into the cache at a time, about.
const CACHED: u64 = 192 << 10;
/// Most KV rows of a head that are prefetched while those of another are used.
const NEAR: u64 = 256;
/// KV rows in a part, at least: the larger number where there are many.
const PART: [u64; 2] = [256, 1024];

/// Attention whose results are rounded.
pub(crate) const ATTENTION: &str = "flash_attention";

pub(crate) const FLASH_ATTENTION: Kernel =
    Kernel { accepts, scratch, shared, check: Some(lengths_are_in_range), body: BODY };

pub(crate) fn named(name: &str, rounding: Option<Rounding>) -> Option<StepKernel> {
    (name == ATTENTION && rounding.is_some()).then_some(StepKernel {
        operands: rounded_operands,
        needs: |shape: &StepShape<'_>| FloatScratch {
            scratch: needed(&shape.reads),
            shared: parts_of_all(&shape.reads),
        },
        check: Some(lengths_are_in_range),
        body: BODY,
    })
}

// SAFETY: the phase rule: in the first phase each part of a tile is one thread's; a tile with one part writes its own rows of
// the result, and each part of the others a shared row of its own. In the second phase each query of those tiles is one
// thread's, and shared rows are only read. Operands lie apart; `phases` looks at lengths, which the step does not write.
const BODY: KernelBody = unsafe { KernelBody::in_phases(phases, run) };

/// Heads are rounded by themselves, so they must be whole blocks.
fn rounded_operands(graph: &Graph, step: &Step) -> Option<StepOperands> {
    let [node] = chain(graph, step)?;
    let (result, rounding) = (&graph.tensor(node.output).desc, Rounding::of_kernel(&step.kernel)?);
    let fits = matches!(node.op, Op::FlashAttention(_))
        && result.dtype == DType::F32
        && result.extents[0].is_multiple_of(32);
    fits.then(|| StepOperands {
        reads: node.inputs.iter().copied().map(StepOperand::Tensor).collect(),
        writes: vec![StepOperand::Rounded(node.output, rounding)],
    })
}

fn accepts(op: &Op, operands: &[TensorDesc], result: &TensorDesc) -> Result<(), Reason> {
    let Op::FlashAttention(params) = op else { return Err(Reason::Op) };
    for (operand, desc) in operands.iter().chain([result]).enumerate() {
        let fits = match operand {
            1 | 2 => decodable(desc.dtype),
            _ if params.kv_len_slot() == Some(operand) => desc.dtype == DType::I32,
            _ => float(desc.dtype),
        };
        if !fits {
            return Err(Reason::DType { operand, dtype: desc.dtype });
        }
    }
    weights(1, &operands[1])?;
    weights(2, &operands[2])
}

/// How queries are divided.
#[derive(Clone, Copy, Debug)]
struct QueryDivision {
    tokens: u64,
    /// Query heads for each KV head.
    group: u64,
    kv_heads: u64,
    /// Tiles for each KV head of each sequence, and of all.
    tiles_each: u64,
    tiles: u64,
    /// Tiles that go through their KV rows together, at most: where each KV head has but one, those of neighbouring
    /// heads, whose rows lie side by side.
    together: u64,
    /// Parts of each tile's KV rows, at most.
    splits: u64,
}

impl QueryDivision {
    fn new(q: &TensorDesc, k: &TensorDesc) -> QueryDivision {
        let [_, tokens, heads, seqs] = q.extents;
        let kv_heads = k.extents[2];
        let group = heads.checked_div(kv_heads).unwrap_or(0);
        let tiles_each = (tokens * group).div_ceil(TILE as u64);
        let tiles = tiles_each * kv_heads * seqs;
        let side_by_side = tiles_each == 1 && k.strides[1] > k.row_bytes();
        let together = if side_by_side { kv_heads.min(BUNDLE as u64) } else { 1 };
        let division = QueryDivision { tokens, group, kv_heads, tiles_each, tiles, together, splits: 1 };
        let splits = PIECES.checked_div(division.bundles()).unwrap_or(1).max(1);
        QueryDivision { splits, ..division }
    }

    /// Bundles of tiles.
    fn bundles(&self) -> u64 {
        match self.tiles_each {
            1 => self.tiles / self.kv_heads * self.kv_heads.div_ceil(self.together),
            _ => self.tiles,
        }
    }

    /// The tiles of a bundle, all of one sequence.
    fn tiles_of(&self, bundle: u64) -> Range<u64> {
        if self.tiles_each != 1 {
            return bundle..bundle + 1;
        }
        let (seq, number) = divided(bundle, self.kv_heads.div_ceil(self.together));
        let first = number * self.together;
        seq * self.kv_heads + first..seq * self.kv_heads + (first + self.together).min(self.kv_heads)
    }

    /// Which queries a tile has, by their numbers within a KV head: heads first, then tokens.
    fn queries(&self, tile: u64) -> Range<u64> {
        let first = divided(tile, self.tiles_each).1 * TILE as u64;
        first..(first + TILE as u64).min(self.tokens * self.group)
    }

    /// Queries in the largest tile.
    fn largest(&self) -> u64 {
        (TILE as u64).min(self.tokens * self.group)
    }
}

fn scratch(_: &Op, operands: &[TensorDesc], _: &TensorDesc) -> u64 {
    needed(operands)
}

fn shared(_: &Op, operands: &[TensorDesc], _: &TensorDesc) -> (u64, u64) {
    parts_of_all(operands)
}

/// Floats of scratch.
fn needed(operands: &[TensorDesc]) -> u64 {
    let division = QueryDivision::new(&operands[0], &operands[1]);
    let (dk, dv) = (operands[0].extents[0], operands[2].extents[0]);
    let tiles = tile::floats(division.largest(), dk, dv).saturating_mul(division.together);
    KvRows::floats(dk, dv).saturating_add(tiles)
}

/// Where there are splits: sums of each query of each part, its maximum and its sum of weights.
fn parts_of_all(operands: &[TensorDesc]) -> (u64, u64) {
    let division = QueryDivision::new(&operands[0], &operands[1]);
    match division.splits {
        1 => (0, 0),
        splits => {
            let row = operands[2].extents[0].saturating_add(2);
            (division.tiles.saturating_mul(splits), row.saturating_mul(division.largest()))
        }
    }
}

fn lengths_are_in_range(task: &TaskInputs<'_>) -> Result<(), DeviceError> {
    let Op::FlashAttention(params) = *task.op else { return Ok(()) };
    let Some(slot) = params.kv_len_slot() else { return Ok(()) };
    let (lengths, rows) = (&task.src[slot], task.src[1].desc.extents[1]);
    for token in 0..lengths.desc.elements() {
        let index = nth(lengths, token);
        if u64::try_from(index).is_ok_and(|length| length <= rows) {
            continue;
        }
        return Err(DeviceError::BadIndex {
            op: task.op.name().to_owned(),
            tensor: task.name.to_owned(),
            index,
            rows,
        });
    }
    Ok(())
}

fn nth(integers: &Src, index: u64) -> i64 {
    let (column, at) = element_at(&integers.desc, index);
    integers.integer(column, at)
}

/// Where no tile has several parts, there is nothing to bring together.
fn phases(task: &TaskInputs<'_>) -> Range<usize> {
    let Op::FlashAttention(params) = *task.op else { return 0..1 };
    let division = QueryDivision::new(&task.src[0].desc, &task.src[1].desc);
    let most = match params.kv_len_slot() {
        _ if division.splits == 1 => 0,
        Some(slot) => (0..division.tokens).map(|token| nth(&task.src[slot], token) as u64).max().unwrap_or(0),
        None => task.src[1].desc.extents[1],
    };
    if most <= PART[0] { 0..1 } else { 0..2 }
}

fn run(task: &Task, thread: Thread, scratch: &mut [f32]) {
    let Op::FlashAttention(params) = task.op else { return };
    let division = QueryDivision::new(&task.src[0].desc, &task.src[1].desc);
    if thread.phase == 1 {
        return merge(task, params, &division, thread, scratch);
    }
    // Memory for few queries takes less time to fill.
    let attend = match (division.together, division.largest() <= FEW as u64) {
        (1, true) => attend::<1, FEW>,
        (1, false) => attend::<1, TILE>,
        (_, true) => attend::<BUNDLE, FEW>,
        (_, false) => attend::<BUNDLE, TILE>,
    };
    // Later tokens see more rows, so neighbouring bundles and parts go to different threads.
    let mut turns = (0..thread.count).cycle();
    let mut is_mine = || turns.next() == Some(thread.index);
    for bundle in 0..division.bundles() {
        // Whole bundles need not be looked into by others.
        if division.splits == 1 && !is_mine() {
            continue;
        }
        let tiles = division.tiles_of(bundle);
        let parts = KvParts::of(task, params, &division, tiles.start);
        for split in 0..parts.count() {
            if division.splits == 1 || is_mine() {
                let next = tiles.start + thread.count as u64;
                let near = parts.rows.end - parts.rows.start <= NEAR && parts.count() == 1;
                let next = (division.together == 1 && near && next < division.tiles).then_some(next);
                attend(
                    task,
                    params,
                    &division,
                    &AttentionPiece { tiles: tiles.clone(), parts: &parts, split, next },
                    scratch,
                );
            }
        }
    }
}

/// A piece of work: some tiles, with one part of their rows.
struct AttentionPiece<'a> {
    tiles: Range<u64>,
    parts: &'a KvParts,
    split: u64,
    /// The tile that this thread takes next, if its rows are prefetched meanwhile.
    next: Option<u64>,
}

/// The queries of some tiles with one part of their rows. What they come to is kept for [`merge`], if there are others.
fn attend<const TILES: usize, const QUERIES: usize>(
    task: &Task,
    params: FlashAttention,
    division: &QueryDivision,
    AttentionPiece { tiles, parts, split, next }: &AttentionPiece<'_>,
    scratch: &mut [f32],
) {
    let (mut rows, mut rest) = KvRows::new(task, scratch);
    let mut bundle: [Option<QueryTile<'_, QUERIES>>; TILES] = [const { None }; TILES];
    for (tile, number) in bundle.iter_mut().zip(tiles.clone()) {
        *tile = Some(QueryTile::new(task, params, division, number, &mut rest));
    }
    let range = parts.get(*split);
    let together = tiles.end - tiles.start;
    let span = if together > 1 { span(task, together) } else { parts.each };
    for first in range.clone().step_by(span as usize) {
        let part = first..range.end.min(first + span);
        if together > 1 {
            bring(task, division, tiles, part.clone());
        }
        for tile in bundle.iter_mut().flatten() {
            tile.attend(part.clone(), *next, &mut rows);
        }
    }
    for (tile, number) in bundle.iter_mut().flatten().zip(tiles.clone()) {
        if parts.count() == 1 {
            for (query, state, sums) in tile.results() {
                finish(task, params, query, state, sums);
            }
        } else {
            task.shared.fill(split * division.tiles + number, |part| {
                let part = part.chunks_exact_mut(task.src[2].desc.extents[0] as usize + 2);
                for ((_, state, sums), part) in tile.results().zip(part) {
                    let (out, rest) = part.split_at_mut(sums.len());
                    out.copy_from_slice(sums);
                    rest.copy_from_slice(&[state.max, state.sum]);
                }
            });
        }
    }
}

/// Whole blocks of KV rows, of some heads, that a cache holds.
fn span(task: &Task, heads: u64) -> u64 {
    let bytes = [1, 2].map(|operand| task.src[operand].desc.row_bytes().saturating_mul(heads));
    (CACHED / (bytes[0].saturating_add(bytes[1])).max(1)).next_multiple_of(BLOCK as u64).max(BLOCK as u64)
}

/// Reads KV rows of all tiles of a bundle into the cache, if they are contiguous: sequential reads are several times as
/// fast.
fn bring(task: &Task, division: &QueryDivision, tiles: &Range<u64>, rows: Range<u64>) {
    let [head, seq] = kv_of(task, division, tiles.start);
    let heads = head..head + (tiles.end - tiles.start);
    for operand in [1, 2] {
        touch(task.src[operand].piece(rows.clone(), heads.clone(), seq).unwrap_or_default());
    }
}

/// Head and sequence of K and V that a tile reads.
fn kv_of(task: &Task, division: &QueryDivision, tile: u64) -> [u64; 2] {
    let (seq, head) = divided(divided(tile, division.tiles_each).0, division.kv_heads);
    let share = task.src[0].desc.extents[3] / task.src[1].desc.extents[3];
    [head, divided(seq, share).0]
}

/// Quotient and remainder. Divisions are slow and rarely needed.
fn divided(a: u64, b: u64) -> (u64, u64) {
    match b {
        1 => (a, 0),
        _ if a < b => (0, a),
        _ => (a / b, a % b),
    }
}

/// The KV rows that the queries of a tile see, in parts of whole blocks, but for the last.
struct KvParts {
    rows: Range<u64>,
    each: u64,
}

impl KvParts {
    fn of(task: &Task, params: FlashAttention, division: &QueryDivision, tile: u64) -> KvParts {
        let [fewest, most] = match params.kv_len_slot() {
            Some(slot) => {
                let queries = division.queries(tile);
                let [first, last] = [queries.start, queries.end - 1].map(|q| divided(q, division.group).0);
                let tokens = first..last + 1;
                let lengths = tokens.map(|token| nth(&task.src[slot], token) as u64);
                let ends = |[fewest, most]: [u64; 2], length: u64| [fewest.min(length), most.max(length)];
                lengths.fold([u64::MAX, 0], ends)
            }
            None => [task.src[1].desc.extents[1]; 2],
        };
        let first = params.first_row(fewest).min(most);
        // Small parts keep all threads busy, larger ones cost less.
        let rows = most - first;
        let each = rows.div_ceil(division.splits).max((rows / 2).clamp(PART[0], PART[1]));
        KvParts { rows: first..most, each: each.next_multiple_of(BLOCK as u64) }
    }

    /// How many there are; one, if there are no rows.
    fn count(&self) -> u64 {
        (self.rows.end - self.rows.start).div_ceil(self.each).max(1)
    }

    fn get(&self, number: u64) -> Range<u64> {
        let first = self.rows.start + number * self.each;
        first..(first + self.each).min(self.rows.end)
    }
}

/// A query's place.
#[derive(Clone, Copy, Debug, Default)]
struct Query {
    token: u64,
    head: u64,
    seq: u64,
}

impl Query {
    fn new(division: &QueryDivision, tile: u64, number: u64) -> Query {
        let (seq, kv_head) = divided(divided(tile, division.tiles_each).0, division.kv_heads);
        let (token, head) = divided(number, division.group);
        Query { token, head: kv_head * division.group + head, seq }
    }
}

/// Merges the parts of each query, if there are several.
fn merge(task: &Task, params: FlashAttention, division: &QueryDivision, thread: Thread, scratch: &mut [f32]) {
    let dv = task.src[2].desc.extents[0] as usize;
    let sums = &mut scratch[..dv];
    for tile in 0..division.tiles {
        let count = KvParts::of(task, params, division, tile).count();
        if count == 1 {
            continue;
        }
        for (index, number) in division.queries(tile).enumerate() {
            if !thread.has_turn(tile + index as u64) {
                continue;
            }
            let parts = || {
                (0..count).map(|split| {
                    let row = task.shared.row(split * division.tiles + tile);
                    let part = &row[index * (dv + 2)..][..dv + 2];
                    (&part[..dv], SoftMaxState { max: part[dv], sum: part[dv + 1] })
                })
            };
            let max = parts().fold(f32::NEG_INFINITY, |max, (_, state)| larger(max, state.max));
            let mut all = SoftMaxState { max, sum: 0.0 };
            sums.fill(0.0);
            for (part, state) in parts().filter(|(_, state)| state.max != f32::NEG_INFINITY) {
                let factor = (state.max - max).exp();
                all.sum += state.sum * factor;
                sums.iter_mut().zip(part).for_each(|(sum, part)| *sum += factor * part);
            }
            finish(task, params, Query::new(division, tile, number), all, sums);
        }
    }
}

/// Divides by the sum of weights, the sink's included, and writes the result. Without a row there are zeros.
fn finish(task: &Task, params: FlashAttention, query: Query, state: SoftMaxState, sums: &mut [f32]) {
    let at = [query.head, query.token, query.seq];
    if state.max == f32::NEG_INFINITY {
        return write(task, at, sums);
    }
    let factor = match params.sinks_slot() {
        None => 1.0 / state.sum,
        Some(slot) => {
            let (column, at) = element_at(&task.src[slot].desc, query.head);
            let sink = task.src[slot].value(column, at);
            let max = larger(state.max, sink);
            let shrunk = (state.max - max).exp();
            shrunk / (state.sum * shrunk + (sink - max).exp())
        }
    };
    match task.dst.floats(0, at, sums.len()) {
        Some(to) => on(task.isa, ScaledTo { from: (&*sums).into(), to, factor }),
        None => {
            on(task.isa, Scaled { x: sums, factor });
            write(task, at, sums);
        }
    }
}

fn write(task: &Task, at: RowIndex, sums: &[f32]) {
    if Rounding::of(&task.dst.desc).is_some() {
        // All heads of a token are one row for the step that reads them.
        let [_, _, tokens, seqs] = task.dst.desc.extents;
        return round_row(task, &task.dst, tokens * seqs, at, sums);
    }
    task.dst.write_row(at, sums);
}

/// The larger number, or NaN if there is one.
fn larger(max: f32, x: f32) -> f32 {
    if x > max || x.is_nan() { x } else { max }
}
