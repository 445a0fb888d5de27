//! Normalization of rows and of groups of channels.

use super::{Task, row_coordinates};
use crate::wgsl::{Kernel, WORKGROUP, Writer, float_bits};

/// The divisor of rows.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Mean,
    RootMeanSquare,
    Length,
}

pub(super) fn rows(task: &Task<'_>, kind: Kind, eps: f32) -> Kernel {
    let mut writer = Writer::new().with_subgroups(task.subgroups);
    writer.read("x", &task.inputs[0]).write("y", &task.output).float("eps", eps);
    let eps = float_bits("eps");
    let mean = match kind {
        Kind::Mean => format!(
            "  var sum = 0.0;
  for (var i = lane; i < p.x_n0; i += {WORKGROUP}u) {{ sum += x_at(source, i); }}
  let mean = total(sum) / f32(p.x_n0);
"
        ),
        _ => "  let mean = 0.0;\n".to_owned(),
    };
    let divisor = match kind {
        Kind::Length => format!("max(sqrt(squares), {eps})"),
        _ => format!("sqrt(squares / f32(p.x_n0) + {eps})"),
    };
    let body = format!(
        "{}  let source = x_row(j, k, l);
  let to = y_row(j, k, l);
{mean}  var own = 0.0;
  for (var i = lane; i < p.x_n0; i += {WORKGROUP}u) {{ let v = x_at(source, i) - mean; own += v * v; }}
  let squares = total(own);
  let divisor = {divisor};
  for (var i = lane; i < p.x_n0; i += {WORKGROUP}u) {{ y_put(to, i, (x_at(source, i) - mean) / divisor); }}
",
        row_coordinates("x")
    );
    writer.each_group(task.output.desc.rows(), &body)
}

/// Groups of channels of one image each; the last ones may be smaller or empty.
pub(super) fn groups(task: &Task<'_>, groups: u32, eps: f32) -> Kernel {
    let mut writer = Writer::new().with_subgroups(task.subgroups);
    let [_, _, channels, pictures] = task.output.desc.extents;
    let each = channels.div_ceil(u64::from(groups)).max(1);
    let used = channels.div_ceil(each);
    writer.read("x", &task.inputs[0]).write("y", &task.output).float("eps", eps);
    writer.number("each", each).number("used", used);
    writer.function(
        "fn x_of(n: u32, first: u32, l: u32) -> f32 {
  let i1 = n / p.x_n0;
  return x_at(x_row(i1 % p.x_n1, first + i1 / p.x_n1, l), n % p.x_n0);
}",
    );
    let each_one = format!("for (var n = lane; n < size; n += {WORKGROUP}u)");
    let body = format!(
        "  let first = (index % p.used) * p.each;
  let l = index / p.used;
  let size = min(p.each, p.x_n2 - first) * p.x_n0 * p.x_n1;
  var sum = 0.0;
  {each_one} {{ sum += x_of(n, first, l); }}
  let mean = total(sum) / f32(size);
  var own = 0.0;
  {each_one} {{ let v = x_of(n, first, l) - mean; own += v * v; }}
  let deviation = sqrt(total(own) / f32(size) + {});
  {each_one} {{
    let i1 = n / p.x_n0;
    y_put(y_row(i1 % p.x_n1, first + i1 / p.x_n1, l), n % p.x_n0, (x_of(n, first, l) - mean) / deviation);
  }}
",
        float_bits("eps")
    );
    writer.each_group(used * pictures, &body)
}
