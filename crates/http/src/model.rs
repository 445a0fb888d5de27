//! The model that a server answers with.

use std::fmt;
use std::sync::Arc;

use orlop_llm::{
    BatchSpeculator, Blueprint, ChatTemplate, Config, Embedder, Engine, Error, Forecast, Model, PAGE_ROWS,
    PairBlueprint, SamplingOptions, Settings, Tokenizer,
};

use crate::engine::paged_model::{limits, shares};

/// Loads a model: when it is needed, when it is needed again, and after the loss of a device on those that are left.
pub type LoadModel = dyn Fn() -> Result<LoadedModel, Error> + Send + Sync;

/// A model in memory, with what drafts for it.
#[derive(Debug)]
pub struct LoadedModel {
    /// The model.
    pub engine: Engine,
    /// What drafts tokens that the model verifies.
    pub drafts: Option<BatchSpeculator>,
}

impl From<Engine> for LoadedModel {
    /// Without drafts.
    fn from(engine: Engine) -> LoadedModel {
        LoadedModel { engine, drafts: None }
    }
}

impl LoadedModel {
    /// What both have allocated on the devices.
    pub fn memory(&self) -> Forecast {
        let memory = self.engine.memory();
        match self.drafts.as_ref().and_then(BatchSpeculator::memory) {
            Some(drafts) => memory.with(&drafts),
            None => memory,
        }
    }
}

/// A model that is planned, and what a server needs to know of it before it is loaded.
pub struct ServedModel {
    pub(crate) name: String,
    pub(crate) load: Arc<LoadModel>,
    /// Maximum of tokens of a sequence.
    pub(crate) context: Option<u64>,
    pub(crate) blueprint: Blueprint,
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) template: Arc<ChatTemplate>,
    pub(crate) sampling: SamplingOptions,
    pub(crate) facts: ModelFacts,
    pub(crate) planned: Forecast,
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
    /// A model of this name as it was planned, and what loads it. Requests that say nothing else take these sampling options.
    ///
    /// # Errors
    /// [`Error::Tokenizer`].
    pub fn new(
        name: impl Into<String>,
        blueprint: Blueprint,
        sampling: SamplingOptions,
        load: impl Fn() -> Result<LoadedModel, Error> + Send + Sync + 'static,
    ) -> Result<ServedModel, Error> {
        let model = blueprint.model();
        let metadata = model.file().metadata();
        let tokenizer = Tokenizer::from_metadata(metadata)?;
        let template = Arc::new(ChatTemplate::from_metadata(metadata, &tokenizer));
        let (facts, planned) = (ModelFacts::of(model), blueprint.forecast()?);
        let (name, load, tokenizer) = (name.into(), Arc::new(load), Arc::new(tokenizer));
        Ok(ServedModel {
            name,
            load,
            context: None,
            blueprint,
            tokenizer,
            template,
            sampling,
            facts,
            planned,
        })
    }

    /// With a draft model that was planned beside it.
    ///
    /// # Errors
    /// What devices refuse.
    pub fn with_draft_model(self, pair: &PairBlueprint) -> Result<ServedModel, Error> {
        Ok(ServedModel { planned: pair.forecast()?, ..self })
    }

    /// With a maximum of tokens of one sequence. Default: all that the cache holds.
    #[must_use]
    pub fn with_context(self, most: u64) -> ServedModel {
        ServedModel { context: Some(most), ..self }
    }
}

impl fmt::Debug for ServedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServedModel").field("name", &self.name).finish_non_exhaustive()
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
    pub(crate) name: String,
    pub(crate) embedder: Embedder,
    pub(crate) tokenizer: Tokenizer,
    pub(crate) facts: ModelFacts,
    pub(crate) planned: Forecast,
}

impl ServedEmbedder {
    /// A loaded embedder of this name, and its model.
    ///
    /// # Errors
    /// [`Error::Tokenizer`].
    pub fn new(name: impl Into<String>, embedder: Embedder, model: &Model) -> Result<ServedEmbedder, Error> {
        let tokenizer = Tokenizer::from_metadata(model.file().metadata())?;
        let planned = embedder.blueprint().forecast()?;
        Ok(ServedEmbedder { name: name.into(), facts: ModelFacts::of(model), embedder, tokenizer, planned })
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
