//! Biases of keys, before caches of quantized types.
//!
//! Some models add biases to keys that are many times as large as what a token adds. What they add is not stored as it is:
//!
//! - Softmax does not change when one vector is subtracted from all keys of a head: all scores of a query move by the same
//!   amount. So the **mean** of the bias, turned by positions ([RoPE](https://arxiv.org/abs/2104.09864)), is subtracted from
//!   turned keys. Little is left of it in pairs of elements that turn slowly.
//! - Scores do not change when elements of keys are multiplied with a **scale** by which those of queries are divided. So
//!   pairs in which much is left are made smaller. The scale is that of the least error, if queries and what a token adds to
//!   keys are of size 1 everywhere: errors of rotated keys are as large as all elements together.

use std::f64::consts::TAU;

use orlop_gguf::GgufFile as File;
use orlop_graph::{DType, Rope, RopeMode, TensorId};

use crate::Error;
use crate::arch::HeadNorms;
use crate::cache_rotation::is_rotated;
use crate::draft::{GraphDraft, WeightContent};
use crate::importance::floats;

/// Positions that the mean is of, at most: those that most texts have. It does not depend on settings, so that saved rows stay
/// valid.
const MOST_POSITIONS: u64 = 4096;

/// The bias of a layer's keys, and how it is turned.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KeyBias {
    /// Its tensor.
    name: String,
    /// Elements of that which are about queries.
    before: u64,
    kv_heads: u64,
    rope: Option<Rope>,
    /// The tensor with factors of RoPE's frequencies.
    factors: Option<String>,
    /// Positions that it is turned by.
    positions: u64,
}

/// What is made of a bias: a row for each head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BiasPart {
    /// What is subtracted from keys.
    Mean,
    /// What keys are multiplied with.
    Scale,
    /// What queries are multiplied with.
    Inverse,
}

impl KeyBias {
    /// A part for heads of some elements.
    pub(crate) fn values(
        &self,
        part: BiasPart,
        file: &File,
        [head, heads]: [u64; 2],
    ) -> Result<Vec<f32>, Error> {
        let length = (head * self.kv_heads) as usize;
        let bias = numbers(file, &self.name)?.into_iter().skip(self.before as usize).take(length);
        let (mut mean, mut scale): (Vec<f32>, _) = (bias.collect(), vec![1.0; length]);
        if let Some(rope) = &self.rope {
            let factors = self.factors.as_deref().map(|name| numbers(file, name)).transpose()?;
            for pair in 0..rope.dims as usize / 2 {
                let factor = factors.as_ref().map_or(1.0, |factors| f64::from(factors[pair]));
                let turn = Turn::mean(rate(rope, pair, factor), self.positions);
                let places = match rope.mode {
                    RopeMode::Normal => [2 * pair, 2 * pair + 1],
                    RopeMode::Neox | RopeMode::Sections(_) => [pair, pair + rope.dims as usize / 2],
                };
                let of_heads =
                    mean.chunks_exact_mut(head as usize).zip(scale.chunks_exact_mut(head as usize));
                for (mean, scale) in of_heads {
                    let bias = places.map(|place| magnitude(rope) * f64::from(mean[place]));
                    let turned = turn.times(bias);
                    // The variance of each element is half of the pair's.
                    let left = (square(bias) - square(turned)).max(0.0) / 2.0;
                    for (place, turned) in places.into_iter().zip(turned) {
                        mean[place] = turned as f32;
                        scale[place] = (1.0 + left).powf(-0.25) as f32;
                    }
                }
            }
        }
        Ok(match part {
            BiasPart::Mean => mean,
            BiasPart::Scale => scale,
            BiasPart::Inverse => {
                let sharing = (heads / self.kv_heads.max(1)) as usize;
                let of_queries = scale.chunks_exact(head as usize).flat_map(|row| [row].repeat(sharing));
                of_queries.flatten().map(|scale| 1.0 / scale).collect()
            }
        })
    }
}

fn square([a, b]: [f64; 2]) -> f64 {
    a * a + b * b
}

fn numbers(file: &File, name: &str) -> Result<Vec<f32>, Error> {
    let tensor = file.tensor(name).ok_or_else(|| Error::MissingTensor(name.to_owned()))?;
    Ok(floats(file.bytes_of(tensor)))
}

/// What a pair of elements is multiplied with, as a complex number.
#[derive(Clone, Copy, Debug)]
struct Turn([f64; 2]);

impl Turn {
    /// The mean over positions of turns by `rate` more at each.
    fn mean(rate: f64, positions: u64) -> Turn {
        let (half, count) = (rate / 2.0, positions as f64);
        let length = if half.sin() == 0.0 { 1.0 } else { (count * half).sin() / (count * half.sin()) };
        let (sin, cos) = ((count - 1.0) * half).sin_cos();
        Turn([length * cos, length * sin])
    }

    fn times(self, [a, b]: [f64; 2]) -> [f64; 2] {
        let [cos, sin] = self.0;
        [a * cos - b * sin, a * sin + b * cos]
    }
}

