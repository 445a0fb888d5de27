//! An answer that is matched token by token.

use std::fmt;
use std::sync::Arc;

use llguidance::Matcher;
use llguidance::api::StopReason;
use llguidance::toktrie::TokenizerEnv;

use super::GrammarError;
use super::compiler::reason_of;
use super::tokens::TokenTree;
use crate::TokenMask;

/// Says which tokens may come next in an answer, and follows it token by token.
///
/// Clones are at the same place of the answer and go on independently. They share tables, so a clone of a matcher that has
/// accepted nothing is the cheapest way to a second answer.
#[derive(Clone)]
pub struct GrammarMatcher {
    tokens: Arc<TokenTree>,
    matcher: Matcher,
    /// The matcher before the first token, if the grammar may begin again.
    fresh: Option<Box<Matcher>>,
    opening: Option<Opening>,
    phase: Phase,
    accepted: usize,
    mask: TokenMask,
}

/// What begins a grammar within an answer.
#[derive(Clone, Debug)]
struct Opening {
    mark: Vec<u8>,
    /// The end of the answer so far, where a mark may have begun.
    tail: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Free text, up to a mark.
    Free,
    /// The grammar applies.
    Grammar,
    /// The answer has ended.
    Ended,
}

impl GrammarMatcher {
    pub(super) fn new(tokens: Arc<TokenTree>, matcher: Matcher) -> GrammarMatcher {
        let (fresh, opening, phase) = (None, None, Phase::Grammar);
        GrammarMatcher { tokens, matcher, fresh, opening, phase, accepted: 0, mask: TokenMask::none() }
    }

    /// Applies the grammar to what follows the first `mark`, such as the end of reasoning. Before it everything is allowed
    /// but the end of the answer. Before the first token.
    #[must_use]
    pub fn after(self, mark: &str) -> GrammarMatcher {
        let opening = Some(Opening { mark: mark.as_bytes().to_vec(), tail: Vec::new() });
        GrammarMatcher { opening, phase: Phase::Free, ..self }
    }

    /// Applies the grammar to what follows each `mark`, until it is complete; everything else is free text. A model may so
    /// call tools or not, but calls them correctly. Before the first token.
    #[must_use]
    pub fn after_each(self, mark: &str) -> GrammarMatcher {
        GrammarMatcher { fresh: Some(Box::new(self.matcher.clone())), ..self.after(mark) }
    }

    /// The tokens that may come next, those that end the answer included if it may end here; `None` if all may.
    ///
    /// # Errors
    /// [`GrammarError::TooComplex`] and [`GrammarError::NoToken`], now and from then on.
    pub fn mask(&mut self) -> Result<Option<&TokenMask>, GrammarError> {
        match self.phase {
            Phase::Free if self.fresh.is_some() => return Ok(None),
            Phase::Free => {
                self.mask = TokenMask::first(self.tokens.tokenizer.vocabulary_size());
                self.tokens.ends().for_each(|token| self.mask.forbid(token));
            }
            Phase::Grammar if !self.matcher.is_stopped() => {
                let words = self.matcher.compute_mask().map_err(|error| self.failure(&error))?;
                self.mask.set_words(words.as_slice());
            }
            Phase::Grammar if !self.matcher.stop_reason().is_ok() => return Err(self.failure(&"")),
            Phase::Grammar | Phase::Ended => self.mask = self.tokens.ends().collect(),
        }
        Ok(Some(&self.mask))
    }

    /// The next token of the answer.
    ///
    /// # Errors
    /// [`GrammarError::Refused`]: it is not allowed here, and the matcher stays where it was.
    /// [`GrammarError::TooComplex`].
    pub fn accept(&mut self, token: u32) -> Result<(), GrammarError> {
        let refused = GrammarError::Refused { token, tokens: self.accepted };
        let ends = self.tokens.tokenizer.is_end(token);
        match self.phase {
            Phase::Ended => return Err(refused),
            Phase::Free if ends && self.fresh.is_some() => self.phase = Phase::Ended,
            Phase::Free if ends => return Err(refused),
            Phase::Free => self.pass(token),
            Phase::Grammar if ends => match self.may_end()? {
                true => self.phase = Phase::Ended,
                false => return Err(refused),
            },
            Phase::Grammar => {
                if self.take(&[token])? == 0 {
                    return Err(refused);
                }
                self.begin_again();
            }
        }
        self.accepted += 1;
        Ok(())
    }

