//! Some queries of one KV head, and the rows that they see.

use std::mem;
use std::ops::Range;

use half::f16;

use super::division::{Attention, BLOCK, Visible, divided};
use super::{Query, larger};
use crate::access::Src;
use crate::kernels::soft_max::slope;
use crate::simd::prefetch::Ahead;
use crate::simd::{add_scaled, widened};
use crate::task::Task;
use crate::vector::{
    ColumnScores, Element, Floats, Lanes, LargestAbove, Matrix, Product, Scaled, ScaledSum, ScaledTo, Scores,
    SoftCapped, Strided, Transposition, VectorLoop, Weights, exp_of, on,
};

/// KV rows that are prefetched before the first read, as hardware prefetchers start only after some reads.
const BEGUN: usize = 8;
/// Queries for which rows of K are not turned into columns, at most.
pub(super) const FEW: usize = 8;
/// Rows of floats begin at multiples of this.
const LINE: usize = 16;

/// What a query has come to.
#[derive(Clone, Copy, Debug)]
pub(super) struct SoftMaxState {
    /// Largest score so far; minus infinity until a row was seen.
    pub(super) max: f32,
    /// Sum of weights so far.
    pub(super) sum: f32,
}

impl SoftMaxState {
    pub(super) const NONE: SoftMaxState = SoftMaxState { max: f32::NEG_INFINITY, sum: 0.0 };
}

/// The queries of a tile.
#[derive(Clone, Debug)]
pub(super) struct TileWork {
    pub(super) seq: u64,
    pub(super) kv_head: u64,
    /// Their numbers: heads first, then tokens.
    pub(super) queries: Range<u64>,
    /// The rows that one of them sees.
    pub(super) visible: Visible,
    /// Rows of a part.
    pub(super) part_rows: u64,
    /// The KV head that this thread takes next, if its rows are prefetched meanwhile.
    pub(super) next: Option<u64>,
}

/// Up to `QUERIES` queries.
pub(super) struct QueryTile<'a, const QUERIES: usize> {
    task: &'a Task,
    attention: &'a Attention<'a>,
    work: &'a TileWork,
    /// The sequence whose pages the rows lie in.
    sequence: u64,
    visible: [Visible; QUERIES],
    states: [SoftMaxState; QUERIES],
    total_states: [SoftMaxState; QUERIES],
    count: usize,
    dk: usize,
    dv: usize,
    /// `[queries, dk]`, times the scale; zeros up to a whole line.
    elements: &'a mut [f32],
    /// `[queries, dv]`, of a part.
    sums: &'a mut [f32],
    /// `[queries, dv]`, of all parts so far.
    totals: &'a mut [f32],
    /// `[queries, BLOCK]`: scores, then weights. Those of rows that a query does not see are minus infinity, then 0.
    scores: &'a mut [f32],
}

/// A block of KV rows as floats.
pub(super) struct KvRows<'a> {
    /// `[dk, BLOCK]`
    keys: &'a mut [f32],
    /// `[BLOCK, dk or dv]`: rows of K, then of V.
    rows: &'a mut [f32],
}

/// Floats of a row.
fn line(length: u64) -> u64 {
    length.saturating_add(LINE as u64 - 1) / LINE as u64 * LINE as u64
}

/// Floats of scratch for a tile.
pub(super) fn floats(queries: u64, dk: u64, dv: u64) -> u64 {
    let query = line(dk).saturating_add(line(dv).saturating_mul(2)).saturating_add(BLOCK as u64);
    query.saturating_mul(queries)
}

impl<'a> KvRows<'a> {
    /// Floats of scratch for a block.
    pub(super) fn floats(dk: u64, dv: u64) -> u64 {
        let (dk, dv) = (line(dk), line(dv));
        dk.saturating_add(dk.max(dv)).saturating_mul(BLOCK as u64)
    }

    /// Memory for a block, and the rest of the scratch.
    pub(super) fn new(task: &Task, scratch: &'a mut [f32]) -> (KvRows<'a>, &'a mut [f32]) {
        let [dk, dv] = [0, 2].map(|operand| line(task.src[operand].desc.extents[0]) as usize);
        let (keys, scratch) = scratch.split_at_mut(dk * BLOCK);
        let (rows, scratch) = scratch.split_at_mut(dk.max(dv) * BLOCK);
        (KvRows { keys, rows }, scratch)
    }

