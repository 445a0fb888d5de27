//! Pooling, upscaling, and the embedding of timesteps that diffusion models begin with.

use std::ops::Range;

use orlop_graph::{Interpolation, Op, Pool, PoolKind, TensorDesc};

use crate::task::{Kernel, KernelBody, Task, Thread, all_floats, row_at};

// SAFETY: the phase rule: each row of the result is one thread's; the operand lies apart.
pub(crate) const POOL: Kernel = Kernel::simple(all_floats, three_rows, unsafe { KernelBody::new(pool) });

// SAFETY: the phase rule: as for `POOL`.
pub(crate) const UPSCALE: Kernel =
    Kernel::simple(all_floats, three_rows, unsafe { KernelBody::new(upscale) });

pub(crate) const TIMESTEP_EMBEDDING: Kernel =
    // SAFETY: the phase rule: as for `POOL`.
    Kernel::simple(all_floats, three_rows, unsafe { KernelBody::new(timestep_embedding) });

/// A row of the result and two of the operand.
fn three_rows(_: &Op, operands: &[TensorDesc], result: &TensorDesc) -> u64 {
    operands[0].extents[0].saturating_mul(2).saturating_add(result.extents[0])
}

/// What lies in the padding does not count, but in the mean's divisor.
fn pool(task: &Task, thread: Thread, scratch: &mut [f32]) {
    let (pool, two_d) = match &task.op {
        Op::Pool1d(pool) => (pool, false),
        Op::Pool2d(pool) => (pool, true),
        _ => return,
    };
    let src = &task.src[0];
    let [w, h, _, _] = src.desc.extents;
    let height = if two_d { pool.kernel[1] } else { 1 };
    let size = f64::from(pool.kernel[0]) * f64::from(height);
    let (result, rest) = scratch.split_at_mut(task.dst.desc.extents[0] as usize);
    let line = &mut rest[..w as usize];
    for row in thread.part(task.dst.desc.rows()) {
        let [y, plane, batch] = row_at(&task.dst.desc, row);
        let lines = if two_d { window(pool, 1, y, h) } else { y..y + 1 };
        result.fill(if pool.kind == PoolKind::Max { f32::NEG_INFINITY } else { 0.0 });
        for from in lines.filter(|_| w > 0) {
            src.read_row([from, plane, batch], line);
            for (x, result) in (0..).zip(result.iter_mut()) {
                let Range { start, end } = window(pool, 0, x, w);
                // A window behind all elements begins after its end.
                let values = line.get(start as usize..end as usize).unwrap_or(&[]);
                match pool.kind {
                    PoolKind::Max => *result = values.iter().copied().fold(*result, larger),
                    // Divided before it is added, so that no sum exceeds what the mean can be.
                    PoolKind::Mean => {
                        *result += (values.iter().map(|x| f64::from(*x)).sum::<f64>() / size) as f32
                    }
                }
            }
        }
        task.dst.write_row([y, plane, batch], result);
    }
}

/// The elements of a window along one dimension that do not lie in the padding.
fn window(pool: &Pool, dim: usize, at: u64, extent: u64) -> Range<u64> {
    let (padding, start) = (u64::from(pool.padding[dim]), at * u64::from(pool.stride[dim]));
    let end = (start + u64::from(pool.kernel[dim])).saturating_sub(padding);
    start.saturating_sub(padding)..end.min(extent)
}

/// NaN wins.
fn larger(max: f32, x: f32) -> f32 {
    if x > max || x.is_nan() { x } else { max }
}

fn upscale(task: &Task, thread: Thread, scratch: &mut [f32]) {
    let Op::Upscale { mode, .. } = &task.op else { return };
    let (source, target) = (task.src[0].desc.extents, task.dst.desc.extents);
    let (result, rest) = scratch.split_at_mut(target[0] as usize);
    let (upper, rest) = rest.split_at_mut(source[0] as usize);
    let lower = &mut rest[..source[0] as usize];
    let mut computed = None;
    for row in thread.part(task.dst.desc.rows()) {
        let at = row_at(&task.dst.desc, row);
        let [j, k, l] = at;
        let (plane, batch) = (nearest(k, source[2], target[2]), nearest(l, source[3], target[3]));
        let (y0, y1, below) = match mode {
            Interpolation::Nearest => (nearest(j, source[1], target[1]), 0, 0.0),
            Interpolation::Bilinear => between(j, source[1], target[1]),
        };
        // Neighbouring rows are often the same one.
        if computed != Some((y0, y1, below, plane, batch)) {
            task.src[0].read_row([y0, plane, batch], upper);
            match mode {
                Interpolation::Nearest => spread(upper, result),
                Interpolation::Bilinear => {
                    task.src[0].read_row([y1, plane, batch], lower);
                    blend(upper, lower, below, result);
                }
            }
            computed = Some((y0, y1, below, plane, batch));
        }
        task.dst.write_row(at, result);
    }
}

/// The source position of a result's.
fn nearest(at: u64, source: u64, target: u64) -> u64 {
    // In 128 bits, as the product of two extents need not fit 64.
    (u128::from(at) * u128::from(source) / u128::from(target)) as u64
}

/// A row's nearest elements; counts what [`nearest`] would divide.
fn spread(source: &[f32], result: &mut [f32]) {
    let (whole, rest) = (source.len() / result.len(), source.len() % result.len());
    let (mut at, mut over, target) = (0, 0, result.len());
    for result in result {
        *result = source[at];
        at += whole;
        over += rest;
        if over >= target {
            (at, over) = (at + 1, over - target);
        }
    }
}

/// A row between two others.
fn blend(upper: &[f32], lower: &[f32], below: f64, result: &mut [f32]) {
    let (source, target) = (upper.len() as u64, result.len() as u64);
    for (x, result) in (0..).zip(result.iter_mut()) {
        let (x0, x1, right) = between(x, source, target);
        let blend =
            |row: &[f32]| f64::from(row[x0 as usize]) * (1.0 - right) + f64::from(row[x1 as usize]) * right;
        *result = (blend(upper) * (1.0 - below) + blend(lower) * below) as f32;
    }
}

/// The two source elements around a position, and how far it is on the way to the second. Centres of elements
/// correspond; positions outside all centres take the outermost element.
fn between(at: u64, source: u64, target: u64) -> (u64, u64, f64) {
    let position = (at as f64 + 0.5) * source as f64 / target as f64 - 0.5;
    if position <= 0.0 {
        return (0, 0, 0.0);
    }
    let last = source - 1;
    let first = (position as u64).min(last);
    (first, (first + 1).min(last), (position - first as f64).min(1.0))
}

/// In F64, as angles of late time steps are large.
fn timestep_embedding(task: &Task, thread: Thread, scratch: &mut [f32]) {
    let Op::TimestepEmbedding { dim, max_period } = &task.op else { return };
    let (half, slowest) = (f64::from(dim / 2), f64::from(*max_period).ln());
    let row = &mut scratch[..*dim as usize];
    for index in thread.part(task.dst.desc.rows()) {
        let time = f64::from(task.src[0].value(index, [0; 3]));
        row.fill(0.0);
        let (cosines, sines) = row.split_at_mut((dim / 2) as usize);
        for (at, (cosine, sine)) in cosines.iter_mut().zip(sines).enumerate() {
            let angle = time * (-slowest * at as f64 / half).exp();
            (*cosine, *sine) = (angle.cos() as f32, angle.sin() as f32);
        }
        task.dst.write_row(row_at(&task.dst.desc, index), row);
    }
}
