//! The whole graph, from tokens to logits, drawn from the records of the layers.

use orlop_graph::{TensorId, Unary};

use super::{GraphDraft, ModelPart};
use crate::Error;
use crate::arch::{AttentionGate, HeadNorms, LayerNorms, Residual};
use crate::config::{Feed, LayerConfig, Mixer};

impl GraphDraft<'_> {
    /// Embeddings, layers, logits.
    pub(super) fn model(&mut self) -> Result<TensorId, Error> {
        self.rope_factors = self.rope_factors()?;
        let mut x = self.embedding()?;
        self.embed_layers(x)?;
        for layer in 0..self.layers() {
            x = self.pass_on(x, [self.part_behind(layer), ModelPart::Layer(layer)]);
            self.enter(layer);
            x = self.layer(x)?;
            x = self.layer_end(x)?;
            self.b.name(x, self.blk("out"));
        }
        x = self.pass_on(x, [self.part_behind(self.layers()), ModelPart::Output]);
        match (self.spec.pooling, self.texts.clone()) {
            (Some(pooling), Some(texts)) => self.pooled(x, pooling, &texts),
            _ => self.logits(x),
        }
    }

    /// Norm, what mixes tokens, norm, feed-forward part or experts; each is added to what came in.
    fn layer(&mut self, x: TensorId) -> Result<TensorId, Error> {
        let LayerNorms { mixer, mixed, feed, fed } = self.facts.norms;
        if self.is_parallel() {
            return self.parallel_layer(x);
        }
        let x = match self.sizes().mixer {
            Mixer::Nothing => self.wanted_rows(x, x).0,
            _ => {
                let normed = self.layer_norm(mixer, x)?;
                let mixing = self.mixed(normed)?;
                if self.sizes().feed == Feed::ChannelMix {
                    let x = self.b.add(mixing, x);
                    return self.channel_mix(feed, x);
                }
                let (mixing, kept) = self.wanted_rows(mixing, x);
                let mixing = self.post_norm(mixed, mixing)?;
                let sum = self.add_scaled(mixing, kept);
                self.mixed_sum(sum, kept)?
            }
        };
        if self.sizes().feed == Feed::Nothing {
            return Ok(x);
        }
        let normed = self.layer_norm(feed, x)?;
        let feeding = self.feed_forward(normed, x)?;
        let feeding = self.post_norm(fed, feeding)?;
        let sum = self.add_scaled(feeding, x);
        let norms_sums = self.facts.residual == Residual::NormedSums;
        self.layer_norm(norms_sums.then_some("layer_output_norm"), sum)
    }

    /// The norm of the sum of attention and its input, in models that have one; some have two, with the input between them.
    fn mixed_sum(&mut self, sum: TensorId, input: TensorId) -> Result<TensorId, Error> {
        if self.facts.residual != Residual::NormedSums {
            return Ok(sum);
        }
        let normed = self.layer_norm(Some("attn_output_norm"), sum)?;
        if !self.has(&self.blk("attn_norm_2.weight")) {
            return Ok(normed);
        }
        let again = self.b.add(normed, input);
        self.layer_norm(Some("attn_norm_2"), again)
    }

    fn is_parallel(&self) -> bool {
        let without_norm =
            self.facts.residual == Residual::ParallelWithoutNorm && !self.has(&self.blk("ffn_norm.weight"));
        self.config.parallel || without_norm
    }

    /// Attention and the feed-forward part of the same input, both added to it.
    fn parallel_layer(&mut self, x: TensorId) -> Result<TensorId, Error> {
        let LayerNorms { mixer, feed, .. } = self.facts.norms;
        let feed = feed.filter(|stem| self.has(&self.blk(&format!("{stem}.weight"))));
        let normed = self.layer_norm(mixer, x)?;
        let mixing = self.mixed(normed)?;
        let (mixing, kept) = self.wanted_rows(mixing, x);
        let normed = match feed {
            Some(_) => self.layer_norm(feed, kept)?,
            None => self.wanted_rows(normed, x).0,
        };
        let feeding = self.feed_forward(normed, kept)?;
        let x = self.b.add(feeding, kept);
        Ok(self.b.add(x, mixing))
    }

    fn mixed(&mut self, x: TensorId) -> Result<TensorId, Error> {
        match self.sizes().mixer {
            Mixer::Attention => self.attention_part(x),
            Mixer::Linear => self.linear(&self.blk("attn_output"), x, self.config.width),
            Mixer::StateSpace => self.state_space(x),
            Mixer::Mamba1 => self.mamba1(x),
            Mixer::ShortConvolution => self.short_convolution(x),
            Mixer::Latent => self.latent_attention(x),
            Mixer::DeltaNet => self.delta_net(x),
            Mixer::TimeMix => self.time_mix(x),
            Mixer::Both => {
                let attended = self.attention_part(x)?;
                let scanned = self.state_space(x)?;
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

    pub(super) fn layer_norm(&mut self, stem: Option<&str>, x: TensorId) -> Result<TensorId, Error> {
        let Some(stem) = stem.map(|stem| self.blk(stem)) else { return Ok(x) };
        let may_lack = self.layer == 0 && self.facts.windows.is_some_and(|windows| windows.first_sees_all);
        if may_lack && !self.has(&format!("{stem}.weight")) {
            return Ok(x);
        }
        self.norm(&stem, x)
    }

    fn post_norm(&mut self, stem: Option<&str>, x: TensorId) -> Result<TensorId, Error> {
        let Some(stem) = stem else { return Ok(x) };
        let epsilon = self.facts.post_epsilon.unwrap_or(self.config.epsilon);
        self.norm_with(&self.blk(stem), x, &[self.config.width], epsilon)
    }

    fn attention_part(&mut self, x: TensorId) -> Result<TensorId, Error> {
        let LayerConfig { key, value, heads, .. } = self.sizes();
        let mut q = match self.sizes().shares {
            Some(_) => self.queries(x)?,
            None => {
                let [q, k, mut v] = self.queries_keys_values(x)?;
                let k = self.normed_and_turned("k", k)?;
                if self.facts.norms_values {
                    v = self.b.rms_norm(v, self.config.epsilon);
                }
                self.store([k, v]);
                q
            }
        };
        let gate = match self.facts.attention_gate {
            AttentionGate::Nothing => None,
            AttentionGate::Matrix => Some(self.linear(&self.blk("attn_gate"), x, value * heads)?),
            AttentionGate::InQueries => {
                let halves = self.split_heads(q, [key, key]);
                q = halves[0];
                let gate = self.b.cont(halves[1]);
                Some(self.b.reshape(gate, &[key * heads, self.token_count()]))
            }
        };
        let q = self.normed_and_turned("q", q)?;
        let attended = self.attended(q)?;
        let mut rows = self.b.reshape(attended, &[value * heads, self.token_count()]);
        if let Some(gate) = gate {
            let gate = self.b.unary(Unary::Sigmoid, gate);
            rows = self.b.mul(rows, gate);
        }
        self.linear(&self.blk("attn_output"), rows, self.config.width)
    }

    fn normed_and_turned(&mut self, which: &str, heads: TensorId) -> Result<TensorId, Error> {
        if matches!(self.facts.head_norms, HeadNorms::AfterRope | HeadNorms::TurnedWithoutWeight) {
            let turned = self.rope(heads);
            return self.head_norm(which, turned);
        }
        let normed = self.head_norm(which, heads)?;
        Ok(self.rope(normed))
    }

    /// The norm of queries or keys, as heads.
    fn head_norm(&mut self, which: &str, x: TensorId) -> Result<TensorId, Error> {
        let stem = self.blk(&format!("attn_{which}_norm"));
        let [head, heads, tokens, _] = self.b.desc(x).extents;
        let there = self.has(&format!("{stem}.weight"));
        match self.facts.head_norms {
            HeadNorms::Nothing => Ok(x),
            HeadNorms::EachIfThere | HeadNorms::OwnWeights | HeadNorms::WholeIfThere if !there => Ok(x),
            HeadNorms::Each | HeadNorms::EachIfThere | HeadNorms::AfterRope => self.norm(&stem, x),
            HeadNorms::TurnedWithoutWeight => {
                let normed = self.config.experts.is_none_or(|experts| experts.count != 128);
                let turned = self.sizes().rope.is_some();
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
