//! Text from a model: a prompt is fed, then tokens are sampled and fed one by one.

use std::ops::ControlFlow;
use std::time::Duration;

use crate::sampling::Sampler;
use crate::{Engine, Error, Tokenizer};

/// Why a text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The model ended it.
    Token,
    /// As many tokens as were asked for.
    Limit,
    /// The context is full.
    ContextFull,
    /// The callback or the engine's switch stopped it.
    Stopped,
}

/// What [`generate()`] reports while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GenerateEvent {
    /// How much of the prompt is fed: first none of it, then after every batch.
    Prompt {
        /// Tokens that are fed.
        done: usize,
        /// Tokens of the prompt.
        all: usize,
        /// How long weights were repacked so far ([`Engine::repacking_time`]).
        repacking: Duration,
    },
    /// A new token; the one that ends the text, too.
    Token(u32),
}

/// Feeds a prompt batch by batch, and goes on token by token until the model, the limit, the context or `each` ends it.
/// The tokens of the prompt count for the repetition penalty. The last new token is not fed.
///
/// `each` may stop at every token, and at the end of the prompt; while the prompt is fed, only the engine's switch
/// ([`Engine::cancel_with`]) stops it.
///
/// # Errors
/// As [`Engine::feed`]; [`Error::ContextFull`] is found before anything is fed. A run that is cancelled after the prompt
/// is an end, and no error.
pub fn generate(
    engine: &mut Engine,
    tokenizer: &Tokenizer,
    sampler: &mut Sampler,
    prompt: &[u32],
    limit: Option<usize>,
    each: &mut dyn FnMut(GenerateEvent) -> ControlFlow<()>,
) -> Result<End, Error> {
    let flow = feed_prompt(engine, prompt, each)?;
    prompt.iter().for_each(|token| sampler.accept(*token));
    match flow {
        ControlFlow::Break(()) => Ok(End::Stopped),
        ControlFlow::Continue(()) => continue_text(engine, tokenizer, sampler, limit, each),
    }
}

/// What the callback said when the whole prompt was fed.
fn feed_prompt(
    engine: &mut Engine,
    prompt: &[u32],
    each: &mut dyn FnMut(GenerateEvent) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, Error> {
    let (context, used, all) = (engine.blueprint().context(), engine.len(), prompt.len());
    if prompt.is_empty() {
        return Err(Error::EmptyPrompt);
    }
    if (all + used) as u64 > context {
        return Err(Error::ContextFull { tokens: all, context, used });
    }
    let mut done = 0;
    let mut flow = each(GenerateEvent::Prompt { done, all, repacking: engine.repacking_time() });
    for batch in prompt.chunks(engine.blueprint().batch().max(1) as usize) {
        engine.feed(batch)?;
        done += batch.len();
        flow = each(GenerateEvent::Prompt { done, all, repacking: engine.repacking_time() });
    }
    Ok(flow)
}

fn continue_text(
    engine: &mut Engine,
    tokenizer: &Tokenizer,
    sampler: &mut Sampler,
    limit: Option<usize>,
    each: &mut dyn FnMut(GenerateEvent) -> ControlFlow<()>,
) -> Result<End, Error> {
    for count in 1.. {
        if limit.is_some_and(|limit| count > limit) {
            break;
        }
        let token = next(engine, sampler)?;
        if each(GenerateEvent::Token(token)).is_break() {
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
        if let Err(error) = engine.feed(&[token]) {
            return if engine.is_cancelled() { Ok(End::Stopped) } else { Err(error) };
        }
    }
    Ok(End::Limit)
}

/// The next token. A sampler that always takes the likeliest needs no logits.
fn next(engine: &mut Engine, sampler: &mut Sampler) -> Result<u32, Error> {
    if sampler.takes_likeliest() {
        return engine.last_best();
    }
    match engine.last_logits()? {
        [] => Err(Error::EmptyPrompt),
        logits => Ok(sampler.sample(logits)),
    }
}
