//! [FlashAttention](https://arxiv.org/abs/2205.14135): the soft-max is computed along the way. Scores of one block of KV rows
//! at a time, a running maximum and sum for each query, and weighted sums of values that are rescaled when the maximum grows.
//!
//! Rows of a sequence may lie in pages ([PagedAttention](https://arxiv.org/abs/2309.06180)); a block lies within a page.
//! Queries of a sequence that share a KV head are taken in tiles, so that a row of K or V is decoded once for all of them.
//! Rows are read in place where they can be; those of the next head are prefetched while few of one are used.
//!
//! The arithmetic of a query depends on nothing but the rows that it sees: blocks and parts begin at fixed rows, scores are
//! added up in one order by rows and by columns, and parts are merged in their order. So a query's result is the same to the
//! bit alone, in any batch, from any pages and on any number of threads.

mod division;
mod tile;

use std::ops::Range;

use orlop_backend::{DeviceError, Reason, Step};
use orlop_graph::{DType, Graph, Op, TensorDesc};

use self::division::{Attention, BLOCK, MAX_PARTS, Sizes, TILE, divided};
use self::tile::{FEW, KvRows, Merge, QueryTile, SoftMaxState, TileWork};
use super::product::{Rounding, decodable, round_row, weights};
use crate::access::{RowIndex, Src};
use crate::task::{
    FloatScratch, Kernel, KernelBody, StepKernel, StepOperand, StepOperands, StepShape, Task, TaskInputs,
    Thread, chain, element_at, float,
};
use crate::vector::{Scaled, ScaledTo, on};

/// Most KV rows of a head that are prefetched while those of another are used.
const NEAR: u64 = 256;

/// Attention whose results are rounded.
pub(crate) const ATTENTION: &str = "flash_attention";

pub(crate) const FLASH_ATTENTION: Kernel =
    Kernel { accepts, scratch, shared, check: Some(indices_are_in_range), body: BODY };

pub(crate) fn named(name: &str, rounding: Option<Rounding>) -> Option<StepKernel> {
    (name == ATTENTION && rounding.is_some()).then_some(StepKernel {
        operands: rounded_operands,
        needs: |shape: &StepShape<'_>| FloatScratch {
            scratch: needed(&shape.reads),
            shared: partial_rows(&shape.reads),
        },
        check: Some(indices_are_in_range),
        body: BODY,
    })
}

// SAFETY: the phase rule: in the first phase each part of a tile is one thread's; a query with one part has a row of the result,
// and each part of the others a shared row of its own. In the second phase each of the other queries is one thread's, and shared
// rows are only read. Operands lie apart; `phases` looks at indices, which the step does not write.
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
    let is_index = |operand: usize| {
        [params.kv_len_slot(), params.kv_first_slot()].contains(&Some(operand))
            || params.page_slots().is_some_and(|slots| slots.contains(&operand))
    };
    for (operand, desc) in operands.iter().chain([result]).enumerate() {
        let fits = match operand {
            1 | 2 => decodable(desc.dtype),
            _ if is_index(operand) => desc.dtype == DType::I32,
            _ => float(desc.dtype),
        };
        if !fits {
            return Err(Reason::DType { operand, dtype: desc.dtype });
        }
    }
    if !params.page_rows.is_multiple_of(BLOCK as u32) {
        return Err(Reason::Op);
    }
    weights(1, &operands[1])?;
    weights(2, &operands[2])
}

fn sizes(operands: &[TensorDesc]) -> Sizes {
    Sizes::new(&[&operands[0], &operands[1], &operands[2]])
}

fn scratch(_: &Op, operands: &[TensorDesc], _: &TensorDesc) -> u64 {
    needed(operands)
}

fn shared(_: &Op, operands: &[TensorDesc], _: &TensorDesc) -> (u64, u64) {
    partial_rows(operands)
}

/// Floats of scratch.
fn needed(operands: &[TensorDesc]) -> u64 {
    let (dk, dv) = (operands[0].extents[0], operands[2].extents[0]);
    KvRows::floats(dk, dv).saturating_add(tile::floats(sizes(operands).largest(), dk, dv))
}

