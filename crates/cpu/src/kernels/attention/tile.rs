//! Some queries of one KV head, and the rows that they see.

use std::ops::Range;

use half::f16;
use orlop_graph::FlashAttention;

use super::{Query, QueryDivision, kv_of, nth};
use crate::access::Src;
use crate::kernels::soft_max::slope;
use crate::simd::prefetch::Ahead;
use crate::simd::{add_scaled, widened};
use crate::task::Task;
use crate::vector::{
    Element, Floats, Lanes, LargestAbove, Matrix, Product, Scaled, ScaledTo, Scores, SoftCapped, Strided,
    Transposition, VectorLoop, Weights, exp_of, on,
};

/// KV rows in a block.
pub(super) const BLOCK: usize = 64;
/// KV rows that few queries take in at once.
const AT_ONCE: usize = 32;
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

/// Up to `QUERIES` queries.
pub(super) struct QueryTile<'a, const QUERIES: usize> {
    task: &'a Task,
    params: FlashAttention,
    division: QueryDivision,
    number: u64,
    /// KV rows that each query may see.
    visible: [u64; QUERIES],
    states: [SoftMaxState; QUERIES],
    count: usize,
    /// Head and sequence of K and V.
    kv: [u64; 2],
    dk: usize,
    dv: usize,
    /// `[queries, dk]`, times the scale.
    elements: &'a mut [f32],
    /// `[queries, dv]`
    sums: &'a mut [f32],
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
    let query = line(dk).saturating_add(line(dv)).saturating_add(BLOCK as u64);
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

    /// Decodes rows of an operand to `rows`; returns the distance between two of them.
    fn read(&mut self, task: &Task, operand: usize, at: [u64; 3], length: usize) -> usize {
        let src = &task.src[operand];
        let line = line(src.desc.extents[0]) as usize;
        src.read_rows(task.isa, at, length, self.rows, line);
        line
    }
}

impl<'a, const QUERIES: usize> QueryTile<'a, QUERIES> {
    pub(super) fn new(
        task: &'a Task,
        params: FlashAttention,
        division: &QueryDivision,
        number: u64,
        scratch: &mut &'a mut [f32],
    ) -> QueryTile<'a, QUERIES> {
        let (dk, dv) = (task.src[0].desc.extents[0] as usize, task.src[2].desc.extents[0] as usize);
        let kv_rows = task.src[1].desc.extents[1];
        let numbers = division.queries(number);
        let count = (numbers.end - numbers.start) as usize;
        let (dk_line, dv_line) = (dk.next_multiple_of(LINE), dv.next_multiple_of(LINE));
        let mut take = |floats: usize| {
            let (taken, rest) = std::mem::take(scratch).split_at_mut(floats);
            *scratch = rest;
            taken
        };
        let (elements, sums, scores) = (take(count * dk_line), take(count * dv_line), take(count * BLOCK));
        sums.fill(0.0);

