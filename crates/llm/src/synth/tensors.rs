//! The tensors of a random model: names and extents as files of its architecture have them.

use orlop_graph::DType;

use super::Synth;
use crate::StateSpace;
use crate::arch::{AttentionGate, Facts, HeadNorms, LayerNorms, Positions};
use crate::draft::FeedForward;

/// A tensor of normally distributed values.
#[derive(Clone, Debug, PartialEq)]
pub struct SynthTensor {
    /// Its name.
    pub name: String,
    /// Its extents, the row first.
    pub extents: Vec<u64>,
    /// Where its values lie.
    pub mean: f32,
    /// How far they lie apart; 0 makes all of them the same.
    pub deviation: f32,
}

impl SynthTensor {
    /// The matrices of a product, whose rows are multiplied with what comes in. They lie around 0, and keep the size
    /// of values that lie around 1.
    pub fn matrix(name: impl Into<String>, extents: &[u64]) -> SynthTensor {
        let row = extents.first().copied().unwrap_or(1).max(1);
        SynthTensor {
            name: name.into(),
            extents: extents.to_vec(),
            mean: 0.0,
            deviation: 1.0 / (row as f32).sqrt(),
        }
    }

    /// Factors behind a norm.
    pub fn norm(name: impl Into<String>, elements: u64, deviation: f32) -> SynthTensor {
        SynthTensor { name: name.into(), extents: vec![elements], mean: 1.0, deviation }
    }

    /// What is added behind a product.
    pub fn bias(name: impl Into<String>, elements: u64) -> SynthTensor {
        SynthTensor { name: name.into(), extents: vec![elements], mean: 0.0, deviation: 0.1 }
    }

    /// How many values it has.
    pub(super) fn elements(&self) -> Option<u64> {
        self.extents.iter().try_fold(1u64, |product, extent| product.checked_mul(*extent))
    }

    /// Bytes of all values, if they are whole blocks.
    pub(super) fn bytes(&self, dtype: DType) -> Option<u64> {
        dtype.row_bytes(self.elements()?)
    }
}

impl Synth {
    /// What the dimensions ask for, and what was added.
    pub(super) fn all_tensors(&self) -> Vec<SynthTensor> {
        let mut tensors = vec![
            SynthTensor::matrix("token_embd.weight", &[self.width, self.vocabulary]),
            SynthTensor::norm(
                format!("{}.weight", self.architecture.facts().output_norm),
                self.width,
                self.norm_deviation,
            ),
        ];
        if !self.tied {
            tensors.push(SynthTensor::matrix("output.weight", &[self.width, self.vocabulary]));
        }
        let facts = self.architecture.facts();
        if facts.biased {
            tensors.push(SynthTensor::bias("output_norm.bias", self.width));
        }
        if facts.positions == Positions::Embedded {
            tensors.push(SynthTensor::matrix("position_embd.weight", &[self.width, self.context]));
        }
        for layer in 0..self.layers {
            match &self.state_space {
                Some(sizes) => self.state_space(layer, sizes, &mut tensors),
                None => {
                    self.attention(layer, facts, &mut tensors);
                    self.feed_forward(layer, facts, &mut tensors);
                }
            }
        }
        for added in &self.tensors {
            match tensors.iter_mut().find(|tensor| tensor.name == added.name) {
                Some(tensor) => *tensor = added.clone(),
                None => tensors.push(added.clone()),
            }
        }
        tensors
    }

