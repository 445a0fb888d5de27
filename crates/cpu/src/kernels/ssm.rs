//! State-space models: the short convolution over tokens, and the scan that carries a state from token to token.

use orlop_backend::{DeviceError, Reason};
use orlop_graph::{DType, Op, TensorDesc};

use crate::access::{RowIndex, Src};
use crate::simd::{dot, widened};
use crate::task::{Kernel, KernelBody, Task, TaskInputs, Thread, all_floats, float, nothing_shared, row_at};

pub(crate) const CONVOLUTION: Kernel =
    // SAFETY: the phase rule: each block of channels and tokens is one thread's; operands lie apart.
    Kernel::simple(all_floats, convolution_scratch, unsafe { KernelBody::new(convolve) });

pub(crate) const SCAN: Kernel = Kernel {
    accepts: scan_types,
    scratch: scan_scratch,
    shared: nothing_shared,
    check: Some(states_exist),
    // SAFETY: the phase rule: each unit, whose outputs and states lie by themselves in the result, is one thread's;
    // operands lie apart.
    body: unsafe { KernelBody::new(scan) },
};

/// Channels and tokens of the convolution's result that are computed together: rows of data run along tokens,
/// rows of the result along channels.
const TILE: [u64; 2] = [64, 64];

/// A tile of the result, the data of one channel, its kernel, and its results.
fn convolution_scratch(_: &Op, operands: &[TensorDesc], _: &TensorDesc) -> u64 {
    let kernel = operands[1].extents[0];
    kernel.saturating_mul(2).saturating_add(TILE[0] * TILE[1] + 2 * TILE[1])
}

fn convolve(task: &Task, thread: Thread, scratch: &mut [f32]) {
    let (data, kernel) = (&task.src[0], &task.src[1]);
    let size = kernel.desc.extents[0] as usize;
    let [channels, tokens, seqs, _] = task.dst.desc.extents;
    let blocks = [channels.div_ceil(TILE[0]), tokens.div_ceil(TILE[1])];
    let (tile, rest) = scratch.split_at_mut((TILE[0] * TILE[1]) as usize);
    let (weights, rest) = rest.split_at_mut(size);
    let (sums, line) = rest.split_at_mut(TILE[1] as usize);
    for unit in thread.part(blocks[0] * blocks[1] * seqs) {
        let (channel, token) = (unit % blocks[0] * TILE[0], unit / blocks[0] % blocks[1] * TILE[1]);
        let seq = unit / blocks[0] / blocks[1];
        let width = TILE[0].min(channels - channel) as usize;
        let sums = &mut sums[..TILE[1].min(tokens - token) as usize];
        let line = &mut line[..sums.len() + size - 1];
        for column in 0..width {
            let channel = channel + column as u64;
            data.read_elements(token, [channel, seq, 0], line);
            kernel.read_row([channel, 0, 0], weights);
            sums.fill(0.0);
            for (shift, weight) in weights.iter().enumerate() {
                for (sum, x) in sums.iter_mut().zip(&line[shift..]) {
                    *sum += weight * x;
                }
            }
            for (sum, row) in sums.iter().zip(tile.chunks_exact_mut(width)) {
                row[column] = *sum;
            }
        }
        for (token, row) in (token..).zip(tile.chunks_exact(width).take(sums.len())) {
            task.dst.write_elements(channel, [token, seq, 0], row);
        }
    }
}

/// Rows of a head's state that are carried together.
const ROWS: u64 = 32;

fn scan_types(_: &Op, operands: &[TensorDesc], result: &TensorDesc) -> Result<(), Reason> {
    for (operand, desc) in operands.iter().chain([result]).enumerate() {
        let fits = if operand == 6 { desc.dtype == DType::I32 } else { float(desc.dtype) };
        if !fits {
            return Err(Reason::DType { operand, dtype: desc.dtype });
        }
    }
    Ok(())
}

/// Rows of the state with an input and an output each, and a row each of `a`, its powers, `b` and `c`.
fn scan_scratch(_: &Op, operands: &[TensorDesc], _: &TensorDesc) -> u64 {
    let [size, inner, _, _] = operands[0].extents;
    let rows = inner.min(ROWS);
    size.saturating_mul(rows + 4).saturating_add(2 * rows + 1)
}

