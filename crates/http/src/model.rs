//! The model that a server answers with.

use std::sync::Arc;

use orlop_llm::{
    Blueprint, ChatTemplate, Config, Embedder, Engine, Error, Forecast, Model, PAGE_ROWS, SamplingOptions,
    Settings, Tokenizer,
};

use crate::engine::paged_model::{limits, shares};

/// A loaded model with what a server needs to know of it.
#[derive(Debug)]
pub struct ServedModel {
    pub(crate) engine: Engine,
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) template: Arc<ChatTemplate>,
    pub(crate) sampling: SamplingOptions,
    pub(crate) facts: ModelFacts,
    pub(crate) planned: Forecast,
    pub(crate) allocated: Forecast,
}

/// What clients are told of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModelFacts {
    pub(crate) trained_context: u64,
    pub(crate) vocabulary: u64,
    pub(crate) width: u64,
    pub(crate) parameters: u64,
    pub(crate) bytes: u64,
}

impl ServedModel {
    /// A loaded engine, and the model's tokenizer and template. Requests that say nothing else take these sampling options.
    ///
    /// # Errors
    /// [`Error::Tokenizer`].
    pub fn new(engine: Engine, model: &Model, sampling: SamplingOptions) -> Result<ServedModel, Error> {
        let metadata = model.file().metadata();
        let tokenizer = Tokenizer::from_metadata(metadata)?;
        let template = ChatTemplate::from_metadata(metadata, &tokenizer);
        let facts = ModelFacts::of(model);
        let (planned, allocated) = (engine.blueprint().forecast()?, engine.memory());
        let (tokenizer, template) = (Arc::new(tokenizer), Arc::new(template));
        Ok(ServedModel { engine, tokenizer, template, sampling, facts, planned, allocated })
    }
}

impl ModelFacts {
    fn of(model: &Model) -> ModelFacts {
        let tensors = model.file().tensors();
        ModelFacts {
            trained_context: model.config().context,
            vocabulary: model.config().vocabulary,
            width: model.config().width,
            parameters: tensors.iter().map(|tensor| tensor.desc.extents.iter().product::<u64>()).sum(),
            bytes: tensors.iter().map(|tensor| tensor.desc.bytes()).sum(),
        }
    }
}

/// A loaded model that makes embeddings or scores, with what a server needs to know of it.
#[derive(Debug)]
pub struct ServedEmbedder {
    pub(crate) embedder: Embedder,
    pub(crate) tokenizer: Tokenizer,
    pub(crate) facts: ModelFacts,
    pub(crate) planned: Forecast,
}

impl ServedEmbedder {
    /// A loaded embedder, and its model.
    ///
    /// # Errors
    /// [`Error::Tokenizer`].
    pub fn new(embedder: Embedder, model: &Model) -> Result<ServedEmbedder, Error> {
        let tokenizer = Tokenizer::from_metadata(model.file().metadata())?;
        let planned = embedder.blueprint().forecast()?;
        Ok(ServedEmbedder { facts: ModelFacts::of(model), embedder, tokenizer, planned })
    }
}

/// The settings of a server's engine: sequences for this many requests that run, and for prefixes that are kept.
#[must_use]
pub fn with_sequences(settings: Settings, config: &Config, parallel: usize) -> Settings {
    let windows = config.layers.iter().any(|layer| layer.window.is_some());
    // Windows and states take memory for every sequence.
    let kept = match (shares(config), windows) {
        (false, _) => 0,
        (true, true) => parallel,
        (true, false) => parallel + 32,
    };
    // Each sequence has a page at least, and the cache shall not become larger for that. The first sequence always exists, and
    // is not used.
    let pages = settings.context.unwrap_or(config.context).div_ceil(PAGE_ROWS).max(2);
    let sequences = ((1 + parallel + kept) as u64).min(if shares(config) { pages } else { u64::MAX });
    Settings { sequences, ..settings }
}

/// How many sequences of which length a blueprint has room for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachePlan {
    /// Bytes of the cache for each token, of all devices.
    pub bytes_per_token: u64,
    /// Tokens that the cache holds.
    pub rows: u64,
    /// Lengths, and how many sequences of that length run at the same time.
    pub sequences: Vec<(u64, u64)>,
}

impl CachePlan {
    /// Of a server that runs at most `parallel` requests of at most `context` tokens.
    ///
    /// # Errors
    /// What devices refuse.
    pub fn of(blueprint: &Blueprint, context: Option<u64>, parallel: usize) -> Result<CachePlan, Error> {
        let forecast = blueprint.forecast()?;
        let rows = blueprint.context();
        let kv: u64 = forecast.devices.iter().map(|device| device.kv).sum();
        let limits = limits(blueprint, context, parallel);
        let most = limits.context as u64;
        let held = |length: u64| {
            let pages = limits.pages_of(length as usize).max(1);
            (limits.pages / pages).min(limits.parallel) as u64
        };
        let powers = (9..31).map(|power| 1u64 << power).take_while(|length| *length < most);
        let sequences = powers.chain([most]).map(|length| (length, held(length))).collect();
        Ok(CachePlan { bytes_per_token: kv / rows.max(1), rows, sequences })
    }
}
