use orlop_graph::Op;

use super::{Task, row_coordinates};
use crate::wgsl::{Kernel, WORKGROUP, Writer};

pub(super) fn build(task: &Task<'_>) -> Kernel {
    let mut writer = Writer::new().with_subgroups(task.subgroups);
    let x = task.inputs[0].desc;
    writer.read("x", &task.inputs[0]).write("y", &task.output).number("elements", x.elements());
    match task.op {
        Op::CumSum => {
            let body = format!(
                "{}  let source = x_row(j, k, l);
  let to = y_row(j, k, l);
  var sum = 0.0;
  for (var i = 0u; i < p.x_n0; i++) {{ sum += x_at(source, i); y_put(to, i, sum); }}
",
                row_coordinates("x")
            );
            writer.each(x.rows(), &body)
        }
        Op::Sum => {
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
            writer.each_group(1, &body)
        }
        _ => {
            let divided = if matches!(task.op, Op::Mean) { " / f32(p.x_n0)" } else { "" };
            let body = format!(
                "{}  let row = x_row(j, k, l);
  var sum = 0.0;
  for (var i = lane; i < p.x_n0; i += {WORKGROUP}u) {{ sum += x_at(row, i); }}
  sum = total(sum);
  if (lane == 0u) {{ y_put(y_row(j, k, l), 0u, sum{divided}); }}
",
                row_coordinates("x")
            );
            writer.each_group(x.rows(), &body)
        }
    }
}
