//! Opens and loads the model of a command, and reports its memory and errors.

use std::collections::HashMap;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use orlop::llm::{
    Blueprint, DeviceMemory, DraftModel, Embedder, Engine, Error, Forecast, LayerChoice, Lookup, Model,
    Outputs, PairBlueprint, Pooling, Settings, Speculator, Tokenizer, TokenizerError,
};
use orlop::sched::Machine;
use serde::Serialize;

use crate::adapter_argument::adapted;
use crate::advice;
use crate::commands::devices;
use crate::commands::inspect::refused;
use crate::default_model;
use crate::draft_arguments::DraftArguments;
use crate::failure::Failure;
use crate::memory_table;
use crate::model_arguments::ModelArguments;
use crate::predicted::Predicted;
use crate::style::note;

/// A loaded model.
pub(crate) struct Loaded {
    pub(crate) engine: Engine,
    pub(crate) model: Model,
    pub(crate) speculator: Option<Speculator>,
    /// Load time, opening the file included.
    pub(crate) took: Duration,
}

/// The given model file, or the default model's.
pub(crate) fn model_file(path: Option<&Path>) -> Result<PathBuf, Failure> {
    match path {
        Some(path) => Ok(path.to_owned()),
        None => default_model::fetch().map_err(Failure::Other),
    }
}

/// Opens the given model, or the default one.
pub(crate) fn open(path: Option<&Path>) -> Result<Model, Failure> {
    open_for("-m", &model_file(path)?)
}

/// Opens the model of a command, with its adapters.
fn open_adapted(arguments: &ModelArguments) -> Result<Model, Failure> {
    adapted(open_for("-m", &arguments.file()?)?, &arguments.settings.lora)
}

/// Opens the model that a flag names.
pub(crate) fn open_for(flag: &str, path: &Path) -> Result<Model, Failure> {
    Model::open(path).map_err(|error| match error {
        Error::File(error) => refused(path, &error),
        error => Failure::BadInput(format!("{}: {error}; use another model ({flag})", path.display())),
    })
}

/// The draft model, if there is one.
pub(crate) fn open_draft(draft: &DraftArguments) -> Result<Option<Model>, Failure> {
    draft.model_draft.as_deref().map(|path| open_for("-md", path)).transpose()
}

/// Opens, plans and loads a model.
pub(crate) fn load(arguments: &ModelArguments, outputs: Outputs) -> Result<Loaded, Failure> {
    load_or(arguments, outputs, failure)
}

/// [`load`] with the caller's message for a model that does not fit.
pub(crate) fn load_or(
    arguments: &ModelArguments,
    outputs: Outputs,
    refused: impl Fn(Error) -> Failure,
) -> Result<Loaded, Failure> {
    load_with(arguments, outputs, |settings| settings, refused)
}

/// [`load`] for runs that also sum what matrices are multiplied with.
pub(crate) fn load_for_importance(arguments: &ModelArguments, outputs: Outputs) -> Result<Loaded, Failure> {
    load_with(arguments, outputs, |settings| Settings { importance: true, ..settings }, failure)
}

fn load_with(
    arguments: &ModelArguments,
    outputs: Outputs,
    changed: impl Fn(Settings) -> Settings,
    refused: impl Fn(Error) -> Failure,
) -> Result<Loaded, Failure> {
    let model = open_adapted(arguments)?;
    let begin = Instant::now();
    let machine = arguments.machine(&model)?;
    let settings = changed(arguments.settings.settings(&machine, model.config().layers.len(), outputs)?);
    let blueprint = Blueprint::plan(&model, &machine, &settings).map_err(refused)?;
    let engine = load_engine(blueprint)?;
    let loaded = Loaded { engine, model, speculator: None, took: begin.elapsed() };
    if arguments.verbose {
        describe(&loaded);
    }
    Ok(loaded)
}

