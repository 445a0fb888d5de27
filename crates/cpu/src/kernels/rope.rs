//! Rotary position embedding: pairs of elements turned by an angle proportional to a position, with linear and
//! YaRN scaling, frequency factors, and positions of several streams.
//!
//! An angle is the position times the pair's rate. Rates are kept as a sum of two floats: positions in the
//! hundred thousands times one float alone would be off by more than a result may be.

use std::f64::consts::PI;

use orlop_backend::{DeviceError, Reason, Step};
use orlop_graph::{DType, Graph, Op, Rope, RopeMode, TensorDesc};

use super::movement::writer;
use super::product::Rounding;
use super::rows;
use crate::access::Src;
use crate::task::{
    FloatScratch, Kernel, KernelBody, StepKernel, StepOperand, StepOperands, StepShape, Task, TaskInputs,
    Thread, chain, element_at, float, row_at,
};
use crate::vector::{PlainLoop, compiled};

/// Turns heads and writes them into rows of a table: each head into a plane of its own, or all of a token into one row.
pub(crate) const ROPE_INTO_ROWS: &str = "rope into rows";

// SAFETY: the phase rule: each row of the result is one thread's, which reads the same row of the operand.
pub(crate) const ROPE: Kernel = Kernel::simple(accepts, scratch, unsafe { KernelBody::new(rope) });

pub(crate) fn named(name: &str, rounding: Option<Rounding>) -> Option<StepKernel> {
    (name == ROPE_INTO_ROWS && rounding.is_none()).then_some(StepKernel {
        operands: into_rows_operands,
        needs: |shape: &StepShape<'_>| FloatScratch { scratch: floats(&shape.reads[0]), shared: (0, 0) },
        check: Some(check_rows),
        // SAFETY: the phase rule: each head of all tokens is one thread's, or all are the first's where rows of the table share
        // memory (`writer`); operands other than the table lie apart, and the table is not read.
        body: unsafe { KernelBody::new(rope_into_rows) },
    })
}

fn accepts(_: &Op, operands: &[TensorDesc], result: &TensorDesc) -> Result<(), Reason> {
    for (operand, desc) in operands.iter().chain([result]).enumerate() {
        let fits = if operand == 1 { desc.dtype == DType::I32 } else { float(desc.dtype) };
        if !fits {
            return Err(Reason::DType { operand, dtype: desc.dtype });
        }
    }
    Ok(())
}

/// A row; for each pair its rate in two parts, and the cosine and sine of its angle.
fn scratch(_: &Op, operands: &[TensorDesc], _: &TensorDesc) -> u64 {
    floats(&operands[0])
}

fn floats(heads: &TensorDesc) -> u64 {
    heads.extents[0].saturating_mul(3)
}

fn rope(task: &Task, thread: Thread, scratch: &mut [f32]) {
    let Op::Rope(params) = task.op else { return };
    let (row, scratch) = scratch.split_at_mut(task.dst.desc.extents[0] as usize);
    let mut turning = Turning::new(task, params, task.src.get(2), scratch);
    for index in thread.part(task.dst.desc.rows()) {
        let at = row_at(&task.dst.desc, index);
        task.dst.change_row(task.isa, &task.src[0], at, row, |row| turning.turn(at[1], row));
    }
}

/// Reads: what `rope` reads, then the table and the indices of `set_rows`.
fn into_rows_operands(graph: &Graph, step: &Step) -> Option<StepOperands> {
    let [rope, set] = chain(graph, step)?;
    let desc = |id| &graph.tensor(id).desc;
    if !matches!(rope.op, Op::Rope(_)) || set.op != Op::SetRows {
        return None;
    }
    let [_, rows, indices] = set.inputs[..] else { return None };
    let [head, heads, tokens, outer] = desc(rope.output).extents;
    let (turned, written, table) = (desc(rope.output), desc(rows), desc(set.output));
    let [element, next_head, token, _] = turned.strides;
    let planes = written.extents == [head, tokens, heads, 1]
        && written.strides[..3] == [element, token, next_head]
        && graph.tensor(rows).storage.offset == 0;
    let joined = written.extents == [head.checked_mul(heads)?, tokens, 1, 1] && written.is_contiguous();
    let fits = graph.tensor(rows).storage.root == rope.output
        && turned.dtype == DType::F32
        && turned.is_contiguous()
        && outer == 1
        && (planes || joined)
        && graph.tensor(indices).storage.root != graph.tensor(set.output).storage.root
        && head.is_multiple_of(table.dtype.block_elements());
    let reads = rope.inputs.iter().chain([&set.inputs[0], &indices]).copied();
    fits.then(|| StepOperands {
        reads: reads.map(StepOperand::Tensor).collect(),
        writes: vec![StepOperand::Tensor(set.output)],
    })
}

fn check_rows(task: &TaskInputs<'_>) -> Result<(), DeviceError> {
    rows::check_written(task, &task.src[0], &task.src[task.src.len() - 1])
}