/// Rows of partial results, if there are any.
fn partial_rows(operands: &[TensorDesc]) -> (u64, u64) {
    let sizes = sizes(operands);
    if sizes.splits() { sizes.partial() } else { (0, 0) }
}

/// Lengths are those of sequences, sequences have pages, and pages that a query looks at are those of K and V.
fn indices_are_in_range(task: &TaskInputs<'_>) -> Result<(), DeviceError> {
    let Some(attention) = Attention::new(task.op, task.src) else { return Ok(()) };
    let bad = |index: i64, rows: u64| {
        let (op, tensor) = (task.op.name().to_owned(), task.name.to_owned());
        DeviceError::BadIndex { op, tensor, index, rows }
    };
    let check = |index: i64, rows: u64| match u64::try_from(index) {
        Ok(index) if index < rows => Ok(()),
        _ => Err(bad(index, rows)),
    };
    for slot in [attention.params.kv_len_slot(), attention.params.kv_first_slot()].into_iter().flatten() {
        let max = attention.max_rows();
        for token in 0..attention.sizes.tokens {
            let length = nth(&task.src[slot], token);
            // A length may be as large as the number of rows.
            if !u64::try_from(length).is_ok_and(|length| length <= max) {
                return Err(bad(length, max));
            }
        }
    }
    let Some([pages, sequences]) = attention.params.page_slots() else { return Ok(()) };
    for token in 0..attention.sizes.tokens {
        check(nth(&task.src[sequences], token), task.src[pages].desc.extents[1])?;
    }
    let page_rows = u64::from(attention.params.page_rows);
    let count = task.src[1].desc.extents[1] / page_rows;
    for queries in attention.tiles() {
        let visible = attention.visible_to(&queries);
        let sequence = attention.sequence(divided(queries.start, attention.sizes.group).0);
        for page in visible.first / page_rows..visible.end.div_ceil(page_rows) {
            check(task.src[pages].integer(page, [sequence, 0, 0]), count)?;
        }
    }
    Ok(())
}

fn nth(integers: &Src, index: u64) -> i64 {
    let (column, at) = element_at(&integers.desc, index);
    integers.integer(column, at)
}

/// Where no query has several parts, there is nothing to merge.
fn phases(task: &TaskInputs<'_>) -> Range<usize> {
    let Some(attention) = Attention::new(task.op, task.src) else { return 0..1 };
    let several = |token: u64| {
        let parts = attention.visible(token).parts();
        parts.end - parts.start > 1
    };
    let merges = attention.sizes.splits() && (0..attention.sizes.tokens).any(several);
    if merges { 0..2 } else { 0..1 }
}

fn run(task: &Task, thread: Thread, scratch: &mut [f32]) {
    let Some(attention) = Attention::new(&task.op, &task.src) else { return };
    let sizes = attention.sizes;
    if thread.phase == 1 {
        return merge(task, &attention, thread, scratch);
    }
    // Memory for few queries takes less time to fill.
    let attend = if sizes.largest() <= FEW as u64 { attend::<FEW> } else { attend::<TILE> };
    // Later tokens see more rows, so neighbouring tiles and parts go to different threads.
    let mut turns = (0..thread.count).cycle();
    let mut is_mine = || turns.next() == Some(thread.index);
    for head in 0..sizes.seqs * sizes.kv_heads {
        let (seq, kv_head) = divided(head, sizes.kv_heads);
        for queries in attention.tiles() {
            // Whole tiles need not be looked into by others.
            if !sizes.splits() && !is_mine() {
                continue;
            }
            let visible = attention.visible_to(&queries);
            let part_rows = attention.part_rows(&queries);
            let parts = match visible.first == visible.end {
                true => 0..1,
                false => visible.first / part_rows..(visible.end - 1) / part_rows + 1,
            };
            let next = kv_head + thread.count as u64;
            let near = visible.end - visible.first <= NEAR && sizes.tokens == 1 && next < sizes.kv_heads;
            let next = near.then_some(next);
            let work = TileWork { seq, kv_head, queries, visible, part_rows, next };
            if !sizes.splits() {
                attend(task, &attention, &work, parts, scratch);
                continue;
            }
            for part in parts {
                if is_mine() {
                    attend(task, &attention, &work, part..part + 1, scratch);
                }
            }
        }
    }
}

