//! Text from a model: a prompt is fed, then tokens are sampled and fed one by one, or with a draft of those that may follow.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use crate::sampling::Sampler;
use crate::{Engine, Error, SequenceId, Speculator, Tokenizer};

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
    generate_speculative(engine, None, tokenizer, sampler, prompt, limit, each)
}

/// As [`generate()`], with the same tokens, but a speculator drafts what may follow and the engine verifies it in one run.
///
/// # Errors
/// As [`generate()`], and what the drafter's device meets.
pub fn generate_speculative(
    engine: &mut Engine,
    mut speculator: Option<&mut Speculator>,
    tokenizer: &Tokenizer,
    sampler: &mut Sampler,
    prompt: &[u32],
    limit: Option<usize>,
    each: &mut dyn FnMut(GenerateEvent) -> ControlFlow<()>,
) -> Result<End, Error> {
    let flow = feed_prompt(engine, prompt, each)?;
    prompt.iter().for_each(|token| sampler.accept(*token));
    if flow.is_break() {
        return Ok(End::Stopped);
    }
    if let Some(speculator) = &mut speculator {
        match speculator.follow(engine, prompt) {
            Err(_) if engine.is_cancelled() => return Ok(End::Stopped),
            followed => followed?,
        }
    }
    Continuation { engine, speculator, tokenizer, sampler, limit, made: 0, each }.run()
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

/// A text that is being generated.
struct Continuation<'a> {
    engine: &'a mut Engine,
    speculator: Option<&'a mut Speculator>,
    tokenizer: &'a Tokenizer,
    sampler: &'a mut Sampler,
    limit: Option<usize>,
    /// New tokens.
    made: usize,
    each: &'a mut dyn FnMut(GenerateEvent) -> ControlFlow<()>,
}

impl Continuation<'_> {
    fn run(mut self) -> Result<End, Error> {
        if self.limit == Some(0) {
            return Ok(End::Limit);
        }
        let mut token = match self.sampler.takes_likeliest() {
            true => self.engine.last_best()?,
            false => self.sampler.sample(self.engine.last_logits()?),
        };
        loop {
            if let Some(end) = self.report(token, self.engine.len()) {
                return Ok(end);
            }
            token = match self.step(token) {
                Err(_) if self.engine.is_cancelled() => return Ok(End::Stopped),
                Ok(ControlFlow::Break(end)) => return Ok(end),
                Ok(ControlFlow::Continue(next)) => next,
                Err(error) => return Err(error),
            };
        }
    }

    /// Reports a new token behind `len` tokens in the cache, and says whether it is the last one.
    fn report(&mut self, token: u32, len: usize) -> Option<End> {
        self.made += 1;
        if (self.each)(GenerateEvent::Token(token)).is_break() {
            Some(End::Stopped)
        } else if self.tokenizer.is_end(token) {
            Some(End::Token)
        } else if len as u64 >= self.engine.blueprint().context() {
            Some(End::ContextFull)
        } else {
            self.limit.is_some_and(|limit| self.made >= limit).then_some(End::Limit)
        }
    }

    /// Feeds a token that was reported, with a draft behind it, and reports the tokens of the draft that the sampler agrees
    /// with. The result is the first token that is not the draft's, or how the text ended before it.
    fn step(&mut self, token: u32) -> Result<ControlFlow<End, u32>, Error> {
        let before = self.engine.len();
        if let Some(speculator) = &mut self.speculator {
            // The last token that is made is not fed.
            let wanted = self.limit.map_or(usize::MAX, |limit| limit - self.made - 1);
            let free = usize::try_from(self.engine.room(SequenceId::FIRST)?).unwrap_or(usize::MAX);
            speculator.draft(self.engine, token, wanted.min(free.saturating_sub(1)))?;
        }
        let (begin, repacking) = (Instant::now(), self.engine.repacking_time());
        let run = self.speculator.as_deref().map_or(std::slice::from_ref(&token), Speculator::run);
        let fed = self.engine.feed_verify(SequenceId::FIRST, run)?;
        let mut next = self.sample(0);
        let took = begin.elapsed().saturating_sub(self.engine.repacking_time() - repacking);
        let (mut kept, mut accepted) = (1, 0);
        let flow = loop {
            let token = match next {
                Ok(token) if kept < fed && self.drafted(kept) == Some(token) => token,
                Ok(token) => break Ok(ControlFlow::Continue(token)),
                Err(error) => break Err(error),
            };
            accepted += 1;
            if let Some(end) = self.report(token, before + kept) {
                break Ok(ControlFlow::Break(end));
            }
            if self.engine.is_cancelled() {
                break Ok(ControlFlow::Break(End::Stopped));
            }
            next = self.sample(kept);
            kept += 1;
        };
        self.engine.truncate(before + kept);
        if let Some(speculator) = &mut self.speculator {
            speculator.verified(fed, kept, accepted, took);
        }
        flow
    }

    /// A token of the run that is verified; the draft begins at 1.
    fn drafted(&self, index: usize) -> Option<u32> {
        self.speculator.as_deref().and_then(|speculator| speculator.run().get(index).copied())
    }

    /// A token from a row of the last run. A sampler that always takes the likeliest needs no logits.
    fn sample(&mut self, row: usize) -> Result<u32, Error> {
        match self.sampler.takes_likeliest() {
            true => self.engine.best_at(row),
            false => Ok(self.sampler.sample(self.engine.logits_at(row)?)),
        }
    }
}
