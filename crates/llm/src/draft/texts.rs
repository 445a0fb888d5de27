//! Whole texts, one behind the other, without a cache: each token sees a range of the run's rows, and a row of each text comes
//! out: an embedding, or the scores of a classifier.

use orlop_graph::{DType, FlashAttention, TensorId, Unary};

use super::{GraphDraft, ModelPart};
use crate::Error;
use crate::arch::{Classifier, Positions, Residual};
use crate::pooling::Pooling;

/// The largest bias of [ALiBi](https://arxiv.org/abs/2108.12409), from which the heads' slopes follow.
const MAX_BIAS: f32 = 8.0;

/// What a graph is told of texts.
#[derive(Clone, Debug)]
pub(crate) struct TextInputs {
    /// The rows that each token sees, for each window.
    pub(crate) ranges: Vec<TextRange>,
    /// The row of each text, or the part that each token has in it.
    pub(crate) pooled: TensorId,
    /// Minus the distance of each pair of tokens.
    pub(crate) distances: Option<TensorId>,
}

/// The first row that each token sees, and the one behind the last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TextRange {
    pub(crate) window: Option<u32>,
    pub(crate) first: TensorId,
    pub(crate) end: TensorId,
}

impl GraphDraft<'_> {
    /// The inputs of texts, if the graph is one of texts.
    pub(super) fn text_inputs(&mut self, pooling: Pooling) -> TextInputs {
        let super::BatchShape { tokens, outputs } = self.spec.shape;
        let mut ranges: Vec<TextRange> = Vec::new();
        for layer in &self.config.layers {
            let window = layer.window;
            if ranges.iter().all(|range| range.window != window) {
                let of = window.map_or(String::new(), |window| format!(" of a window of {window}"));
                let first = self.b.input(&format!("first row seen{of}"), DType::I32, &[tokens]);
                let end = self.b.input(&format!("row behind those seen{of}"), DType::I32, &[tokens]);
                ranges.push(TextRange { window, first, end });
            }
        }
        let pooled = match pooling.is_mean(self.config) {
            true => self.b.input("parts of texts", DType::F32, &[tokens, outputs]),
            false => self.b.input("rows of texts", DType::I32, &[outputs]),
        };
        let distances = (self.facts.positions == Positions::Distances)
            .then(|| self.b.input("distances", DType::F32, &[tokens, tokens]));
        if !pooling.is_mean(self.config) {
            self.wanted = Some(pooled);
        }
        TextInputs { ranges, pooled, distances }
    }

    /// Attends to the rows of each token's text: `[value, heads, tokens]`.
    pub(super) fn attended_texts(
        &mut self,
        q: TensorId,
        [k, v]: [TensorId; 2],
        texts: &TextInputs,
    ) -> TensorId {
        let window = self.sizes().window;
        let range = texts.ranges.iter().find(|range| range.window == window).unwrap_or(&texts.ranges[0]);
        let max_bias = if texts.distances.is_some() { MAX_BIAS } else { 0.0 };
        let parameters = FlashAttention { max_bias, ..self.scores() };
        self.b.ranged_attention([q, k, v], [range.first, range.end], texts.distances, parameters)
    }

    /// The norm of the output, the rows of texts, and what comes behind them.
    pub(super) fn pooled(
        &mut self,
        x: TensorId,
        pooling: Pooling,
        texts: &TextInputs,
    ) -> Result<TensorId, Error> {
        self.part = ModelPart::Output;
        let normed = self.facts.residual == Residual::NormedSums;
        let mut x = if normed { x } else { self.norm(self.facts.output_norm, x)? };
        if pooling.is_mean(self.config) {
            let columns = self.b.transpose(x);
            let columns = self.b.cont(columns);
            x = self.b.mul_mat(columns, texts.pooled);
        }
        x = match pooling {
            Pooling::Rank => self.classified(x)?,
            Pooling::Mean | Pooling::Cls | Pooling::Last => self.projected(x)?,
        };
        Ok(self.b.name(x, "rows of texts"))
    }

    /// Further products of embeddings, in files that have them.
    fn projected(&mut self, mut x: TensorId) -> Result<TensorId, Error> {
        for stem in ["dense_2", "dense_3"] {
            if let Some(into) = self.columns_of(stem) {
                x = self.linear(stem, x, into)?;
            }
        }
        Ok(x)
    }

    /// The scores of a classifier, or the probability of each of its answers.
    fn classified(&mut self, mut x: TensorId) -> Result<TensorId, Error> {
        let classifier = self.facts.classifier;
        if let Some(into) = self.columns_of("cls") {
            x = self.linear("cls", x, into)?;
            x = self.b.unary(if classifier == Classifier::Mean { Unary::GeluErf } else { Unary::Tanh }, x);
            if self.has("cls.norm.weight") {
                x = self.norm("cls.norm", x)?;
            }
        }
        if let Some(into) = self.columns_of("cls.output") {
            x = self.linear("cls.output", x, into)?;
            if classifier == Classifier::Probabilities && into > 1 {
                x = self.b.soft_max(x, None, 1.0, 0.0);
            }
        }
        Ok(x)
    }

    /// How long the results of products with a matrix are, if the file has it.
    pub(super) fn columns_of(&self, stem: &str) -> Option<u64> {
        Some(self.spec.file.tensor(&format!("{stem}.weight"))?.desc.extents[1])
    }
}
