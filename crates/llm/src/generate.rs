//! Text from a model: a prompt is fed, then tokens are sampled and fed one by one, or with a draft of those that may follow.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use crate::sampling::Sampler;
use crate::{Engine, Error, GrammarError, GrammarMatcher, SequenceId, Speculator, TokenMask, Tokenizer};

/// Why a text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The model ended it, or it matches its grammar and nothing can follow.
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
    let options = GenerateOptions { limit, ..GenerateOptions::default() };
    generate_with(engine, tokenizer, sampler, prompt, options, each)
}

/// How a text is generated.
#[derive(Debug, Default)]
pub struct GenerateOptions<'a> {
    /// Maximum number of new tokens.
    pub limit: Option<usize>,
    /// Drafts what may follow, so that the engine verifies several tokens in one run. The tokens stay the same.
    pub speculator: Option<&'a mut Speculator>,
    /// What the new tokens have to match. Tokens that it leaves no choice about are fed together.
    pub grammar: Option<&'a mut GrammarMatcher>,
}

/// As [`generate()`], with more options.
///
/// # Errors
/// As [`generate()`], what the drafter's device meets, and [`Error::Grammar`]: the grammar became too complex.
pub fn generate_with(
    engine: &mut Engine,
    tokenizer: &Tokenizer,
    sampler: &mut Sampler,
    prompt: &[u32],
    options: GenerateOptions<'_>,
    each: &mut dyn FnMut(GenerateEvent) -> ControlFlow<()>,
) -> Result<End, Error> {
    let GenerateOptions { limit, mut speculator, grammar } = options;
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
    Continuation { engine, speculator, grammar, tokenizer, sampler, limit, made: 0, each }.run()
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
    grammar: Option<&'a mut GrammarMatcher>,
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
        if self.is_complete() {
            return Ok(End::Token);
        }
        let mut token = self.sample(None)?;
        if let Some(end) = self.report(token, self.engine.len()) {
            return Ok(end);
        }
        loop {
            let next = match self.feed_forced(token) {
                Ok(ControlFlow::Continue(token)) => self.step(token),
                ended => ended,
            };
            token = match next {
                Err(_) if self.engine.is_cancelled() => return Ok(End::Stopped),
                Ok(ControlFlow::Break(end)) => return Ok(end),
                Ok(ControlFlow::Continue(next)) => next,
                Err(error) => return Err(error),
            };
            if let Some(end) = self.report(token, self.engine.len()) {
                return Ok(end);
            }
        }
    }

    fn is_complete(&self) -> bool {
        self.grammar.as_ref().is_some_and(|grammar| grammar.is_complete())
    }

    /// Reports a new token behind `len` tokens in the cache, and says whether it is the last one.
    fn report(&mut self, token: u32, len: usize) -> Option<End> {
        self.made += 1;
        if (self.each)(GenerateEvent::Token(token)).is_break() {
            Some(End::Stopped)
        } else if self.tokenizer.is_end(token) || self.is_complete() {
            Some(End::Token)
        } else if len as u64 >= self.engine.blueprint().context() {
            Some(End::ContextFull)
        } else {
            self.limit.is_some_and(|limit| self.made >= limit).then_some(End::Limit)
        }
    }

    /// Reports the tokens that are certain to follow one that was reported, and feeds all of them but the last, which is the
    /// result.
    fn feed_forced(&mut self, token: u32) -> Result<ControlFlow<End, u32>, Error> {
        let forced = self.grammar.as_mut().map(|grammar| grammar.forced()).unwrap_or_default();
        let (mut run, mut last, mut end) = (Vec::with_capacity(forced.len()), token, None);
        for token in forced {
            if let Some(grammar) = &mut self.grammar {
                grammar.accept(token)?;
            }
            self.sampler.accept(token);
            run.push(last);
            last = token;
            end = self.report(token, self.engine.len() + run.len());
            if end.is_some() {
                break;
            }
        }
        if !run.is_empty() {
            self.engine.feed(&run)?;
            if let Some(speculator) = &mut self.speculator {
                speculator.fed(&run);
            }
        }
        Ok(end.map_or(ControlFlow::Continue(last), ControlFlow::Break))
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
        let mut next = self.sample(Some(0));
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
            next = self.sample(Some(kept));
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

    /// A token from a row of the last run, or from its last one. A sampler that always takes the likeliest needs no logits,
    /// unless a grammar rules tokens out.
    fn sample(&mut self, row: Option<usize>) -> Result<u32, Error> {
        let mask = match &mut self.grammar {
            Some(grammar) => grammar.mask()?,
            None => None,
        };
        let token = match mask.map(|mask| (mask, only(mask))) {
            None if self.sampler.takes_likeliest() => match row {
                Some(row) => self.engine.best_at(row)?,
                None => self.engine.last_best()?,
            },
            // A token without a choice takes no random number, so that it may be fed with others or drafted.
            Some((_, Some(token))) => {
                self.sampler.accept(token);
                token
            }
            mask => {
                let logits = match row {
                    Some(row) => self.engine.logits_at(row)?,
                    None => self.engine.last_logits()?,
                };
                match mask {
                    None => self.sampler.sample(logits),
                    Some((mask, _)) => {
                        let none = GrammarError::NoToken { tokens: self.made };
                        self.sampler.sample_allowed(logits, mask).ok_or(none)?
                    }
                }
            }
        };
        if let Some(grammar) = &mut self.grammar {
            grammar.accept(token)?;
        }
        Ok(token)
    }
}

/// The token of a mask that allows one.
fn only(mask: &TokenMask) -> Option<u32> {
    let mut tokens = mask.iter();
    tokens.next().filter(|_| tokens.next().is_none())
}