    /// Decodes rows of an operand to `rows`, with zeros up to a whole line; returns the distance between two of them.
    fn read(&mut self, task: &Task, operand: usize, at: [u64; 3], length: usize) -> usize {
        let src = &task.src[operand];
        let row = src.desc.extents[0] as usize;
        let line = row.next_multiple_of(LINE);
        src.read_rows(task.isa, at, length, self.rows, line);
        if row < line {
            self.rows.chunks_exact_mut(line).take(length).for_each(|out| out[row..].fill(0.0));
        }
        line
    }
}

impl<'a, const QUERIES: usize> QueryTile<'a, QUERIES> {
    pub(super) fn new(
        task: &'a Task,
        attention: &'a Attention<'a>,
        work: &'a TileWork,
        mut scratch: &'a mut [f32],
    ) -> QueryTile<'a, QUERIES> {
        let (dk, dv) = (task.src[0].desc.extents[0] as usize, task.src[2].desc.extents[0] as usize);
        let count = (work.queries.end - work.queries.start) as usize;
        let (dk_line, dv_line) = (dk.next_multiple_of(LINE), dv.next_multiple_of(LINE));
        let mut take = |floats: usize| {
            let (taken, rest) = mem::take(&mut scratch).split_at_mut(floats);
            scratch = rest;
            taken
        };
        let elements = take(count * dk_line);
        let [sums, totals] = [(); 2].map(|()| take(count * dv_line));
        let scores = take(count * BLOCK);
        let mut visible = [Visible::default(); QUERIES];
        for (index, number) in work.queries.clone().enumerate() {
            let query = query(attention, work, index);
            // Queries of one token follow each other, and see the same.
            visible[index] = match index > 0 && number % attention.sizes.group > 0 {
                true => visible[index - 1],
                false => attention.visible(query.token),
            };
            let elements = &mut elements[index * dk_line..][..dk_line];
            if dk > 0 {
                read_scaled(task, query, attention.params.scale, &mut elements[..dk]);
            }
            elements[dk..].fill(0.0);
        }
        let sequence = attention.sequence(query(attention, work, 0).token);
        let [states, total_states] = [[SoftMaxState::NONE; QUERIES]; 2];
        QueryTile {
            task,
            attention,
            work,
            sequence,
            visible,
            states,
            total_states,
            count,
            dk,
            dv,
            elements,
            sums,
            totals,
            scores,
        }
    }

    /// Takes in the rows of a part, and nothing of what was taken in before.
    pub(super) fn attend(&mut self, part: u64, rows: &mut KvRows<'_>) {
        self.states[..self.count].fill(SoftMaxState::NONE);
        self.sums.fill(0.0);
        let TileWork { visible, part_rows, .. } = *self.work;
        let first = visible.first.max(part * part_rows) / BLOCK as u64 * BLOCK as u64;
        let end = visible.end.min((part + 1) * part_rows);
        let mut block = first;
        while block < end {
            let length = (BLOCK as u64).min(end - block) as usize;
            let place = self.attention.row(self.sequence, block);
            let after = block + BLOCK as u64;
            let after = (after < end).then(|| {
                let rows = (BEGUN as u64).min(end - after) as usize;
                (self.attention.row(self.sequence, after), rows)
            });
            let block_of_rows = Block { first: block, place, length };
            if !(self.see_all(&block_of_rows) && self.attend_few(&block_of_rows, after)) {
                self.attend_block(&block_of_rows, rows);
            }
            block += BLOCK as u64;
        }
    }

    /// Merges the part that was taken in into the totals.
    pub(super) fn merge(&mut self) {
        let (dv, line) = (self.dv, self.dv.next_multiple_of(LINE));
        let states = self.states[..self.count].iter().zip(&mut self.total_states);
        for (index, (part_state, state)) in states.enumerate() {
            let (total, part) = (&mut self.totals[index * line..][..dv], &self.sums[index * line..][..dv]);
            *state = on(self.task.isa, Merge { total, state: *state, part, part_state: *part_state });
        }
    }

    /// What all parts have come to is the result.
    pub(super) fn take_totals(&mut self) {
        mem::swap(&mut self.sums, &mut self.totals);
        self.states = self.total_states;
    }

    /// Whether all queries see all rows of a block, and their products are scores as they are.
    fn see_all(&self, block: &Block) -> bool {
        let (first, end) = (block.first, block.first + block.length as u64);
        self.attention.params.mask_slot().is_none()
            && self.attention.params.soft_cap == 0.0
            && self.visible[..self.count].iter().all(|visible| visible.first <= first && end <= visible.end)
    }

    /// As [`QueryTile::attend_block`], straight through the rows, if they are F16 and queries few; otherwise it does nothing
    /// and says so. Rows at `after` will be needed after that.
    fn attend_few(&mut self, block: &Block, after: Option<(u64, usize)>) -> bool {
        let even = self.dk.is_multiple_of(LINE) && self.dv.is_multiple_of(LINE);
        if !even || self.count > FEW {
            return false;
        }
        let rows = |operand: usize, head: u64, place: u64, length: usize| {
            self.task.src[operand].halves([place, head, self.kv_seq()], length)
        };
        let head = self.work.kv_head;
        let [k, v] = [1, 2].map(|operand| rows(operand, head, block.place, block.length));
        let (Some(k), Some(v)) = (k, v) else { return false };
        let after = after.and_then(|(place, length)| rows(1, head, place, length));
        let next = self.work.next.and_then(|head| {
            let [k, v] = [1, 2].map(|operand| rows(operand, head, block.place, block.length));
            Some([k?, v?])
        });
        let (elements, scores, sums) = (&*self.elements, &mut *self.scores, &mut *self.sums);
        let states = &mut self.states[..self.count];
        on(
            self.task.isa,
            Few { next, after, k, v, elements, scores, sums, states, dk: self.dk, dv: self.dv },
        );
        true
    }

    /// Takes in a block of KV rows.
    fn attend_block(&mut self, block: &Block, rows: &mut KvRows<'_>) {
        if self.is_hidden(block, rows) {
            return;
        }
        self.score(block, rows);
        let mut hidden = false;
        for index in 0..self.count {
            hidden |= self.weigh(index, block, rows);
        }
        self.add(block, hidden, rows);
    }

    /// Each query, its parts, what it has come to, and its sums.
    pub(super) fn results(&mut self) -> impl Iterator<Item = (Query, Range<u64>, SoftMaxState, &mut [f32])> {
        let (dv, line) = (self.dv, self.dv.next_multiple_of(LINE));
        let (attention, work) = (self.attention, self.work);
        let (states, visible, count) = (&self.states, &self.visible, self.count);
        let places = (0..count).map(move |index| query(attention, work, index));
        // Rows of values of length 0 have no sums.
        let mut sums = self.sums.chunks_exact_mut(line.max(1));
        places.enumerate().map(move |(index, query)| {
            let sums = sums.next().map_or(&mut [][..], |sums| &mut sums[..dv]);
            (query, visible[index].parts(), states[index], sums)
        })
    }

    fn query(&self, index: usize) -> Query {
        query(self.attention, self.work, index)
    }

    /// The sequence of K and V, where these have several.
    fn kv_seq(&self) -> u64 {
        divided(self.work.seq, self.attention.sizes.share).0
    }

    /// Where rows of K and V begin.
    fn at(&self, block: &Block) -> [u64; 3] {
        [block.place, self.work.kv_head, self.kv_seq()]
    }

    /// Whether the mask hides a block from all queries, which then need not be read.
    fn is_hidden(&self, block: &Block, rows: &mut KvRows<'_>) -> bool {
        let Some(slot) = self.attention.params.mask_slot() else { return false };
        let (mask, biases) = (&self.task.src[slot], &mut rows.rows[..block.length]);
        (0..self.count).all(|index| {
            read_mask(mask, self.task, &self.query(index), block.first, biases);
            biases.iter().all(|bias| *bias == f32::NEG_INFINITY)
        })
    }

    /// The products of queries and rows of K. What is beyond the block's rows may hold anything.
    fn score(&mut self, block: &Block, rows: &mut KvRows<'_>) {
        if self.count <= FEW && self.dk.is_multiple_of(LINE) {
            return self.score_few(block, rows);
        }
        let line = rows.read(self.task, 1, self.at(block), block.length);
        let columns = block.length.next_multiple_of(LINE);
        let from = Matrix { floats: rows.rows, stride: line };
        let work = Transposition { from, out: rows.keys, stride: BLOCK, rows: columns, columns: line };
        on(self.task.isa, work);
        let work = ColumnScores {
            left: Matrix { floats: self.elements, stride: line },
            right: Matrix { floats: rows.keys, stride: BLOCK },
            depth: line,
            columns,
            scores: self.scores,
            stride: BLOCK,
            count: self.count,
        };
        on(self.task.isa, work);
    }

    /// As `score`, where it does not pay to turn rows into columns.
    fn score_few(&mut self, block: &Block, rows: &mut KvRows<'_>) {
        let (task, at) = (self.task, self.at(block));
        if let Some(right) = task.src[1].halves(at, block.length) {
            return on(task.isa, self.scores_with(right));
        }
        let line = rows.read(task, 1, at, block.length);
        on(task.isa, self.scores_with(Strided::floats(rows.rows, line, (block.length, self.dk))));
    }

    fn scores_with<'b, E: Element>(&'b mut self, right: Strided<'b, E>) -> Scores<'b, E> {
        let left = Matrix { floats: self.elements, stride: self.dk };
        let ahead = Ahead::none();
        Scores { left, right, scores: self.scores, stride: BLOCK, count: self.count, ahead }
    }

    /// Turns a query's products of a block into weights relative to the largest score so far; tells whether it does
    /// not see some of the rows.
    fn weigh(&mut self, index: usize, block: &Block, rows: &mut KvRows<'_>) -> bool {
        let (isa, line) = (self.task.isa, self.dv.next_multiple_of(LINE));
        let (params, visible) = (self.attention.params, self.visible[index]);
        let whole = block.length.next_multiple_of(LINE);
        let scores = &mut self.scores[index * BLOCK..][..whole];
        let inside = |row: u64| row.saturating_sub(block.first).min(block.length as u64) as usize;
        let seen = inside(visible.first)..inside(visible.end);
        if params.soft_cap != 0.0 {
            on(isa, SoftCapped { scores: &mut *scores, cap: params.soft_cap });
        }
        let mut hidden = seen.start > 0 || seen.end < block.length;
        if let Some(slot) = params.mask_slot() {
            let query = query(self.attention, self.work, index);
            let biases = &mut rows.rows[..block.length];
            read_mask(&self.task.src[slot], self.task, &query, block.first, biases);
            let slope = slope(params.max_bias, self.task.src[0].desc.extents[2], query.head);
            hidden |= biases.contains(&f32::NEG_INFINITY);
            widened(isa, || {
                for (score, bias) in scores.iter_mut().zip(&*biases) {
                    let biased = *score + (slope * f64::from(*bias)) as f32;
                    *score = if *bias == f32::NEG_INFINITY { *bias } else { biased };
                }
            });
        }
        scores[..seen.start].fill(f32::NEG_INFINITY);
        scores[seen.end.max(seen.start)..].fill(f32::NEG_INFINITY);
        let (state, sums) = (self.states[index], &mut self.sums[index * line..][..line]);
        self.states[index] = on(isa, Weighing { scores, sums, state });
        hidden
    }

    /// Adds rows of V, times their weights, to the sums of the queries that see them.
    fn add(&mut self, block: &Block, hidden: bool, rows: &mut KvRows<'_>) {
        let (task, at, length) = (self.task, self.at(block), block.length);
        if self.count <= FEW
            && !hidden
            && self.dv.is_multiple_of(LINE)
            && let Some(right) = task.src[2].halves(at, length)
        {
            return on(task.isa, self.sums_with(right));
        }
        let line = rows.read(task, 2, at, length);
        // A weight of 0 hides numbers only.
        if hidden && !rows.rows[..length * line].iter().all(|x| x.is_finite()) {
            return self.add_seen(length, line, rows.rows);
        }
        on(task.isa, self.sums_with(Strided::floats(rows.rows, line, (length, line))));
    }

    fn sums_with<'b, E: Element>(&'b mut self, right: Strided<'b, E>) -> Product<'b, E> {
        let (left, stride) = (Matrix { floats: self.scores, stride: BLOCK }, self.dv.next_multiple_of(LINE));
        let ahead = Ahead::none();
        Product { left, right, sums: self.sums, stride, rows: self.count, fresh: false, ahead }
    }

    /// As `add`, without the rows that have a weight of 0.
    fn add_seen(&mut self, length: usize, line: usize, rows: &[f32]) {
        for index in 0..self.count {
            let sums = &mut self.sums[index * line..][..self.dv];
            for (row, weight) in self.scores[index * BLOCK..][..length].iter().enumerate() {
                if *weight != 0.0 {
                    add_scaled(self.task.isa, sums, *weight, &rows[row * line..][..self.dv]);
                }
            }
        }
    }
}

