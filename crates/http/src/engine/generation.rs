//! What is asked of the engine: prompts, and how they are continued.

use orlop_llm::{GrammarMatcher, SamplingOptions};

/// Prompts to be continued, each several times.
#[derive(Clone, Debug, Default)]
pub(crate) struct Generation {
    /// Tokens of each prompt.
    pub(crate) prompts: Vec<Vec<u32>>,
    /// Answers to each prompt.
    pub(crate) answers: usize,
    /// Maximum number of new tokens of an answer.
    pub(crate) max_tokens: usize,
    pub(crate) sampling: SamplingOptions,
    /// Of the first answer; the others count on from it.
    pub(crate) seed: u64,
    pub(crate) bias: Vec<(u32, f32)>,
    /// Texts that end an answer.
    pub(crate) stops: Vec<String>,
    /// A text that begins the next turn where the model has no token for it: it ends an answer as such a token does.
    pub(crate) turn_mark: Option<String>,
    /// What the answers have to match.
    pub(crate) grammar: Option<GrammarMatcher>,
    /// How many of the likeliest tokens are reported with their probabilities.
    pub(crate) top: Option<usize>,
    /// Tokens that end a text do not end the answer.
    pub(crate) ignores_end: bool,
    /// Control tokens are written out: marks of tool calls may be such.
    pub(crate) writes_control: bool,
    /// Prefixes are shared among equal salts only.
    pub(crate) salt: u64,
}

impl Generation {
    /// How many answers there are to all prompts.
    pub(crate) fn choices(&self) -> usize {
        self.prompts.len() * self.answers
    }

    /// Tokens of the prompts of all answers.
    pub(crate) fn tokens(&self) -> usize {
        self.prompts.iter().map(Vec::len).sum::<usize>().saturating_mul(self.answers)
    }
}
