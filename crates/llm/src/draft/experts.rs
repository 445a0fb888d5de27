//! [Mixtures of experts](https://arxiv.org/abs/2401.04088): a router chooses some of many feed-forward parts for each token.

use orlop_graph::{Glu, Op, TensorId, Unary};

use super::{FeedForward, GraphDraft, ModelPart, Router};
use crate::config::{Experts, Gating};
use crate::expert_weights::{ChosenExperts, DOWN};
use crate::{Error, HotExperts};

/// Minimum of the sum that weights are divided by.
const SMALLEST_SUM: f32 = 6.103_515_6e-5;
/// Less than any score; experts of groups that were not chosen get it.
const NEVER: f32 = -1e30;
/// The limit of [gpt-oss](https://arxiv.org/abs/2508.10925)'s gates.
const GATE_LIMIT: f32 = 7.0;

impl GraphDraft<'_> {
    /// The chosen experts of each token, weighted, and those that every token uses.
    pub(super) fn experts(
        &mut self,
        experts: &Experts,
        x: TensorId,
        routed_by: TensorId,
    ) -> Result<TensorId, Error> {
        let (chosen, weights) = self.routed(experts, routed_by)?;
        if self.spec.counts {
            let (layer, count) = (self.layer, experts.count);
            let [used, tokens, ..] = self.b.desc(chosen).extents;
            self.b.output(chosen);
            self.routers.push(Router { layer, chosen, used, count, tokens });
        }
        let narrow = self.latent("down", x)?;
        let [width, tokens, ..] = self.b.desc(narrow).extents;
        let mut input = self.b.reshape(narrow, &[width, 1, tokens]);
        let weighs_input = self.facts.experts.weighs_input;
        if weighs_input {
            input = self.b.repeat(input, [width, experts.used, tokens, 1]);
            input = self.b.mul(input, weights);
        }
        let weights = (!weighs_input).then_some(weights);
        let part = std::mem::replace(&mut self.part, ModelPart::Experts(self.layer));
        let sum = match self.spec.layout.hot[self.layer].clone() {
            None => {
                let all = ChosenExperts { chosen, some: None };
                let mut each = self.each_expert(experts, input, &all)?;
                let extents = [self.b.desc(each).extents[0], experts.count];
                if let Some(biases) = self.expert_biases(&self.blk(DOWN), &all, extents)? {
                    each = self.b.add(each, biases);
                }
                let each = weights.map_or(each, |weights| self.b.mul(each, weights));
                self.sum_of_experts(each)
            }
            Some(HotExperts { experts: hot, .. }) => {
                self.on_two_devices(experts, &hot, input, chosen, weights)?
            }
        };
        self.part = part;
        let sum = self.latent("up", sum)?;
        let sum = match self.shared_experts(x)? {
            Some(shared) => self.b.add(sum, shared),
            None => sum,
        };
        Ok(self.b.name(sum, self.blk("ffn_out")))
    }

    /// A dense part and experts, each with a norm behind it; experts have a norm of their own before them, and the router
    /// has another one.
    pub(super) fn experts_beside_dense(
        &mut self,
        experts: &Experts,
        normed: TensorId,
        x: TensorId,
    ) -> Result<TensorId, Error> {
        let dense = self.dense("", self.sizes().hidden, normed)?;
        let dense = self.norm(&self.blk("post_ffw_norm_1"), dense)?;
        let width = self.config.width;
        let routed_by = self.b.rms_norm(x, self.config.epsilon);
        let routed_by = self.b.scale(routed_by, 1.0 / (width as f32).sqrt());
        let scale = self.weight(&self.blk("ffn_gate_inp.scale"), &[width])?;
        let routed_by = self.b.mul(routed_by, scale);
        let normed = self.norm(&self.blk("pre_ffw_norm_2"), x)?;
        let chosen = self.experts(experts, normed, routed_by)?;
        let chosen = self.norm(&self.blk("post_ffw_norm_2"), chosen)?;
        Ok(self.b.add(dense, chosen))
    }

    /// A product into the narrower space that experts work in, or out of it, where the file has one.
    fn latent(&mut self, which: &str, x: TensorId) -> Result<TensorId, Error> {
        let stem = self.blk(&format!("ffn_latent_{which}"));
        match self.columns_of(&stem) {
            Some(into) => self.linear(&stem, x, into),
            None => Ok(x),
        }
    }

    /// The experts that each token uses, `[used, tokens]`, and their weights, `[1, used, tokens]`.
    fn routed(&mut self, experts: &Experts, x: TensorId) -> Result<(TensorId, TensorId), Error> {
        let Experts { count, used, scale, gating, normalized, .. } = *experts;
        let tokens = self.b.desc(x).extents[1];
        let stem = self.blk("ffn_gate_inp");
        let scores = self.linear(&stem, x, count)?;
        let sure = match gating {
            Gating::Softmax => self.b.soft_max(scores, None, 1.0, 0.0),
            Gating::Sigmoid => self.b.unary(Unary::Sigmoid, scores),
            Gating::SoftmaxOfChosen => scores,
        };
        // The bias counts for the choice alone.
        let ranked = self.biased(&self.blk("exp_probs_b"), sure)?;
        let ranked = match experts.groups {
            Some(groups) => self.in_best_groups(groups, ranked),
            None => ranked,
        };
        let chosen = self.b.top_k(ranked, used);
        let sure = self.b.reshape(sure, &[1, count, tokens]);
        let weights = self.b.get_rows(sure, chosen);
        let mut weights = self.b.reshape(weights, &[used, tokens]);
        if gating == Gating::SoftmaxOfChosen {
            weights = self.b.soft_max(weights, None, 1.0, 0.0);
        }
        if normalized {
            let sum = self.b.sum_rows(weights);
            let sum = self.b.clamp(sum, SMALLEST_SUM, f32::INFINITY);
            weights = self.b.div(weights, sum);
        }
        if scale != 1.0 {
            weights = self.b.scale(weights, scale);
        }
        Ok((chosen, self.b.reshape(weights, &[1, used, tokens])))
    }

    /// Scores of experts in the best groups; a group is as good as its best two experts. All others get [`NEVER`].
    fn in_best_groups(&mut self, [groups, chosen]: [u64; 2], scores: TensorId) -> TensorId {
        let [count, tokens, ..] = self.b.desc(scores).extents;
        let each = count / groups;
        let grouped = self.b.reshape(scores, &[each, groups, tokens]);
        let rows = self.b.reshape(scores, &[each, groups * tokens]);
        let best = self.b.top_k(rows, 2);
        let rows = self.b.reshape(scores, &[1, each, groups * tokens]);
        let best = self.b.get_rows(rows, best);
        let best = self.b.reshape(best, &[2, groups, tokens]);
        let sums = self.b.sum_rows(best);
        let sums = self.b.reshape(sums, &[groups, tokens]);
        let best = self.b.top_k(sums, chosen);
        let kept = self.b.get_rows(grouped, best);
        let never = self.b.node(Op::Scale { scale: 0.0, bias: NEVER }, &[grouped]);
        let masked = self.b.set_rows(never, kept, best);
        self.b.reshape(masked, &[count, tokens])
    }

    /// The result of each chosen expert, `[width, used, tokens]`, without its bias.
    pub(crate) fn each_expert(
        &mut self,
        experts: &Experts,
        each: TensorId,
        chosen: &ChosenExperts,
    ) -> Result<TensorId, Error> {
        let Experts { count, hidden, .. } = *experts;
        let width = self.b.desc(each).extents[0];
        let [gate, up, both] = ["gate", "up", "gate_up"].map(|part| self.blk(&format!("ffn_{part}_exps")));
        let down = self.blk(DOWN);
        let function = match self.config.feed_forward {
            FeedForward::Gated(function)
            | FeedForward::Fused(function)
            | FeedForward::ByFile(function, _) => function,
            FeedForward::Plain(_) | FeedForward::Squared(_) => {
                let up = self.biased_product(&up, each, chosen, [width, hidden, count])?;
                let activated = self.activated(self.config.feed_forward, up);
                return self.expert_product(&down, activated, chosen, [hidden, width, count]);
            }
        };
        let activated = if self.has(&format!("{both}.weight")) {
            let both = self.biased_product(&both, each, chosen, [width, 2 * hidden, count])?;
            self.b.gated_fused(function, both, false)
        } else {
            let gate = self.biased_product(&gate, each, chosen, [width, hidden, count])?;
            let up = self.biased_product(&up, each, chosen, [width, hidden, count])?;
            match self.facts.experts.clamped {
                true => self.clamped_gate(gate, up),
                false => self.b.gated(function, gate, up),
            }
        };
        self.expert_product(&down, activated, chosen, [hidden, width, count])
    }

    fn clamped_gate(&mut self, gate: TensorId, up: TensorId) -> TensorId {
        let gate = self.b.clamp(gate, f32::NEG_INFINITY, GATE_LIMIT);
        let up = self.b.clamp(up, -GATE_LIMIT, GATE_LIMIT);
        let up = self.b.node(Op::Scale { scale: 1.0, bias: 1.0 }, &[up]);
        self.b.gated(Glu::GeluQuick, gate, up)
    }

    /// The sum over the experts of each token, `[width, tokens]`.
    pub(crate) fn sum_of_experts(&mut self, weighted: TensorId) -> TensorId {
        let desc = self.b.desc(weighted);
        let [width, used, tokens, _] = desc.extents;
        let strides = [desc.strides[0], desc.strides[2], desc.strides[3], desc.strides[3]];
        let extents = [width, tokens, 1, 1];
        let first = self.b.view(weighted, extents, strides, 0);
        (1..used).fold(first, |sum, expert| {
            let one = self.b.view(weighted, extents, strides, expert * desc.strides[1]);
            self.b.add(sum, one)
        })
    }

    /// Experts that every token uses, with a gate of their own where the file has one.
    fn shared_experts(&mut self, x: TensorId) -> Result<Option<TensorId>, Error> {
        let Some(hidden) = self.columns_of(&self.blk("ffn_up_shexp")) else { return Ok(None) };
        let shared = self.dense("_shexp", hidden, x)?;
        let gate = self.blk("ffn_gate_inp_shexp");
        if self.columns_of(&gate).is_none() {
            return Ok(Some(shared));
        }
        let gate = self.linear(&gate, x, 1)?;
        let gate = self.b.unary(Unary::Sigmoid, gate);
        Ok(Some(self.b.mul(shared, gate)))
    }

    /// Rows of the chosen experts, `[row, used, tokens]`.
    pub(crate) fn of_chosen(&mut self, table: TensorId, chosen: TensorId) -> TensorId {
        let [used, tokens, ..] = self.b.desc(chosen).extents;
        let ids = self.b.reshape(chosen, &[used * tokens]);
        let rows = self.b.get_rows(table, ids);
        let row = self.b.desc(rows).extents[0];
        self.b.reshape(rows, &[row, used, tokens])
    }
}