/// Each thread goes through all tokens and turns heads that it alone writes, so that the last of several tokens with
/// one index stays.
fn rope_into_rows(task: &Task, thread: Thread, scratch: &mut [f32]) {
    let (Op::Rope(params), [x, _, factors @ .., _, indices]) = (&task.op, &task.src[..]) else { return };
    let Some(thread) = writer(&task.dst.desc, thread) else { return };
    let [head, heads, tokens, _] = x.desc.extents;
    let (row, scratch) = scratch.split_at_mut(head as usize);
    let mut turning = Turning::new(task, *params, factors.first(), scratch);
    let planes = task.dst.desc.extents[0] == head;
    for token in 0..tokens {
        for number in 0..heads {
            let (plane, column) = if planes { (number, 0) } else { (0, number * head) };
            let Some(to) = rows::destination(indices, [token, plane, 0]) else { continue };
            if thread.has_turn(number + to[0]) {
                x.read(task.isa, 0, [number, token, 0], row);
                turning.turn(token, row);
                task.dst.write(task.isa, column, to, row);
            }
        }
    }
}

/// Turns rows, which belong to one token after the other.
struct Turning<'a> {
    task: &'a Task,
    params: Rope,
    magnitude: f64,
    rates: &'a [f32],
    turns: &'a mut [f32],
    /// The token that the angles are of: heads follow one another, so they serve several rows.
    token: Option<u64>,
}

impl<'a> Turning<'a> {
    fn new(task: &'a Task, params: Rope, factors: Option<&Src>, scratch: &'a mut [f32]) -> Turning<'a> {
        let pairs = params.dims as usize / 2;
        let (rates, scratch) = scratch.split_at_mut(2 * pairs);
        let yarn = Yarn::new(&params);
        let step = f64::from(params.freq_base).powf(-2.0 / f64::from(params.dims));
        let mut frequency = 1.0;
        for (pair, rate) in rates.as_chunks_mut::<2>().0.iter_mut().enumerate() {
            *rate = two_floats(yarn.rate(&params, pair, frequency, factors));
            frequency *= step;
        }
        let turns = &mut scratch[..2 * pairs];
        Turning { task, params, magnitude: yarn.magnitude, rates, turns, token: None }
    }

    fn turn(&mut self, token: u64, row: &mut [f32]) {
        if self.token != Some(token) {
            turn(self.task, &self.params, token, self.magnitude, self.rates, self.turns);
            self.token = Some(token);
        }
        let row = &mut row[..self.turns.len()];
        compiled(self.task.isa, Rotation { mode: self.params.mode, row, turns: self.turns });
    }
}

/// The cosine and sine of each pair's angle at a token's positions, times the magnitude.
fn turn(task: &Task, params: &Rope, token: u64, magnitude: f64, rates: &[f32], turns: &mut [f32]) {
    let (positions, tokens) = (&task.src[1], task.src[0].desc.extents[2]);
    let streams = if let RopeMode::Sections(_) = params.mode { 4 } else { 1 };
    let mut position = [0.0; 4];
    for (stream, position) in position.iter_mut().enumerate().take(streams) {
        let (column, at) = element_at(&positions.desc, stream as u64 * tokens + token);
        *position = positions.integer(column, at) as f64;
    }
    if streams == 1 {
        return compiled(task.isa, Turns { position: position[0], magnitude, rates, turns });
    }
    for (pair, rate) in rates.as_chunks::<2>().0.iter().enumerate() {
        let position = position[stream(params.mode, pair)];
        (turns[pair], turns[rates.len() / 2 + pair]) = turned(position, *rate, magnitude);
    }
}

/// The cosines of all pairs' angles at a position, then their sines.
struct Turns<'a> {
    position: f64,
    magnitude: f64,
    rates: &'a [f32],
    turns: &'a mut [f32],
}

impl PlainLoop for Turns<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let rates = self.rates.as_chunks::<2>().0;
        let (cosines, sines) = self.turns.split_at_mut(rates.len());
        for ((rate, cos), sin) in rates.iter().zip(cosines).zip(sines) {
            (*cos, *sin) = turned(self.position, *rate, self.magnitude);
        }
    }
}

#[inline(always)]
fn turned(position: f64, [high, low]: [f32; 2], magnitude: f64) -> (f32, f32) {
    let (sin, cos) = sin_cos(position * (f64::from(high) + f64::from(low)));
    ((cos * magnitude) as f32, (sin * magnitude) as f32)
}

/// Sine and cosine to about 1e-11, without branches, for angles that a position can have.
#[inline(always)]
fn sin_cos(x: f64) -> (f64, f64) {
    // Adding 1.5 · 2⁵² leaves the nearest number of quarter turns in the low bits of the sum.
    const ROUND: f64 = 6_755_399_441_055_744.0;
    let shifted = x * std::f64::consts::FRAC_2_PI + ROUND;
    let (quarters, n) = (shifted.to_bits(), shifted - ROUND);
    // A quarter turn in two parts, the first with so few bits that most products are exact.
    let r = (x - n * 1.570_796_326_734_125_6) - n * 6.077_100_506_506_192e-11;
    let square = r * r;
    let sin = [1.0 / 362_880.0, -1.0 / 5_040.0, 1.0 / 120.0, -1.0 / 6.0, 1.0];
    let cos = [-1.0 / 3_628_800.0, 1.0 / 40_320.0, -1.0 / 720.0, 1.0 / 24.0, -0.5, 1.0];
    let sin = r * polynomial(-1.0 / 39_916_800.0, sin, square);
    let cos = polynomial(1.0 / 479_001_600.0, cos, square);
    let (a, b) = if quarters & 1 == 0 { (sin, cos) } else { (cos, sin) };
    // The sine is negative in the third and fourth quarter, the cosine in the second and third.
    let signed = |x: f64, negative: u64| f64::from_bits(x.to_bits() ^ (negative & 2) << 62);
    (signed(a, quarters), signed(b, quarters.wrapping_add(1)))
}

