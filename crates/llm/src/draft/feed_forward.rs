//! Feed-forward parts: plain, [gated](https://arxiv.org/abs/2002.05202), and
//! [mixtures of experts](https://arxiv.org/abs/2401.04088).

use orlop_graph::{Glu, TensorId, Unary};

use super::GraphDraft;
use crate::Error;
use crate::config::Experts;

/// What happens between the up and the down projection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FeedForward {
    /// An activation function.
    Plain(Unary),
    /// A gate with a matrix of its own.
    Gated(Glu),
    /// Gate and up projection in one matrix.
    Fused(Glu),
}

impl GraphDraft<'_> {
    /// The feed-forward part of a layer, or experts where the model has them.
    pub(super) fn feed_forward(&mut self, layer: usize, x: TensorId) -> Result<TensorId, Error> {
        let kind = self.facts.feed_forward;
        if let (Some(experts), FeedForward::Gated(gate) | FeedForward::Fused(gate)) =
            (self.config.experts, kind)
        {
            return self.experts(layer, gate, &experts, x);
        }
        let hidden = self.config.layers[layer].hidden;
        let [gate, up, down] = ["gate", "up", "down"].map(|part| format!("blk.{layer}.ffn_{part}"));
        let activated = match kind {
            FeedForward::Plain(function) => {
                let up = self.between(&up, x, hidden)?;
                self.b.unary(function, up)
            }
            FeedForward::Fused(function) => {
                let both = self.between(&up, x, 2 * hidden)?;
                self.b.gated_fused(function, both, false)
            }
            FeedForward::Gated(function) => {
                let gate = self.between(&gate, x, hidden)?;
                let up = self.between(&up, x, hidden)?;
                self.b.gated(function, gate, up)
            }
        };
        self.between(&down, activated, self.config.width)
    }

    /// As [`GraphDraft::linear`], but the scale comes after the bias, and only counts in some architectures.
    fn between(&mut self, stem: &str, x: TensorId, into: u64) -> Result<TensorId, Error> {
        let product = self.product(stem, x, into)?;
        let mut fed = self.biased(stem, product)?;
        if self.facts.scales_feed_forward {
            fed = self.scaled(stem, fed)?;
        }
        Ok(self.b.name(fed, stem))
    }

    /// The top experts of each token, weighted by the router's probabilities, which are normalized to a sum of one.
    fn experts(
        &mut self,
        layer: usize,
        gate: Glu,
        experts: &Experts,
        x: TensorId,
    ) -> Result<TensorId, Error> {
        let Experts { count, used, hidden, scale } = *experts;
        let (width, tokens) = (self.config.width, self.b.desc(x).extents[1]);
        let router = self.weight(&format!("blk.{layer}.ffn_gate_inp.weight"), &[width, count])?;
        let scores = self.b.mul_mat(router, x);
        let sure = self.b.soft_max(scores, None, 1.0, 0.0);
        // [used, tokens]
        let chosen = self.b.top_k(sure, used);
        let sure = self.b.reshape(sure, &[1, count, tokens]);
        let weights = self.b.get_rows(sure, chosen);
        let weights = self.b.reshape(weights, &[used, tokens]);
        let sum = self.b.sum_rows(weights);
        let sum = self.b.clamp(sum, SMALLEST_SUM, f32::INFINITY);
        let mut weights = self.b.div(weights, sum);
        if scale != 1.0 {
            weights = self.b.scale(weights, scale);
        }
        let weights = self.b.reshape(weights, &[1, used, tokens]);
        let each = self.b.reshape(x, &[width, 1, tokens]);
        let gated =
            self.expert_product(&format!("blk.{layer}.ffn_gate_exps"), each, chosen, [width, hidden, count])?;
        let up =
            self.expert_product(&format!("blk.{layer}.ffn_up_exps"), each, chosen, [width, hidden, count])?;
        let activated = self.b.gated(gate, gated, up);
        let down = [hidden, width, count];
        let down = self.expert_product(&format!("blk.{layer}.ffn_down_exps"), activated, chosen, down)?;
        let weighted = self.b.mul(down, weights);
        let desc = self.b.desc(weighted);
        let mut sum = None;
        for expert in 0..used {
            let one = self.b.view(
                weighted,
                [width, tokens, 1, 1],
                [desc.strides[0], desc.strides[2], desc.strides[3], desc.strides[3]],
                expert * desc.strides[1],
            );
            sum = Some(match sum {
                Some(sum) => self.b.add(sum, one),
                None if used == 1 => self.b.cont(one),
                None => one,
            });
        }
        sum.map(|sum| self.b.name(sum, format!("blk.{layer}.ffn_out")))
            .ok_or_else(|| Error::MissingTensor(format!("blk.{layer}.ffn_down_exps.weight")))
    }

    fn expert_product(
        &mut self,
        stem: &str,
        x: TensorId,
        chosen: TensorId,
        [from, into, count]: [u64; 3],
    ) -> Result<TensorId, Error> {
        let matrices = self.weight(&format!("{stem}.weight"), &[from, into, count])?;
        let product = self.b.mul_mat_id(matrices, x, chosen);
        let Some(scale) = self.optional(&format!("{stem}.scale"), &[count])? else { return Ok(product) };
        let [used, tokens, ..] = self.b.desc(chosen).extents;
        let scale = self.b.reshape(scale, &[1, count]);
        let ids = self.b.reshape(chosen, &[used * tokens]);
        let scales = self.b.get_rows(scale, ids);
        let scales = self.b.reshape(scales, &[1, used, tokens]);
        Ok(self.b.mul(product, scales))
    }
}

/// Minimum of the sum that weights are divided by.
const SMALLEST_SUM: f32 = 6.103_515_6e-5;
