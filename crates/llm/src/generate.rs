use std::ops::ControlFlow;

use crate::sampling::Sampler;
use crate::{Engine, Error, Tokenizer};

/// How a text came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The model ended it.
    Token,
    /// As many tokens as were asked for.
    Limit,
    /// The context is full.
    ContextFull,
    /// Whoever watched had enough.
    Stopped,
}

/// Feeds a prompt batch by batch; `progress` is told how many tokens are through, and how many there are.
///
/// # Errors
/// As [`Engine::feed`].
pub fn feed(
    engine: &mut Engine,
    prompt: &[u32],
    progress: &mut dyn FnMut(usize, usize),
) -> Result<(), Error> {
    let (context, used) = (engine.blueprint().context(), engine.len());
    if prompt.is_empty() {
        return Err(Error::EmptyPrompt);
    }
    if (prompt.len() + used) as u64 > context {
        return Err(Error::ContextFull { tokens: prompt.len(), context, used });
    }
    let mut done = 0;
    progress(done, prompt.len());
    for batch in prompt.chunks(engine.blueprint().batch().max(1) as usize) {
        engine.advance(batch)?;
        done += batch.len();
        progress(done, prompt.len());
    }
    Ok(())
}

/// Feeds a prompt, and goes on as [`continue_generation`] does. Tokens of the prompt count for the repetition penalty.
///
/// # Errors
/// As [`Engine::feed`].
pub fn generate(
    engine: &mut Engine,
    tokenizer: &Tokenizer,
    sampler: &mut Sampler,
    prompt: &[u32],
    limit: Option<usize>,
    each: &mut dyn FnMut(u32) -> ControlFlow<()>,
) -> Result<End, Error> {
    engine.advance(prompt)?;
    prompt.iter().for_each(|token| sampler.accept(*token));
    continue_generation(engine, tokenizer, sampler, limit, each)
}

/// Goes on token by token from what the engine was fed last, until the model or one of the limits ends it. `each` sees
/// every new token, one that ends the text included, and may stop there. The last token is not fed.
///
/// # Errors
/// As [`Engine::feed`]; [`Error::EmptyPrompt`] if the engine was fed nothing. A run that is cancelled is no error.
pub fn continue_generation(
    engine: &mut Engine,
    tokenizer: &Tokenizer,
    sampler: &mut Sampler,
    limit: Option<usize>,
    each: &mut dyn FnMut(u32) -> ControlFlow<()>,
) -> Result<End, Error> {
    for count in 1.. {
        if limit.is_some_and(|limit| count > limit) {
            break;
        }
        let token = next(engine, sampler)?;
        if each(token).is_break() {
            return Ok(End::Stopped);
        }
        if tokenizer.is_end(token) {
            return Ok(End::Token);
        }
        if engine.len() as u64 >= engine.blueprint().context() {
            return Ok(End::ContextFull);
        }
        if limit.is_some_and(|limit| count >= limit) {
            break;
        }
        if let Err(error) = engine.advance(&[token]) {
            return if engine.is_cancelled() { Ok(End::Stopped) } else { Err(error) };
        }
    }
    Ok(End::Limit)
}

/// The next token. Whoever always takes the likeliest need not see all logits.
fn next(engine: &mut Engine, sampler: &mut Sampler) -> Result<u32, Error> {
    if sampler.takes_likeliest() {
        return engine.last_best();
    }
    match engine.last_logits()? {
        [] => Err(Error::EmptyPrompt),
        logits => Ok(sampler.sample(logits)),
    }
}
