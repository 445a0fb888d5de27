//! Drafts for several sequences that are fed together.

use std::time::{Duration, Instant};

use super::lookup::Lookup;
use super::pace::{Pace, Verified};
use super::vocabulary::check_vocabulary;
use crate::blueprint::check_rewinds;
use crate::{DraftCounts, Engine, Error, Forecast, Part, SequenceId};

/// More sequences are not drafted for: together they read the weights once as it is, and further tokens cost arithmetic.
const MOST_SEQUENCES: usize = 4;

/// What drafts for several sequences of an engine, and how much drafting pays, by the number of sequences that are fed together.
///
/// For one to four sequences, the length of drafts adapts as a [`Speculator`](crate::Speculator)'s does: the times of runs are
/// measured for each number of sequences. For more sequences nothing is drafted.
#[derive(Debug)]
pub struct BatchSpeculator {
    source: Source,
    /// For one sequence, two, …
    paces: Vec<Pace>,
    /// Tokens of the engine's vocabulary.
    vocabulary: u64,
    counts: DraftCounts,
}

/// A sequence that is to be drafted for.
#[derive(Clone, Copy, Debug)]
pub struct SequenceText<'a> {
    /// The engine's sequence. Its cache holds all tokens but the last.
    pub sequence: SequenceId,
    /// Its tokens.
    pub tokens: &'a [u32],
    /// Maximum number of tokens to draft.
    pub most: usize,
}

/// What was drafted for a sequence and verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceDraft {
    /// Tokens of the draft.
    pub drafted: usize,
    /// The first of them, which the sampler agreed with.
    pub accepted: usize,
}

/// Where drafts come from.
#[derive(Debug)]
enum Source {
    /// The texts themselves.
    Lookup(Vec<(SequenceId, Lookup)>),
    /// Another model.
    Model(Box<ModelSource>),
}

impl BatchSpeculator {
    /// Looks up the last tokens of each text in it ([`Lookup`]).
    ///
    /// # Errors
    /// [`Error::BadSetting`] if the engine was not planned for drafts ([`Settings::draft`](crate::Settings)).
    pub fn lookup(engine: &Engine) -> Result<BatchSpeculator, Error> {
        BatchSpeculator::new(engine, Source::Lookup(Vec::new()))
    }

    /// Drafts with a smaller model of the same vocabulary ([`DraftModel`](crate::DraftModel)), planned beside the engine's
    /// ([`PairBlueprint`](crate::PairBlueprint)).
    ///
    /// # Errors
    /// As [`BatchSpeculator::lookup`]; [`Error::OtherVocabulary`]; [`Error::CannotRewind`] for a model that keeps a state.
    pub fn draft_model(draft: Engine, engine: &Engine) -> Result<BatchSpeculator, Error> {
        let model = &draft.blueprint().model;
        check_vocabulary(&engine.blueprint().model, model)?;
        check_rewinds(model)?;
        let source = ModelSource { engine: draft, texts: Vec::new() };
        BatchSpeculator::new(engine, Source::Model(Box::new(source)))
    }

    fn new(engine: &Engine, source: Source) -> Result<BatchSpeculator, Error> {
        let blueprint = engine.blueprint();
        let sizes: Vec<usize> = blueprint.verified_sizes().map(|size| size as usize).collect();
        if sizes.is_empty() {
            let (setting, value) = ("the length of drafts", blueprint.settings.draft.to_string());
            let rule = "it and the batch must be large enough for a run that verifies a token";
            return Err(Error::BadSetting { setting, value, rule });
        }
        let whole = blueprint.shapes().filter(|shape| shape.outputs == shape.tokens);
        let most = whole.map(|shape| shape.tokens as usize).max().unwrap_or(0);
        let pace = |sequences: usize| {
            Pace::new(sizes.iter().copied().filter(|size| sequences * size <= most).collect())
        };
        let paces = (1..=MOST_SEQUENCES).map(pace).collect();
        let vocabulary = engine.config().vocabulary;
        Ok(BatchSpeculator { source, paces, vocabulary, counts: DraftCounts::default() })
    }

    /// Sequences that the engine of a draft model needs, beside one with this many.
    pub(super) fn draft_sequences(sequences: u64) -> u64 {
        // The first sequence always exists, and is not used.
        if sequences > 1 { 1 + MOST_SEQUENCES as u64 } else { 1 }
    }

