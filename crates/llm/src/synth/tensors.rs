use orlop_graph::DType;

use super::Synth;

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
            SynthTensor::norm("output_norm.weight", self.width, self.norm_deviation),
        ];
        if !self.tied {
            tensors.push(SynthTensor::matrix("output.weight", &[self.width, self.vocabulary]));
        }
        for layer in 0..self.layers {
            self.attention(layer, &mut tensors);
            self.feed_forward(layer, &mut tensors);
        }
        for added in &self.tensors {
            match tensors.iter_mut().find(|tensor| tensor.name == added.name) {
                Some(tensor) => *tensor = added.clone(),
                None => tensors.push(added.clone()),
            }
        }
        tensors
    }

    fn attention(&self, layer: u64, tensors: &mut Vec<SynthTensor>) {
        let name = |part: &str| format!("blk.{layer}.{part}");
        let [queries, keys] = [self.heads, self.kv_heads].map(|heads| heads.saturating_mul(self.key));
        let [values, attended] = [self.kv_heads, self.heads].map(|heads| heads.saturating_mul(self.value));
        tensors.push(SynthTensor::norm(name("attn_norm.weight"), self.width, self.norm_deviation));
        for (part, elements) in [("attn_q", queries), ("attn_k", keys), ("attn_v", values)] {
            tensors.push(SynthTensor::matrix(name(&format!("{part}.weight")), &[self.width, elements]));
            if self.biases {
                tensors.push(SynthTensor::bias(name(&format!("{part}.bias")), elements));
            }
        }
        if self.head_norms {
            for part in ["attn_q_norm.weight", "attn_k_norm.weight"] {
                tensors.push(SynthTensor::norm(name(part), self.key, self.norm_deviation));
            }
        }
        tensors.push(SynthTensor::matrix(name("attn_output.weight"), &[attended, self.width]));
    }

    fn feed_forward(&self, layer: u64, tensors: &mut Vec<SynthTensor>) {
        let name = |part: &str| format!("blk.{layer}.{part}.weight");
        let (width, hidden) = (self.width, self.hidden);
        tensors.push(SynthTensor::norm(name("ffn_norm"), width, self.norm_deviation));
        match self.experts {
            None => tensors.extend([
                SynthTensor::matrix(name("ffn_gate"), &[width, hidden]),
                SynthTensor::matrix(name("ffn_up"), &[width, hidden]),
                SynthTensor::matrix(name("ffn_down"), &[hidden, width]),
            ]),
            Some(experts) => tensors.extend([
                SynthTensor::matrix(name("ffn_gate_inp"), &[width, experts.count]),
                SynthTensor::matrix(name("ffn_gate_exps"), &[width, experts.hidden, experts.count]),
                SynthTensor::matrix(name("ffn_up_exps"), &[width, experts.hidden, experts.count]),
                SynthTensor::matrix(name("ffn_down_exps"), &[experts.hidden, width, experts.count]),
            ]),
        }
    }
}
