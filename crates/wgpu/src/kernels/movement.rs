//! Copies, conversions and rearrangements.

use orlop_backend::Reason;
use orlop_graph::{DIMS, DType, Op, Patch, TensorDesc};

use super::{Task, coordinates, floats, unit};
use crate::wgsl::{Kernel, Place, Writer, can_encode, can_read, can_write};

pub(super) fn accepts(op: &Op, inputs: &[TensorDesc], output: &TensorDesc) -> Result<(), Reason> {
    let result = inputs.len();
    match op {
        Op::Arange { .. } => Ok(()),
        Op::Set(patch) | Op::Acc(patch) => {
            let word = unit(output.dtype);
            let [s1, s2, s3] = patch.strides;
            if [s1, s2, s3, patch.offset].iter().any(|bytes| !bytes.is_multiple_of(word)) {
                return Err(Reason::Strides { operand: result });
            }
            if matches!(op, Op::Acc(_)) { floats(inputs, output) } else { Ok(()) }
        }
        Op::Cast { .. } | Op::Copy if inputs[0].dtype != output.dtype => {
            let (from, to) = (inputs[0].dtype, output.dtype);
            if !can_read(from) && from != DType::I32 {
                return Err(Reason::DType { operand: 0, dtype: from });
            }
            // Quantized blocks are written as a whole.
            if !(can_write(to) || can_encode(to) && inputs[0].extents[0] == output.extents[0]) {
                return Err(Reason::DType { operand: result, dtype: to });
            }
            Ok(())
        }
        // Reordering elements changes the blocks.
        Op::Copy if output.dtype.is_quantized() && inputs[0].extents != output.extents => {
            Err(Reason::Strides { operand: 1 })
        }
        _ => Ok(()),
    }
}

/// A copy in element order, converted where the types differ.
pub(super) fn copy(from: &Place, to: &Place) -> Vec<Kernel> {
    if from.desc.is_empty() {
        return Vec::new();
    }
    if from.desc.dtype == to.desc.dtype {
        return moved(from, to).into_iter().collect();
    }
    let mut writer = Writer::new();
    writer.read("x", from).write("y", to);
    if can_write(to.desc.dtype) {
        let body =
            match from.desc.is_contiguous() && to.desc.is_contiguous() && !from.desc.dtype.is_quantized() {
                true => "  y_put(p.y_o, index, x_at(p.x_o, index));\n".to_owned(),
                false => {
                    writer.function(
                        "fn value(index: u32) -> f32 {
  let i1 = index / p.x_n0;
  let i2 = i1 / p.x_n1;
  return x_at(x_row(i1 % p.x_n1, i2 % p.x_n2, i2 / p.x_n2), index % p.x_n0);
}",
                    );
                    format!("{}  y_put(y_row(j, k, l), i, value(index));\n", coordinates("y"))
                }
            };
        return vec![writer.each(to.desc.elements(), &body)];
    }
    let blocks = to.desc.elements() / 32;
    let body = "  let b = index % (p.y_n0 / 32u);
  let i1 = index / (p.y_n0 / 32u);
  let j = i1 % p.y_n1;
  let i2 = i1 / p.y_n1;
  let k = i2 % p.y_n2;
  let l = i2 / p.y_n2;
  let e1 = i1 % p.x_n1;
  let e2 = i1 / p.x_n1;
  let row = x_row(e1, e2 % p.x_n2, e2 / p.x_n2);
  for (var e = 0u; e < 32u; e++) { block[e] = x_at(row, b * 32u + e); }
  y_encode(y_row(j, k, l) + b * p.y_s0);
";
    vec![writer.each(blocks, body)]
}

/// The same number in element order.
const ORDER: &str = "  let inside = true;
  let si = number % p.x_n0;
  let s1 = number / p.x_n0;
  let sj = s1 % p.x_n1;
  let s2 = s1 / p.x_n1;
  let sk = s2 % p.x_n2;
  let sl = s2 / p.x_n2;
";

/// Copies blocks without conversion, in element order. None if source and destination are equal.
fn moved(from: &Place, to: &Place) -> Option<Kernel> {
    let in_place = from.buffer == to.buffer && from.offset == to.offset && from.desc == to.desc;
    (!in_place).then(|| moved_by(from, to, ORDER, |_| {}))
}

