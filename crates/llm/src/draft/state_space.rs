//! The state-space mixers of [Mamba 2](https://arxiv.org/abs/2405.21060) and Mamba 1.

use orlop_graph::{DType, Glu, GraphBuilder, TensorId, Unary};

use super::{CacheTensor, GraphDraft};
use crate::Error;
use crate::config::StateSpace;

impl GraphDraft<'_> {
    /// Tokens are mixed over time: a short convolution, then a scan that carries a state from token to token. The states
    /// of both are updated in place for the next run.
    pub(super) fn state_space(&mut self, x: TensorId) -> Result<TensorId, Error> {
        let sizes = self.config.state_space.unwrap_or_default();
        let StateSpace { kernel, inner, state, heads, groups } = sizes;
        let (mixed, head, tokens) = (sizes.mixed(), inner / heads, self.token_count());
        let all = self.linear(&self.blk("ssm_in"), x, inner + mixed + heads)?;
        let z = self.columns(all, 0, [inner, 1]);
        let mixed_in = self.columns(all, inner, [mixed, 1]);
        let steps = self.columns(all, inner + mixed, [heads, 1]);

        // [mixed, tokens]
        let convolved = self.convolution(&self.blk("ssm_conv1d"), [kernel, mixed], mixed_in)?;
        let convolved = self.b.unary(Unary::Silu, convolved);
        let x = self.columns(convolved, 0, [head, heads]);
        let b = self.columns(convolved, inner, [state, groups]);
        let c = self.columns(convolved, inner + groups * state, [state, groups]);
        let bias = self.weight(&self.blk("ssm_dt.bias"), &[heads])?;
        let steps = self.b.cont(steps);
        let steps = self.b.reshape(steps, &[heads, tokens]);
        let steps = self.b.add(steps, bias);
        let decay = self.weight(&self.blk("ssm_a"), &[1, heads])?;
        let y = self.scanned([state, head, heads], [x, steps, decay, b, c]);

        let skip = self.weight(&self.blk("ssm_d"), &[1, heads])?;
        let skipped = self.b.mul(x, skip);
        let y = self.b.add(y, skipped);
        let y = self.b.reshape(y, &[inner, tokens]);
        let gated = self.gated_scan(z, y);
        let rows = if self.has(&self.blk("ssm_norm.weight")) {
            let grouped = self.b.reshape(gated, &[inner / groups, groups, tokens]);
            let extents = [inner / groups, groups];
            let normed = self.norm_with(&self.blk("ssm_norm"), grouped, &extents, self.config.epsilon)?;
            self.b.reshape(normed, &[inner, tokens])
        } else {
            gated
        };
        self.linear(&self.blk("ssm_out"), rows, self.config.width)
    }

    /// The mixer of [Mamba 1](https://arxiv.org/abs/2312.00752): every element is a head with decays of its own, and steps
    /// are made from a smaller row.
    pub(super) fn mamba1(&mut self, x: TensorId) -> Result<TensorId, Error> {
        let StateSpace { kernel, inner, state, heads: rank, .. } =
            self.config.state_space.unwrap_or_default();
        let tokens = self.token_count();
        let both = self.linear(&self.blk("ssm_in"), x, 2 * inner)?;
        let x = self.columns(both, 0, [inner, 1]);
        let z = self.columns(both, inner, [inner, 1]);
        let convolved = self.convolution(&self.blk("ssm_conv1d"), [kernel, inner], x)?;
        let x = self.b.unary(Unary::Silu, convolved);
        let parts = self.linear(&self.blk("ssm_x"), x, rank + 2 * state)?;
        let steps = self.columns(parts, 0, [rank, 1]);
        let b = self.columns(parts, rank, [state, 1]);
        let c = self.columns(parts, rank + state, [state, 1]);
        let [mut steps, mut b, mut c] = [steps, b, c].map(|part| self.b.cont(part));
        for (part, stem) in [(&mut steps, "dt_norm"), (&mut b, "b_norm"), (&mut c, "c_norm")] {
            if self.has(&self.blk(&format!("ssm_{stem}.weight"))) {
                *part = self.norm(&self.blk(&format!("ssm_{stem}")), *part)?;
            } else if self.config.norms_steps {
                *part = self.b.rms_norm(*part, self.config.epsilon);
            }
        }
        let steps = self.b.reshape(steps, &[rank, tokens]);
        let steps = self.linear(&self.blk("ssm_dt"), steps, inner)?;
        let decay = self.weight(&self.blk("ssm_a"), &[state, inner])?;
        let heads = self.b.reshape(x, &[1, inner, tokens]);
        let y = self.scanned([state, 1, inner], [heads, steps, decay, b, c]);
        let y = self.b.reshape(y, &[inner, tokens]);
        let skip = self.weight(&self.blk("ssm_d"), &[inner])?;
        let skipped = self.b.mul(x, skip);
        let y = self.b.add(y, skipped);
        let rows = self.gated_scan(z, y);
        self.linear(&self.blk("ssm_out"), rows, self.config.width)
    }

    fn gated_scan(&mut self, z: TensorId, y: TensorId) -> TensorId {
        let z = self.b.cont(z);
        let extents = self.b.desc(y).extents;
        let z = self.b.reshape(z, &extents[..2]);
        self.b.gated(Glu::Silu, z, y)
    }

    /// The scan of x, steps, decays, B and C: `[head, heads, tokens]`.
    fn scanned(
        &mut self,
        [state, head, heads]: [u64; 3],
        [x, steps, decay, b, c]: [TensorId; 5],
    ) -> TensorId {
        let y = self.carried([state, head, heads], head * heads, |graph, before, slot| {
            graph.ssm_scan([before, x, steps, decay, b, c, slot])
        });
        self.b.reshape(y, &[head, heads, self.token_count()])
    }

    /// A scan that gives rows of `inner` outputs and then the state after them, which is kept for the next run:
    /// `[inner, tokens]`.
    pub(super) fn carried(
        &mut self,
        [a, b, c]: [u64; 3],
        inner: u64,
        scan: impl FnOnce(&mut GraphBuilder, TensorId, TensorId) -> TensorId,
    ) -> TensorId {
        let (state, tokens) = (a * b * c, self.token_count());
        let (states, slot) = self.states("ssm", state);
        let before = self.b.reshape(states, &[a, b, c, self.spec.sizes.sequences]);
        let scanned = scan(&mut self.b, before, slot);
        let element = self.b.desc(scanned).strides[0];
        let row = |count: u64| [element, count * element, count * element, count * element];
        let after = self.b.view(scanned, [state, 1, 1, 1], row(state), inner * tokens * element);
        self.b.set_rows(states, after, slot);
        self.b.view(scanned, [inner, tokens, 1, 1], row(inner), 0)
    }

    /// The states of a layer, one row for each sequence, and the row of this one.
    pub(super) fn states(&mut self, which: &str, elements: u64) -> (TensorId, TensorId) {
        let extents = [elements, self.spec.sizes.sequences];
        let states = self.b.state(&format!("cache.{which}.{}", self.layer), DType::F32, &extents);
        self.caches.push(CacheTensor { tensor: states, layer: self.layer, group: None });
        let slot = match self.slot {
            Some(slot) => slot,
            None => self.b.input("sequence", DType::I32, &[1]),
        };
        self.slot = Some(slot);
        (states, slot)
    }
}