    fn attention(&self, layer: u64, facts: &Facts, tensors: &mut Vec<SynthTensor>) {
        let name = |part: &str| format!("blk.{layer}.{part}");
        let [queries, keys] = [self.heads, self.kv_heads].map(|heads| heads.saturating_mul(self.key));
        let [values, attended] = [self.kv_heads, self.heads].map(|heads| heads.saturating_mul(self.value));
        let LayerNorms { mixer, mixed, feed, fed } = facts.norms;
        for part in [mixer, mixed, feed, fed].into_iter().flatten() {
            tensors.push(SynthTensor::norm(name(&format!("{part}.weight")), self.width, self.norm_deviation));
            if facts.biased {
                tensors.push(SynthTensor::bias(name(&format!("{part}.bias")), self.width));
            }
        }
        let parts = match facts.fused_qkv {
            true => vec![("attn_qkv", queries.saturating_add(keys).saturating_add(values))],
            false => vec![("attn_q", queries), ("attn_k", keys), ("attn_v", values)],
        };
        for (part, elements) in parts {
            tensors.push(SynthTensor::matrix(name(&format!("{part}.weight")), &[self.width, elements]));
            if self.biases {
                tensors.push(SynthTensor::bias(name(&format!("{part}.bias")), elements));
            }
        }
        if facts.biased {
            tensors.push(SynthTensor::bias(name("attn_output.bias"), self.width));
        }
        for (part, heads) in [("attn_q_norm.weight", self.heads), ("attn_k_norm.weight", self.kv_heads)] {
            let extents = match facts.head_norms {
                HeadNorms::Nothing | HeadNorms::TurnedWithoutWeight => continue,
                HeadNorms::Whole | HeadNorms::WholeIfThere => vec![self.key.saturating_mul(heads)],
                HeadNorms::OwnWeights => vec![self.key, heads],
                HeadNorms::Each | HeadNorms::EachIfThere | HeadNorms::AfterRope => vec![self.key],
            };
            if self.head_norms {
                let deviation = self.norm_deviation;
                tensors.push(SynthTensor { name: name(part), extents, mean: 1.0, deviation });
            }
        }
        if facts.attention_gate == AttentionGate::Matrix {
            tensors.push(SynthTensor::matrix(name("attn_gate.weight"), &[self.width, attended]));
        }
        tensors.push(SynthTensor::matrix(name("attn_output.weight"), &[attended, self.width]));
    }

    fn feed_forward(&self, layer: u64, facts: &Facts, tensors: &mut Vec<SynthTensor>) {
        let name = |part: &str| format!("blk.{layer}.{part}.weight");
        let (width, hidden) = (self.width, self.hidden);
        match self.experts {
            None => {
                if facts.biased {
                    tensors.push(SynthTensor::bias(format!("blk.{layer}.ffn_up.bias"), hidden));
                    tensors.push(SynthTensor::bias(format!("blk.{layer}.ffn_down.bias"), width));
                }
                let up = match facts.feed_forward {
                    FeedForward::Plain(_) | FeedForward::Squared(_) => hidden,
                    FeedForward::Fused(_) => hidden.saturating_mul(2),
                    FeedForward::Gated(_) | FeedForward::ByFile(..) => {
                        tensors.push(SynthTensor::matrix(name("ffn_gate"), &[width, hidden]));
                        hidden
                    }
                };
                tensors.push(SynthTensor::matrix(name("ffn_up"), &[width, up]));
                tensors.push(SynthTensor::matrix(name("ffn_down"), &[hidden, width]));
            }
            Some(experts) => {
                let matrix = |part: &str, extents: [u64; 3]| SynthTensor::matrix(name(part), &extents);
                tensors.push(SynthTensor::matrix(name("ffn_gate_inp"), &[width, experts.count]));
                if !matches!(facts.feed_forward, FeedForward::Plain(_) | FeedForward::Squared(_)) {
                    tensors.push(matrix("ffn_gate_exps", [width, experts.hidden, experts.count]));
                }
                tensors.push(matrix("ffn_up_exps", [width, experts.hidden, experts.count]));
                tensors.push(matrix("ffn_down_exps", [experts.hidden, width, experts.count]));
            }
        }
    }

    fn state_space(&self, layer: u64, sizes: &StateSpace, tensors: &mut Vec<SynthTensor>) {
        let StateSpace { kernel, inner, heads, groups, .. } = *sizes;
        let name = |part: &str| format!("blk.{layer}.{part}");
        let mixed = sizes.mixed();
        let all = inner.saturating_add(mixed).saturating_add(heads);
        // Steps and decays of such a size that a state forgets within some tens of tokens.
        let around = |part: &str, extents: &[u64], mean: f32, deviation: f32| SynthTensor {
            name: name(part),
            extents: extents.to_vec(),
            mean,
            deviation,
        };
        tensors.extend([
            SynthTensor::norm(name("attn_norm.weight"), self.width, self.norm_deviation),
            SynthTensor::matrix(name("ssm_in.weight"), &[self.width, all]),
            SynthTensor::matrix(name("ssm_conv1d.weight"), &[kernel, mixed]),
            SynthTensor::bias(name("ssm_conv1d.bias"), mixed),
            around("ssm_dt.bias", &[heads], -2.0, 0.5),
            around("ssm_a", &[1, heads], -1.0, 0.2),
            around("ssm_d", &[1, heads], 1.0, 0.1),
            around("ssm_norm.weight", &[inner.checked_div(groups).unwrap_or(0), groups], 1.0, 0.1),
            SynthTensor::matrix(name("ssm_out.weight"), &[inner, self.width]),
        ]);
    }
}
