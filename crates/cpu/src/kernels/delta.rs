//! The scan of the [delta rule](https://arxiv.org/abs/2102.11174): a matrix that is carried from token to token.

use orlop_backend::{DeviceError, Reason};
use orlop_graph::{DType, Op, TensorDesc};

use super::ssm::first_state;
use crate::isa::Isa;
use crate::simd::widened;
use crate::task::{Kernel, KernelBody, Task, TaskInputs, Thread, float, nothing_shared};

pub(crate) const SCAN: Kernel = Kernel {
    accepts,
    scratch,
    shared: nothing_shared,
    check: Some(states_exist),
    // SAFETY: the phase rule: each unit, whose outputs and states lie by themselves in the result, is one thread's;
    // operands lie apart.
    body: unsafe { KernelBody::new(scan) },
};

/// Values that are carried together.
const LANES: usize = 64;

type Lanes = [f32; LANES];

fn accepts(_: &Op, operands: &[TensorDesc], result: &TensorDesc) -> Result<(), Reason> {
    for (operand, desc) in operands.iter().chain([result]).enumerate() {
        let fits = if operand == 7 { desc.dtype == DType::I32 } else { float(desc.dtype) };
        if !fits {
            return Err(Reason::DType { operand, dtype: desc.dtype });
        }
    }
    Ok(())
}

/// A block of the state, and a row each of r, w, k, a and b.
fn scratch(_: &Op, operands: &[TensorDesc], _: &TensorDesc) -> u64 {
    operands[0].extents[1].saturating_mul(LANES as u64 + 5)
}

fn states_exist(task: &TaskInputs<'_>) -> Result<(), DeviceError> {
    let rows = task.src[0].desc.extents[3];
    for seq in 0..task.src[4].desc.extents[3] {
        let index = first_state(&task.src[7], seq);
        if u64::try_from(index).is_ok_and(|index| index < rows) {
            continue;
        }
        let (op, tensor) = (task.op.name().to_owned(), task.name.to_owned());
        return Err(DeviceError::BadIndex { op, tensor, index, rows });
    }
    Ok(())
}

/// Rows of a token that every value of a head needs.
struct Rows<'a> {
    r: &'a [f32],
    w: &'a [f32],
    k: &'a [f32],
    a: &'a [f32],
    b: &'a [f32],
}

/// For each head and token: `state = state w - (state a) b + v k`, `y = state r`. Values are computed side by side, and
/// sums run along the keys, so nothing depends on how tokens or values are divided.
fn scan(task: &Task, thread: Thread, scratch: &mut [f32]) {
    let [states, r, w, k, v, a, b, ids] = &task.src[..] else { return };
    let [values, keys, heads, _] = states.desc.extents;
    let [_, _, tokens, seqs] = v.desc.extents;
    let n = keys as usize;
    let (block, rest) = scratch.split_at_mut(n * LANES);
    let (block, _) = block.as_chunks_mut::<LANES>();
    let (r_row, rest) = rest.split_at_mut(n);
    let (w_row, rest) = rest.split_at_mut(n);
    let (k_row, rest) = rest.split_at_mut(n);
    let (a_row, rest) = rest.split_at_mut(n);
    let b_row = &mut rest[..n];

    let blocks = values.div_ceil(LANES as u64);
    for unit in thread.part(blocks * heads * seqs) {
        let (first, head) = (unit % blocks * LANES as u64, unit / blocks % heads);
        let seq = unit / blocks / heads;
        let width = (LANES as u64).min(values - first) as usize;
        let from = first_state(ids, seq) as u64;
        for (key, lanes) in (0..).zip(block.iter_mut()) {
            lanes[width..].fill(0.0);
            states.read(task.isa, first, [key, head, from], &mut lanes[..width]);
        }
        let (mut input, mut output) = ([0.0; LANES], [0.0; LANES]);
        for token in 0..tokens {
            let at = [head, token, seq];
            for (source, row) in [(r, &mut *r_row), (k, k_row), (a, a_row), (b, b_row)] {
                source.read(task.isa, 0, at, row);
            }
            match w.desc.extents[0] {
                1 => w_row.fill(w.value(0, at)),
                _ => w.read(task.isa, 0, at, w_row),
            }
            v.read(task.isa, first, at, &mut input[..width]);
            let rows = Rows { r: r_row, w: w_row, k: k_row, a: a_row, b: b_row };
            step(task.isa, block, &rows, &input, &mut output);
            let at = ((seq * tokens + token) * heads + head) * values + first;
            task.dst.write(task.isa, at, [0; 3], &output[..width]);
        }
        for (key, lanes) in (0..).zip(block.iter()) {
            let at = v.desc.elements() + ((seq * heads + head) * keys + key) * values + first;
            task.dst.write(task.isa, at, [0; 3], &lanes[..width]);
        }
    }
}

/// A token's step of a block of values.
fn step(isa: Isa, block: &mut [Lanes], rows: &Rows<'_>, input: &Lanes, output: &mut Lanes) {
    widened(isa, || {
        let mut known = [0.0; LANES];
        for (lanes, a) in block.iter().zip(rows.a) {
            for (sum, state) in known.iter_mut().zip(lanes) {
                *sum += state * a;
            }
        }
        let mut sums = [0.0; LANES];
        let keys = rows.w.iter().zip(rows.b).zip(rows.k).zip(rows.r);
        for (lanes, (((w, b), k), r)) in block.iter_mut().zip(keys) {
            for lane in 0..LANES {
                let next = lanes[lane] * w - known[lane] * b + input[lane] * k;
                lanes[lane] = next;
                sums[lane] += next * r;
            }
        }
        *output = sums;
    });
}
