//! Feed-forward parts, plain and [gated](https://arxiv.org/abs/2002.05202).

use orlop_graph::{Glu, TensorId, Unary};

use super::GraphDraft;
use crate::Error;
use crate::config::Feed;

/// What happens between the up and the down projection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum FeedForward {
    /// An activation function.
    Plain(Unary),
    /// The square of an activation function.
    Squared(Unary),
    /// A gate with a matrix of its own.
    Gated(Glu),
    /// Gate and up projection in one matrix.
    Fused(Glu),
    /// The one or the other, or none: files without a matrix for the gate have it fused, or an activation function.
    ByFile(Glu, Unary),
}

impl GraphDraft<'_> {
    /// The feed-forward part of a layer, or experts where it has them, of a normed sum.
    pub(super) fn feed_forward(&mut self, normed: TensorId, sum: TensorId) -> Result<TensorId, Error> {
        // Layers without a router are dense.
        let routed = self.has(&self.blk("ffn_gate_inp.weight"));
        match (self.config.experts, self.sizes().feed) {
            (Some(experts), Feed::Experts) if routed && self.facts.experts.beside_dense => {
                self.experts_beside_dense(&experts, normed, sum)
            }
            (Some(experts), Feed::Experts) if routed => self.experts(&experts, normed, normed),
            _ => self.dense("", self.sizes().hidden, normed),
        }
    }

    /// Products with three matrices, or two; `which` ends their names.
    pub(super) fn dense(&mut self, which: &str, hidden: u64, x: TensorId) -> Result<TensorId, Error> {
        let [gate, up, down] = ["gate", "up", "down"].map(|part| self.blk(&format!("ffn_{part}{which}")));
        let kind = match self.config.feed_forward {
            FeedForward::ByFile(function, _) if self.columns_of(&gate).is_some() => {
                FeedForward::Gated(function)
            }
            FeedForward::ByFile(_, function) if self.columns_of(&up) == Some(hidden) => {
                FeedForward::Plain(function)
            }
            kind => kind,
        };
        let activated = match kind {
            FeedForward::Plain(_) | FeedForward::Squared(_) => {
                let up = self.linear(&up, x, hidden)?;
                self.activated(kind, up)
            }
            FeedForward::Fused(function) | FeedForward::ByFile(function, _) => {
                let both = self.linear(&up, x, 2 * hidden)?;
                self.b.gated_fused(function, both, false)
            }
            FeedForward::Gated(function) => {
                let gate = self.linear(&gate, x, hidden)?;
                let up = self.linear(&up, x, hidden)?;
                self.b.gated(function, gate, up)
            }
        };
        self.linear(&down, activated, self.config.width)
    }

    /// The activation function, where there is no gate.
    pub(super) fn activated(&mut self, kind: FeedForward, x: TensorId) -> TensorId {
        match kind {
            FeedForward::Plain(function) => self.b.unary(function, x),
            FeedForward::Squared(function) => {
                let activated = self.b.unary(function, x);
                self.b.sqr(activated)
            }
            FeedForward::Gated(_) | FeedForward::Fused(_) | FeedForward::ByFile(..) => x,
        }
    }
}
