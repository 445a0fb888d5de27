//! Embeddings that each token has for each layer, as in [Gemma 3n](https://ai.google.dev/gemma/docs/gemma-3n) and Gemma 4.

use std::f32::consts::FRAC_1_SQRT_2;

use orlop_graph::{TensorId, Unary};

use super::GraphDraft;
use crate::Error;

impl GraphDraft<'_> {
    /// The sum of rows of a table and of a product with the embeddings: `[elements, layers, tokens]`.
    pub(super) fn embed_layers(&mut self, x: TensorId) -> Result<(), Error> {
        let (width, each) = (self.config.width, self.config.layer_embedding);
        if each == 0 {
            return Ok(());
        }
        let (layers, tokens) = (self.layers() as u64, self.token_count());
        let table = self.weight("per_layer_token_embd.weight", &[each * layers, self.config.vocabulary])?;
        let rows = self.b.get_rows(table, self.tokens);
        let rows = self.b.scale(rows, (each as f32).sqrt());
        let rows = self.b.reshape(rows, &[each, layers, tokens]);
        let product = self.product("per_layer_model_proj", x, each * layers)?;
        let product = self.b.scale(product, 1.0 / (width as f32).sqrt());
        let product = self.b.reshape(product, &[each, layers, tokens]);
        let normed = self.norm("per_layer_proj_norm", product)?;
        let sum = self.b.add(normed, rows);
        self.layer_embeddings = Some(self.b.scale(sum, FRAC_1_SQRT_2));
        Ok(())
    }

    /// What a layer adds of its embeddings, and the factor of its result, where the file has one.
    pub(super) fn layer_end(&mut self, mut x: TensorId) -> Result<TensorId, Error> {
        if let Some(embeddings) = self.layer_embeddings {
            let each = self.config.layer_embedding;
            let [element, row, token, outer] = self.b.desc(embeddings).strides;
            let extents = [each, self.token_count(), 1, 1];
            let own =
                self.b.view(embeddings, extents, [element, token, outer, outer], self.layer as u64 * row);
            let own = self.b.cont(own);
            let own = self.wanted_rows(own, own).0;
            let gate = self.product(&self.blk("inp_gate"), x, each)?;
            let gate = self.b.unary(Unary::Gelu, gate);
            let gated = self.b.mul(gate, own);
            let added = self.product(&self.blk("proj"), gated, self.config.width)?;
            let added = self.norm(&self.blk("post_norm"), added)?;
            x = self.b.add(x, added);
        }
        Ok(match self.optional(&self.blk("layer_output_scale.weight"), &[1])? {
            Some(scale) => self.b.mul(x, scale),
            None => x,
        })
    }
}