/// Opens, plans and loads a model that makes embeddings or scores pairs of texts.
pub(crate) fn load_embedder(
    arguments: &ModelArguments,
    pooling: Option<Pooling>,
) -> Result<Embedder, Failure> {
    let model = open_for("-m", &arguments.file()?)?;
    let begin = Instant::now();
    let machine = arguments.machine(&model)?;
    let settings = arguments.settings.settings(&machine, model.config().layers.len(), Outputs::Last)?;
    let blueprint = Embedder::plan(&model, &machine, &settings, pooling).map_err(failure)?;
    let embedder = load_planned_embedder(blueprint)?;
    if arguments.verbose {
        describe_run(embedder.blueprint(), &embedder.memory(), begin.elapsed());
    }
    Ok(embedder)
}

/// [`load`] with what drafts tokens.
pub(crate) fn load_with_drafts(
    arguments: &ModelArguments,
    draft: &DraftArguments,
) -> Result<Loaded, Failure> {
    if draft.length() == 0 {
        return load(arguments, Outputs::Last);
    }
    let (model, draft_model) = (open_adapted(arguments)?, open_draft(draft)?);
    let begin = Instant::now();
    let machine = arguments.machine(&model)?;
    let settings = arguments.settings.settings(&machine, model.config().layers.len(), Outputs::Last)?;
    let settings = Settings { draft: draft.length(), ..settings };
    let (engine, speculator) = match draft_model {
        None => {
            let engine = load_engine(Blueprint::plan(&model, &machine, &settings).map_err(failure)?)?;
            let lookup = Lookup::new(engine.blueprint().context());
            let speculator = Speculator::new(&engine, Box::new(lookup));
            (engine, speculator)
        }
        Some(draft_model) => {
            let pair = PairBlueprint::plan(&model, &draft_model, &machine, &settings).map_err(failure)?;
            let (engine, draft) = (load_engine(pair.model)?, load_engine(pair.draft)?);
            let drafter = DraftModel::new(draft, &engine).map_err(failure)?;
            let speculator = Speculator::new(&engine, Box::new(drafter));
            (engine, speculator)
        }
    };
    let speculator = Some(speculator.map_err(failure)?);
    let loaded = Loaded { engine, model, speculator, took: begin.elapsed() };
    if arguments.verbose {
        describe(&loaded);
    }
    Ok(loaded)
}

pub(crate) fn load_planned_embedder(blueprint: Blueprint) -> Result<Embedder, Failure> {
    with_bar("loading", |progress| Embedder::load(blueprint, progress)).map_err(failure)
}

pub(crate) fn load_engine(blueprint: Blueprint) -> Result<Engine, Failure> {
    with_bar("loading", |progress| Engine::load(blueprint, progress)).map_err(failure)
}

/// A plan for the devices of a machine that are not lost.
fn plan_what_is_left(model: &Model, machine: &Machine, settings: &Settings) -> Result<Blueprint, Error> {
    let (machine, settings) = what_is_left(machine, settings)?;
    Blueprint::plan(model, &machine, &settings)
}

/// The devices of a machine that are not lost, and settings for them.
pub(crate) fn what_is_left(machine: &Machine, settings: &Settings) -> Result<(Machine, Settings), Error> {
    let left = machine.devices().iter().filter(|device| !device.facts().lost).cloned();
    // What was set for single devices does not fit those that are left.
    let settings = Settings {
        layout: LayerChoice::fastest(),
        plans: Arc::new([]),
        budgets: HashMap::new(),
        kept_weights: HashMap::new(),
        ..settings.clone()
    };
    Ok((Machine::new(left)?, settings))
}

impl Loaded {
    /// Whether a run failed since a device is lost, and others are left.
    pub(crate) fn may_continue(&self) -> bool {
        let devices = self.engine.blueprint().machine().devices();
        let lost = devices.iter().filter(|device| device.facts().lost).count();
        (1..devices.len()).contains(&lost)
    }

    /// Loads the model on the devices that are left. Its sequences are empty.
    pub(crate) fn continued(self, error: &Error) -> Result<Loaded, Failure> {
        let Loaded { engine, model, speculator, took } = self;
        let (machine, settings) =
            (engine.blueprint().machine().clone(), engine.blueprint().settings().clone());
        // Its memory is needed.
        drop(engine);
        let engine = load_engine(plan_what_is_left(&model, &machine, &settings).map_err(failure)?)?;
        let left: Vec<&str> =
            engine.blueprint().machine().devices().iter().map(|device| device.name()).collect();
        note(format_args!("orlop: {error}; continuing on {}", left.join(", ")));
        Ok(Loaded { engine, model, speculator, took })
    }
}