#[inline(always)]
fn polynomial<const N: usize>(first: f64, factors: [f64; N], x: f64) -> f64 {
    let mut sum = first;
    for factor in factors {
        sum = sum * x + factor;
    }
    sum
}

/// Turns the pairs of a row's rotated part.
struct Rotation<'a> {
    mode: RopeMode,
    row: &'a mut [f32],
    turns: &'a [f32],
}

impl PlainLoop for Rotation<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let (cosines, sines) = self.turns.split_at(self.turns.len() / 2);
        match self.mode {
            RopeMode::Normal => {
                for ((pair, cos), sin) in self.row.as_chunks_mut::<2>().0.iter_mut().zip(cosines).zip(sines) {
                    *pair = rotated(*pair, *cos, *sin);
                }
            }
            RopeMode::Neox | RopeMode::Sections(_) => {
                let (first, second) = self.row.split_at_mut(self.row.len() / 2);
                for (((a, b), cos), sin) in first.iter_mut().zip(second).zip(cosines).zip(sines) {
                    [*a, *b] = rotated([*a, *b], *cos, *sin);
                }
            }
        }
    }
}

#[inline(always)]
fn rotated([a, b]: [f32; 2], cos: f32, sin: f32) -> [f32; 2] {
    [a * cos - b * sin, a * sin + b * cos]
}

/// Which of the position streams turns a pair. Sections repeat if they are fewer than the pairs.
fn stream(mode: RopeMode, pair: usize) -> usize {
    let RopeMode::Sections(sections) = mode else { return 0 };
    let total: u64 = sections.iter().map(|size| u64::from(*size)).sum();
    let mut place = pair as u64 % total.max(1);
    for (stream, size) in sections.into_iter().map(u64::from).take(3).enumerate() {
        if place < size {
            return stream;
        }
        place -= size;
    }
    3
}

fn two_floats(x: f64) -> [f32; 2] {
    let high = x as f32;
    [high, (x - f64::from(high)) as f32]
}

/// Pairs between as they are (fast ones) and interpolated (slow ones).
struct Yarn {
    /// Pairs from which the weight of the plain rate falls, and at which it has reached 0; of no use without any.
    ramp: [f64; 2],
    magnitude: f64,
}

impl Yarn {
    fn new(params: &Rope) -> Yarn {
        let dims = f64::from(params.dims);
        let turns_at = |rotations: f32| {
            let length = f64::from(params.original_context) / (f64::from(rotations) * 2.0 * PI);
            dims * length.ln() / (2.0 * f64::from(params.freq_base).ln())
        };
        let magnitude = f64::from(params.attn_factor);
        if params.ext_factor == 0.0 {
            return Yarn { ramp: [0.0; 2], magnitude };
        }
        let low = turns_at(params.beta_fast).floor().max(0.0);
        let high = turns_at(params.beta_slow).ceil().min(dims - 1.0);
        let stretched = 1.0 / f64::from(params.freq_scale);
        Yarn { ramp: [low, high], magnitude: magnitude * (1.0 + 0.1 * stretched.ln()) }
    }

    /// How far a pair turns from one position to the next, unscaled and without factors by `frequency`.
    fn rate(&self, params: &Rope, pair: usize, frequency: f64, factors: Option<&Src>) -> f64 {
        let plain = factors.map_or(frequency, |factors| {
            let (column, at) = element_at(&factors.desc, pair as u64);
            frequency / f64::from(factors.value(column, at))
        });
        let (scale, weight) = (f64::from(params.freq_scale), f64::from(params.ext_factor));
        if weight == 0.0 {
            return scale * plain;
        }
        let [low, high] = self.ramp;
        // The least width keeps a ramp of one step finite.
        let fallen = ((pair as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
        let mix = (1.0 - fallen) * weight;
        plain * (scale * (1.0 - mix) + mix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sines_and_cosines_are_those_of_the_standard_library() {
        for step in -200_000..200_000_i32 {
            for scale in [1e-4, 0.01, 1.0, 5_003.7, 10_000.1] {
                let x = f64::from(step) * scale;
                let ((sin, cos), expected) = (sin_cos(x), x.sin_cos());
                let error = (sin - expected.0).abs().max((cos - expected.1).abs());
                // Beyond 2²⁰ turns the quarter turn's digits run out.
                let limit = 1e-11 + x.abs() * 2e-16;
                assert!(error <= limit, "{x}: {sin} {cos} instead of {expected:?}");
            }
        }
    }
}
