//! How a model is planned and loaded, with devices and element types by name: what programs offer their users.

use std::collections::HashMap;
use std::path::PathBuf;

use orlop_backend::Precision;
use orlop_graph::DType;
use orlop_llm::{
    Blueprint, CacheTypes, DraftModel, Embedder, Engine, Error, Forecast, LayerChoice, Lookup, Model,
    Outputs, PairBlueprint, Settings, TextModel,
};
use orlop_sched::Machine;

use crate::devices::{self, DeviceOptions, DiscoveryError};

/// How a model is planned and loaded.
#[derive(Clone, Debug)]
pub struct ModelOptions {
    /// Tokens that the cache holds. Default: as many as the model was trained for, or as many as fit.
    pub context: Option<u64>,
    /// Maximum of tokens in a run. Default 512.
    pub batch: u64,
    /// Maximum of sequences in the cache. Default 1.
    pub sequences: u64,
    /// Threads of the CPU. Default: [`devices::physical_cores`].
    pub threads: usize,
    /// Devices by name, the most preferred first. Default: `cpu`.
    pub devices: Vec<String>,
    /// Layers on the first device. Default: the placement with the least predicted time ([`LayerChoice::Fastest`]).
    pub layers: Option<usize>,
    /// Maximum of bytes on a device, by name. Default: what is free there.
    pub budgets: Vec<(String, u64)>,
    /// Element types of the cache. Default F16.
    pub cache: CacheTypes,
    /// How accurately products are computed. Default [`Precision::Int16`].
    pub precision: Precision,
    /// The tokens whose logits one run of a batch gives. Default: the last ones.
    pub outputs: Outputs,
    /// What drafts tokens for texts. Default: nothing.
    pub drafting: Drafting,
    /// Folder for compiled CUDA kernels. Default: they are compiled at every start.
    pub kernel_cache: Option<PathBuf>,
}

/// What drafts tokens, which the model then checks together: the texts stay the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Drafting {
    /// Nothing does.
    #[default]
    Nothing,
    /// The last tokens are looked up in the text ([`Lookup`]).
    Lookup {
        /// Maximum of tokens of a draft.
        most: u64,
    },
    /// A smaller model of the same vocabulary, on the same devices ([`DraftModel`]).
    Model {
        /// Its file.
        path: PathBuf,
        /// Maximum of tokens of a draft.
        most: u64,
    },
}

impl Drafting {
    fn most(&self) -> u64 {
        match self {
            Drafting::Nothing => 0,
            Drafting::Lookup { most } | Drafting::Model { most, .. } => *most,
        }
    }

    /// The draft model's file, if there is one that may draft.
    fn open(&self) -> Result<Option<Model>, OpenError> {
        let Drafting::Model { path, most: 1.. } = self else { return Ok(None) };
        let failed = |source| OpenError::DraftModel { path: path.clone(), source };
        Model::open(path).map(Some).map_err(failed)
    }
}

/// What a model takes, with its draft model.
#[derive(Clone, Debug)]
pub struct PlannedModel {
    /// The model, planned.
    pub blueprint: Blueprint,
    /// What both take on each device, to the byte.
    pub forecast: Forecast,
    /// The largest context that fits; `None` if none does.
    pub largest_context: Option<u64>,
}

impl Default for ModelOptions {
    fn default() -> ModelOptions {
        ModelOptions {
            context: None,
            batch: 512,
            sequences: 1,
            threads: devices::physical_cores(),
            devices: vec!["cpu".to_owned()],
            layers: None,
            budgets: Vec::new(),
            cache: CacheTypes { k: DType::F16, v: DType::F16 },
            precision: Precision::Int16,
            outputs: Outputs::Last,
            drafting: Drafting::Nothing,
            kernel_cache: None,
        }
    }
}

/// A model could not be planned or loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A device that is not there.
    #[error(transparent)]
    Device(#[from] DiscoveryError),
    /// The model, or what it needs.
    #[error(transparent)]
    Model(#[from] Error),
    /// The draft model's file.
    #[error("the draft model {}: {source}", .path.display())]
    DraftModel {
        /// Its path.
        path: PathBuf,
        /// What is wrong with it.
        source: Error,
    },
}

impl ModelOptions {
    /// The devices.
    ///
    /// # Errors
    /// [`OpenError::Device`], and those of [`Machine::new`].
    pub fn machine(&self) -> Result<Machine, OpenError> {
        let (threads, kernel_cache) = (self.threads.max(1), self.kernel_cache.clone());
        let options = DeviceOptions { threads, kernel_cache, ..DeviceOptions::default() };
        let named = devices::named(&self.devices, &options)?;
        Ok(Machine::new(named).map_err(Error::from)?)
    }

    fn settings(&self, machine: &Machine) -> Result<Settings, OpenError> {
        let budget = |(name, bytes): &(String, u64)| Ok((machine.find(name)?, *bytes));
        let budgets: Result<HashMap<_, _>, orlop_sched::Error> = self.budgets.iter().map(budget).collect();
        Ok(Settings {
            context: self.context,
            batch: self.batch,
            sequences: self.sequences,
            threads: self.threads.max(1),
            cache: self.cache,
            precision: self.precision,
            outputs: self.outputs,
            draft: self.drafting.most(),
            layout: self.layers.map_or_else(LayerChoice::fastest, LayerChoice::LastLayers),
            budgets: budgets.map_err(Error::from)?,
            ..Settings::default()
        })
    }

    /// What a model takes; one that does not fit is planned all the same, and its forecast says so.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn plan(&self, model: &Model) -> Result<PlannedModel, OpenError> {
        let machine = self.machine()?;
        let settings = self.settings(&machine)?;
        let Some(draft) = self.drafting.open()? else {
            let blueprint = Blueprint::plan_unchecked(model, &machine, &settings)?;
            let (forecast, largest_context) = (blueprint.forecast()?, blueprint.largest_context()?);
            return Ok(PlannedModel { blueprint, forecast, largest_context });
        };
        let pair = PairBlueprint::plan_unchecked(model, &draft, &machine, &settings)?;
        let (forecast, largest_context) = (pair.forecast()?, pair.largest_context()?);
        Ok(PlannedModel { blueprint: pair.model, forecast, largest_context })
    }

    /// A model in memory.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn load(&self, model: &Model) -> Result<TextModel, OpenError> {
        let machine = self.machine()?;
        let settings = self.settings(&machine)?;
        let load = |blueprint| Engine::load(blueprint, &mut |_, _| ());
        if let Some(draft) = self.drafting.open()? {
            let pair = PairBlueprint::plan(model, &draft, &machine, &settings)?;
            let (engine, draft) = (load(pair.model)?, load(pair.draft)?);
            let drafter = DraftModel::new(draft, &engine)?;
            return Ok(TextModel::new(engine)?.with_drafter(Box::new(drafter))?);
        }
        let engine = load(Blueprint::plan(model, &machine, &settings)?)?;
        let context = engine.blueprint().context();
        let loaded = TextModel::new(engine)?;
        match self.drafting.most() {
            0 => Ok(loaded),
            _ => Ok(loaded.with_drafter(Box::new(Lookup::new(context)))?),
        }
    }

    /// A model in memory that makes embeddings; [`ModelOptions::context`] is the longest text.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn load_embedder(&self, model: &Model) -> Result<Embedder, OpenError> {
        let machine = self.machine()?;
        let blueprint = Embedder::plan(model, &machine, &self.settings(&machine)?, None)?;
        Ok(Embedder::load(blueprint, &mut |_, _| ())?)
    }
}
