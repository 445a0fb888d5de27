//! [Gated delta nets](https://arxiv.org/abs/2412.06464): a matrix of each head says which values go with which keys. A token
//! lets it decay, takes back what its key stood for, and writes its own value.

use orlop_graph::{Glu, TensorId, Unary};

use super::GraphDraft;
use crate::Error;
use crate::config::StateSpace;

impl GraphDraft<'_> {
    pub(super) fn delta_net(&mut self, x: TensorId) -> Result<TensorId, Error> {
        let sizes = self.config.state_space.unwrap_or_default();
        let StateSpace { kernel, inner, state: key, heads, groups } = sizes;
        let (mixed, value, tokens) = (sizes.mixed(), inner / heads, self.token_count());
        let (rows, z) = self.rows_and_gate(&sizes, x)?;
        let [strength, steps] = self.strengths_and_steps(&sizes, x)?;

        let rows = self.columns(rows, 0, [mixed, 1]);
        let convolved = self.convolution(&self.blk("ssm_conv1d"), [kernel, mixed], rows)?;
        let convolved = self.b.unary(Unary::Silu, convolved);
        let [q, k] = [0, groups * key].map(|first| self.columns(convolved, first, [key, groups]));
        let v = self.columns(convolved, 2 * groups * key, [value, heads]);
        let [q, k] = [q, k].map(|x| self.b.l2_norm(x, self.config.epsilon));
        let q = self.b.scale(q, 1.0 / (key as f32).sqrt());
        let [q, k] = [q, k].map(|x| self.for_each_value(x, heads));

        let strength = self.b.unary(Unary::Sigmoid, strength);
        let strength = self.b.reshape(strength, &[1, heads, tokens]);
        let bias = self.weight(&self.blk("ssm_dt.bias"), &[heads])?;
        let steps = self.b.add(steps, bias);
        let steps = self.b.unary(Unary::Softplus, steps);
        let rate = self.weight(&self.blk("ssm_a"), &[heads])?;
        let decay = self.b.mul(steps, rate);
        let decay = self.b.unary(Unary::Exp, decay);
        let decay = self.b.reshape(decay, &[1, heads, tokens]);
        let taken = self.b.mul(k, decay);
        let written = self.b.mul(k, strength);
        let y = self.carried([value, key, heads], inner, |graph, before, slot| {
            graph.delta_scan([before, q, decay, written, v, taken, written, slot])
        });

        let y = self.b.reshape(y, &[value, heads, tokens]);
        let y = self.norm(&self.blk("ssm_norm"), y)?;
        let y = self.b.reshape(y, &[inner, tokens]);
        let gated = self.b.gated(Glu::Silu, z, y);
        self.linear(&self.blk("ssm_out"), gated, self.config.width)
    }

    /// Queries, keys and values as one row, `[mixed, tokens]`, and the gate, `[inner, tokens]`. Older files have one matrix
    /// that makes parts of all of them for each head of keys.
    fn rows_and_gate(&mut self, sizes: &StateSpace, x: TensorId) -> Result<(TensorId, TensorId), Error> {
        let StateSpace { inner, state: key, groups, .. } = *sizes;
        let stem = self.blk("ssm_in");
        if !self.has(&format!("{stem}.weight")) {
            let rows = self.linear(&self.blk("attn_qkv"), x, sizes.mixed())?;
            return Ok((rows, self.linear(&self.blk("attn_gate"), x, inner)?));
        }
        let values = inner / groups;
        let all = self.linear(&stem, x, sizes.mixed() + inner)?;
        let parts = [(0, key), (key, key), (2 * key, values), (2 * key + values, values)];
        let [q, k, v, z] = parts.map(|part| self.of_each_group(all, groups, part));
        // ggml's servers join two at a time.
        let keys = self.b.concat(&[q, k], 0);
        Ok((self.b.concat(&[keys, v], 0), z))
    }

    /// How strongly a token's value is written, and how far the state decays, before their functions: `[heads, tokens]`.
    fn strengths_and_steps(&mut self, sizes: &StateSpace, x: TensorId) -> Result<[TensorId; 2], Error> {
        let StateSpace { heads, groups, .. } = *sizes;
        let stem = self.blk("ssm_ba");
        if self.has(&format!("{stem}.weight")) {
            let (both, each) = (self.linear(&stem, x, 2 * heads)?, heads / groups);
            return Ok([(0, each), (each, each)].map(|part| self.of_each_group(both, groups, part)));
        }
        let strengths = self.linear(&self.blk("ssm_beta"), x, heads)?;
        Ok([strengths, self.linear(&self.blk("ssm_alpha"), x, heads)?])
    }

    /// A part of each group of a row, one behind the other: `[groups * length, tokens]`.
    fn of_each_group(&mut self, rows: TensorId, groups: u64, (first, length): (u64, u64)) -> TensorId {
        let desc = self.b.desc(rows);
        let [element, row, outer, _] = desc.strides;
        let tokens = self.token_count();
        let group = desc.extents[0] / groups * element;
        let part =
            self.b.view(rows, [length, groups, tokens, 1], [element, group, row, outer], first * element);
        let part = self.b.cont(part);
        self.b.reshape(part, &[groups * length, tokens])
    }

    /// Heads of keys for all heads of values.
    fn for_each_value(&mut self, x: TensorId, heads: u64) -> TensorId {
        let [key, groups, tokens, _] = self.b.desc(x).extents;
        if groups == heads {
            return x;
        }
        if !self.facts.neighbors_share_keys {
            return self.b.repeat(x, [key, heads, tokens, 1]);
        }
        let apart = self.b.reshape(x, &[key, 1, groups, tokens]);
        let repeated = self.b.repeat(apart, [key, heads / groups, groups, tokens]);
        self.b.reshape(repeated, &[key, heads, tokens])
    }
}
