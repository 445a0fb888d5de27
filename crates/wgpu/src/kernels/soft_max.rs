//! Softmax with masks and sinks.

use orlop_graph::SoftMax;

use super::{Task, row_coordinates};
use crate::wgsl::{Kernel, WORKGROUP, Writer};

/// Stands for minus infinity in maxima.
pub(super) const LOWEST: &str = "-3.4028234e38";

pub(super) fn build(task: &Task<'_>, params: &SoftMax) -> Kernel {
    let mut writer = Writer::new().with_subgroups(task.subgroups);
    writer.read("x", &task.inputs[0]);
    if params.mask {
        writer.read("m", &task.inputs[1]);
    }
    if params.sinks {
        writer.read("s", &task.inputs[1 + usize::from(params.mask)]);
    }
    writer.write("y", &task.output).float("scale", params.scale).float("bias", params.max_bias);
    let (masked, row) = if params.mask {
        (
            " + slope * m_at(hidden, i)",
            "  let hidden = m_row(j, k % p.m_n2, l % p.m_n3);\n  let slope = slope(bitcast<f32>(p.bias), p.x_n2, k);\n",
        )
    } else {
        ("", "")
    };
    let score = format!("bitcast<f32>(p.scale) * x_at(source, i){masked}");
    let (sink, own) = if params.sinks {
        ("  most = max(most, s_at(p.s_o, k));\n", " + exp_of(s_at(p.s_o, k) - most)")
    } else {
        ("", "")
    };
    let each = format!("for (var i = lane; i < p.x_n0; i += {WORKGROUP}u)");
    let body = format!(
        "{}  let source = x_row(j, k, l);
  let to = y_row(j, k, l);
{row}  var most = {LOWEST};
  {each} {{ most = max(most, {score}); }}
  most = largest(most);
{sink}  var sum = 0.0;
  {each} {{ sum += exp_of({score} - most); }}
  sum = total(sum){own};
  let none = most <= {LOWEST};
  {each} {{ y_put(to, i, select(exp_of({score} - most) / sum, 0.0, none)); }}
",
        row_coordinates("x")
    );
    writer.each_group(task.output.desc.rows(), &body)
}
