//! Soft-max of rows with masks, ALiBi slopes and sinks, and causal masks. Scores are `f64` until the largest is
//! taken off, so that large ones lose no digits.

use orlop_graph::{Op, TensorDesc};

use crate::task::{Kernel, Task, Thread, all_floats, element_at, row_at};

pub(crate) fn kernel(op: &Op) -> Option<Kernel> {
    let run = match op {
        Op::SoftMax(_) => soft_max,
        Op::DiagMaskInf { .. } | Op::DiagMaskZero { .. } => diagonal,
        _ => return None,
    };
    Some(Kernel::simple(all_floats, two_rows, run))
}

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
    let scale = f64::from(params.scale);
    for index in thread.part(task.dst.desc.rows()) {
        let at = row_at(&task.dst.desc, index);
        let [line, head, seq] = at;
        task.src[0].read_row(at, row);
        if let Some(mask) = mask {
            let [_, _, mask_heads, mask_seqs] = mask.desc.extents;
            mask.read_row([line, head % mask_heads, seq % mask_seqs], hidden);
        }
        let slope = slope(params.max_bias, heads, head);
        let sink = sinks.map(|sinks| {
            let (column, at) = element_at(&sinks.desc, head);
            f64::from(sinks.value(column, at))
        });
        match mask {
            Some(_) => weigh(row, sink, |i, x| f64::from(x) * scale + slope * f64::from(hidden[i])),
            None => weigh(row, sink, |_, x| f64::from(x) * scale),
        }
        task.dst.write_row(at, row);
    }
}

/// Turns a row into weights that sum up to 1 together with the sink's. Where all scores are minus infinity, all
/// weights are 0.
fn weigh(row: &mut [f32], sink: Option<f64>, score: impl Fn(usize, f32) -> f64) {
    let scores = row.iter().enumerate().map(|(i, x)| score(i, *x));
    let max =
        scores.chain(sink).fold(f64::NEG_INFINITY, |max, x| if x > max || x.is_nan() { x } else { max });
    if max == f64::NEG_INFINITY {
        row.fill(0.0);
        return;
    }
    let mut sum = sink.map_or(0.0, |sink| (sink - max).exp());
    for (i, x) in row.iter_mut().enumerate() {
        *x = ((score(i, *x) - max) as f32).exp();
        sum += f64::from(*x);
    }
    let factor = 1.0 / sum;
    row.iter_mut().for_each(|x| *x = (f64::from(*x) * factor) as f32);
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
        task.src[0].read_row(at, row);
        let kept = at[0].saturating_add(u64::from(past)).saturating_add(1);
        row.iter_mut().skip(usize::try_from(kept).unwrap_or(usize::MAX)).for_each(|x| *x = hidden);
        task.dst.write_row(at, row);
    }
}
