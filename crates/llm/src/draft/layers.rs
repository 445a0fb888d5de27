//! The whole graph, from tokens to logits, drawn from the records of the layers.

use orlop_graph::TensorId;

use super::GraphDraft;
use crate::Error;
use crate::arch::{HeadNorms, LayerNorms, Positions};
use crate::config::{Feed, Mixer};

impl GraphDraft<'_> {
    /// Embeddings, layers, logits.
    pub(super) fn model(&mut self) -> Result<TensorId, Error> {
        let factors = self.rope_factors()?;
        let mut x = self.embedding()?;
        if self.facts.positions == Positions::Embedded {
            x = self.position_embedding(x)?;
        }
        for layer in 0..self.layers() {
            self.enter(layer);
            x = self.layer(layer, x, factors)?;
            self.b.name(x, format!("blk.{layer}.out"));
        }
        self.logits(x)
    }

    /// Norm, what mixes tokens, norm, feed-forward part or experts; each is added to what came in.
    fn layer(&mut self, layer: usize, x: TensorId, factors: Option<TensorId>) -> Result<TensorId, Error> {
        let LayerNorms { mixer, mixed, feed, fed } = self.facts.norms;
        let normed = self.layer_norm(layer, mixer, x)?;
        let mixing = match self.config.layers[layer].mixer {
            Mixer::Attention => self.attention_part(layer, normed, factors)?,
            Mixer::StateSpace => self.state_space(layer, normed)?,
        };
        let (mixing, kept) = self.wanted_rows(layer, mixing, x);
        let mixing = self.layer_norm(layer, mixed, mixing)?;
        let x = self.b.add(mixing, kept);
        if self.config.layers[layer].feed == Feed::Nothing {
            return Ok(x);
        }
        let normed = self.layer_norm(layer, feed, x)?;
        let feeding = self.feed_forward(layer, normed)?;
        let feeding = self.layer_norm(layer, fed, feeding)?;
        Ok(self.b.add(x, feeding))
    }

    fn layer_norm(&mut self, layer: usize, stem: Option<&str>, x: TensorId) -> Result<TensorId, Error> {
        match stem {
            Some(stem) => self.norm(&format!("blk.{layer}.{stem}"), x),
            None => Ok(x),
        }
    }

    fn attention_part(
        &mut self,
        layer: usize,
        x: TensorId,
        factors: Option<TensorId>,
    ) -> Result<TensorId, Error> {
        let [mut q, mut k, v] = self.queries_keys_values(layer, x)?;
        if self.facts.head_norms == HeadNorms::Each {
            q = self.norm(&format!("blk.{layer}.attn_q_norm"), q)?;
            k = self.norm(&format!("blk.{layer}.attn_k_norm"), k)?;
        }
        let (q, k) = (self.rope(layer, q, factors), self.rope(layer, k, factors));
        self.attention(layer, [q, k, v])
    }
}