        let mut visible = [0; QUERIES];
        for (index, number_in_head) in numbers.enumerate() {
            let query = Query::new(division, number, number_in_head);
            // Queries of one token follow each other, and see the same.
            visible[index] = match params.kv_len_slot() {
                Some(_) if index > 0 && number_in_head % division.group > 0 => visible[index - 1],
                Some(slot) => nth(&task.src[slot], query.token) as u64,
                None => kv_rows,
            };
            if dk > 0 {
                let elements = &mut elements[index * dk_line..][..dk];
                read_scaled(task, query, params.scale, elements);
            }
        }
        let kv = kv_of(task, division, number);
        let states = [SoftMaxState { max: f32::NEG_INFINITY, sum: 0.0 }; QUERIES];
        QueryTile {
            task,
            params,
            division: *division,
            number,
            visible,
            states,
            count,
            kv,
            dk,
            dv,
            elements,
            sums,
            scores,
        }
    }

    /// Takes in KV rows. The same of the tile `next` will be needed after that.
    pub(super) fn attend(&mut self, range: Range<u64>, next: Option<u64>, rows: &mut KvRows<'_>) {
        if self.see_all(&range) && self.attend_few(&range, next) {
            return;
        }
        for first in range.clone().step_by(BLOCK) {
            self.attend_block(first, BLOCK.min((range.end - first) as usize), rows);
        }
    }

    /// Whether all queries see all of these rows, and their products are scores as they are.
    fn see_all(&self, range: &Range<u64>) -> bool {
        let sees = |visible: &u64| *visible >= range.end && self.params.first_row(*visible) <= range.start;
        self.params.mask_slot().is_none()
            && self.params.soft_cap == 0.0
            && self.visible[..self.count].iter().all(sees)
    }

    /// As `attend`, straight through the rows, if they are F16 and queries few; otherwise it does nothing and says so.
    fn attend_few(&mut self, range: &Range<u64>, next: Option<u64>) -> bool {
        let (at, length) = (self.at(range.start), (range.end - range.start) as usize);
        let even = self.dk.is_multiple_of(LINE) && self.dv.is_multiple_of(LINE);
        let [k, v] = [1, 2].map(|operand| self.task.src[operand].halves(at, length));
        let (Some(k), Some(v), true) = (k, v, even && self.count <= FEW) else { return false };
        let (elements, scores, sums) = (&*self.elements, &mut *self.scores, &mut *self.sums);
        let states = &mut self.states[..self.count];
        let next = next.map(|tile| kv_of(self.task, &self.division, tile)).and_then(|[head, seq]| {
            let rows = |operand: usize| self.task.src[operand].halves([range.start, head, seq], length);
            Some([rows(1)?, rows(2)?])
        });
        on(self.task.isa, Few { next, k, v, elements, scores, sums, states, dk: self.dk, dv: self.dv });
        true
    }

    /// Takes in a block of KV rows.
    fn attend_block(&mut self, first: u64, length: usize, rows: &mut KvRows<'_>) {
        if self.is_hidden(first, length, rows) {
            return;
        }
        self.score(first, length, rows);
        let mut hidden = false;
        for index in 0..self.count {
            hidden |= self.weigh(index, first, length, rows);
        }
        self.add(first, length, hidden, rows);
    }

    /// Each query, what it has come to, and its sums.
    pub(super) fn results(&mut self) -> impl Iterator<Item = (Query, SoftMaxState, &mut [f32])> {
        let (dv, line) = (self.dv, self.dv.next_multiple_of(LINE));
        let sums = self.sums.chunks_exact_mut(line).map(move |sums| &mut sums[..dv]);
        let (division, number) = (self.division, self.number);
        let states = self.states[..self.count].iter().copied().enumerate();
        states.zip(sums).map(move |((index, state), sums)| (query(&division, number, index), state, sums))
    }

    fn query(&self, index: usize) -> Query {
        query(&self.division, self.number, index)
    }

    /// Whether the mask hides a block from all queries, which then need not be read.
    fn is_hidden(&self, first: u64, length: usize, rows: &mut KvRows<'_>) -> bool {
        let Some(slot) = self.params.mask_slot() else { return false };
        let (mask, biases) = (&self.task.src[slot], &mut rows.rows[..length]);
        (0..self.count).all(|index| {
            read_mask(mask, self.task, &self.query(index), first, biases);
            biases.iter().all(|bias| *bias == f32::NEG_INFINITY)
        })
    }

    /// Where rows of K and V begin.
    fn at(&self, first: u64) -> [u64; 3] {
        [first, self.kv[0], self.kv[1]]
    }

    /// The products of queries and rows of K. What is beyond `length` may hold anything.
    fn score(&mut self, first: u64, length: usize, rows: &mut KvRows<'_>) {
        if self.count <= FEW && self.dk.is_multiple_of(LINE) {
            return self.score_few(first, length, rows);
        }
        let line = rows.read(self.task, 1, self.at(first), length);
        let columns = length.next_multiple_of(LINE);
        let from = Matrix { floats: rows.rows, stride: line };
        let work = Transposition { from, out: rows.keys, stride: BLOCK, rows: columns, columns: line };
        on(self.task.isa, work);
        let work = Product {
            left: Matrix { floats: self.elements, stride: line },
            right: Strided::floats(rows.keys, BLOCK, (self.dk, columns)),
            sums: self.scores,
            stride: BLOCK,
            rows: self.count,
            fresh: true,
            ahead: Ahead::none(),
        };
        on(self.task.isa, work);
    }

    /// As `score`, where it does not pay to turn rows into columns.
    fn score_few(&mut self, first: u64, length: usize, rows: &mut KvRows<'_>) {
        let (task, at) = (self.task, self.at(first));
        if let Some(right) = task.src[1].halves(at, length) {
            return on(task.isa, self.scores_with(right));
        }
        let line = rows.read(task, 1, at, length);
        on(task.isa, self.scores_with(Strided::floats(rows.rows, line, (length, self.dk))));
    }

    fn scores_with<'b, E: Element>(&'b mut self, right: Strided<'b, E>) -> Scores<'b, E> {
        let left = Matrix { floats: self.elements, stride: self.dk };
        let ahead = Ahead::none();
        Scores { left, right, scores: self.scores, stride: BLOCK, count: self.count, ahead }
    }

    /// Turns a query's products of a block into weights relative to the largest score so far; tells whether it does
    /// not see some of the rows.
    fn weigh(&mut self, index: usize, first: u64, length: usize, rows: &mut KvRows<'_>) -> bool {
        let (isa, line) = (self.task.isa, self.dv.next_multiple_of(LINE));
        let visible = self.visible[index].saturating_sub(first).min(length as u64) as usize;
        let (scores, beyond) = self.scores[index * BLOCK..][..length].split_at_mut(visible);
        beyond.fill(0.0);
        if self.params.soft_cap != 0.0 {
            on(isa, SoftCapped { scores, cap: self.params.soft_cap });
        }
        let before = self.params.first_row(self.visible[index]).saturating_sub(first).min(visible as u64);
        let mut hidden = visible < length || before > 0;
        if let Some(slot) = self.params.mask_slot() {
            let query = query(&self.division, self.number, index);
            let biases = &mut rows.rows[..visible];
            read_mask(&self.task.src[slot], self.task, &query, first, biases);
            let slope = slope(self.params.max_bias, self.task.src[0].desc.extents[2], query.head);
            hidden |= biases.contains(&f32::NEG_INFINITY);
            widened(isa, || {
                for (score, bias) in scores.iter_mut().zip(&*biases) {
                    let biased = *score + (slope * f64::from(*bias)) as f32;
                    *score = if *bias == f32::NEG_INFINITY { *bias } else { biased };
                }
            });
        }
        scores[..before as usize].fill(f32::NEG_INFINITY);
        let (state, sums) = (self.states[index], &mut self.sums[index * line..][..line]);
        self.states[index] = on(isa, Weighing { scores, sums, state });
        hidden
    }

    /// Adds rows of V, times their weights, to the sums of the queries that see them.
    fn add(&mut self, first: u64, length: usize, hidden: bool, rows: &mut KvRows<'_>) {
        let (task, at) = (self.task, self.at(first));
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

/// Queries with rows that all of them see. Few rows at a time, so that K and V are read side by side.
struct Few<'a> {
    /// The next rows, if they can be prefetched meanwhile.
    next: Option<[Strided<'a, f16>; 2]>,
    k: Strided<'a, f16>,
    v: Strided<'a, f16>,
    /// `[queries, dk]`
    elements: &'a [f32],
    /// `[queries, AT_ONCE]` and more.
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
        let Few { next, k, v, elements, scores, sums, states, dk, dv } = self;
        let (count, length) = (states.len(), k.rows());
        for first in (0..length).step_by(AT_ONCE) {
            let rows = first..length.min(first + AT_ONCE);
            let left = Matrix { floats: elements, stride: dk };
            v.prefetch(rows.start..rows.end.min(first + BEGUN));
            let [ahead, ahead_v] = match next {
                Some([k, v]) => [k.part(rows.clone()).ahead(4), v.part(rows.clone()).ahead(1)],
                None => [Ahead::none(), Ahead::none()],
            };
            Scores { left, right: k.part(rows.clone()), scores, stride: AT_ONCE, count, ahead }.run::<L>();
            let after = rows.end..length.min(rows.end + BEGUN);
            k.prefetch(after);
            for (index, state) in states.iter_mut().enumerate() {
                // What is no score weighs nothing; vectors are whole.
                let scores = &mut scores[index * AT_ONCE..][..rows.len().next_multiple_of(LINE)];
                scores[rows.len()..].fill(f32::NEG_INFINITY);
                *state = Weighing { scores, sums: &mut sums[index * dv..][..dv], state: *state }.run::<L>();
            }
            let left = Matrix { floats: scores, stride: AT_ONCE };
            Product {
                left,
                right: v.part(rows),
                sums,
                stride: dv,
                rows: count,
                fresh: false,
                ahead: ahead_v,
            }
            .run::<L>();
        }
    }
}

/// A tile's query.
fn query(division: &QueryDivision, tile: u64, index: usize) -> Query {
    Query::new(division, tile, division.queries(tile).start + index as u64)
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
