//! Pooling, upscaling and timestep embedding.

use orlop_backend::Reason;
use orlop_graph::{Interpolation, Pool, PoolKind, TensorDesc};

use super::{Task, coordinates};
use crate::wgsl::{Kernel, Writer};

pub(super) fn pool(task: &Task<'_>, pool: &Pool, two_d: bool) -> Kernel {
    let mut writer = Writer::new();
    writer.read("x", &task.inputs[0]).write("y", &task.output).float("none", f32::NEG_INFINITY);
    for dim in 0..2 {
        let flat = dim == 1 && !two_d;
        // Rows of one-dimensional pooling are windows of one row each.
        let values = if flat { [1, 1, 0] } else { [pool.kernel[dim], pool.stride[dim], pool.padding[dim]] };
        for (name, value) in ["kernel", "stride", "padding"].into_iter().zip(values) {
            writer.number(&format!("{name}{dim}"), value.into());
        }
    }
    let (first, each, last) = match pool.kind {
        PoolKind::Max => ("bitcast<f32>(p.none)", "result = max(result, v);", "result"),
        PoolKind::Mean => ("0.0", "result += v;", "result / f32(p.kernel0 * p.kernel1)"),
    };
    let body = format!(
        "{}  var result = {first};
  for (var m = 0u; m < p.kernel1; m++) {{
    let y = j * p.stride1 + m - p.padding1;
    if (y >= p.x_n1) {{ continue; }}
    for (var n = 0u; n < p.kernel0; n++) {{
      let x = i * p.stride0 + n - p.padding0;
      if (x < p.x_n0) {{ let v = x_at(x_row(y, k, l), x); {each} }}
    }}
  }}
  y_put(y_row(j, k, l), i, {last});
",
        coordinates("y")
    );
    writer.each(task.output.desc.elements(), &body)
}

/// Rejects products of positions and extents beyond 32 bits.
pub(super) fn accepts(mode: Interpolation, x: &TensorDesc, y: &TensorDesc) -> Result<(), Reason> {
    let first = if mode == Interpolation::Nearest { 0 } else { 2 };
    let largest = |dim: usize| x.extents[dim].saturating_mul(y.extents[dim].saturating_sub(1));
    let (value, max) = ((first..4).map(largest).max().unwrap_or(0), u64::from(u32::MAX));
    if value <= max { Ok(()) } else { Err(Reason::Limit { limit: "a position times an extent", value, max }) }
}

pub(super) fn upscale(task: &Task<'_>, mode: Interpolation) -> Kernel {
    let mut writer = Writer::new();
    writer.read("x", &task.inputs[0]).write("y", &task.output);
    let value = match mode {
        Interpolation::Nearest => {
            "  y_put(y_row(j, k, l), i, x_at(x_row(j * p.x_n1 / p.y_n1, k * p.x_n2 / p.y_n2, l * p.x_n3 / p.y_n3), i * p.x_n0 / p.y_n0));\n"
        }
        Interpolation::Bilinear => {
            // The two neighbouring elements, and the interpolation weight of the second.
            writer.function(
                "fn between(at: u32, whole: u32, wanted: u32) -> vec3<f32> {
  let position = (f32(at) + 0.5) * f32(whole) / f32(wanted) - 0.5;
  if (position <= 0.0) { return vec3<f32>(); }
  let last = f32(whole - 1u);
  let first = min(floor(position), last);
  return vec3<f32>(first, min(first + 1.0, last), min(position - first, 1.0));
}",
            );
            "  let h = between(i, p.x_n0, p.y_n0);
  let v = between(j, p.x_n1, p.y_n1);
  let c = k * p.x_n2 / p.y_n2;
  let d = l * p.x_n3 / p.y_n3;
  let above = x_row(u32(v.x), c, d);
  let below = x_row(u32(v.y), c, d);
  let a = x_at(above, u32(h.x)) * (1.0 - h.z) + x_at(above, u32(h.y)) * h.z;
  let b = x_at(below, u32(h.x)) * (1.0 - h.z) + x_at(below, u32(h.y)) * h.z;
  y_put(y_row(j, k, l), i, a * (1.0 - v.z) + b * v.z);
"
        }
    };
    writer.each(task.output.desc.elements(), &format!("{}{value}", coordinates("y")))
}

pub(super) fn timesteps(task: &Task<'_>, dim: u32, max_period: u32) -> Kernel {
    let half = dim / 2;
    let slowest = f64::from(max_period).ln();
    let frequency = |at: u32| (-slowest * f64::from(at) / f64::from(half)).exp() as f32;
    let mut writer = Writer::new();
    writer.read("x", &task.inputs[0]).write("y", &task.output).number("half", half.into());
    writer.table((0..half.max(1)).map(frequency).collect());
    let body = format!(
        "{}  let time = x_at(p.x_o, j);
  var v = 0.0;
  if (i < p.half) {{ v = turn(time * table(i)).y; }} else if (i < 2u * p.half) {{ v = turn(time * table(i - p.half)).x; }}
  y_put(y_row(j, k, l), i, v);
",
        coordinates("y")
    );
    writer.each(task.output.desc.elements(), &body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use orlop_graph::DType;

    #[test]
    fn pictures_whose_places_do_not_fit_are_refused() {
        let line = |width: u64| TensorDesc::contiguous(DType::F32, &[width]).unwrap();
        let takes = |mode, from, to| accepts(mode, &line(from), &line(to)).is_ok();
        assert!(takes(Interpolation::Nearest, 32_000, 128_000));
        assert!(!takes(Interpolation::Nearest, 66_000, 132_000));
        assert!(takes(Interpolation::Bilinear, 66_000, 132_000));
    }
}
