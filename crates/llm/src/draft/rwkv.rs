//! [RWKV 7](https://arxiv.org/abs/2503.14456): each token is mixed with the one before it in several proportions; what comes
//! of that is read from and written to a matrix of each head.

use orlop_graph::{TensorId, Unary};

use super::GraphDraft;
use crate::Error;
use crate::config::StateSpace;

/// The slowest decay is `exp(-exp(-0.5))`.
const DECAY: f32 = -0.606_530_66;
/// Added under the root of the norm of heads.
const HEAD_EPSILON: f32 = 64e-5;

impl GraphDraft<'_> {
    pub(super) fn time_mix(&mut self, x: TensorId) -> Result<TensorId, Error> {
        let StateSpace { inner: width, state: head, heads, .. } = self.config.state_space.unwrap_or_default();
        let tokens = self.token_count();
        let before = self.shifted("time", x);
        let change = self.b.sub(before, x);
        let shares = self.weight(&self.blk("time_mix_lerp_fused.weight"), &[width, 1, 1, 6])?;
        let [element, .., part] = self.b.desc(shares).strides;
        let [x_r, x_w, x_k, x_v, x_a, x_g] = [0, 1, 2, 3, 4, 5].map(|number| {
            let strides = [element, width * element, width * element, width * element];
            let share = self.b.view(shares, [width, 1, 1, 1], strides, number * part);
            let mixed = self.b.mul(change, share);
            self.b.add(mixed, x)
        });

        let r = self.product(&self.blk("time_mix_receptance"), x_r, width)?;
        let k = self.product(&self.blk("time_mix_key"), x_k, width)?;
        let v = self.product(&self.blk("time_mix_value"), x_v, width)?;
        let v = self.with_first_values(v, x_v)?;
        let decay = self.sigmoid("w", x_w, Some(Unary::Tanh))?;
        let decay = self.b.scale(decay, DECAY);
        let decay = self.b.unary(Unary::Exp, decay);
        let rate = self.sigmoid("a", x_a, None)?;
        let gate = self.low_rank("g", x_g, Some(Unary::Sigmoid))?;

        let [k_k, k_a, r_k] = ["k_k", "k_a", "r_k"]
            .map(|part| self.weight(&self.blk(&format!("time_mix_{part}.weight")), &[width]));
        let taken = self.b.mul(k, k_k?);
        let taken = self.b.reshape(taken, &[head, heads, tokens]);
        let taken = self.b.l2_norm(taken, 1e-12);
        let kept = self.b.mul(k, k_a?);
        let faster = self.b.mul(rate, kept);
        let faster = self.b.sub(faster, kept);
        let k = self.b.add(k, faster);
        let [r, decay, k, v, rate] =
            [r, decay, k, v, rate].map(|x| self.b.reshape(x, &[head, heads, tokens]));
        let written = self.b.mul(taken, rate);
        let y = self.carried([head, head, heads], width, |graph, state, slot| {
            graph.delta_scan([state, r, decay, k, v, taken, written, slot])
        });

        let y = self.b.reshape(y, &[head, heads, tokens]);
        let y = self.b.norm(y, HEAD_EPSILON);
        let y = self.b.reshape(y, &[width, tokens]);
        let weight = self.weight(&self.blk("time_mix_ln.weight"), &[width])?;
        let y = self.b.mul(y, weight);
        let y = self.biased(&self.blk("time_mix_ln"), y)?;
        let r_k = self.b.reshape(r_k?, &[head, heads]);
        let bonus = self.b.mul(k, r);
        let bonus = self.b.mul(bonus, r_k);
        let bonus = self.b.sum_rows(bonus);
        let bonus = self.b.mul(v, bonus);
        let bonus = self.b.reshape(bonus, &[width, tokens]);
        let y = self.b.add(y, bonus);
        let y = self.b.mul(y, gate);
        self.product(&self.blk("time_mix_output"), y, width)
    }

    /// The other part of a layer, with what comes in added.
    pub(super) fn channel_mix(&mut self, norm: Option<&str>, x: TensorId) -> Result<TensorId, Error> {
        let (width, hidden) = (self.config.width, self.sizes().hidden);
        let normed = self.layer_norm(norm, x)?;
        let before = self.shifted("channel", normed);
        let before = self.wanted_rows(before, before).0;
        let (normed, kept) = self.wanted_rows(normed, x);
        let change = self.b.sub(before, normed);
        let share = self.weight(&self.blk("channel_mix_lerp_k.weight"), &[width])?;
        let mixed = self.b.mul(change, share);
        let mixed = self.b.add(mixed, normed);
        let k = self.product(&self.blk("channel_mix_key"), mixed, hidden)?;
        let k = self.b.unary(Unary::Relu, k);
        let k = self.b.sqr(k);
        let fed = self.product(&self.blk("channel_mix_value"), k, width)?;
        Ok(self.b.add(fed, kept))
    }

    /// Values, mixed with those of the first layer.
    fn with_first_values(&mut self, v: TensorId, x: TensorId) -> Result<TensorId, Error> {
        let Some(first) = self.first_values else {
            self.first_values = Some(v);
            return Ok(v);
        };
        let share = self.sigmoid("v", x, None)?;
        let change = self.b.sub(first, v);
        let change = self.b.mul(change, share);
        Ok(self.b.add(v, change))
    }

    /// A product with two small matrices, and a function between them.
    fn low_rank(&mut self, which: &str, x: TensorId, function: Option<Unary>) -> Result<TensorId, Error> {
        let [down, up] = [1, 2].map(|number| self.blk(&format!("time_mix_{which}{number}")));
        let rank = self.columns_of(&down).unwrap_or(1);
        let mut small = self.product(&down, x, rank)?;
        if let Some(function) = function {
            small = self.b.unary(function, small);
        }
        self.product(&up, small, self.config.width)
    }

    /// The sigmoid of such a product plus a weight.
    fn sigmoid(&mut self, which: &str, x: TensorId, function: Option<Unary>) -> Result<TensorId, Error> {
        let product = self.low_rank(which, x, function)?;
        let shift = self.weight(&self.blk(&format!("time_mix_{which}0.weight")), &[self.config.width])?;
        let shifted = self.b.add(product, shift);
        Ok(self.b.unary(Unary::Sigmoid, shifted))
    }

    /// The row of the token before each one, including that of the run before: `[width, tokens]`.
    fn shifted(&mut self, which: &str, x: TensorId) -> TensorId {
        let (width, tokens) = (self.config.width, self.token_count());
        let (states, slot) = self.states(which, width);
        let before = self.b.get_rows(states, slot);
        let strides = self.b.desc(x).strides;
        let last = self.b.view(x, [width, 1, 1, 1], strides, (tokens - 1) * strides[1]);
        self.b.set_rows(states, last, slot);
        if tokens == 1 {
            return before;
        }
        let others = self.b.view(x, [width, tokens - 1, 1, 1], strides, 0);
        self.b.concat(&[before, others], 1)
    }
}
