//! Convolutions over the last few tokens, and the mixer of [LFM 2](https://arxiv.org/abs/2511.23404).

use orlop_graph::TensorId;

use super::GraphDraft;
use crate::Error;

impl GraphDraft<'_> {
    /// `c * convolution(b * x)`, where b, c and x are parts of one product.
    pub(super) fn short_convolution(&mut self, x: TensorId) -> Result<TensorId, Error> {
        let (width, kernel) = (self.config.width, self.config.short_convolution.unwrap_or(2));
        let parts = self.linear(&self.blk("shortconv.in_proj"), x, 3 * width)?;
        let [b, c, x] = [0, 1, 2].map(|part| self.columns(parts, part * width, [width, 1]));
        let gated = self.b.mul(b, x);
        let convolved = self.convolution(&self.blk("shortconv.conv"), [kernel, width], gated)?;
        let convolved = self.b.reshape(convolved, &[width, 1, self.token_count()]);
        let gated = self.b.mul(c, convolved);
        let rows = self.b.reshape(gated, &[width, self.token_count()]);
        self.linear(&self.blk("shortconv.out_proj"), rows, width)
    }

    /// The convolution of each column over its last few tokens, including those of the run before: `[width, tokens]`.
    pub(super) fn convolution(
        &mut self,
        stem: &str,
        [kernel, width]: [u64; 2],
        x: TensorId,
    ) -> Result<TensorId, Error> {
        let tokens = self.token_count();
        let (states, slot) = self.states("conv", (kernel - 1) * width);
        let before = self.b.get_rows(states, slot);
        let before = self.b.reshape(before, &[kernel - 1, width]);
        let [element, _, token, outer] = self.b.desc(x).strides;
        let columns = self.b.view(x, [tokens, width, 1, 1], [token, element, outer, outer], 0);
        let all = self.b.concat(&[before, columns], 0);
        let strides = self.b.desc(all).strides;
        let last = self.b.view(all, [kernel - 1, width, 1, 1], strides, tokens * strides[0]);
        let last = self.b.cont(last);
        let last = self.b.reshape(last, &[(kernel - 1) * width]);
        self.b.set_rows(states, last, slot);
        let weight = self.weight(&format!("{stem}.weight"), &[kernel, width])?;
        let convolved = self.b.ssm_conv(all, weight);
        self.biased(stem, convolved)
    }
}