/// Copies blocks without conversion; `origin` is WGSL that computes `si, sj, sk, sl` and `inside` from `i, j, k, l` or
/// `number`.
fn moved_by(from: &Place, to: &Place, origin: &str, more: impl FnOnce(&mut Writer)) -> Kernel {
    let dtype = to.desc.dtype;
    let unit = unit(dtype);
    let units = dtype.block_bytes() / unit;
    // Extents in blocks.
    let blocks = |place: &Place| {
        let mut desc = place.desc;
        desc.extents[0] /= dtype.block_elements();
        Place { desc, ..*place }
    };
    let mut writer = Writer::new();
    writer.read("x", &blocks(from)).write("y", &blocks(to)).number("units", units);
    more(&mut writer);
    let body = format!(
        "  let part = index % p.units;
  let number = index / p.units;
{}{origin}  let to = y_row(j, k, l) + i * p.y_s0 + part * {unit}u;
  var v = 0u;
  if (inside) {{ v = x_raw{unit}(x_row(sj, sk, sl) + si * p.x_s0 + part * {unit}u); }}
  y_set{unit}(to, v);
",
        coordinates("y").replace("index", "number")
    );
    writer.each(to.desc.elements() / dtype.block_elements() * units, &body)
}

pub(super) fn repeat(task: &Task<'_>) -> Kernel {
    let text = "  let inside = true;
  let si = i % p.x_n0;
  let sj = j % p.x_n1;
  let sk = k % p.x_n2;
  let sl = l % p.x_n3;
";
    moved_by(&task.inputs[0], &task.output, text, |_| {})
}

pub(super) fn pad(task: &Task<'_>, before: &[u64; DIMS]) -> Kernel {
    let text = "  let si = i - p.before0;
  let sj = j - p.before1;
  let sk = k - p.before2;
  let sl = l - p.before3;
  let inside = si < p.x_n0 && sj < p.x_n1 && sk < p.x_n2 && sl < p.x_n3;
";
    moved_by(&task.inputs[0], &task.output, text, |writer| {
        for (dim, count) in before.iter().enumerate() {
            writer.number(&format!("before{dim}"), *count);
        }
    })
}

pub(super) fn roll(task: &Task<'_>, shifts: &[i64; DIMS]) -> Kernel {
    let text = "  let inside = true;
  let si = (i + p.shift0) % p.x_n0;
  let sj = (j + p.shift1) % p.x_n1;
  let sk = (k + p.shift2) % p.x_n2;
  let sl = (l + p.shift3) % p.x_n3;
";
    let extents = task.output.desc.extents;
    moved_by(&task.inputs[0], &task.output, text, |writer| {
        for (dim, shift) in shifts.iter().enumerate() {
            let back = (-i128::from(*shift)).rem_euclid(i128::from(extents[dim].max(1)));
            writer.number(&format!("shift{dim}"), back as u64);
        }
    })
}

pub(super) fn concat(task: &Task<'_>, axis: usize) -> Vec<Kernel> {
    let dtype = task.output.desc.dtype;
    let mut start = 0;
    let mut kernels = Vec::new();
    for part in &task.inputs {
        let step = if axis == 0 { dtype.block_elements() } else { 1 };
        let desc = TensorDesc { extents: part.desc.extents, ..task.output.desc };
        let offset = task.output.offset + start / step * task.output.desc.strides[axis];
        if !part.desc.is_empty() {
            kernels.extend(moved(part, &Place { offset, desc, ..task.output }));
        }
        start += part.desc.extents[axis];
    }
    kernels
}

/// The region of the result that a patch covers.
fn region(task: &Task<'_>, patch: &Patch) -> Place {
    let [s1, s2, s3] = patch.strides;
    let dtype = task.output.desc.dtype;
    let desc = TensorDesc {
        dtype,
        extents: task.inputs[1].desc.extents,
        strides: [dtype.block_bytes(), s1, s2, s3],
    };
    Place { offset: task.output.offset + patch.offset, desc, ..task.output }
}

pub(super) fn set(task: &Task<'_>, patch: &Patch) -> Vec<Kernel> {
    let mut kernels = copy(&task.inputs[0], &task.output);
    if !task.inputs[1].desc.is_empty() {
        kernels.extend(moved(&task.inputs[1], &region(task, patch)));
    }
    kernels
}

pub(super) fn accumulate(task: &Task<'_>, patch: &Patch) -> Vec<Kernel> {
    let mut kernels = copy(&task.inputs[0], &task.output);
    if !task.inputs[1].desc.is_empty() {
        let mut writer = Writer::new();
        writer.read("x", &task.inputs[1]).write("y", &region(task, patch));
        let body = format!(
            "{}  let row = y_row(j, k, l);\n  y_put(row, i, y_at(row, i) + x_at(x_row(j, k, l), i));\n",
            coordinates("y")
        );
        kernels.push(writer.each(task.inputs[1].desc.elements(), &body));
    }
    kernels
}

pub(super) fn arange(task: &Task<'_>, start: f32, step: f32) -> Kernel {
    let mut writer = Writer::new();
    writer.write("y", &task.output).float("start", start).float("step", step);
    writer.each(
        task.output.desc.elements(),
        "  y_put(p.y_o, index, bitcast<f32>(p.start) + bitcast<f32>(p.step) * f32(index));\n",
    )
}