/// What an engine has allocated, with what drafts for it.
pub(crate) fn memory(engine: &Engine, speculator: Option<&Speculator>) -> Forecast {
    let memory = engine.memory();
    match speculator.and_then(Speculator::memory) {
        Some(drafts) => memory.with(&drafts),
        None => memory,
    }
}

/// Repacks weights before the first run instead of after it.
pub(crate) fn repack(loaded: &mut Loaded) -> Result<(), Failure> {
    let begin = Instant::now();
    let result = repack_engine(&mut loaded.engine);
    loaded.took += begin.elapsed();
    result
}

/// [`repack`] for an engine.
pub(crate) fn repack_engine(engine: &mut Engine) -> Result<(), Failure> {
    with_bar("repacking", |progress| engine.repack(progress)).map_err(failure)
}

/// Runs `work` with a progress bar; `work` reports the bytes done and in total.
pub(crate) fn with_bar<T>(what: &'static str, work: impl FnOnce(&mut dyn FnMut(u64, u64)) -> T) -> T {
    let bar = bar(what);
    let result = work(&mut |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    result
}

/// Prints the devices and their memory use.
fn describe(loaded: &Loaded) {
    let memory = memory(&loaded.engine, loaded.speculator.as_ref());
    describe_run(loaded.engine.blueprint(), &memory, loaded.took);
}

fn describe_run(blueprint: &Blueprint, memory: &Forecast, took: Duration) {
    let machine = blueprint.machine();
    for device in machine.indices() {
        let facts = machine.facts(device);
        note(format_args!("{}: {}", machine.name(device), devices::described(facts)));
    }
    note(memory_table::table(memory));
    let (context, batch) = (blueprint.context(), blueprint.batch());
    let took = took.as_secs_f64();
    note(format_args!("context: {context} tokens; batch: {batch} tokens; loaded in {took:.2} s"));
}

/// The tokenizer of a model.
pub(crate) fn tokenizer(model: &Model) -> Result<Tokenizer, Failure> {
    Tokenizer::from_metadata(model.file().metadata()).map_err(failure)
}

/// A progress bar on standard error if that is a terminal.
pub(crate) fn bar(what: &'static str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg} {wide_bar} {bytes}/{total_bytes}");
    ProgressBar::new(0).with_message(what).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// [`bar`] for a prompt of more than one batch.
pub(crate) fn token_bar(tokens: usize, batch: usize) -> ProgressBar {
    if tokens <= batch || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    // Narrower than the terminal: Ctrl-C prints two characters after it.
    let style = ProgressStyle::with_template("reading {bar:30} {pos}/{len} tokens, {eta} left");
    let bar =
        ProgressBar::new(tokens as u64).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.tick();
    bar
}

/// Turns a library error into a failure with advice and exit status.
pub(crate) fn failure(error: Error) -> Failure {
    if let Some((what, offers)) = advice::does_not_fit(&error) {
        return Failure::OverLimits(format!("{what}; {offers}"));
    }
    let advice = match &error {
        Error::ContextFull { .. } => {
            return Failure::OverLimits(format!("{error}; use a larger one (-c)"));
        }
        Error::Schedule(_) | Error::Memory(_) | Error::Device(_) | Error::RunFailed(_) => {
            return Failure::Other(error.into());
        }
        Error::TextTooLong { .. } => return Failure::OverLimits(error.to_string()),
        Error::MakesNoText { .. } => "use `orlop embed`".to_owned(),
        Error::OtherRows { wanted: "embeddings", .. } => "use `orlop rerank`".to_owned(),
        Error::EmptyPrompt => return Failure::BadInput(error.to_string()),
        Error::UnknownToken { vocabulary, .. } => format!("valid ids are 0 to {}", vocabulary - 1),
        Error::BadSetting { .. } => "see `orlop COMMAND --help`".to_owned(),
        Error::OtherPlans { .. } => "recreate them with `orlop plan MODEL --save`".to_owned(),
        Error::Tokenizer(TokenizerError::Missing) => "`orlop logits --tokens` takes ids".to_owned(),
        Error::TextTooShort { .. } => "use a longer text".to_owned(),
        Error::State(_) => "use another file".to_owned(),
        Error::OtherVocabulary { .. } => "use a draft model of the same family (-md)".to_owned(),
        Error::Grammar(_) => "use a simpler grammar".to_owned(),
        Error::CannotRewind { .. } => "use neither --lookup nor --model-draft with it".to_owned(),
        _ => "use another model (-m)".to_owned(),
    };
    Failure::BadInput(format!("{error}; {advice}"))
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        failure(error)
    }
}

/// As [`failure`], for a saved state and the option or command that names its file.
pub(crate) fn state_failure(file: &Path, error: Error, option: &str) -> Failure {
    let context = match error {
        Error::ContextFull { tokens, context, .. } => Some((tokens, context)),
        _ => None,
    };
    if let Some((tokens, context)) = context {
        return Failure::OverLimits(format!(
            "{}: the saved state has {tokens} tokens, and the context {context}; use a larger one (-c)",
            file.display()
        ));
    }
    match error {
        Error::State(error) => {
            let error = anyhow::Error::from(*error);
            Failure::BadInput(format!("{}: {error:#}; use another file ({option})", file.display()))
        }
        error => failure(error),
    }
}

/// The memory of a model, as JSON.
#[derive(Debug, Serialize)]
pub(crate) struct MemoryReport {
    pub(crate) devices: Vec<DeviceReport>,
    fits: bool,
    context: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    largest_context: Option<Option<u64>>,
    /// Layers on the first device.
    layers_on_device: usize,
    /// Peak resident memory of this process, if the system reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    peak_resident: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    predicted: Option<Predicted>,
}

#[derive(Debug, Serialize)]
pub(crate) struct DeviceReport {
    name: String,
    weights: u64,
    repacked: u64,
    /// Weights that runs read from the file.
    streamed: u64,
    kv: u64,
    compute: u64,
    /// `compute` for steps in their original order.
    #[serde(skip_serializing_if = "Option::is_none")]
    compute_given: Option<u64>,
    total: u64,
    free: Option<u64>,
}

impl MemoryReport {
    pub(crate) fn new(forecast: &Forecast) -> MemoryReport {
        let report = |share: &DeviceMemory| DeviceReport {
            name: share.name.clone(),
            weights: share.weights,
            repacked: share.repacked,
            streamed: share.streamed,
            kv: share.kv,
            compute: share.compute,
            compute_given: None,
            total: share.total(),
            free: share.free,
        };
        MemoryReport {
            devices: forecast.devices.iter().map(report).collect(),
            fits: forecast.fits(),
            context: forecast.context,
            largest_context: None,
            layers_on_device: forecast.layers.first().copied().unwrap_or(0),
            peak_resident: None,
            predicted: None,
        }
    }

    /// Adds the peak resident memory of this process.
    pub(crate) fn with_peak(self) -> MemoryReport {
        MemoryReport { peak_resident: process_bytes("VmHWM:"), ..self }
    }

    /// Adds the compute memory of steps in their original order.
    pub(crate) fn with_given(mut self, given: &Forecast) -> MemoryReport {
        for (device, share) in self.devices.iter_mut().zip(&given.devices) {
            device.compute_given = Some(share.compute);
        }
        self
    }

    /// Adds predicted speeds, if there are any.
    pub(crate) fn with_predicted(self, predicted: Option<Predicted>) -> MemoryReport {
        MemoryReport { predicted, ..self }
    }

    /// Adds the largest context that fits, if any does.
    pub(crate) fn with_largest(self, largest: Option<u64>) -> MemoryReport {
        MemoryReport { largest_context: Some(largest), ..self }
    }
}

/// Resident memory of this process on Linux: `VmRSS:` now, `VmHWM:` the peak.
pub(crate) fn process_bytes(key: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with(key))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib * 1024)
}
