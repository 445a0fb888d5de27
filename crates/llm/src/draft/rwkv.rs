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
    pub(super) fn time_mix(&mut self, layer: usize, x: TensorId) -> Result<TensorId, Error> {
        let StateSpace { inner: width, state: head, heads, .. } = self.config.state_space.unwrap_or_default();
        let tokens = self.token_count();
        let name = |part: &str| format!("blk.{layer}.time_mix_{part}");
        let before = self.shifted(layer, "time", x);
        let change = self.b.sub(before, x);
        let shares = self.weight(&format!("{}.weight", name("lerp_fused")), &[width, 1, 1, 6])?;
        let [element, .., part] = self.b.desc(shares).strides;
        let [x_r, x_w, x_k, x_v, x_a, x_g] = [0, 1, 2, 3, 4, 5].map(|number| {
            let strides = [element, width * element, width * element, width * element];
            let share = self.b.view(shares, [width, 1, 1, 1], strides, number * part);
            let mixed = self.b.mul(change, share);
            self.b.add(mixed, x)
        });

        let r = self.product(&name("receptance"), x_r, width)?;
        let k = self.product(&name("key"), x_k, width)?;
        let v = self.product(&name("value"), x_v, width)?;
        let v = self.with_first_values(layer, v, x_v)?;
        let decay = self.low_rank(layer, "w", x_w, Some(Unary::Tanh))?;
        let decay = self.shifted_sigmoid(layer, "w", decay)?;
        let decay = self.b.scale(decay, DECAY);
        let decay = self.b.unary(Unary::Exp, decay);
        let rate = self.low_rank(layer, "a", x_a, None)?;
        let rate = self.shifted_sigmoid(layer, "a", rate)?;
        let gate = self.low_rank(layer, "g", x_g, Some(Unary::Sigmoid))?;

        let [k_k, k_a, r_k] =
            ["k_k", "k_a", "r_k"].map(|part| self.weight(&format!("{}.weight", name(part)), &[width]));
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
        let y = self.carried(layer, [head, head, heads], width, |graph, state, slot| {
            graph.delta_scan([state, r, decay, k, v, taken, written, slot])
        });

        let y = self.b.reshape(y, &[head, heads, tokens]);
        let y = self.b.norm(y, HEAD_EPSILON);
        let y = self.b.reshape(y, &[width, tokens]);
        let weight = self.weight(&format!("{}.weight", name("ln")), &[width])?;
        let y = self.b.mul(y, weight);
        let y = self.biased(&name("ln"), y)?;
        let r_k = self.b.reshape(r_k?, &[head, heads]);
        let bonus = self.b.mul(k, r);
        let bonus = self.b.mul(bonus, r_k);
        let bonus = self.b.sum_rows(bonus);
        let bonus = self.b.mul(v, bonus);
        let bonus = self.b.reshape(bonus, &[width, tokens]);
        let y = self.b.add(y, bonus);
        let y = self.b.mul(y, gate);
        self.product(&name("output"), y, width)
    }

    /// The other part of a layer, with what comes in added.
    pub(super) fn channel_mix(
        &mut self,
        layer: usize,
        norm: Option<&str>,
        x: TensorId,
    ) -> Result<TensorId, Error> {
        let (width, hidden) = (self.config.width, self.config.layers[layer].hidden);
        let name = |part: &str| format!("blk.{layer}.channel_mix_{part}");
        let normed = self.layer_norm(layer, norm, x)?;
        let before = self.shifted(layer, "channel", normed);
        let before = self.wanted_rows(layer, before, before).0;
        let (normed, kept) = self.wanted_rows(layer, normed, x);
        let change = self.b.sub(before, normed);
        let share = self.weight(&format!("{}.weight", name("lerp_k")), &[width])?;
        let mixed = self.b.mul(change, share);
        let mixed = self.b.add(mixed, normed);
        let k = self.product(&name("key"), mixed, hidden)?;
        let k = self.b.unary(Unary::Relu, k);
        let k = self.b.sqr(k);
        let fed = self.product(&name("value"), k, width)?;
        Ok(self.b.add(fed, kept))
    }

    /// Values, mixed with those of the first layer.
    fn with_first_values(&mut self, layer: usize, v: TensorId, x: TensorId) -> Result<TensorId, Error> {
        let Some(first) = self.first_values else {
            self.first_values = Some(v);
            return Ok(v);
        };
        let share = self.low_rank(layer, "v", x, None)?;
        let share = self.shifted_sigmoid(layer, "v", share)?;
        let change = self.b.sub(first, v);
        let change = self.b.mul(change, share);
        Ok(self.b.add(v, change))
    }

    /// A product with two small matrices, and a function between them.
    fn low_rank(
        &mut self,
        layer: usize,
        which: &str,
        x: TensorId,
        function: Option<Unary>,
    ) -> Result<TensorId, Error> {
        let [down, up] = [1, 2].map(|number| format!("blk.{layer}.time_mix_{which}{number}"));
        let tensor = self.spec.file.tensor(&format!("{down}.weight"));
        let rank = tensor.and_then(|tensor| tensor.extents().get(1).copied()).unwrap_or(1);
        let mut small = self.product(&down, x, rank)?;
        if let Some(function) = function {
            small = self.b.unary(function, small);
        }
        self.product(&up, small, self.config.width)
    }

    fn shifted_sigmoid(&mut self, layer: usize, which: &str, x: TensorId) -> Result<TensorId, Error> {
        let shift = self.weight(&format!("blk.{layer}.time_mix_{which}0.weight"), &[self.config.width])?;
        let shifted = self.b.add(x, shift);
        Ok(self.b.unary(Unary::Sigmoid, shifted))
    }

    /// The row of the token before each one, including that of the run before: `[width, tokens]`.
    fn shifted(&mut self, layer: usize, which: &str, x: TensorId) -> TensorId {
        let (width, tokens) = (self.config.width, self.token_count());
        let (states, slot) = self.states(layer, which, width);
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