/// Turns scores into weights relative to the largest so far, and rescales sums and their state to it.
struct Weighing<'a> {
    scores: &'a mut [f32],
    sums: &'a mut [f32],
    state: SoftMaxState,
}

impl VectorLoop for Weighing<'_> {
    type Output = SoftMaxState;

    #[inline(always)]
    fn run<L: Lanes>(self) -> SoftMaxState {
        let Weighing { scores, sums, mut state } = self;
        let mut max = LargestAbove(Floats::from(&*scores), state.max).run::<L>();
        if max == f32::NEG_INFINITY {
            if !scores.iter().any(|score| score.is_nan()) {
                scores.fill(0.0);
                return state;
            }
            max = f32::NAN;
        }
        if state.max.to_bits() != max.to_bits() {
            // As long as there was none, sums are 0.
            if state.max != f32::NEG_INFINITY || max.is_nan() {
                let factor = exp_of::<L>(state.max - max);
                state.sum *= factor;
                Scaled { x: sums, factor }.run::<L>();
            }
            state.max = max;
        }
        state.sum += Weights { scores, max }.run::<L>();
        state
    }
}

/// Merges what a query has come to in a part into its total.
pub(super) struct Merge<'a> {
    pub(super) total: &'a mut [f32],
    pub(super) state: SoftMaxState,
    pub(super) part: &'a [f32],
    pub(super) part_state: SoftMaxState,
}

