//! Sums of rows and of whole tensors.

use super::{Task, row_coordinates};
use crate::wgsl::{Kernel, WORKGROUP, Writer};

fn writer(task: &Task<'_>) -> Writer {
    let mut writer = Writer::new().with_subgroups(task.subgroups);
    let elements = task.inputs[0].desc.elements();
    writer.read("x", &task.inputs[0]).write("y", &task.output).number("elements", elements);
    writer
}

pub(super) fn running_sums(task: &Task<'_>) -> Kernel {
    let body = format!(
        "{}  let source = x_row(j, k, l);
  let to = y_row(j, k, l);
  var sum = 0.0;
  for (var i = 0u; i < p.x_n0; i++) {{ sum += x_at(source, i); y_put(to, i, sum); }}
",
        row_coordinates("x")
    );
    writer(task).each(task.inputs[0].desc.rows(), &body)
}

pub(super) fn sum(task: &Task<'_>) -> Kernel {
    let body = format!(
        "  var sum = 0.0;
  for (var n = lane; n < p.elements; n += {WORKGROUP}u) {{
    let i1 = n / p.x_n0;
    let i2 = i1 / p.x_n1;
    sum += x_at(x_row(i1 % p.x_n1, i2 % p.x_n2, i2 / p.x_n2), n % p.x_n0);
  }}
  sum = total(sum);
  if (lane == 0u) {{ y_put(p.y_o, 0u, sum); }}
"
    );
    writer(task).each_group(1, &body)
}

/// One value per row, made of the row's `sum`.
pub(super) fn rows(task: &Task<'_>, value: &str) -> Kernel {
    let body = format!(
        "{}  let row = x_row(j, k, l);
  var sum = 0.0;
  for (var i = lane; i < p.x_n0; i += {WORKGROUP}u) {{ sum += x_at(row, i); }}
  sum = total(sum);
  if (lane == 0u) {{ y_put(y_row(j, k, l), 0u, {value}); }}
",
        row_coordinates("x")
    );
    writer(task).each_group(task.inputs[0].desc.rows(), &body)
}
