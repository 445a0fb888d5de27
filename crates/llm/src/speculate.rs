//! Speculative decoding ([Leviathan et al., 2022](https://arxiv.org/abs/2211.17192)): a [`Drafter`] guesses the next tokens,
//! and one run of the model verifies all of them. A run of a few tokens reads the weights once, as a run of one does.
//!
//! The papers accept drafted tokens by chance, so that the distribution stays the model's. Here tokens are sampled from the
//! model's logits position by position, with the sampler that would be used without drafts, and the draft is accepted as
//! far as it agrees. So the tokens, too, are the same as without drafts, for every seed.

use std::fmt;
use std::time::Duration;

mod batch;
mod draft_model;
mod lookup;
mod pace;
mod planning;
mod vocabulary;

pub use batch::{BatchSpeculator, SequenceDraft, SequenceText};
pub use draft_model::DraftModel;
pub use lookup::Lookup;
use pace::Pace;
pub use planning::PairBlueprint;
pub use vocabulary::{DifferentToken, VocabularyDifference};

use crate::{Engine, Error, Forecast};

/// Guesses the next tokens of a text. Guesses change the speed of generation, never its result.
pub trait Drafter: fmt::Debug + Send {
    /// Sees a prompt before the first draft behind it.
    ///
    /// # Errors
    /// What a device meets.
    fn prepare(&mut self, target: &mut Engine, text: &[u32]) -> Result<(), Error> {
        let _ = (target, text);
        Ok(())
    }

    /// Appends at most `most` tokens that may follow a text. Since the last call, the text has only grown, except by
    /// [`Drafter::rewind`]. `target` is the engine that will verify them; its cache holds all of the text but the last
    /// token.
    ///
    /// # Errors
    /// What a device meets.
    fn draft(
        &mut self,
        target: &mut Engine,
        text: &[u32],
        most: usize,
        into: &mut Vec<u32>,
    ) -> Result<(), Error>;

    /// How long drafting a token takes, if that is known before the first draft.
    fn token_time(&self) -> Option<Duration> {
        None
    }

    /// Only the first `len` tokens are those of earlier calls.
    fn rewind(&mut self, len: usize) {
        let _ = len;
    }

    /// What it has allocated on the devices.
    fn memory(&self) -> Option<Forecast> {
        None
    }
}

/// How many tokens were drafted, and how many of them the model agreed with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DraftCounts {
    /// Drafted, and verified by the model.
    pub drafted: usize,
    /// Accepted.
    pub accepted: usize,
}

impl std::ops::Sub for DraftCounts {
    type Output = DraftCounts;

    fn sub(self, before: DraftCounts) -> DraftCounts {
        DraftCounts { drafted: self.drafted - before.drafted, accepted: self.accepted - before.accepted }
    }
}

/// A drafter, the text that it follows, and how much drafting pays.
///
/// The length of drafts adapts to the share of tokens that are accepted, and to the measured times of drafting and of
/// verifying. Where nothing is accepted, it drafts only as often as costs 1.5 % of the time.
#[derive(Debug)]
pub struct Speculator {
    drafter: Box<dyn Drafter>,
    pace: Pace,
    /// The tokens in the engine's cache, as far as they are known.
    text: Vec<u32>,
    /// The next token to be fed, and the draft behind it.
    run: Vec<u32>,
    counts: DraftCounts,
}

impl Speculator {
    /// For texts of an engine's first sequence.
    ///
    /// # Errors
    /// [`Error::BadSetting`] if the engine was not planned for drafts ([`Settings::draft`](crate::Settings)).
    pub fn new(engine: &Engine, drafter: Box<dyn Drafter>) -> Result<Speculator, Error> {
        let blueprint = engine.blueprint();
        let sizes: Vec<usize> = blueprint.verified_sizes().map(|size| size as usize).collect();
        let Some(longest) = sizes.last().copied() else {
            let (setting, value) = ("the length of drafts", blueprint.settings.draft.to_string());
            let rule = "it and the batch must be large enough for a run that verifies a token";
            return Err(Error::BadSetting { setting, value, rule });
        };
        Ok(Speculator {
            drafter,
            pace: Pace::new(sizes),
            text: Vec::with_capacity(usize::try_from(blueprint.context()).unwrap_or(0).min(1 << 20)),
            run: Vec::with_capacity(longest),
            counts: DraftCounts::default(),
        })
    }

    /// Drafts as many tokens as it can every time, instead of adapting the length.
    #[must_use]
    pub fn always_longest(mut self) -> Speculator {
        self.pace = self.pace.fixed();
        self
    }

    /// What was drafted so far.
    pub fn counts(&self) -> DraftCounts {
        self.counts
    }

    /// What the drafter has allocated on the devices.
    pub fn memory(&self) -> Option<Forecast> {
        self.drafter.memory()
    }

    /// These tokens are in the engine's cache now, such as those of earlier turns of a chat.
    pub fn restart(&mut self, tokens: &[u32]) {
        let same = self.text.iter().zip(tokens).take_while(|(old, new)| old == new).count();
        self.rewind(same);
        self.text.extend_from_slice(&tokens[same..]);
    }

    fn rewind(&mut self, len: usize) {
        if len < self.text.len() {
            self.text.truncate(len);
            self.drafter.rewind(len);
        }
    }

    /// A prompt was fed behind the tokens that were in the cache.
    pub(crate) fn follow(&mut self, engine: &mut Engine, prompt: &[u32]) -> Result<(), Error> {
        self.rewind(engine.len().saturating_sub(prompt.len()));
        self.text.extend_from_slice(prompt);
        self.drafter.prepare(engine, &self.text)?;
        if let Some(time) = self.drafter.token_time() {
            self.pace.drafts_in(time);
        }
        Ok(())
    }

    /// Tokens were fed without a draft.
    pub(crate) fn fed(&mut self, tokens: &[u32]) {
        self.text.extend_from_slice(tokens);
    }

    /// Drafts at most `room` tokens behind one that is about to be fed.
    pub(crate) fn draft(&mut self, engine: &mut Engine, token: u32, room: usize) -> Result<(), Error> {
        self.text.push(token);
        self.run.clear();
        self.run.push(token);
        let most = self.pace.length(room);
        if most > 0 {
            let begin = std::time::Instant::now();
            self.drafter.draft(engine, &self.text, most, &mut self.run)?;
            let vocabulary = engine.config().vocabulary;
            let known = self.run.iter().take_while(|token| u64::from(**token) < vocabulary).count();
            self.run.truncate(self.pace.size_within(known));
            self.pace.drafted(self.run.len() - 1, begin.elapsed());
        }
        Ok(())
    }

    /// What [`Speculator::draft`] was given, and the draft.
    pub(crate) fn run(&self) -> &[u32] {
        &self.run
    }

    /// The first `fed` tokens of the run were fed in some time. `accepted` of the draft were accepted, and the first
    /// `kept` tokens of the run stay in the cache.
    pub(crate) fn verified(&mut self, fed: usize, kept: usize, accepted: usize, took: Duration) {
        self.text.extend_from_slice(&self.run[1..kept]);
        self.counts.drafted += fed - 1;
        self.counts.accepted += accepted;
        self.pace.verified(fed, accepted, took);
    }
}
