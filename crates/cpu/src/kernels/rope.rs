//! Rotary position embedding: pairs of elements turned by an angle proportional to a position, with linear and
//! YaRN scaling, frequency factors, and positions of several streams.
//!
//! An angle is the position times the pair's rate. Rates are kept as a sum of two floats: positions in the
//! hundred thousands times one float alone would be off by more than a result may be.

use std::f64::consts::PI;

use orlop_backend::Reason;
use orlop_graph::{DType, Op, Rope, RopeMode, TensorDesc};

use crate::access::Src;
use crate::task::{Kernel, Task, Thread, element_at, float, row_at};

pub(crate) fn kernel(op: &Op) -> Option<Kernel> {
    matches!(op, Op::Rope(_)).then(|| Kernel::simple(accepts, scratch, rope))
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
    operands[0].extents[0].saturating_mul(3)
}

fn rope(task: &Task, thread: Thread, scratch: &mut [f32]) {
    let Op::Rope(params) = task.op else { return };
    let pairs = params.dims as usize / 2;
    let (row, scratch) = scratch.split_at_mut(task.dst.desc.extents[0] as usize);
    let (rates, scratch) = scratch.split_at_mut(2 * pairs);
    let turns = &mut scratch[..2 * pairs];
    let yarn = Yarn::new(&params);
    for (pair, rate) in rates.as_chunks_mut::<2>().0.iter_mut().enumerate() {
        *rate = two_floats(yarn.rate(&params, pair, task.src.get(2)));
    }
    // Heads follow one another, so the angles of a token serve several rows.
    let mut turned_to = None;
    for index in thread.part(task.dst.desc.rows()) {
        let at = row_at(&task.dst.desc, index);
        if turned_to != Some(at[1]) {
            turn(task, &params, at[1], yarn.magnitude, rates, turns);
            turned_to = Some(at[1]);
        }
        task.src[0].read_row(at, row);
        rotate(params.mode, &mut row[..2 * pairs], turns);
        task.dst.write_row(at, row);
    }
}

/// The cosine and sine of each pair's angle at a token's positions, times the magnitude.
fn turn(task: &Task, params: &Rope, token: u64, magnitude: f64, rates: &[f32], turns: &mut [f32]) {
    let (positions, tokens) = (&task.src[1], task.dst.desc.extents[2]);
    let streams = if let RopeMode::Sections(_) = params.mode { 4 } else { 1 };
    let mut position = [0.0; 4];
    for (stream, position) in position.iter_mut().enumerate().take(streams) {
        let (column, at) = element_at(&positions.desc, stream as u64 * tokens + token);
        *position = positions.integer(column, at) as f64;
    }
    let (rates, turns) = (rates.as_chunks::<2>().0, turns.as_chunks_mut::<2>().0);
    for (pair, ([high, low], turn)) in rates.iter().zip(turns).enumerate() {
        let rate = f64::from(*high) + f64::from(*low);
        let (sin, cos) = (position[stream(params.mode, pair)] * rate).sin_cos();
        *turn = [(cos * magnitude) as f32, (sin * magnitude) as f32];
    }
}

/// Turns the pairs of a row's rotated part.
fn rotate(mode: RopeMode, row: &mut [f32], turns: &[f32]) {
    let turns = turns.as_chunks::<2>().0;
    match mode {
        RopeMode::Normal => {
            for (pair, turn) in row.as_chunks_mut::<2>().0.iter_mut().zip(turns) {
                *pair = rotated(*pair, *turn);
            }
        }
        RopeMode::Neox | RopeMode::Sections(_) => {
            let (first, second) = row.split_at_mut(row.len() / 2);
            for ((a, b), turn) in first.iter_mut().zip(second).zip(turns) {
                [*a, *b] = rotated([*a, *b], *turn);
            }
        }
    }
}

fn rotated([a, b]: [f32; 2], [cos, sin]: [f32; 2]) -> [f32; 2] {
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
    /// Pairs from which the weight of the plain rate falls, and at which it has reached 0.
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
        let low = turns_at(params.beta_fast).floor().max(0.0);
        let high = turns_at(params.beta_slow).ceil().min(dims - 1.0);
        let stretched = 1.0 / f64::from(params.freq_scale);
        let correction = if params.ext_factor == 0.0 { 1.0 } else { 1.0 + 0.1 * stretched.ln() };
        Yarn { ramp: [low, high], magnitude: f64::from(params.attn_factor) * correction }
    }

    /// How far a pair turns from one position to the next.
    fn rate(&self, params: &Rope, pair: usize, factors: Option<&Src>) -> f64 {
        let frequency = f64::from(params.freq_base).powf(-2.0 * pair as f64 / f64::from(params.dims));
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