impl VectorLoop for Merge<'_> {
    type Output = SoftMaxState;

    #[inline(always)]
    fn run<L: Lanes>(self) -> SoftMaxState {
        let Merge { total, state, part, part_state } = self;
        if part_state.max == f32::NEG_INFINITY {
            return state;
        }
        if state.max == f32::NEG_INFINITY {
            total.copy_from_slice(part);
            return part_state;
        }
        let max = larger(state.max, part_state.max);
        let (factor, other_factor) = (exp_of::<L>(state.max - max), exp_of::<L>(part_state.max - max));
        ScaledSum { x: total, factor, other: part, other_factor }.run::<L>();
        SoftMaxState { max, sum: state.sum * factor + part_state.sum * other_factor }
    }
}

/// Queries with a block of rows that all of them see.
struct Few<'a> {
    /// The next rows, if they can be prefetched meanwhile.
    next: Option<[Strided<'a, f16>; 2]>,
    /// Rows of K that follow.
    after: Option<Strided<'a, f16>>,
    k: Strided<'a, f16>,
    v: Strided<'a, f16>,
    /// `[queries, dk]`
    elements: &'a [f32],
    /// `[queries, BLOCK]`
    scores: &'a mut [f32],
    /// `[queries, dv]`
    sums: &'a mut [f32],
    states: &'a mut [SoftMaxState],
    dk: usize,
    dv: usize,
}

