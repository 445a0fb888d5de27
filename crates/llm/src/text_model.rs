//! Text in, text out: a loaded model with its tokenizer.

use std::ops::ControlFlow;
use std::sync::Arc;

use orlop_backend::Cancel;
use orlop_sched::Machine;

use crate::{
    Blueprint, DraftCounts, Drafter, End, Engine, Error, Forecast, GenerateEvent, GenerateOptions, Grammar,
    GrammarCompiler, Model, Sampler, SamplingOptions, Settings, Special, Speculator, StateError, StopText,
    TextStream, Tokenizer, generate_with,
};

/// A loaded model that continues texts. For several sequences, logits or a chat, use its [`Engine`].
#[derive(Debug)]
pub struct TextModel {
    engine: Engine,
    tokenizer: Arc<Tokenizer>,
    /// Made for the first text with a grammar.
    grammars: Option<GrammarCompiler>,
    speculator: Option<Speculator>,
    /// What the file recommends.
    sampling: SamplingOptions,
    /// The tokens in the engine's first sequence, as far as they are known.
    cached: Vec<u32>,
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
    /// Texts that end the generated text, and are not part of it. Default none.
    pub stop: Vec<String>,
    /// Numbers that are added to the logits of tokens ([`Sampler::with_bias`]). Default none.
    pub bias: Vec<(u32, f32)>,
    /// What the new text has to match. Default `None`: anything.
    pub grammar: Option<Grammar>,
}

/// A generated text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneratedText {
    /// The text.
    pub text: String,
    /// The new tokens, one that ends the text included.
    pub tokens: Vec<u32>,
    /// Tokens of the prompt that were in the cache already.
    pub kept: usize,
    /// Why it ended; [`End::Token`] also for a text of [`TextOptions::stop`].
    pub end: End,
    /// The text of [`TextOptions::stop`] that ended it.
    pub stopped_by: Option<String>,
}

impl TextModel {
    /// Plans a model for a machine, and loads it.
    ///
    /// # Errors
    /// As [`Blueprint::plan`], [`Engine::load`], [`Tokenizer::from_metadata`] and [`SamplingOptions::recommended`].
    pub fn load(model: &Model, machine: &Machine, settings: &Settings) -> Result<TextModel, Error> {
        TextModel::new(Engine::load(Blueprint::plan(model, machine, settings)?, &mut |_, _| ())?)
    }

