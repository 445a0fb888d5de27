//! Soft-max of rows with masks, ALiBi slopes and sinks, and causal masks. Scores are `f64` until the largest is
//! taken off, so that large ones lose no digits.

use orlop_graph::{Op, TensorDesc};

use crate::isa::Isa;
use crate::task::{Kernel, KernelBody, Task, Thread, all_floats, element_at, row_at};
use crate::vector::{PlainLoop, Weights, compiled, on};

// SAFETY: the phase rule: each row of the result is one thread's, which reads the same row of the operand.
pub(crate) const SOFT_MAX: Kernel =
    Kernel::simple(all_floats, two_rows, unsafe { KernelBody::new(soft_max) });

// SAFETY: the phase rule: as for `SOFT_MAX`.
pub(crate) const DIAGONAL: Kernel =
    Kernel::simple(all_floats, two_rows, unsafe { KernelBody::new(diagonal) });

/// A row of the operand and one of the mask.
fn two_rows(_: &Op, operands: &[TensorDesc], _: &TensorDesc) -> u64 {
    operands[0].extents[0].saturating_mul(2)
}

fn soft_max(task: &Task, thread: Thread, scratch: &mut [f32]) {
    let Op::SoftMax(params) = task.op else { return };
    let mask = params.mask.then(|| &task.src[1]);
    let sinks = params.sinks.then(|| &task.src[1 + usize::from(params.mask)]);
    let [length, _, heads, _] = task.dst.desc.extents;
    let (row, rest) = scratch.split_at_mut(length as usize);
    let hidden = &mut rest[..length as usize];
    for index in thread.part(task.dst.desc.rows()) {
        let at = row_at(&task.dst.desc, index);
        let [line, head, seq] = at;
        let mask = mask.map(|mask| {
            let [_, _, mask_heads, mask_seqs] = mask.desc.extents;
            mask.read(task.isa, 0, [line, head % mask_heads, seq % mask_seqs], hidden);
            &*hidden
        });
        let sink = sinks.map(|sinks| {
            let (column, at) = element_at(&sinks.desc, head);
            f64::from(sinks.value(column, at))
        });
        let score =
            Score { scale: f64::from(params.scale), slope: slope(params.max_bias, heads, head), mask };
        task.dst.change_row(task.isa, &task.src[0], at, row, |row| weigh(task.isa, row, sink, &score));
    }
}

/// Elements of a row become scores.
struct Score<'a> {
    scale: f64,
    slope: f64,
    mask: Option<&'a [f32]>,
}

impl Score<'_> {
    #[inline(always)]
    fn of(&self, x: f32, hidden: f32) -> f64 {
        f64::from(x) * self.scale + self.slope * f64::from(hidden)
    }

    /// The largest score, NaN left aside.
    #[inline(always)]
    fn largest(&self, row: &[f32]) -> f64 {
        const LANES: usize = 16;
        let mut max = [f64::NEG_INFINITY; LANES];
        let (chunks, rest) = row.as_chunks::<LANES>();
        let (mask, mask_rest) = self.mask.map_or((&[][..], &[][..]), |mask| mask.as_chunks::<LANES>());
        if self.mask.is_some() {
            for (row, mask) in chunks.iter().zip(mask) {
                for lane in 0..LANES {
                    let score = self.of(row[lane], mask[lane]);
                    max[lane] = if score > max[lane] { score } else { max[lane] };
                }
            }
        } else {
            for row in chunks {
                for lane in 0..LANES {
                    let score = self.of(row[lane], 0.0);
                    max[lane] = if score > max[lane] { score } else { max[lane] };
                }
            }
        }
        let mask_rest = mask_rest.iter().copied().chain(std::iter::repeat(0.0));
        let rest = rest.iter().zip(mask_rest).map(|(x, hidden)| self.of(*x, hidden));
        max.into_iter().chain(rest).fold(f64::NEG_INFINITY, f64::max)
    }

    /// Replaces elements by their scores' distances from the largest.
    #[inline(always)]
    fn distances(&self, row: &mut [f32], max: f64) {
        match self.mask {
            Some(mask) => {
                for (x, hidden) in row.iter_mut().zip(mask) {
                    *x = (self.of(*x, *hidden) - max) as f32;
                }
            }
            None => row.iter_mut().for_each(|x| *x = (self.of(*x, 0.0) - max) as f32),
        }
    }
}