    /// Text that is certain to come next, in tokens: they can be fed together, without a look at the logits before them.
    /// Like any other token they have to be accepted.
    pub fn forced(&mut self) -> Vec<u32> {
        match self.phase {
            Phase::Grammar if !self.matcher.is_stopped() => self.matcher.compute_ff_tokens(),
            _ => Vec::new(),
        }
    }

    /// Whether the answer may end here.
    ///
    /// # Errors
    /// As [`GrammarMatcher::mask`].
    pub fn may_end(&mut self) -> Result<bool, GrammarError> {
        match self.phase {
            Phase::Free => Ok(self.fresh.is_some()),
            Phase::Ended => Ok(true),
            Phase::Grammar if self.matcher.is_stopped() => match self.matcher.stop_reason().is_ok() {
                true => Ok(true),
                false => Err(self.failure(&"")),
            },
            Phase::Grammar => self.matcher.is_accepting().map_err(|error| self.failure(&error)),
        }
    }

    /// Whether nothing can follow but the end.
    pub fn is_complete(&self) -> bool {
        match self.phase {
            Phase::Free => false,
            Phase::Grammar => self.matcher.is_stopped() && self.matcher.stop_reason().is_ok(),
            Phase::Ended => true,
        }
    }

    /// How many of these tokens the grammar takes: all of them, or none.
    fn take(&mut self, tokens: &[u32]) -> Result<usize, GrammarError> {
        if self.matcher.is_stopped() && self.matcher.stop_reason().is_ok() {
            return Ok(0);
        }
        let known = |token: &u32| (*token as usize) < self.tokens.tokenizer.vocabulary_size();
        if !tokens.iter().all(known) {
            return Ok(0);
        }
        let valid = self.matcher.validate_tokens(tokens).map_err(|error| self.failure(&error))?;
        if valid < tokens.len() {
            return Ok(0);
        }
        self.matcher.consume_tokens(tokens).map_err(|error| self.failure(&error))?;
        Ok(valid)
    }

    /// Passes a token of free text, which may hold the mark.
    fn pass(&mut self, token: u32) {
        let Some(opening) = &mut self.opening else { return };
        opening.tail.extend_from_slice(self.tokens.tokenizer.decode_special(token));
        let Opening { mark, tail } = opening;
        let Some(at) = memchr::memmem::find(tail, mark) else {
            tail.drain(..(tail.len() + 1).saturating_sub(mark.len()));
            return;
        };
        let rest = tail.split_off(at + mark.len());
        tail.clear();
        self.phase = Phase::Grammar;
        // A token may hold the mark and what follows. If the grammar does not allow that, the mark opened nothing.
        let rest = self.tokens.tokenize_bytes(&rest);
        if !rest.is_empty() && !matches!(self.take(&rest), Ok(1..)) {
            self.phase = Phase::Free;
        }
        self.begin_again();
    }

    /// Goes back to free text if the grammar is complete and another one may follow.
    fn begin_again(&mut self) {
        if let (Some(fresh), true) = (&self.fresh, self.is_complete()) {
            self.matcher = Matcher::clone(fresh);
            self.phase = Phase::Free;
        }
    }

    fn failure(&self, error: &dyn fmt::Display) -> GrammarError {
        let tokens = self.accepted;
        match self.matcher.stop_reason() {
            StopReason::NoExtensionBias => GrammarError::NoToken { tokens },
            _ => {
                let said = self.matcher.get_error().unwrap_or_else(|| error.to_string());
                GrammarError::TooComplex { tokens, reason: reason_of(&said) }
            }
        }
    }
}

impl fmt::Debug for GrammarMatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GrammarMatcher { opening, phase, accepted, .. } = self;
        let mut debug = f.debug_struct("GrammarMatcher");
        debug
            .field("opening", opening)
            .field("phase", phase)
            .field("accepted", accepted)
            .finish_non_exhaustive()
    }
}