/// The queries of a tile with some parts of their rows: all of them, or one, whose results are kept for [`merge`].
fn attend<const QUERIES: usize>(
    task: &Task,
    attention: &Attention<'_>,
    work: &TileWork,
    parts: Range<u64>,
    scratch: &mut [f32],
) {
    let (mut rows, rest) = KvRows::new(task, scratch);
    let mut tile: QueryTile<'_, QUERIES> = QueryTile::new(task, attention, work, rest);
    let splits = attention.sizes.splits();
    let several = !splits && parts.end - parts.start > 1;
    let first = work.visible.first / work.part_rows;
    for part in parts {
        tile.attend(part, &mut rows);
        if several {
            tile.merge();
        }
        if !splits {
            continue;
        }
        for (query, own, state, sums) in tile.results() {
            let is_only = own.end - own.start == 1 && own.contains(&part);
            // Queries that see nothing have a result, too.
            if is_only || own.is_empty() && part == first {
                finish(task, attention, query, state, sums);
            } else if own.contains(&part) {
                task.shared.fill(partial_row(attention, query, part), |partial| {
                    let (out, rest) = partial.split_at_mut(sums.len());
                    out.copy_from_slice(sums);
                    rest.copy_from_slice(&[state.max, state.sum]);
                });
            }
        }
    }
    if !splits {
        if several {
            tile.take_totals();
        }
        for (query, _, state, sums) in tile.results() {
            finish(task, attention, query, state, sums);
        }
    }
}

/// The shared row of a part of a query.
fn partial_row(attention: &Attention<'_>, query: Query, part: u64) -> u64 {
    let Sizes { tokens, group, kv_heads, .. } = attention.sizes;
    let number = (query.seq * tokens + query.token) * group * kv_heads + query.head;
    number * MAX_PARTS + part % MAX_PARTS
}

/// A query's place.
#[derive(Clone, Copy, Debug, Default)]
struct Query {
    token: u64,
    head: u64,
    seq: u64,
}

/// Merges the parts of each query that has several.
fn merge(task: &Task, attention: &Attention<'_>, thread: Thread, scratch: &mut [f32]) {
    let Sizes { tokens, group, kv_heads, seqs, dv, .. } = attention.sizes;
    let heads = group * kv_heads;
    let total = &mut scratch[..dv as usize];
    for seq in 0..seqs {
        for token in 0..tokens {
            let parts = attention.visible(token).parts();
            if parts.end - parts.start < 2 {
                continue;
            }
            for head in (0..heads).filter(|head| thread.has_turn(token * heads + head)) {
                let query = Query { token, head, seq };
                let mut state = SoftMaxState::NONE;
                total.fill(0.0);
                for part in parts.clone() {
                    let row = task.shared.row(partial_row(attention, query, part));
                    let (sums, rest) = row.split_at(total.len());
                    let part_state = SoftMaxState { max: rest[0], sum: rest[1] };
                    state = on(task.isa, Merge { total: &mut *total, state, part: sums, part_state });
                }
                finish(task, attention, query, state, total);
            }
        }
    }
}

/// Divides by the sum of weights, the sink's included, and writes the result. Without a row there are zeros.
fn finish(task: &Task, attention: &Attention<'_>, query: Query, state: SoftMaxState, sums: &mut [f32]) {
    let at = [query.head, query.token, query.seq];
    if state.max == f32::NEG_INFINITY {
        return write(task, at, sums);
    }
    let factor = match attention.params.sinks_slot() {
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
        return round_row(task, &task.dst, at, sums);
    }
    task.dst.write_row(at, sums);
}

/// The larger number, or NaN if there is one.
fn larger(max: f32, x: f32) -> f32 {
    if x > max || x.is_nan() { x } else { max }
}