    /// Drafts as many tokens as it can every time, instead of adapting the length.
    #[must_use]
    pub fn always_longest(self) -> BatchSpeculator {
        BatchSpeculator { paces: self.paces.into_iter().map(Pace::fixed).collect(), ..self }
    }

    /// Appends tokens that may follow each text to its entry of `drafts`, or nothing where that does not pay. The texts are all
    /// that the engine is fed next.
    ///
    /// # Errors
    /// What a device meets.
    pub fn draft(&mut self, texts: &[SequenceText<'_>], drafts: &mut [Vec<u32>]) -> Result<(), Error> {
        let Some(pace) = self.paces.get_mut(texts.len().wrapping_sub(1)) else { return Ok(()) };
        let longest = pace.length(texts.iter().map(|text| text.most).max().unwrap_or(0));
        if longest == 0 {
            return Ok(());
        }
        let texts: Vec<SequenceText<'_>> =
            texts.iter().map(|text| SequenceText { most: text.most.min(longest), ..*text }).collect();
        if let Source::Model(model) = &mut self.source {
            model.catch_up(&texts, longest)?;
        }
        let begin = Instant::now();
        match &mut self.source {
            Source::Lookup(lookups) => look_up(lookups, &texts, drafts),
            Source::Model(model) => model.draft(&texts, drafts)?,
        }
        for draft in drafts.iter_mut() {
            let known = draft.iter().take_while(|token| u64::from(**token) < self.vocabulary).count();
            draft.truncate(pace.size_within(1 + known) - 1);
        }
        let drafted = drafts.iter().map(Vec::len).max().unwrap_or(0);
        pace.drafted(drafted, begin.elapsed());
        Ok(())
    }

    /// The next tokens of these sequences, and the drafts behind them, were fed together in some time.
    pub fn verified(&mut self, drafts: &[SequenceDraft], took: Duration) {
        for draft in drafts {
            self.counts.drafted += draft.drafted;
            self.counts.accepted += draft.accepted;
        }
        if let Some(pace) = self.paces.get_mut(drafts.len().wrapping_sub(1)) {
            let runs = drafts.iter().map(|SequenceDraft { drafted, accepted }| Verified {
                drafted: *drafted,
                accepted: *accepted,
            });
            pace.verified_all(&runs.collect::<Vec<_>>(), took);
        }
    }

    /// A sequence has ended, or its text is another one.
    pub fn end(&mut self, sequence: SequenceId) {
        match &mut self.source {
            Source::Lookup(lookups) => lookups.retain(|(known, _)| *known != sequence),
            Source::Model(model) => model.end(sequence),
        }
    }

    /// What was drafted so far.
    pub fn counts(&self) -> DraftCounts {
        self.counts
    }

    /// What the draft model has allocated on the devices.
    pub fn memory(&self) -> Option<Forecast> {
        match &self.source {
            Source::Lookup(_) => None,
            Source::Model(model) => Some(model.engine.memory()),
        }
    }
}

fn look_up(lookups: &mut Vec<(SequenceId, Lookup)>, texts: &[SequenceText<'_>], drafts: &mut [Vec<u32>]) {
    for (SequenceText { sequence, tokens, most }, draft) in texts.iter().zip(drafts) {
        let place = lookups.iter().position(|(known, _)| known == sequence);
        let place = place.unwrap_or_else(|| {
            lookups.push((*sequence, Lookup::new(2 * tokens.len() as u64)));
            lookups.len() - 1
        });
        lookups[place].1.continuation(tokens, *most, draft);
    }
}

/// A draft model, which takes its likeliest tokens, and what its cache holds.
#[derive(Debug)]
struct ModelSource {
    engine: Engine,
    texts: Vec<FedText>,
}

/// A text in the draft model's cache.
#[derive(Debug)]
struct FedText {
    /// The sequence of the model that it is drafted for.
    target: SequenceId,
    sequence: SequenceId,
    fed: Vec<u32>,
}

/// What is fed to the draft model next.
struct Feed {
    /// The place of the text, among those that are drafted for and among those in the cache.
    text: usize,
    place: usize,
    tokens: Vec<u32>,
}

impl ModelSource {
    /// Feeds what is new of texts that are new, or have been left out for a while: that is no part of the time of a draft.
    fn catch_up(&mut self, texts: &[SequenceText<'_>], longest: usize) -> Result<(), Error> {
        // Others hold pages that these may need.
        let idle = |text: &FedText| texts.iter().all(|wanted| wanted.sequence != text.target);
        let idle: Vec<SequenceId> =
            self.texts.iter().filter(|text| idle(text)).map(|text| text.target).collect();
        idle.into_iter().for_each(|target| self.end(target));
        let mut feeds = self.feeds(texts)?;
        // Others lack the last token of a draft, and the one behind it.
        feeds.retain(|feed| feed.tokens.len() > 1 + longest);
        // The last token gives the first one of the draft.
        feeds.iter_mut().for_each(|feed| feed.tokens.truncate(feed.tokens.len() - 1));
        if feeds.is_empty() { Ok(()) } else { self.feed(&mut feeds).map(drop) }
    }

    fn draft(&mut self, texts: &[SequenceText<'_>], drafts: &mut [Vec<u32>]) -> Result<(), Error> {
        let mut feeds = self.feeds(texts)?;
        while !feeds.is_empty() && self.feed(&mut feeds)? {
            feeds.iter().for_each(|feed| drafts[feed.text].extend_from_slice(&feed.tokens));
            feeds.retain(|feed| drafts[feed.text].len() < texts[feed.text].most);
        }
        Ok(())
    }

    /// What is new of the texts that are to be drafted for.
    fn feeds(&mut self, texts: &[SequenceText<'_>]) -> Result<Vec<Feed>, Error> {
        let mut feeds = Vec::with_capacity(texts.len());
        for (text, wanted) in texts.iter().enumerate().filter(|(_, text)| text.most > 0) {
            let place = self.place(wanted.sequence)?;
            feeds.extend(self.new_tokens(place, wanted.tokens).map(|tokens| Feed { text, place, tokens }));
        }
        Ok(feeds)
    }

    /// The place of a sequence's text, which may be empty.
    fn place(&mut self, target: SequenceId) -> Result<usize, Error> {
        if let Some(place) = self.texts.iter().position(|text| text.target == target) {
            return Ok(place);
        }
        let sequence = self.engine.start_sequence()?;
        self.texts.push(FedText { target, sequence, fed: Vec::new() });
        Ok(self.texts.len() - 1)
    }

    /// What is new of a text, after what is no longer in it was forgotten; `None` if a token is not known.
    fn new_tokens(&mut self, place: usize, tokens: &[u32]) -> Option<Vec<u32>> {
        let vocabulary = self.engine.config().vocabulary;
        let FedText { sequence, fed, .. } = &mut self.texts[place];
        let same = fed.iter().zip(tokens).take_while(|(fed, token)| fed == token).count();
        let same = same.min(tokens.len().saturating_sub(1));
        let kept = self.engine.truncate_sequence(*sequence, same).unwrap_or(0);
        fed.truncate(kept);
        let new = &tokens[kept..];
        new.iter().all(|token| u64::from(*token) < vocabulary).then(|| new.to_vec())
    }

    /// Feeds tokens; in their place are then those that are likeliest to follow. False if the cache has no room for them.
    fn feed(&mut self, feeds: &mut [Feed]) -> Result<bool, Error> {
        let ModelSource { engine, texts } = self;
        let parts: Vec<Part<'_>> =
            feeds.iter().map(|feed| Part::last(texts[feed.place].sequence, &feed.tokens)).collect();
        let mut next = vec![0; feeds.len()];
        let result = engine.feed_parts(&parts, &mut |mut rows| {
            rows.best()?.for_each(|(row, token)| next[row.part] = token);
            Ok(())
        });
        for feed in feeds.iter_mut() {
            let FedText { sequence, fed, .. } = &mut texts[feed.place];
            fed.append(&mut feed.tokens);
            // After an error, some may be missing.
            fed.truncate(engine.sequence_len(*sequence).unwrap_or(0));
        }
        match result {
            Err(Error::NoPages { .. } | Error::ContextFull { .. }) => return Ok(false),
            result => result?,
        }
        feeds.iter_mut().zip(next).for_each(|(feed, token)| feed.tokens.push(token));
        Ok(true)
    }

    fn end(&mut self, target: SequenceId) {
        if let Some(place) = self.texts.iter().position(|text| text.target == target) {
            let text = self.texts.swap_remove(place);
            // It was started here, and is ended once.
            let _ = self.engine.end_sequence(text.sequence);
        }
    }
}
