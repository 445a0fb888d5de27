//! Attention with the soft-max computed along the way: scores of one block of KV rows at a time, a running
//! maximum and sum for each query, and weighted sums of values that are rescaled when the maximum grows.
//!
//! Queries that share a KV head (neighbouring heads, and all tokens) are taken in tiles, so that a row of K or V is
//! decoded once for all of them. A query's result does not depend on which others are in its tile. Rows that
//! none of them sees are not read.

use std::ops::Range;

use orlop_backend::{DeviceError, Reason};
use orlop_graph::{DType, FlashAttention, Op, TensorDesc};

use super::product::{decodable, weights};
use super::soft_max::slope;
use crate::access::Src;
use crate::simd;
use crate::task::{Kernel, Task, Thread, element_at, float, nothing_shared};

/// Queries in a tile, at most.
const TILE: usize = 16;
/// KV rows in a block.
const BLOCK: usize = 64;

pub(crate) fn kernel(op: &Op) -> Option<Kernel> {
    let attention = Kernel {
        accepts,
        scratch,
        shared: nothing_shared,
        check: Some(lengths_are_in_range),
        phases: 1,
        run,
    };
    matches!(op, Op::FlashAttention(_)).then_some(attention)
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

/// For each query of a tile: its elements, its sums, its scores of a block; then a row of K or V.
fn scratch(_: &Op, operands: &[TensorDesc], _: &TensorDesc) -> u64 {
    let (dk, dv) = (operands[0].extents[0], operands[2].extents[0]);
    let query = dk.saturating_add(dv).saturating_add(BLOCK as u64);
    query.saturating_mul(TILE as u64).saturating_add(dk.max(dv))
}

fn lengths_are_in_range(task: &Task) -> Result<(), DeviceError> {
    let Op::FlashAttention(params) = task.op else { return Ok(()) };
    let Some(slot) = params.kv_len_slot() else { return Ok(()) };
    let (lengths, rows) = (&task.src[slot], task.src[1].desc.extents[1]);
    for token in 0..lengths.desc.elements() {
        let index = nth(lengths, token);
        if u64::try_from(index).is_ok_and(|length| length <= rows) {
            continue;
        }
        return Err(DeviceError::BadIndex {
            op: task.op.name().to_owned(),
            tensor: task.name.clone(),
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

fn run(task: &Task, thread: Thread, scratch: &mut [f32]) {
    let Op::FlashAttention(params) = task.op else { return };
    let [_, tokens, heads, seqs] = task.src[0].desc.extents;
    let sharing = tokens * (heads / task.src[1].desc.extents[2]);
    let mut rest = thread.part(tokens * heads * seqs);
    while rest.start < rest.end {
        let same_rows = (rest.start / sharing + 1) * sharing;
        let end = rest.end.min(same_rows).min(rest.start + TILE as u64);
        Tile::new(task, params, rest.start..end, scratch).attend();
        rest.start = end;
    }
}

#[derive(Clone, Copy, Default)]
struct Query {
    token: u64,
    head: u64,
    seq: u64,
    /// KV rows it may see.
    rows: u64,
    slope: f64,
    /// Largest score so far; minus infinity until a row was seen.
    max: f32,
    /// Sum of weights so far.
    sum: f32,
}

struct Tile<'a> {
    task: &'a Task,
    params: FlashAttention,
    queries: [Query; TILE],
    count: usize,
    /// Head and sequence of K and V.
    kv: [u64; 2],
    elements: &'a mut [f32],
    sums: &'a mut [f32],
    /// Scores, then weights, of the rows of a block. Those of rows that a query does not see are minus infinity.
    scores: &'a mut [f32],
    row: &'a mut [f32],
}

impl<'a> Tile<'a> {
    /// Queries by number; those that share a KV head are neighbours.
    fn new(task: &'a Task, params: FlashAttention, numbers: Range<u64>, scratch: &'a mut [f32]) -> Tile<'a> {
        let [dk, tokens, heads, seqs] = task.src[0].desc.extents;
        let [_, kv_rows, kv_heads, kv_seqs] = task.src[1].desc.extents;
        let (dk, dv) = (dk as usize, task.dst.desc.extents[0] as usize);
        let (elements, scratch) = scratch.split_at_mut(TILE * dk);
        let (sums, scratch) = scratch.split_at_mut(TILE * dv);
        let (scores, row) = scratch.split_at_mut(TILE * BLOCK);
        sums.fill(0.0);

        let group = heads / kv_heads;
        let matrix = numbers.start / (tokens * group);
        let (kv_head, seq) = (matrix % kv_heads, matrix / kv_heads);
        let count = (numbers.end - numbers.start) as usize;
        let mut queries = [Query::default(); TILE];
        for ((query, number), index) in queries.iter_mut().zip(numbers).zip(0..) {
            let token = number / group % tokens;
            let head = kv_head * group + number % group;
            let rows = params.kv_len_slot().map_or(kv_rows, |slot| nth(&task.src[slot], token) as u64);
            let slope = slope(params.max_bias, heads, head);
            *query = Query { token, head, seq, rows, slope, max: f32::NEG_INFINITY, sum: 0.0 };
            if dk > 0 {
                task.src[0].read_row([token, head, seq], &mut elements[index * dk..][..dk]);
            }
        }
        let kv = [kv_head, seq / (seqs / kv_seqs)];
        Tile { task, params, queries, count, kv, elements, sums, scores, row }
    }

    fn attend(mut self) {
        let rows = self.queries[..self.count].iter().map(|query| query.rows).max().unwrap_or(0);
        for first in (0..rows).step_by(BLOCK) {
            let length = (rows - first).min(BLOCK as u64) as usize;
            for index in 0..self.count {
                self.biases(index, first, length);
            }
            for row in 0..length {
                self.score(first, row);
            }
            for index in 0..self.count {
                self.weigh(index, length);
            }
            for row in 0..length {
                self.add(first, row);
            }
        }
        for index in 0..self.count {
            self.finish(index);
        }
    }

    /// What is added to a query's scores: 0 or the mask's, and minus infinity beyond what it may see.
    fn biases(&mut self, index: usize, first: u64, length: usize) {
        let query = &self.queries[index];
        let visible = query.rows.saturating_sub(first).min(length as u64) as usize;
        let (seen, beyond) = self.scores[index * BLOCK..][..length].split_at_mut(visible);
        beyond.fill(f32::NEG_INFINITY);
        match self.params.mask_slot().map(|slot| &self.task.src[slot]) {
            Some(mask) if visible > 0 => {
                let [_, _, heads, seqs] = mask.desc.extents;
                mask.read_elements(first, [query.token, query.head % heads, query.seq % seqs], seen);
                seen.iter_mut().for_each(|bias| *bias = (query.slope * f64::from(*bias)) as f32);
            }
            _ => seen.fill(0.0),
        }
    }

    /// The scores of one row of K.
    fn score(&mut self, first: u64, row: usize) {
        if !self.is_seen(row) {
            return;
        }
        let k = &self.task.src[1];
        let key = &mut self.row[..k.desc.extents[0] as usize];
        if !key.is_empty() {
            k.read_row([first + row as u64, self.kv[0], self.kv[1]], key);
        }
        let FlashAttention { scale, soft_cap, .. } = self.params;
        for index in 0..self.count {
            let score = &mut self.scores[index * BLOCK + row];
            if *score == f32::NEG_INFINITY {
                continue;
            }
            let query = &self.elements[index * key.len()..][..key.len()];
            let product = simd::dot(self.task.isa, query, key) * scale;
            *score += if soft_cap == 0.0 { product } else { soft_cap * (product / soft_cap).tanh() };
        }
    }

    /// Turns a query's scores of a block into weights relative to the largest score so far.
    fn weigh(&mut self, index: usize, length: usize) {
        let (query, dv) = (&mut self.queries[index], self.sums.len() / TILE);
        let scores = &mut self.scores[index * BLOCK..][..length];
        let max = scores.iter().copied().fold(query.max, larger);
        if max == f32::NEG_INFINITY {
            return;
        }
        if query.max.to_bits() != max.to_bits() {
            let factor = (query.max - max).exp();
            query.sum *= factor;
            self.sums[index * dv..][..dv].iter_mut().for_each(|sum| *sum *= factor);
            query.max = max;
        }
        let mut sum = 0.0;
        for score in scores.iter_mut().filter(|score| **score != f32::NEG_INFINITY) {
            *score = (*score - max).exp();
            sum += *score;
        }
        query.sum += sum;
    }

    /// Adds one row of V to the sums of the queries that see it.
    fn add(&mut self, first: u64, row: usize) {
        if !self.is_seen(row) {
            return;
        }
        let v = &self.task.src[2];
        let value = &mut self.row[..v.desc.extents[0] as usize];
        v.read_row([first + row as u64, self.kv[0], self.kv[1]], value);
        for (index, sums) in self.sums.chunks_exact_mut(value.len()).enumerate().take(self.count) {
            let weight = self.scores[index * BLOCK + row];
            if weight != f32::NEG_INFINITY {
                simd::add_scaled(self.task.isa, sums, weight, value);
            }
        }
    }

    fn is_seen(&self, row: usize) -> bool {
        (0..self.count).any(|index| self.scores[index * BLOCK + row] != f32::NEG_INFINITY)
    }

    /// Divides by the sum of weights, the sink's included, and writes the result. Without a row there are zeros.
    fn finish(&mut self, index: usize) {
        let (query, dv) = (&self.queries[index], self.sums.len() / TILE);
        let sums = &mut self.sums[index * dv..][..dv];
        if query.max != f32::NEG_INFINITY {
            let sink = self.params.sinks_slot().map_or(f32::NEG_INFINITY, |slot| {
                let (column, at) = element_at(&self.task.src[slot].desc, query.head);
                self.task.src[slot].value(column, at)
            });
            let max = larger(query.max, sink);
            let shrunk = (query.max - max).exp();
            let factor = shrunk / (query.sum * shrunk + (sink - max).exp());
            sums.iter_mut().for_each(|sum| *sum *= factor);
        }
        self.task.dst.write_row([query.head, query.token, query.seq], sums);
    }
}

/// The larger number, or NaN if there is one.
fn larger(max: f32, x: f32) -> f32 {
    if x > max || x.is_nan() { x } else { max }
}