/// How far a pair turns from one position to the next.
fn rate(rope: &Rope, pair: usize, factor: f64) -> f64 {
    let dims = f64::from(rope.dims);
    let plain = f64::from(rope.freq_base).powf(-2.0 * pair as f64 / dims) / factor;
    let (scale, weight) = (f64::from(rope.freq_scale), f64::from(rope.ext_factor));
    if weight == 0.0 {
        return scale * plain;
    }
    // YaRN: fast pairs turn as they are, slow ones are interpolated.
    let pair_with = |turns: f32| {
        let length = f64::from(rope.original_context) / (f64::from(turns) * TAU);
        dims * length.ln() / (2.0 * f64::from(rope.freq_base).ln())
    };
    let low = pair_with(rope.beta_fast).floor().max(0.0);
    let high = pair_with(rope.beta_slow).ceil().min(dims - 1.0);
    let fallen = ((pair as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
    let mix = (1.0 - fallen) * weight;
    plain * (scale * (1.0 - mix) + mix)
}

/// The factor of all magnitudes.
fn magnitude(rope: &Rope) -> f64 {
    let stretched = if rope.ext_factor == 0.0 { 1.0 } else { 1.0 / f64::from(rope.freq_scale) };
    f64::from(rope.attn_factor) * (1.0 + 0.1 * stretched.ln())
}

impl GraphDraft<'_> {
    /// Turned keys as the cache of keys holds them.
    pub(crate) fn keys_to_cache(&mut self, k: TensorId) -> TensorId {
        let balanced = self.balanced_keys(k);
        self.rotated(balanced, self.spec.cache.k)
    }

    /// Turned queries as they meet these keys.
    pub(crate) fn queries_to_cache(&mut self, q: TensorId) -> TensorId {
        let balanced = self.balanced_queries(q);
        self.rotated(balanced, self.spec.cache.k)
    }

    /// Keys without the mean of their bias, and scaled.
    fn balanced_keys(&mut self, k: TensorId) -> TensorId {
        let Some(mean) = self.part_of_bias(BiasPart::Mean, k) else { return k };
        let k = self.b.sub(k, mean);
        match self.part_of_bias(BiasPart::Scale, k) {
            Some(scale) => self.b.mul(k, scale),
            None => k,
        }
    }

    /// Queries that meet these keys.
    fn balanced_queries(&mut self, q: TensorId) -> TensorId {
        match self.part_of_bias(BiasPart::Inverse, q) {
            Some(inverse) => self.b.mul(q, inverse),
            None => q,
        }
    }

    /// A part of the bias of the keys that this layer attends to, for heads of `x`.
    fn part_of_bias(&mut self, part: BiasPart, x: TensorId) -> Option<TensorId> {
        let layer = self.sizes().shares.unwrap_or(self.layer);
        let bias = self.key_bias(layer)?;
        // Without turns nothing is left.
        if part != BiasPart::Mean && bias.rope.is_none() {
            return None;
        }
        let [head, heads, ..] = self.b.desc(x).extents;
        let name = match part {
            BiasPart::Mean => format!("cache.mean.{layer}"),
            BiasPart::Scale => format!("cache.scale.{layer}"),
            BiasPart::Inverse => format!("cache.inverse.{layer}"),
        };
        let content = WeightContent::KeyBias(Box::new(bias), part);
        Some(self.made(&name, (DType::F32, &[head, heads]), self.cache_device(), content))
    }

    /// `None` where there is no bias, where it is normed with the keys, and where scores are more than the input of a softmax.
    fn key_bias(&self, layer: usize) -> Option<KeyBias> {
        let named = |part: &str| format!("blk.{layer}.{part}");
        let normed =
            self.has(&named("attn_k_norm.weight")) || self.facts.head_norms == HeadNorms::TurnedWithoutWeight;
        let counted = self.config.attention_cap.is_some() || self.has(&named("attn_sinks.weight"));
        if !is_rotated(self.spec.cache.k) || normed || counted {
            return None;
        }
        let is_bias =
            |name: &String| self.spec.file.tensor(name).is_some_and(|bias| bias.desc.dtype == DType::F32);
        let sizes = self.config.layers[layer];
        let (name, before) = match Some(named("attn_k.bias")).filter(is_bias) {
            Some(own) => (own, 0),
            None => (Some(named("attn_qkv.bias")).filter(is_bias)?, self.query() * sizes.heads),
        };
        let factors = self.weights.iter().find(|weight| Some(weight.leaf) == self.turning_factors());
        Some(KeyBias {
            name,
            before,
            kv_heads: sizes.kv_heads,
            rope: sizes.rope,
            factors: factors.map(|weight| weight.source.clone()),
            positions: self.config.context.clamp(1, MOST_POSITIONS),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sum in closed form, for pairs that turn often, seldom and not at all.
    #[test]
    fn the_mean_of_turns_is_that_of_each_position() {
        for (rate, positions) in [(1.0, 7), (0.3, 512), (1e-6, 32_768), (0.0, 5), (TAU, 9), (2.0, 1)] {
            let each = (0..positions).map(|position| (position as f64 * rate).sin_cos());
            let (sin, cos) = each.fold((0.0, 0.0), |sum, (sin, cos)| (sum.0 + sin, sum.1 + cos));
            let Turn([x, y]) = Turn::mean(rate, positions);
            let count = positions as f64;
            assert!((x - cos / count).abs() < 1e-9 && (y - sin / count).abs() < 1e-9, "{rate} {positions}");
        }
    }
}