impl VectorLoop for Few<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Few { next, after, k, v, elements, scores, sums, states, dk, dv } = self;
        let (count, length) = (states.len(), k.rows());
        let left = Matrix { floats: elements, stride: dk };
        v.prefetch(0..length.min(BEGUN));
        let [ahead, ahead_v] = match next {
            Some([k, v]) => [k.ahead(4), v.ahead(1)],
            None => [Ahead::none(), Ahead::none()],
        };
        Scores { left, right: k, scores, stride: BLOCK, count, ahead }.run::<L>();
        if let Some(after) = after {
            after.prefetch(0..after.rows());
        }
        for (index, state) in states.iter_mut().enumerate() {
            // Vectors are whole: lanes beyond the last row weigh nothing.
            let scores = &mut scores[index * BLOCK..][..length.next_multiple_of(LINE)];
            scores[length..].fill(f32::NEG_INFINITY);
            *state = Weighing { scores, sums: &mut sums[index * dv..][..dv], state: *state }.run::<L>();
        }
        let left = Matrix { floats: scores, stride: BLOCK };
        let (rows, fresh, ahead) = (count, false, ahead_v);
        Product { left, right: v, sums, stride: dv, rows, fresh, ahead }.run::<L>();
    }
}

/// KV rows that follow each other.
struct Block {
    /// The number of the first in its sequence.
    first: u64,
    /// Its row in K and V.
    place: u64,
    length: usize,
}

/// A tile's query.
fn query(attention: &Attention<'_>, work: &TileWork, index: usize) -> Query {
    let group = attention.sizes.group;
    let (token, head) = divided(work.queries.start + index as u64, group);
    Query { token, head: work.kv_head * group + head, seq: work.seq }
}

/// A query's elements, times the scale.
fn read_scaled(task: &Task, query: Query, factor: f32, elements: &mut [f32]) {
    let (src, at) = (&task.src[0], [query.token, query.head, query.seq]);
    match src.floats(0, at, elements.len()) {
        Some(from) => on(task.isa, ScaledTo { from, to: elements.into(), factor }),
        None => {
            src.read(task.isa, 0, at, elements);
            on(task.isa, Scaled { x: elements, factor });
        }
    }
}

/// A query's mask for some rows.
fn read_mask(mask: &Src, task: &Task, query: &Query, first: u64, biases: &mut [f32]) {
    let [_, _, heads, seqs] = mask.desc.extents;
    mask.read(task.isa, first, [query.token, query.head % heads, query.seq % seqs], biases);
}
