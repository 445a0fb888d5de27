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

/// Feeds a prompt, and goes on token by token until the model or one of the limits ends it. `each` sees every new
/// token, one that ends the text included, and may stop there.
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
    let mut token = sampler.sample(engine.feed(prompt)?);
    let mut count = 0;
    loop {
        if limit.is_some_and(|limit| count >= limit) {
            return Ok(End::Limit);
        }
        count += 1;
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
            return Ok(End::Limit);
        }
        token = sampler.sample(engine.feed(&[token])?);
    }
}
