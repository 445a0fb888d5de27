//! A smaller model as drafter.

use std::time::{Duration, Instant};

use super::Drafter;
use super::vocabulary::check_vocabulary;
use crate::blueprint::check_rewinds;
use crate::{Engine, Error, Forecast};

/// Drafts with another, smaller model of the same vocabulary, which always takes its likeliest token.
#[derive(Debug)]
pub struct DraftModel {
    engine: Engine,
    /// The tokens in its cache.
    fed: Vec<u32>,
    token_time: Option<Duration>,
}

impl DraftModel {
    /// A loaded model as drafter for another one.
    ///
    /// # Errors
    /// [`Error::OtherVocabulary`]; [`Error::CannotRewind`] for a model that keeps a state.
    pub fn new(mut engine: Engine, target: &Engine) -> Result<DraftModel, Error> {
        let model = &engine.blueprint().model;
        check_vocabulary(&target.blueprint().model, model)?;
        check_rewinds(model)?;
        engine.truncate(0);
        let room = usize::try_from(engine.blueprint().context()).unwrap_or(0).min(1 << 20);
        Ok(DraftModel { engine, fed: Vec::with_capacity(room), token_time: None })
    }

    /// Its engine.
    pub fn engine(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// Feeds what is new of a text, so that the logits behind it are at hand; `false` if it cannot: the context is full, or
    /// a token is not known.
    fn catch_up(&mut self, target: &Engine, text: &[u32]) -> Result<bool, Error> {
        let same = self.fed.iter().zip(text).take_while(|(fed, token)| fed == token).count();
        let same = same.min(text.len().saturating_sub(1));
        let new = &text[same..];
        let vocabulary = self.engine.config().vocabulary;
        let fits = text.len() as u64 <= self.engine.blueprint().context();
        if new.is_empty() || !fits || new.iter().any(|token| u64::from(*token) >= vocabulary) {
            return Ok(false);
        }
        self.keep(same);
        self.engine.cancel_with(target.cancel().cloned());
        self.feed(new).map(|()| true)
    }

    fn keep(&mut self, len: usize) {
        let len = self.engine.truncate(len.min(self.engine.len()));
        self.fed.truncate(len);
    }

    fn feed(&mut self, tokens: &[u32]) -> Result<(), Error> {
        let result = self.engine.feed(tokens);
        // After an error, the batches before it are kept.
        let fed = self.engine.len() - self.fed.len();
        self.fed.extend_from_slice(&tokens[..fed]);
        result
    }
}

impl Drafter for DraftModel {
    fn prepare(&mut self, target: &mut Engine, text: &[u32]) -> Result<(), Error> {
        let Some((last, before)) = text.split_last() else { return Ok(()) };
        let caught_up = before.is_empty() || self.catch_up(target, before)?;
        // Not while drafts are measured.
        self.engine.repack(&mut |_, _| ())?;
        if caught_up && self.fed == before && self.catch_up(target, text)? {
            // The first run of a graph takes longer.
            self.keep(before.len());
            let begin = Instant::now();
            self.feed(&[*last])?;
            self.engine.last_best()?;
            self.token_time = Some(begin.elapsed());
        }
        Ok(())
    }

    fn draft(
        &mut self,
        target: &mut Engine,
        text: &[u32],
        most: usize,
        into: &mut Vec<u32>,
    ) -> Result<(), Error> {
        if most == 0 || !self.catch_up(target, text)? {
            return Ok(());
        }
        for drafted in 1..=most {
            let token = self.engine.last_best()?;
            into.push(token);
            if drafted == most || self.engine.len() as u64 >= self.engine.blueprint().context() {
                break;
            }
            self.feed(&[token])?;
        }
        Ok(())
    }

    fn token_time(&self) -> Option<Duration> {
        self.token_time
    }

    fn memory(&self) -> Option<Forecast> {
        Some(self.engine.memory())
    }
}
