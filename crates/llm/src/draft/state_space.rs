//! The state-space mixer of [Mamba 2](https://arxiv.org/abs/2405.21060).

use orlop_graph::{DType, Glu, TensorId, Unary};

use super::{CacheTensor, GraphDraft};
use crate::Error;
use crate::config::StateSpace;

impl GraphDraft<'_> {
    /// Tokens are mixed over time: a short convolution, then a scan that carries a state from token to token. The states
    /// of both are updated in place for the next run.
    pub(super) fn state_space(&mut self, layer: usize, x: TensorId) -> Result<TensorId, Error> {
        let sizes = self.config.state_space.unwrap_or_default();
        let StateSpace { inner, state, heads, groups, .. } = sizes;
        let (mixed, head, tokens) = (sizes.mixed(), inner / heads, self.token_count());
        let name = |part: &str| format!("blk.{layer}.ssm_{part}");
        let all = self.linear(&name("in"), x, inner + mixed + heads)?;
        let z = self.columns(all, 0, [inner, 1]);
        let mixed_in = self.columns(all, inner, [mixed, 1]);
        let steps = self.columns(all, inner + mixed, [heads, 1]);

        // [mixed, tokens]
        let convolved = self.convolved(layer, &sizes, mixed_in)?;
        let x = self.columns(convolved, 0, [head, heads]);
        let b = self.columns(convolved, inner, [state, groups]);
        let c = self.columns(convolved, inner + groups * state, [state, groups]);
        let bias = self.weight(&format!("{}.bias", name("dt")), &[heads])?;
        let steps = self.b.cont(steps);
        let steps = self.b.reshape(steps, &[heads, tokens]);
        let steps = self.b.add(steps, bias);
        let decay = self.weight(&name("a"), &[1, heads])?;

        let (states, slot) = self.states(layer, "ssm", state * inner);
        let before = self.b.reshape(states, &[state, head, heads, self.sketch.sizes.sequences]);
        let scanned = self.b.ssm_scan([before, x, steps, decay, b, c, slot]);
        let element = self.b.desc(scanned).strides[0];
        let row = |count: u64| [element, count * element, count * element, count * element];
        let after =
            self.b.view(scanned, [state * inner, 1, 1, 1], row(state * inner), inner * tokens * element);
        self.b.set_rows(states, after, slot);
        let y = self.b.view(scanned, [inner, tokens, 1, 1], row(inner), 0);
        let y = self.b.reshape(y, &[head, heads, tokens]);

        let skip = self.weight(&name("d"), &[1, heads])?;
        let skipped = self.b.mul(x, skip);
        let y = self.b.add(y, skipped);
        let y = self.b.reshape(y, &[inner, tokens]);
        let z = self.b.cont(z);
        let z = self.b.reshape(z, &[inner, tokens]);
        let gated = self.b.gated(Glu::Silu, z, y);
        let grouped = self.b.reshape(gated, &[inner / groups, groups, tokens]);
        let normed = self.b.rms_norm(grouped, self.config.epsilon);
        let weight = self.weight(&format!("{}.weight", name("norm")), &[inner / groups, groups])?;
        let normed = self.b.mul(normed, weight);
        let rows = self.b.reshape(normed, &[inner, tokens]);
        self.linear(&name("out"), rows, self.config.width)
    }

    /// The convolution of each column over its last few tokens, including those of the run before.
    fn convolved(&mut self, layer: usize, sizes: &StateSpace, x: TensorId) -> Result<TensorId, Error> {
        let (mixed, kernel, tokens) = (sizes.mixed(), sizes.kernel, self.token_count());
        let (states, slot) = self.states(layer, "conv", (kernel - 1) * mixed);
        let before = self.b.get_rows(states, slot);
        let before = self.b.reshape(before, &[kernel - 1, mixed]);
        let [element, _, token, outer] = self.b.desc(x).strides;
        let columns = self.b.view(x, [tokens, mixed, 1, 1], [token, element, outer, outer], 0);
        let all = self.b.concat(&[before, columns], 0);
        let strides = self.b.desc(all).strides;
        let last = self.b.view(all, [kernel - 1, mixed, 1, 1], strides, tokens * strides[0]);
        let last = self.b.cont(last);
        let last = self.b.reshape(last, &[(kernel - 1) * mixed]);
        self.b.set_rows(states, last, slot);
        let weight = self.weight(&format!("blk.{layer}.ssm_conv1d.weight"), &[kernel, mixed])?;
        let convolved = self.b.ssm_conv(all, weight);
        let bias = self.weight(&format!("blk.{layer}.ssm_conv1d.bias"), &[mixed])?;
        let biased = self.b.add(convolved, bias);
        Ok(self.b.unary(Unary::Silu, biased))
    }

    /// The states of a layer, one row for each sequence, and the row of this one.
    fn states(&mut self, layer: usize, which: &str, elements: u64) -> (TensorId, TensorId) {
        let extents = [elements, self.sketch.sizes.sequences];
        let states = self.b.state(&format!("cache.{which}.{layer}"), DType::F32, &extents);
        self.caches.push(CacheTensor { tensor: states, layer, group: None });
        let slot = match self.slot {
            Some(slot) => slot,
            None => self.b.input("sequence", DType::I32, &[1]),
        };
        self.slot = Some(slot);
        (states, slot)
    }
}
