//! Perplexity of a text, as llama.cpp's
//! [`llama-perplexity`](https://github.com/ggml-org/llama.cpp/tree/master/tools/perplexity) computes it: the text is cut
//! into chunks that do not overlap, each is fed to an empty cache, and the second half of each is scored.
//!
//! Where the tokenizer adds a token at the beginning (BOS), it also stands at the beginning of every chunk, in place of
//! the chunk's first token, because such models were trained on texts that begin with it. That token is in the first
//! half, so the number of tokens that are scored does not change. Otherwise chunks are fed as they are.

use crate::{Engine, Error, LogitsRow, Part, SequenceId};

/// How a text is scored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerplexityOptions {
    /// Tokens of a chunk; at least 3.
    pub chunk: usize,
    /// The token that replaces the first one of every chunk ([`Tokenizer::added_bos`](crate::Tokenizer::added_bos)).
    pub bos: Option<u32>,
}

/// How surprised a model is by a text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Perplexity {
    /// The exponential of the mean surprise.
    pub value: f64,
    /// Its standard error.
    pub error: f64,
    /// Tokens that were scored.
    pub scored: usize,
    /// Chunks that were scored.
    pub chunks: usize,
}

/// Scores the second half of every chunk of tokens, each chunk on its own; what is left at the end is dropped.
/// `progress` sees the value so far after each chunk, and how many there will be.
///
/// The tokens are those of the whole text, with a BOS before it if the tokenizer adds one. The engine must give every
/// token's logits ([`crate::Outputs::All`]).
///
/// # Errors
/// [`Error::BadSetting`] for chunks of fewer than 3 tokens, [`Error::TextTooShort`] if there is no whole chunk, and as
/// [`Engine::feed`].
pub fn perplexity(
    engine: &mut Engine,
    tokens: &[u32],
    options: PerplexityOptions,
    progress: &mut dyn FnMut(Perplexity, usize),
) -> Result<Perplexity, Error> {
    let PerplexityOptions { chunk: length, bos } = options;
    if length < 3 {
        let (setting, value) = ("the length of chunks", length.to_string());
        let rule = "it must be at least 3, for a token to be scored in the second half";
        return Err(Error::BadSetting { setting, value, rule });
    }
    let chunks = tokens.len() / length;
    if chunks == 0 {
        return Err(Error::TextTooShort { tokens: tokens.len(), needed: length });
    }
    let (mut sum, mut squares, mut scored) = (0.0, 0.0, 0);
    let mut result = Perplexity { value: f64::NAN, error: f64::NAN, scored: 0, chunks: 0 };
    for (index, chunk) in tokens.chunks_exact(length).enumerate() {
        let mut fed = chunk.to_vec();
        if let Some(bos) = bos {
            fed[0] = bos;
        }
        engine.truncate(0);
        engine.feed_parts(&[Part::all(SequenceId::FIRST, &fed)], &mut |mut rows| {
            for LogitsRow { index, logits, .. } in rows.logits()? {
                if let Some(next) = chunk.get(index + 1).filter(|_| index >= length / 2) {
                    let surprise = surprise(logits, *next as usize);
                    sum += surprise;
                    squares += surprise * surprise;
                    scored += 1;
                }
            }
            Ok(())
        })?;
        let count = f64::from(scored);
        let mean = sum / count;
        let variance = (squares / count - mean * mean).max(0.0);
        let value = mean.exp();
        let error = if scored > 1 { value * (variance / (count - 1.0)).sqrt() } else { f64::NAN };
        result = Perplexity { value, error, scored: scored as usize, chunks: index + 1 };
        progress(result, chunks);
    }
    Ok(result)
}

/// Minus the logarithm of a token's probability.
fn surprise(logits: &[f32], token: usize) -> f64 {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|logit| f64::from(logit - largest).exp()).sum();
    sum.ln() - f64::from(logits[token] - largest)
}
