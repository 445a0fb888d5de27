//! Rows of tables, read and written by index.

use orlop_backend::Reason;
use orlop_graph::{DType, Op, TensorDesc};

use super::{Task, coordinates, row_coordinates};
use crate::wgsl::{Kernel, WORKGROUP, Writer, can_encode, can_read, can_write};

pub(super) fn accepts(op: &Op, inputs: &[TensorDesc]) -> Result<(), Reason> {
    let refused = |operand: usize| Err(Reason::DType { operand, dtype: inputs[operand].dtype });
    let table = inputs[0].dtype;
    match op {
        Op::GetRows if !can_read(table) && table != DType::I32 => refused(0),
        Op::SetRows if !can_read(inputs[1].dtype) => refused(1),
        Op::SetRows if table == DType::I32 || !can_write(table) && !can_encode(table) => refused(0),
        _ => Ok(()),
    }
}

pub(super) fn get(task: &Task<'_>) -> Kernel {
    let mut writer = Writer::new();
    writer.read("x", &task.inputs[0]).read("n", &task.inputs[1]).write("y", &task.output);
    let (from, to) = ("  let source = x_row(number, k, l);\n", "  let to = y_row(j, k, l);\n");
    // An index out of range is reported by its check; clamp it here.
    let number = "  let number = min(u32(max(n_int(n_row(k, l, 0u), j), 0)), p.x_n1 - 1u);\n";
    let value = match task.inputs[0].desc.dtype {
        DType::I32 => "  y_set4(to + i * p.y_s0, x_raw4(source + i * p.x_s0));\n",
        _ => "  y_put(to, i, x_at(source, i));\n",
    };
    writer.each(task.output.desc.elements(), &format!("{}{number}{from}{to}{value}", coordinates("y")))
}

/// One workgroup per row. Of rows with equal indices, the last one is written.
pub(super) fn set(task: &Task<'_>) -> Kernel {
    let (into, rows) = (&task.inputs[0], &task.inputs[1]);
    let mut writer = Writer::new();
    writer.read("x", rows).read("n", &task.inputs[2]).read("s", &task.status).write("y", into);
    writer.global("var<workgroup> later: atomic<u32>;");
    let dtype = into.desc.dtype;
    let [_, s1, s2, s3] = into.desc.strides;
    let halves = dtype.block_bytes() == 2;
    let whole_words = [into.offset, s1, s2, s3].iter().all(|bytes| bytes.is_multiple_of(4));
    let pairs =
        halves && into.desc.rows_are_contiguous() && whole_words && into.desc.extents[0].is_multiple_of(2);
    let store = if dtype.is_quantized() {
        format!(
            "  for (var b = lane; b < p.y_n0 / 32u; b += {WORKGROUP}u) {{
    for (var e = 0u; e < 32u; e++) {{ block[e] = x_at(source, b * 32u + e); }}
    y_encode(to + b * p.y_s0);
  }}
"
        )
    } else if pairs {
        writer.atomic(false);
        format!(
            "  for (var i = 2u * lane; i < p.y_n0; i += {}u) {{ y_put_pair(to + 2u * i, x_at(source, i), x_at(source, i + 1u)); }}
",
            2 * WORKGROUP
        )
    } else {
        format!("  for (var i = lane; i < p.y_n0; i += {WORKGROUP}u) {{ y_put(to, i, x_at(source, i)); }}\n")
    };
    let body = format!(
        "{}  let numbers = n_row(k % p.n_n1, l % p.n_n2, 0u);
  let number = n_int(numbers, j);
  if (lane == 0u) {{ atomicStore(&later, 0u); }}
  workgroupBarrier();
  for (var other = j + 1u + lane; other < p.x_n1; other += {WORKGROUP}u) {{
    if (n_int(numbers, other) == number) {{ atomicStore(&later, 1u); }}
  }}
  workgroupBarrier();
  if (number < 0 || number >= i32(p.y_n1) || atomicLoad(&later) == 1u || s_raw4(p.s_o) != 0u) {{ return; }}
  let source = x_row(j, k, l);
  let to = y_row(u32(number), k, l);
{store}",
        row_coordinates("x")
    );
    writer.each_group(rows.desc.rows(), &body)
}
