//! Embeddings of texts.

use std::path::PathBuf;

use orlop::llm::{Embedder, Special};
use pyo3::prelude::*;

use crate::array::Numbers;
use crate::error::raised;
use crate::model::{LoadRequest, open};
use crate::shared::Shared;

/// A model that makes embeddings.
#[pyclass(frozen, module = "orlop._orlop")]
pub(crate) struct TextEmbedder {
    shared: Shared<Embedder>,
    #[pyo3(get)]
    dimensions: u64,
    #[pyo3(get)]
    longest_text: u64,
}

#[pymethods]
impl TextEmbedder {
    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf, options: &str) -> PyResult<TextEmbedder> {
        let options = LoadRequest::read(options)?.options()?;
        py.detach(|| {
            let embedder = options.load_embedder(&open(&path)?).map_err(raised)?;
            let (dimensions, longest_text) = (embedder.dimensions(), embedder.longest_text());
            Ok(TextEmbedder { shared: Shared::new("model", embedder), dimensions, longest_text })
        })
    }

    /// A row for each text, normalized to length 1 or not, and the tokens of all texts. Longer texts than there may be are
    /// truncated or refused.
    fn embed(
        &self,
        py: Python<'_>,
        texts: Vec<String>,
        normalize: bool,
        truncate: bool,
    ) -> PyResult<(Numbers, usize)> {
        let most = if truncate { self.longest_text as usize } else { usize::MAX };
        let made = self.shared.compute(py, |embedder, cancel| {
            let tokenizer = embedder.tokenizer()?;
            let tokens = |text: &String| {
                let mut tokens = tokenizer.prompt(text, Special::Parse);
                tokens.truncate(most);
                tokens
            };
            let tokens: Vec<Vec<u32>> = texts.iter().map(tokens).collect();
            embedder.cancel_with(Some(cancel.clone()));
            let made =
                if normalize { embedder.embed_tokens(&tokens) } else { embedder.embed_unscaled(&tokens) };
            embedder.cancel_with(None);
            made
        })?;
        let shape = vec![texts.len() as u64, self.dimensions];
        Ok((Numbers::floats(made.rows.concat(), shape), made.tokens))
    }

    /// A score of each document for a query, by a model that is a classifier of pairs.
    fn rerank(&self, py: Python<'_>, query: &str, documents: Vec<String>) -> PyResult<Vec<f32>> {
        self.shared.compute(py, |embedder, cancel| {
            embedder.cancel_with(Some(cancel.clone()));
            let scores = embedder.rerank(query, &documents);
            embedder.cancel_with(None);
            scores
        })
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.shared.close(py)
    }
}