    /// A loaded engine with the tokenizer of its model file.
    ///
    /// # Errors
    /// As [`Tokenizer::from_metadata`] and [`SamplingOptions::recommended`].
    pub fn new(engine: Engine) -> Result<TextModel, Error> {
        let metadata = engine.blueprint().model.file().metadata();
        let tokenizer = Arc::new(Tokenizer::from_metadata(metadata)?);
        let sampling = SamplingOptions::default().recommended(metadata)?;
        Ok(TextModel { engine, tokenizer, grammars: None, speculator: None, sampling, cached: Vec::new() })
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

    /// The engine. As the caller may change its first sequence, the next prompt is processed from its beginning.
    pub fn engine(&mut self) -> &mut Engine {
        self.cached.clear();
        &mut self.engine
    }

    /// The engine, for sequences beside its first one: the caller leaves that as it is, so texts continue from the cache.
    pub fn engine_for_sequences(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// Bytes that are allocated on each device now, those of the drafter included.
    pub fn memory(&self) -> Forecast {
        let memory = self.engine.memory();
        match self.speculator.as_ref().and_then(Speculator::memory) {
            Some(drafts) => memory.with(&drafts),
            None => memory,
        }
    }

    /// Sets the switch that stops texts ([`Engine::cancel_with`]).
    pub fn cancel_with(&mut self, cancel: Option<Cancel>) {
        self.engine.cancel_with(cancel);
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }

    /// The sampling that the file recommends.
    pub fn sampling(&self) -> SamplingOptions {
        self.sampling
    }

    /// Makes another sampling that of texts without one of their own.
    #[must_use]
    pub fn with_sampling(mut self, sampling: SamplingOptions) -> TextModel {
        self.sampling = sampling;
        self
    }

    /// The tokens in the engine's first sequence, as far as they are known.
    pub fn cached(&self) -> &[u32] {
        &self.cached[..self.cached.len().min(self.engine.len())]
    }

    /// Says which tokens are in the engine's first sequence, such as those of a saved one that was loaded.
    ///
    /// # Errors
    /// [`StateError::OtherTokens`](crate::StateError::OtherTokens) if they are not as many as there are.
    pub fn set_cached(&mut self, tokens: &[u32]) -> Result<(), Error> {
        if tokens.len() != self.engine.len() {
            return Err(StateError::OtherTokens { given: tokens.len(), cached: self.engine.len() }.into());
        }
        self.cached = tokens.to_vec();
        Ok(())
    }

    /// Continues a text. `each` sees every piece of whole characters as soon as it is complete, and can stop there.
    ///
    /// # Errors
    /// As [`generate_with`], and what is wrong with the grammar: nothing is generated then.
    pub fn generate(
        &mut self,
        prompt: &str,
        options: &TextOptions,
        each: &mut dyn FnMut(&str) -> ControlFlow<()>,
    ) -> Result<(String, End), Error> {
        let prompt = self.tokenizer.prompt(prompt, Special::Parse);
        let generated = self.generate_from(&prompt, options, each)?;
        Ok((generated.text, generated.end))
    }

    /// As [`TextModel::generate`], from tokens. Those that the cache holds of the last prompt and what followed it are not
    /// processed again.
    ///
    /// # Errors
    /// As [`generate_with`], and what is wrong with the grammar: nothing is generated then.
    pub fn generate_from(
        &mut self,
        prompt: &[u32],
        options: &TextOptions,
        each: &mut dyn FnMut(&str) -> ControlFlow<()>,
    ) -> Result<GeneratedText, Error> {
        let mut grammar = match &options.grammar {
            None => None,
            Some(grammar) => {
                let compiler = match self.grammars.take() {
                    Some(compiler) => compiler,
                    None => GrammarCompiler::new(self.tokenizer.clone())?,
                };
                Some(self.grammars.insert(compiler).compile(grammar)?)
            }
        };
        let kept = self.keep(prompt);
        let mut sampler = Sampler::new(options.sampling.unwrap_or(self.sampling), options.seed);
        sampler = sampler.with_bias(options.bias.clone());
        sampler.restart(&prompt[..kept]);
        let (mut stream, mut stop) = (TextStream::new(), StopText::new(options.stop.iter().cloned()));
        let (mut text, mut tokens) = (String::new(), Vec::new());
        let (tokenizer, limit) = (&self.tokenizer, options.max_tokens);
        let mut shown = |event| {
            let GenerateEvent::Token(token) = event else { return ControlFlow::Continue(()) };
            tokens.push(token);
            let piece = if tokenizer.is_end(token) { "" } else { stream.push(tokenizer.decode(token)) };
            let piece = stop.push(piece);
            text.push_str(piece);
            match piece {
                "" => {}
                piece => each(piece)?,
            }
            if stop.is_stopped() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let (speculator, grammar) = (self.speculator.as_mut(), grammar.as_mut());
        let how = GenerateOptions { limit, speculator, grammar };
        let new = &prompt[kept..];
        let end = generate_with(&mut self.engine, tokenizer, &mut sampler, new, how, &mut shown);
        let all = prompt.iter().chain(&tokens).take(self.engine.len());
        self.cached = all.copied().collect();
        let mut end = end?;
        let ended = end != End::Stopped;
        for piece in [stop.push(stream.finish()).to_owned(), stop.finish().to_owned()] {
            text.push_str(&piece);
            if !piece.is_empty() && ended {
                // Nothing follows, so there is nothing to stop.
                let _ = each(&piece);
            }
        }
        let stopped_by = stop.stopped_by().map(str::to_owned);
        if stopped_by.is_some() {
            end = End::Token;
        }
        Ok(GeneratedText { text, tokens, kept, end, stopped_by })
    }

    /// Forgets what the cache holds beyond what it has in common with a prompt, and says how much that is. The last token is
    /// always processed, as the text begins with its logits.
    fn keep(&mut self, prompt: &[u32]) -> usize {
        let common = self.cached.iter().zip(prompt).take_while(|(old, new)| old == new).count();
        let kept = self.engine.truncate(common.min(prompt.len().saturating_sub(1)));
        self.cached.truncate(kept);
        if let Some(speculator) = &mut self.speculator {
            speculator.restart(&prompt[..kept]);
        }
        kept
    }
}