struct Largest<'a>(&'a Score<'a>, &'a [f32]);

impl PlainLoop for Largest<'_> {
    type Output = f64;

    #[inline(always)]
    fn run(self) -> f64 {
        self.0.largest(self.1)
    }
}

struct Distances<'a>(&'a Score<'a>, &'a mut [f32], f64);

impl PlainLoop for Distances<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        self.0.distances(self.1, self.2);
    }
}

/// Divides by the sum, to which something is added. Gives up digits only at the end.
struct Normalised<'a>(&'a mut [f32], f64);

impl PlainLoop for Normalised<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        const LANES: usize = 16;
        let (mut lanes, (chunks, rest)) = ([0.0; LANES], self.0.as_chunks::<LANES>());
        for chunk in chunks {
            for lane in 0..LANES {
                lanes[lane] += f64::from(chunk[lane]);
            }
        }
        let sum = lanes.iter().sum::<f64>() + rest.iter().map(|x| f64::from(*x)).sum::<f64>();
        let factor = 1.0 / (self.1 + sum);
        self.0.iter_mut().for_each(|x| *x = (f64::from(*x) * factor) as f32);
    }
}

/// Turns a row into weights that sum up to 1 together with the sink's. Where all scores are minus infinity, all
/// weights are 0.
fn weigh(isa: Isa, row: &mut [f32], sink: Option<f64>, score: &Score<'_>) {
    let max = compiled(isa, Largest(score, row));
    let max = sink.map_or(max, |sink| if sink > max || sink.is_nan() { sink } else { max });
    if max == f64::NEG_INFINITY {
        // There may be NaN, which is not below anything.
        compiled(isa, Distances(score, row, 0.0));
        let weight = if row.iter().any(|x| x.is_nan()) { f32::NAN } else { 0.0 };
        return row.fill(weight);
    }
    compiled(isa, Distances(score, row, max));
    on(isa, Weights { scores: row, max: 0.0 });
    compiled(isa, Normalised(row, sink.map_or(0.0, |sink| (sink - max).exp())));
}

/// ALiBi's factor of the mask for a head: a geometric sequence over the largest power of two of heads, and the
/// odd members of one with half the distance for the heads beyond.
pub(super) fn slope(max_bias: f32, heads: u64, head: u64) -> f64 {
    if max_bias <= 0.0 || heads == 0 {
        return 1.0;
    }
    let power = 1_u64 << heads.ilog2();
    let step = f64::from(max_bias) / power as f64;
    let exponent =
        if head < power { step * (head + 1) as f64 } else { step / 2.0 * (2 * (head - power) + 1) as f64 };
    (-exponent).exp2()
}

fn diagonal(task: &Task, thread: Thread, scratch: &mut [f32]) {
    let (past, hidden) = match task.op {
        Op::DiagMaskInf { past } => (past, f32::NEG_INFINITY),
        Op::DiagMaskZero { past } => (past, 0.0),
        _ => return,
    };
    let row = &mut scratch[..task.dst.desc.extents[0] as usize];
    for index in thread.part(task.dst.desc.rows()) {
        let at = row_at(&task.dst.desc, index);
        let kept = at[0].saturating_add(u64::from(past)).saturating_add(1);
        let kept = usize::try_from(kept).unwrap_or(usize::MAX).min(row.len());
        task.dst.change_row(task.isa, &task.src[0], at, row, |row| row[kept..].fill(hidden));
    }
}
