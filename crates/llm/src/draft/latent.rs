//! [Latent attention](https://arxiv.org/abs/2405.04434): keys and values of all heads are made from one small row of each
//! token, beside which one key for all heads holds the position.

use orlop_graph::TensorId;

use super::GraphDraft;
use crate::Error;
use crate::config::Latent;

impl GraphDraft<'_> {
    pub(super) fn latent_attention(&mut self, x: TensorId) -> Result<TensorId, Error> {
        let Some(sizes) = self.config.latent else { return Ok(x) };
        let Latent { rank, fixed, turned, value, absorbed, .. } = sizes;
        let (heads, tokens) = (self.sizes().heads, self.token_count());
        let q = self.latent_queries(&sizes, x)?;
        let q = self.b.reshape(q, &[fixed + turned, heads, tokens]);
        let [q_fixed, q_turned] = self.split_heads(q, [fixed, turned]);
        let q_turned = self.rope(q_turned);
        let rows = self.linear(&self.blk("attn_kv_a_mqa"), x, rank + turned)?;
        let row = self.columns(rows, 0, [rank, 1]);
        let row = self.norm(&self.blk("attn_kv_a_norm"), row)?;
        let k_turned = self.columns(rows, rank, [turned, 1]);
        let k_turned = self.rope(k_turned);
        let attended = if absorbed {
            let q_fixed = self.by_head(&self.blk("attn_k_b"), q_fixed, [fixed, rank, heads])?;
            let q = self.b.concat(&[q_fixed, q_turned], 0);
            let k = self.b.concat(&[row, k_turned], 0);
            self.store([k, row]);
            let attended = self.attended(q)?;
            let attended = self.by_head(&self.blk("attn_v_b"), attended, [rank, value, heads])?;
            self.b.cont(attended)
        } else {
            let row = self.b.reshape(row, &[rank, tokens]);
            let both = self.linear(&self.blk("attn_kv_b"), row, heads * (fixed + value))?;
            let both = self.b.reshape(both, &[fixed + value, heads, tokens]);
            let [k_fixed, v] = self.split_heads(both, [fixed, value]);
            let k_turned = self.b.repeat(k_turned, [turned, heads, tokens, 1]);
            let q = self.b.concat(&[q_fixed, q_turned], 0);
            let k = self.b.concat(&[k_fixed, k_turned], 0);
            self.store([k, v]);
            self.attended(q)?
        };
        let rows = self.b.reshape(attended, &[value * heads, tokens]);
        self.linear(&self.blk("attn_output"), rows, self.config.width)
    }

    /// Queries of all heads, in large models by way of a smaller row.
    fn latent_queries(&mut self, sizes: &Latent, x: TensorId) -> Result<TensorId, Error> {
        let all = (sizes.fixed + sizes.turned) * self.sizes().heads;
        match sizes.query {
            Some(query) if self.has(&self.blk("attn_q_a.weight")) => {
                let small = self.linear(&self.blk("attn_q_a"), x, query)?;
                let small = self.norm(&self.blk("attn_q_a_norm"), small)?;
                self.linear(&self.blk("attn_q_b"), small, all)
            }
            _ => self.linear(&self.blk("attn_q"), x, all),
        }
    }

    /// The two parts of each head: `[part, heads, tokens]`.
    pub(super) fn split_heads(&mut self, x: TensorId, [first, second]: [u64; 2]) -> [TensorId; 2] {
        let desc = self.b.desc(x);
        let [_, heads, tokens, _] = desc.extents;
        [(0, first), (first, second)].map(|(offset, part)| {
            self.b.view(x, [part, heads, tokens, 1], desc.strides, offset * desc.strides[0])
        })
    }

    /// The product of each head with a matrix of its own.
    fn by_head(&mut self, stem: &str, x: TensorId, extents: [u64; 3]) -> Result<TensorId, Error> {
        let matrices = self.weight(&format!("{stem}.weight"), &extents)?;
        let x = self.b.permute(x, [0, 2, 1, 3]);
        let x = self.b.cont(x);
        let product = self.b.mul_mat(matrices, x);
        let product = self.scaled(stem, product)?;
        Ok(self.b.permute(product, [0, 2, 1, 3]))
    }
}
