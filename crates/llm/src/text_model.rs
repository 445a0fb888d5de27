//! Text in, text out: a loaded model with its tokenizer.

use std::ops::ControlFlow;

use orlop_sched::Machine;

use crate::{
    Blueprint, DraftCounts, Drafter, End, Engine, Error, GenerateEvent, Model, Sampler, SamplingOptions,
    Settings, Special, Speculator, TextStream, Tokenizer, generate_speculative,
};

/// A loaded model that continues texts. For several sequences, logits or a chat, use its [`Engine`].
#[derive(Debug)]
pub struct TextModel {
    engine: Engine,
    tokenizer: Tokenizer,
    speculator: Option<Speculator>,
    /// What the file recommends.
    sampling: SamplingOptions,
}

/// How a text is continued.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TextOptions {
    /// Maximum number of new tokens. Default `None`: until the model ends the text or the context is full.
    pub max_tokens: Option<usize>,
    /// Default `None`: what the file recommends ([`SamplingOptions::recommended`]).
    pub sampling: Option<SamplingOptions>,
    /// Seed of the sampler. Default 0.
    pub seed: u64,
}

impl TextModel {
    /// Plans a model for a machine, and loads it.
    ///
    /// # Errors
    /// As [`Blueprint::plan`], [`Engine::load`], [`Tokenizer::from_metadata`] and [`SamplingOptions::recommended`].
    pub fn load(model: &Model, machine: &Machine, settings: &Settings) -> Result<TextModel, Error> {
        let metadata = model.file().metadata();
        let tokenizer = Tokenizer::from_metadata(metadata)?;
        let sampling = SamplingOptions::default().recommended(metadata)?;
        let engine = Engine::load(Blueprint::plan(model, machine, settings)?, &mut |_, _| ())?;
        Ok(TextModel { engine, tokenizer, speculator: None, sampling })
    }

    /// With speculative decoding: the same texts, sooner where drafts are accepted. [`Settings::draft`] is the maximum
    /// length of drafts.
    ///
    /// # Errors
    /// As [`Speculator::new`].
    pub fn with_drafter(mut self, drafter: Box<dyn Drafter>) -> Result<TextModel, Error> {
        self.speculator = Some(Speculator::new(&self.engine, drafter)?);
        Ok(self)
    }

    /// What was drafted so far.
    pub fn drafts(&self) -> DraftCounts {
        self.speculator.as_ref().map(Speculator::counts).unwrap_or_default()
    }

    /// The engine.
    pub fn engine(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Continues a text, from an empty context. `each` sees every piece of whole characters as soon as it is complete, and
    /// can stop there.
    ///
    /// # Errors
    /// As [`generate`](crate::generate()).
    pub fn generate(
        &mut self,
        prompt: &str,
        options: &TextOptions,
        each: &mut dyn FnMut(&str) -> ControlFlow<()>,
    ) -> Result<(String, End), Error> {
        self.engine.truncate(0);
        let tokens = self.tokenizer.prompt(prompt, Special::Parse);
        let mut sampler = Sampler::new(options.sampling.unwrap_or(self.sampling), options.seed);
        let (mut text, mut stream) = (String::new(), TextStream::new());
        let (tokenizer, limit) = (&self.tokenizer, options.max_tokens);
        let mut shown = |event| {
            let GenerateEvent::Token(token) = event else { return ControlFlow::Continue(()) };
            let piece = if tokenizer.is_end(token) { "" } else { stream.push(tokenizer.decode(token)) };
            text.push_str(piece);
            if piece.is_empty() { ControlFlow::Continue(()) } else { each(piece) }
        };
        let (engine, speculator) = (&mut self.engine, self.speculator.as_mut());
        let end =
            generate_speculative(engine, speculator, tokenizer, &mut sampler, &tokens, limit, &mut shown)?;
        let rest = stream.finish();
        text.push_str(rest);
        if !rest.is_empty() && end != End::Stopped {
            // Nothing follows, so there is nothing to stop.
            let _ = each(rest);
        }
        Ok((text, end))
    }
}
