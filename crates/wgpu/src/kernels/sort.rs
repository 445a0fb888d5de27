//! Indices of sorted elements.

use orlop_backend::Reason;
use orlop_graph::{Op, SortDirection, TensorDesc};

use super::{Task, row_coordinates};
use crate::wgsl::{Kernel, WORKGROUP, Writer, can_read};

/// Maximum row length: the kernel compares every pair of elements.
const LONGEST: u64 = 1 << 14;

pub(super) fn accepts(op: &Op, inputs: &[TensorDesc]) -> Result<(), Reason> {
    if !can_read(inputs[0].dtype) {
        return Err(Reason::DType { operand: 0, dtype: inputs[0].dtype });
    }
    if *op != Op::ArgMax && inputs[0].extents[0] > LONGEST {
        return Err(Reason::Limit { limit: "the row length", value: inputs[0].extents[0], max: LONGEST });
    }
    Ok(())
}

pub(super) fn largest(task: &Task<'_>) -> Kernel {
    let mut writer = Writer::new();
    writer.read("x", &task.inputs[0]).write("y", &task.output);
    writer.global(&format!(
        "var<workgroup> keys: array<u32, {WORKGROUP}>;\nvar<workgroup> numbers: array<u32, {WORKGROUP}>;"
    ));
    let body = format!(
        "{}  let row = x_row(j, k, l);
  var best = 0u;
  var at = 0xffffffffu;
  for (var i = lane; i < p.x_n0; i += {WORKGROUP}u) {{
    let key = order(x_at(row, i));
    if (at == 0xffffffffu || key > best) {{ best = key; at = i; }}
  }}
  keys[lane] = best;
  numbers[lane] = at;
  workgroupBarrier();
  if (lane == 0u) {{
    for (var i = 1u; i < {WORKGROUP}u; i++) {{
      let other = numbers[i];
      if (other != 0xffffffffu && (keys[i] > best || (keys[i] == best && other < at))) {{ best = keys[i]; at = other; }}
    }}
    y_set4(p.y_o + index * 4u, at);
  }}
",
        row_coordinates("x")
    );
    writer.each_group(task.output.desc.elements(), &body)
}

/// An element's rank is the number of elements before it.
pub(super) fn sorted(task: &Task<'_>, direction: SortDirection) -> Kernel {
    let before = match direction {
        SortDirection::Ascending => "<",
        SortDirection::Descending => ">",
    };
    let mut writer = Writer::new();
    writer.read("x", &task.inputs[0]).write("y", &task.output);
    let body = format!(
        "{}  let row = x_row(j, k, l);
  let to = y_row(j, k, l);
  for (var i = lane; i < p.x_n0; i += {WORKGROUP}u) {{
    let key = order(x_at(row, i));
    var place = 0u;
    for (var n = 0u; n < p.x_n0; n++) {{
      let other = order(x_at(row, n));
      if (other {before} key || (other == key && n < i)) {{ place++; }}
    }}
    if (place < p.y_n0) {{ y_set4(to + place * p.y_s0, i); }}
  }}
",
        row_coordinates("x")
    );
    writer.each_group(task.inputs[0].desc.rows(), &body)
}
