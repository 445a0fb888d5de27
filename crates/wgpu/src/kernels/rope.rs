//! [Rotary position embedding](https://arxiv.org/abs/2104.09864), with [YaRN](https://arxiv.org/abs/2309.00071).

use std::f64::consts::PI;

use orlop_graph::{Rope, RopeMode};

use super::Task;
use crate::wgsl::{Kernel, Writer};

/// An invocation rotates a pair, or copies an element that is not rotated. Frequencies are precomputed because drivers'
/// `pow` is too inexact for large positions.
pub(super) fn build(task: &Task<'_>, params: &Rope) -> Kernel {
    let pairs = u64::from(params.dims) / 2;
    let [length, ..] = task.output.desc.extents;
    let mut writer = Writer::new();
    writer.read("x", &task.inputs[0]).read("q", &task.inputs[1]);
    let factor = match task.inputs.get(2) {
        Some(factors) => {
            writer.read("f", factors);
            " / f_at(p.f_o, unit)"
        }
        None => "",
    };
    writer.write("y", &task.output);
    let (frequencies, magnitude) = frequencies(params);
    writer.number("pairs", pairs).number("units", length - pairs).float("magnitude", magnitude);
    writer.table(frequencies);
    let (first, second) = match params.mode {
        RopeMode::Normal => ("2u * unit", "2u * unit + 1u"),
        RopeMode::Neox | RopeMode::Sections(_) => ("unit", "unit + p.pairs"),
    };
    let stream = match params.mode {
        RopeMode::Sections(sections) => {
            let total: u64 = sections.iter().map(|size| u64::from(*size)).sum();
            writer.number("sections", total);
            let mut end = 0;
            for (number, size) in sections.into_iter().take(3).enumerate() {
                end += u64::from(size);
                writer.number(&format!("end{number}"), end);
            }
            "  let place = unit % p.sections;
  let stream = select(select(select(3u, 2u, place < p.end2), 1u, place < p.end1), 0u, place < p.end0);
"
        }
        _ => "  let stream = 0u;\n",
    };
    let body = format!(
        "  let unit = index % p.units;
  let i1 = index / p.units;
  let j = i1 % p.x_n1;
  let i2 = i1 / p.x_n1;
  let k = i2 % p.x_n2;
  let l = i2 / p.x_n2;
  let source = x_row(j, k, l);
  let to = y_row(j, k, l);
  if (unit >= p.pairs) {{
    y_put(to, unit + p.pairs, x_at(source, unit + p.pairs));
    return;
  }}
{stream}  let n = stream * p.x_n2 + k;
  let q1 = n / p.q_n0;
  let q2 = q1 / p.q_n1;
  let position = f32(q_int(q_row(q1 % p.q_n1, q2 % p.q_n2, q2 / p.q_n2), n % p.q_n0));
  let both = turn(position * table(unit){factor}) * bitcast<f32>(p.magnitude);
  let a = x_at(source, {first});
  let b = x_at(source, {second});
  y_put(to, {first}, a * both.y - b * both.x);
  y_put(to, {second}, a * both.x + b * both.y);
"
    );
    writer.each(task.output.desc.rows() * (length - pairs), &body)
}

/// The frequency of each pair, and the scale of results. YaRN interpolates low frequencies and keeps high ones.
fn frequencies(params: &Rope) -> (Vec<f32>, f32) {
    let (scale, weight) = (f64::from(params.freq_scale), f64::from(params.ext_factor));
    let (base, dims) = (f64::from(params.freq_base), f64::from(params.dims));
    let turns_at = |rotations: f32| {
        let length = f64::from(params.original_context) / (f64::from(rotations) * 2.0 * PI);
        dims * length.ln() / (2.0 * base.ln())
    };
    let low = turns_at(params.beta_fast).floor().max(0.0);
    let high = turns_at(params.beta_slow).ceil().min(dims - 1.0);
    let frequency = |pair: u32| {
        let pair = f64::from(pair);
        let mix = if weight == 0.0 {
            0.0
        } else {
            // The least width keeps a ramp of one step finite.
            (1.0 - ((pair - low) / (high - low).max(0.001)).clamp(0.0, 1.0)) * weight
        };
        (base.powf(-2.0 * pair / dims) * (scale * (1.0 - mix) + mix)) as f32
    };
    let correction = if weight == 0.0 { 1.0 } else { 1.0 + 0.1 * (1.0 / scale).ln() };
    let magnitude = (f64::from(params.attn_factor) * correction) as f32;
    ((0..params.dims / 2).map(frequency).collect(), magnitude)
}