/// The number of the state that a sequence begins with.
pub(super) fn first_state(ids: &Src, seq: u64) -> i64 {
    let length = ids.desc.extents[0];
    ids.integer(seq % length, row_at(&ids.desc, seq / length))
}

fn states_exist(task: &TaskInputs<'_>) -> Result<(), DeviceError> {
    let rows = task.src[0].desc.extents[3];
    for seq in 0..task.src[1].desc.extents[3] {
        let index = first_state(&task.src[6], seq);
        if u64::try_from(index).is_ok_and(|index| index < rows) {
            continue;
        }
        let (op, tensor) = (task.op.name().to_owned(), task.name.to_owned());
        return Err(DeviceError::BadIndex { op, tensor, index, rows });
    }
    Ok(())
}

/// For each head and token: `state = state * exp(step * a) + b * x * step`, `y = state · c`, where the step is the
/// softplus of `dt`. Heads share `b` and `c` in groups of neighbours.
fn scan(task: &Task, thread: Thread, scratch: &mut [f32]) {
    let [states, inputs, dt, a, b, c, ids] = &task.src[..] else { return };
    let [size, inner, heads, _] = states.desc.extents;
    let [_, _, tokens, seqs] = inputs.desc.extents;
    let (decays, groups) = (a.desc.extents[0], b.desc.extents[1]);
    let n = size as usize;
    let (rates, rest) = scratch.split_at_mut(decays as usize);
    let (factors, rest) = rest.split_at_mut(n);
    let (b_row, rest) = rest.split_at_mut(n);
    let (c_row, rest) = rest.split_at_mut(n);
    let (xs, rest) = rest.split_at_mut(inner.min(ROWS) as usize);
    let (ys, carried) = rest.split_at_mut(inner.min(ROWS) as usize);

    let blocks = inner.div_ceil(ROWS);
    for unit in thread.part(blocks * heads * seqs) {
        let (first, head, seq) = (unit % blocks * ROWS, unit / blocks % heads, unit / blocks / heads);
        let rows = ROWS.min(inner - first) as usize;
        let (xs, ys, carried) = (&mut xs[..rows], &mut ys[..rows], &mut carried[..rows * n]);
        let from = first_state(ids, seq) as u64;
        for (row, state) in (first..).zip(carried.chunks_exact_mut(n.max(1))) {
            states.read_row([row, head, from], state);
        }
        read(a, [head, 0, 0], rates);
        let group = head / (heads / groups);
        for token in 0..tokens {
            let step = softplus(f64::from(dt.value(head, [token, seq, 0])));
            inputs.read_elements(first, [head, token, seq], xs);
            read(b, [group, token, seq], b_row);
            read(c, [group, token, seq], c_row);
            let power = |rate: f32| (step * f64::from(rate)).exp() as f32;
            match rates {
                [rate] => factors.fill(power(*rate)),
                _ => factors.iter_mut().zip(&*rates).for_each(|(factor, rate)| *factor = power(*rate)),
            }
            for (row, (x, y)) in xs.iter().zip(ys.iter_mut()).enumerate() {
                let (state, input) = (&mut carried[row * n..][..n], (f64::from(*x) * step) as f32);
                widened(task.isa, || {
                    for (state, (factor, b)) in state.iter_mut().zip(factors.iter().zip(&*b_row)) {
                        *state = *state * factor + b * input;
                    }
                });
                *y = dot(task.isa, state, c_row);
            }
            let at = ((seq * tokens + token) * heads + head) * inner + first;
            task.dst.write_elements(at, [0; 3], ys);
        }
        let at = inputs.desc.elements() + ((seq * heads + head) * inner + first) * size;
        task.dst.write_elements(at, [0; 3], carried);
    }
}

/// A whole row, which may be empty.
fn read(src: &Src, at: RowIndex, row: &mut [f32]) {
    if !row.is_empty() {
        src.read_row(at, row);
    }
}

fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}
