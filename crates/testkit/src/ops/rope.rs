//! Rotary position embedding, with YaRN.

use std::f64::consts::PI;

use orlop_graph::{Rope, RopeMode};

use super::coordinates::outer;
use crate::Elements;

pub(super) fn rope(
    params: &Rope,
    x: &Elements,
    positions: &Elements,
    factors: Option<&Elements>,
) -> Vec<f64> {
    let pairs = params.dims as usize / 2;
    let [length, heads, tokens, batches] = x.extents();
    let yarn = Yarn::new(params);
    let mut result = x.values().to_vec();
    let mut rows = result.chunks_exact_mut(length);
    for [_, token, _] in outer([heads, tokens, batches]) {
        let Some(row) = rows.next() else { break };
        for pair in 0..pairs {
            let position = positions.values()[stream(params.mode, pair) * tokens + token];
            let frequency = f64::from(params.freq_base).powf(-2.0 * pair as f64 / f64::from(params.dims));
            let factor = factors.map_or(1.0, |factors| factors.values()[pair]);
            let (sin, cos) = yarn.angle(pair, position * frequency / factor).sin_cos();
            let (first, second) = match params.mode {
                RopeMode::Normal => (2 * pair, 2 * pair + 1),
                RopeMode::Neox | RopeMode::Sections(_) => (pair, pair + pairs),
            };
            let (a, b) = (row[first], row[second]);
            row[first] = (a * cos - b * sin) * yarn.magnitude;
            row[second] = (a * sin + b * cos) * yarn.magnitude;
        }
    }
    result
}

/// Which of the position streams turns a pair. Sections repeat if they are fewer than the pairs.
fn stream(mode: RopeMode, pair: usize) -> usize {
    let RopeMode::Sections(sections) = mode else { return 0 };
    let total: usize = sections.iter().map(|size| *size as usize).sum();
    let mut place = pair % total.max(1);
    for (stream, size) in sections.into_iter().take(3).enumerate() {
        if place < size as usize {
            return stream;
        }
        place -= size as usize;
    }
    3
}

/// Angles between interpolated (slow pairs) and as they are (fast pairs).
struct Yarn {
    scale: f64,
    weight: f64,
    /// Pairs from which the weight of the plain angle falls, and at which it has reached 0.
    ramp: [f64; 2],
    magnitude: f64,
}

impl Yarn {
    fn new(params: &Rope) -> Yarn {
        let scale = f64::from(params.freq_scale);
        let weight = f64::from(params.ext_factor);
        let dims = f64::from(params.dims);
        let turns_at = |rotations: f32| {
            let length = f64::from(params.original_context) / (f64::from(rotations) * 2.0 * PI);
            dims * length.ln() / (2.0 * f64::from(params.freq_base).ln())
        };
        let low = turns_at(params.beta_fast).floor().max(0.0);
        let high = turns_at(params.beta_slow).ceil().min(dims - 1.0);
        let correction = if weight == 0.0 { 1.0 } else { 1.0 + 0.1 * (1.0 / scale).ln() };
        Yarn { scale, weight, ramp: [low, high], magnitude: f64::from(params.attn_factor) * correction }
    }

    fn angle(&self, pair: usize, plain: f64) -> f64 {
        let interpolated = self.scale * plain;
        if self.weight == 0.0 {
            return interpolated;
        }
        let [low, high] = self.ramp;
        // The least width keeps a ramp of one step finite.
        let fallen = ((pair as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
        let mix = (1.0 - fallen) * self.weight;
        interpolated * (1.0 - mix) + plain * mix
    }
}
