use crate::{Engine, Error};

/// How surprised a model is by a text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Perplexity {
    /// The exponential of the mean surprise.
    pub value: f64,
    /// Its standard error.
    pub error: f64,
    /// Tokens that were scored.
    pub scored: usize,
    /// Pieces of text that they were in.
    pub chunks: usize,
}

/// Scores the second half of every chunk of `length` tokens, each chunk on its own; what is left at the end is dropped.
/// `progress` sees the value so far after each chunk, and how many there will be.
///
/// The engine must give every token's logits ([`crate::Outputs::All`]).
///
/// # Errors
/// [`Error::BadSetting`] for a `length` of less than 3, [`Error::TextTooShort`] if there is no whole chunk, and as
/// [`Engine::feed_each`].
pub fn perplexity(
    engine: &mut Engine,
    tokens: &[u32],
    length: usize,
    progress: &mut dyn FnMut(Perplexity, usize),
) -> Result<Perplexity, Error> {
    if length < 3 {
        let (setting, value) = ("the length of chunks (-c)", length.to_string());
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
        engine.truncate(0);
        engine.feed_each(chunk, &mut |position, logits| {
            if let Some(next) = chunk.get(position + 1).filter(|_| position >= length / 2) {
                let surprise = surprise(logits, *next as usize);
                sum += surprise;
                squares += surprise * surprise;
                scored += 1;
            }
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
