//! The whole graph, from tokens to logits, drawn from the records of the layers.

use orlop_graph::{TensorId, Unary};

use super::GraphDraft;
use crate::Error;
use crate::arch::{AttentionGate, HeadNorms, LayerNorms, Positions, Residual};
use crate::config::{Feed, LayerConfig, Mixer};

impl GraphDraft<'_> {
    /// Embeddings, layers, logits.
    pub(super) fn model(&mut self) -> Result<TensorId, Error> {
        if let Some(chunk) = self.facts.chunk.filter(|chunk| self.spec.sizes.context > u64::from(*chunk)) {
            let rule = "this model sees chunks of tokens, and only the first is supported";
            let value = format!("{}, of chunks of {chunk}", self.spec.sizes.context);
            return Err(Error::BadSetting { setting: "the context", value, rule });
        }
        let factors = self.rope_factors()?;
        let mut x = self.embedding()?;
        self.embed_layers(x)?;
        if self.facts.positions == Positions::Embedded {
            x = self.position_embedding(x)?;
        }
        if let Some(norm) = self.facts.encoder.and_then(|encoder| encoder.embedding_norm) {
            x = self.norm(norm, x)?;
        }
        for layer in 0..self.layers() {
            self.enter(layer);
            x = self.layer(layer, x, factors)?;
            x = self.layer_end(layer, x)?;
            self.b.name(x, format!("blk.{layer}.out"));
        }
        match (self.spec.pooling, self.texts.clone()) {
            (Some(pooling), Some(texts)) => self.pooled(x, pooling, &texts),
            _ => self.logits(x),
        }
    }

    /// Norm, what mixes tokens, norm, feed-forward part or experts; each is added to what came in.
    fn layer(&mut self, layer: usize, x: TensorId, factors: Option<TensorId>) -> Result<TensorId, Error> {
        let LayerNorms { mixer, mixed, feed, fed } = self.facts.norms;
        if self.is_parallel(layer) {
            return self.parallel_layer(layer, x, factors);
        }
        let x = match self.config.layers[layer].mixer {
            Mixer::Nothing => self.wanted_rows(layer, x, x).0,
            _ => {
                let normed = self.layer_norm(layer, mixer, x)?;
                let mixing = self.mixed(layer, normed, factors)?;
                if self.config.layers[layer].feed == Feed::ChannelMix {
                    let x = self.b.add(mixing, x);
                    return self.channel_mix(layer, feed, x);
                }
                let (mixing, kept) = self.wanted_rows(layer, mixing, x);
                let mixing = self.post_norm(layer, mixed, mixing)?;
                let sum = self.add_scaled(mixing, kept);
                self.mixed_sum(layer, sum, kept)?
            }
        };
        if self.config.layers[layer].feed == Feed::Nothing {
            return Ok(x);
        }
        let normed = self.layer_norm(layer, feed, x)?;
        let feeding =
            match self.facts.experts.beside_dense && self.has(&format!("blk.{layer}.ffn_gate_inp.weight")) {
                true => self.experts_beside_dense(layer, normed, x)?,
                false => self.feed_forward(layer, normed)?,
            };
        let feeding = self.post_norm(layer, fed, feeding)?;
        let sum = self.add_scaled(feeding, x);
        let norms_sums = self.facts.encoder.is_some_and(|encoder| encoder.norms_sums);
        self.layer_norm(layer, norms_sums.then_some("layer_output_norm"), sum)
    }

    /// The norm of the sum of attention and its input, in models that have one; some have two, with the input between them.
    fn mixed_sum(&mut self, layer: usize, sum: TensorId, input: TensorId) -> Result<TensorId, Error> {
        if !self.facts.encoder.is_some_and(|encoder| encoder.norms_sums) {
            return Ok(sum);
        }
        let normed = self.layer_norm(layer, Some("attn_output_norm"), sum)?;
        if !self.has(&format!("blk.{layer}.attn_norm_2.weight")) {
            return Ok(normed);
        }
        let again = self.b.add(normed, input);
        self.layer_norm(layer, Some("attn_norm_2"), again)
    }

    fn is_parallel(&self, layer: usize) -> bool {
        let without_norm = self.facts.residual == Residual::ParallelWithoutNorm
            && !self.has(&format!("blk.{layer}.ffn_norm.weight"));
        self.config.parallel || without_norm
    }

    /// Attention and the feed-forward part of the same input, both added to it.
    fn parallel_layer(
        &mut self,
        layer: usize,
        x: TensorId,
        factors: Option<TensorId>,
    ) -> Result<TensorId, Error> {
        let LayerNorms { mixer, feed, .. } = self.facts.norms;
        let feed = feed.filter(|stem| self.has(&format!("blk.{layer}.{stem}.weight")));
        let normed = self.layer_norm(layer, mixer, x)?;
        let mixing = self.mixed(layer, normed, factors)?;
        let (mixing, kept) = self.wanted_rows(layer, mixing, x);
        let normed = match feed {
            Some(_) => self.layer_norm(layer, feed, kept)?,
            None => self.wanted_rows(layer, normed, x).0,
        };
        let feeding = self.feed_forward(layer, normed)?;
        let x = self.b.add(feeding, kept);
        Ok(self.b.add(x, mixing))
    }

    fn mixed(&mut self, layer: usize, x: TensorId, factors: Option<TensorId>) -> Result<TensorId, Error> {
        match self.config.layers[layer].mixer {
            Mixer::Attention => self.attention_part(layer, x, factors),
            Mixer::Linear => self.linear(&format!("blk.{layer}.attn_output"), x, self.config.width),
            Mixer::StateSpace => self.state_space(layer, x),
            Mixer::Mamba1 => self.mamba1(layer, x),
            Mixer::ShortConvolution => self.short_convolution(layer, x),
            Mixer::Latent => self.latent_attention(layer, x, factors),
            Mixer::DeltaNet => self.delta_net(layer, x),
            Mixer::TimeMix => self.time_mix(layer, x),
            Mixer::Both => {
                let attended = self.attention_part(layer, x, factors)?;
                let scanned = self.state_space(layer, x)?;
                Ok(self.b.add(attended, scanned))
            }
            Mixer::Nothing => Ok(x),
        }
    }

    fn add_scaled(&mut self, part: TensorId, residual: TensorId) -> TensorId {
        let part = match self.config.residual_scale {
            1.0 => part,
            scale => self.b.scale(part, scale),
        };
        self.b.add(part, residual)
    }

    pub(super) fn layer_norm(
        &mut self,
        layer: usize,
        stem: Option<&str>,
        x: TensorId,
    ) -> Result<TensorId, Error> {
        let Some(stem) = stem.map(|stem| format!("blk.{layer}.{stem}")) else { return Ok(x) };
        let may_lack = layer == 0 && self.facts.encoder.is_some_and(|encoder| encoder.first_sees_all);
        if may_lack && !self.has(&format!("{stem}.weight")) {
            return Ok(x);
        }
        self.norm(&stem, x)
    }

    fn post_norm(&mut self, layer: usize, stem: Option<&str>, x: TensorId) -> Result<TensorId, Error> {
        let Some(stem) = stem else { return Ok(x) };
        let epsilon = self.facts.post_epsilon.unwrap_or(self.config.epsilon);
        self.norm_with(&format!("blk.{layer}.{stem}"), x, &[self.config.width], epsilon)
    }

    fn attention_part(
        &mut self,
        layer: usize,
        x: TensorId,
        factors: Option<TensorId>,
    ) -> Result<TensorId, Error> {
        let LayerConfig { key, value, heads, .. } = self.config.layers[layer];
        let mut q = match self.config.layers[layer].shares {
            Some(_) => self.queries(layer, x)?,
            None => {
                let [q, k, mut v] = self.queries_keys_values(layer, x)?;
                let k = self.normed_and_turned(layer, "k", k, factors)?;
                if self.facts.norms_values {
                    v = self.b.rms_norm(v, self.config.epsilon);
                }
                self.store(layer, [k, v]);
                q
            }
        };
        let gate = match self.facts.attention_gate {
            AttentionGate::Nothing => None,
            AttentionGate::Matrix => {
                Some(self.linear(&format!("blk.{layer}.attn_gate"), x, value * heads)?)
            }
            AttentionGate::InQueries => {
                let halves = self.split_heads(q, [key, key]);
                q = halves[0];
                let gate = self.b.cont(halves[1]);
                Some(self.b.reshape(gate, &[key * heads, self.token_count()]))
            }
        };
        let q = self.normed_and_turned(layer, "q", q, factors)?;
        let gate = gate.map(|gate| self.b.unary(Unary::Sigmoid, gate));
        self.attention(layer, q, gate)
    }

    fn normed_and_turned(
        &mut self,
        layer: usize,
        which: &str,
        heads: TensorId,
        factors: Option<TensorId>,
    ) -> Result<TensorId, Error> {
        if matches!(self.facts.head_norms, HeadNorms::AfterRope | HeadNorms::TurnedWithoutWeight) {
            let turned = self.rope(layer, heads, factors);
            return self.head_norm(layer, which, turned);
        }
        let normed = self.head_norm(layer, which, heads)?;
        Ok(self.rope(layer, normed, factors))
    }

    /// The norm of queries or keys, as heads.
    fn head_norm(&mut self, layer: usize, which: &str, x: TensorId) -> Result<TensorId, Error> {
        let stem = format!("blk.{layer}.attn_{which}_norm");
        let [head, heads, tokens, _] = self.b.desc(x).extents;
        let there = self.has(&format!("{stem}.weight"));
        match self.facts.head_norms {
            HeadNorms::Nothing => Ok(x),
            HeadNorms::EachIfThere | HeadNorms::OwnWeights | HeadNorms::WholeIfThere if !there => Ok(x),
            HeadNorms::Each | HeadNorms::EachIfThere | HeadNorms::AfterRope => self.norm(&stem, x),
            HeadNorms::TurnedWithoutWeight => {
                let normed = self.config.experts.is_none_or(|experts| experts.count != 128);
                let turned = self.config.layers[layer].rope.is_some();
                Ok(if normed && turned { self.b.rms_norm(x, self.config.epsilon) } else { x })
            }
            HeadNorms::OwnWeights => self.norm_with(&stem, x, &[head, heads], self.config.epsilon),
            HeadNorms::Whole | HeadNorms::WholeIfThere => {
                let rows = self.b.reshape(x, &[head * heads, tokens]);
                let normed = self.norm(&stem, rows)?;
                Ok(self.b.reshape(normed, &[head, heads, tokens]))
            }
        }
    }
}
