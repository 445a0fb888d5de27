//! The models of a server: which they are, what they take, and how they are loaded.

use std::path::PathBuf;

use clap::Args;
use orlop::http::{LoadedModel, ServedEmbedder, ServedModel, with_sequences};
use orlop::hub::HubModel;
use orlop::llm::{
    BatchSpeculator, Blueprint, Embedder, Engine, Error, Forecast, Model, Outputs, PairBlueprint, Pooling,
    Settings,
};
use orlop::sched::Machine;

use crate::adapter_argument::adapted;
use crate::draft_arguments::DraftArguments;
use crate::failure::Failure;
use crate::hub;
use crate::load::{failure, load_planned_embedder, model_file, open_draft, open_for, what_is_left, with_bar};
use crate::memory_table;
use crate::model_arguments::SettingArguments;
use crate::style::note;

/// The models, and how they run.
#[derive(Debug, Args)]
pub(crate) struct ServedArguments {
    /// Model file (.gguf), or any part of a split model; can be repeated: requests name the model
    /// [default: SmolLM2-135M-Instruct, downloaded once]
    #[arg(short, long, value_name = "FILE")]
    model: Vec<PathBuf>,
    /// Model of a hub, downloaded if necessary: `org/repo`, or `org/repo:QUANT` (also -hf); can be repeated; see `orlop pull`.
    #[arg(long, visible_alias = "hf", value_name = "MODEL")]
    hf_repo: Vec<HubModel>,
    /// Name of the model in answers; can be repeated, for each model [default: the name of the file]
    #[arg(long, value_name = "NAME")]
    alias: Vec<String>,
    /// Print devices, memory use and timings to standard error.
    #[arg(short, long)]
    pub(super) verbose: bool,
    #[command(flatten)]
    pub(super) draft: DraftArguments,
    #[command(flatten)]
    pub(super) settings: SettingArguments,
}

/// A model that was opened.
pub(super) struct OpenModel {
    pub(super) name: String,
    pub(super) model: Model,
    pub(super) machine: Machine,
}

impl OpenModel {
    /// Whether its file says that it makes embeddings or scores.
    pub(super) fn makes_no_text(&self) -> bool {
        let config = self.model.config();
        let pools = config.pooling.is_some() || Pooling::of(config, self.model.file()) == Pooling::Rank;
        config.bidirectional || pools
    }
}

impl ServedArguments {
    /// Whether no model is named.
    pub(super) fn is_default(&self) -> bool {
        self.model.is_empty() && self.hf_repo.is_empty()
    }

    /// Opens all models.
    pub(super) fn open(&self) -> Result<Vec<OpenModel>, Failure> {
        let mut files = self.model.clone();
        for model in &self.hf_repo {
            files.push(hub::pull(model)?.path().to_owned());
        }
        if files.is_empty() {
            files.push(model_file(None)?);
        }
        if self.alias.len() > files.len() {
            let (names, count) = (self.alias.len(), files.len());
            return Err(Failure::BadInput(format!(
                "there are {names} names for {count} models; omit an --alias"
            )));
        }
        let single =
            [("--saved-plan", self.settings.plan.is_some()), ("--lora", !self.settings.lora.is_empty())];
        if let Some((flag, _)) = single.iter().find(|(_, given)| *given && files.len() > 1) {
            return Err(Failure::BadInput(format!("{flag} is for one model; serve it alone")));
        }
        let mut models: Vec<OpenModel> = Vec::with_capacity(files.len());
        for (index, file) in files.iter().enumerate() {
            let stem = file.file_stem().map(|name| name.to_string_lossy().into_owned());
            let name = self.alias.get(index).cloned().or(stem).unwrap_or_default();
            if models.iter().any(|known| known.name == name) {
                return Err(Failure::BadInput(format!(
                    "two models are named {name}; name them with --alias"
                )));
            }
            let model = adapted(open_for("-m", file)?, &self.settings.lora)?;
            let machine = self.settings.machine(&model)?;
            models.push(OpenModel { name, model, machine });
        }
        Ok(models)
    }

    /// How a model that makes text is planned.
    pub(super) fn settings(&self, open: &OpenModel, parallel: usize) -> Result<Settings, Failure> {
        let config = open.model.config();
        let settings = self.settings.settings(&open.machine, config.layers.len(), Outputs::Last)?;
        Ok(with_sequences(Settings { draft: self.draft.length(), ..settings }, config, parallel))
    }

    /// How a model that makes embeddings or scores is planned. Beside others, the number of tokens is theirs.
    pub(super) fn embedder_settings(&self, open: &OpenModel, is_alone: bool) -> Result<Settings, Failure> {
        let layers = open.model.config().layers.len();
        let settings = self.settings.settings(&open.machine, layers, Outputs::Last)?;
        Ok(Settings { context: settings.context.filter(|_| is_alone), ..settings })
    }

    /// What drafts for these models.
    pub(super) fn drafts(&self, texts: &[OpenModel], embedders: &[OpenModel]) -> Result<Drafts, Failure> {
        match (texts, embedders, self.draft.length()) {
            (_, _, 0) => Ok(Drafts::None),
            ([], [open, ..], _) => Err(Failure::BadInput(format!(
                "{} makes embeddings; omit --lookup and --model-draft",
                open.name
            ))),
            _ => match open_draft(&self.draft)? {
                None => Ok(Drafts::Lookup),
                Some(_) if texts.len() > 1 => {
                    let sentence = "--model-draft is for one model; use --lookup, or serve it alone";
                    Err(Failure::BadInput(sentence.to_owned()))
                }
                Some(model) => Ok(Drafts::Model(model)),
            },
        }
    }
}

/// What drafts tokens.
pub(super) enum Drafts {
    None,
    /// The texts so far.
    Lookup,
    Model(Model),
}

/// A model that makes text and has been planned, with what drafts for it.
pub(super) struct PlannedModel {
    pub(super) name: String,
    pub(super) blueprint: Blueprint,
    draft: Option<Blueprint>,
    looks_up: bool,
}

impl PlannedModel {
    /// Plans a model; one that does not fit is refused, unless it is only looked at.
    pub(super) fn of(
        open: &OpenModel,
        settings: &Settings,
        drafts: &Drafts,
        checked: bool,
    ) -> Result<PlannedModel, Failure> {
        let OpenModel { name, model, machine } = open;
        let planned = match drafts {
            Drafts::Model(draft) => {
                let plan = if checked { PairBlueprint::plan } else { PairBlueprint::plan_unchecked };
                let pair = plan(model, draft, machine, settings);
                pair.map(|PairBlueprint { model, draft }| (model, Some(draft)))
            }
            Drafts::None | Drafts::Lookup => {
                let plan = if checked { Blueprint::plan } else { Blueprint::plan_unchecked };
                plan(model, machine, settings).map(|blueprint| (blueprint, None))
            }
        };
        let (blueprint, draft) = planned.map_err(|error| named(name, error))?;
        let looks_up = matches!(drafts, Drafts::Lookup);
        Ok(PlannedModel { name: name.clone(), blueprint, draft, looks_up })
    }

    fn pair(&self) -> Option<PairBlueprint> {
        let draft = self.draft.clone()?;
        Some(PairBlueprint { model: self.blueprint.clone(), draft })
    }

    /// What it takes, with its draft model.
    pub(super) fn forecast(&self) -> Result<Forecast, Failure> {
        match self.pair() {
            Some(pair) => pair.forecast(),
            None => self.blueprint.forecast(),
        }
        .map_err(failure)
    }

    /// What serves it.
    pub(super) fn served(
        self,
        sampling: orlop::SamplingOptions,
        verbose: bool,
    ) -> Result<ServedModel, Failure> {
        let pair = self.pair();
        let PlannedModel { name, blueprint, draft, looks_up } = self;
        let planned = blueprint.clone();
        let load = move || {
            let (blueprint, draft) = on_what_is_left(&planned, draft.as_ref())?;
            let engine = loaded(blueprint)?;
            let drafts = match draft {
                Some(draft) => Some(BatchSpeculator::draft_model(loaded(draft)?, &engine)?),
                None if looks_up => Some(BatchSpeculator::lookup(&engine)?),
                None => None,
            };
            let loaded = LoadedModel { engine, drafts };
            if verbose {
                note(memory_table::table(&loaded.memory()));
            }
            Ok(loaded)
        };
        let served = ServedModel::new(name, blueprint, sampling, load).map_err(failure)?;
        match pair {
            Some(pair) => served.with_draft_model(&pair).map_err(failure),
            None => Ok(served),
        }
    }
}

/// A model that makes embeddings or scores and has been planned.
pub(super) struct PlannedEmbedder {
    pub(super) name: String,
    model: Model,
    blueprint: Blueprint,
}

impl PlannedEmbedder {
    /// Plans a model.
    pub(super) fn of(open: &OpenModel, settings: &Settings) -> Result<PlannedEmbedder, Failure> {
        let OpenModel { name, model, machine } = open;
        let blueprint = Embedder::plan(model, machine, settings, None).map_err(|error| named(name, error))?;
        Ok(PlannedEmbedder { name: name.clone(), model: model.clone(), blueprint })
    }

    /// What it takes.
    pub(super) fn forecast(&self) -> Result<Forecast, Failure> {
        self.blueprint.forecast().map_err(failure)
    }

    /// Loads it.
    pub(super) fn served(self, verbose: bool) -> Result<ServedEmbedder, Failure> {
        let embedder = load_planned_embedder(self.blueprint)?;
        if verbose {
            note(memory_table::table(&embedder.memory()));
        }
        ServedEmbedder::new(self.name, embedder, &self.model).map_err(failure)
    }
}

/// The settings with what models before have left of each device.
pub(super) fn within(settings: Settings, machine: &Machine, before: &[Forecast]) -> Settings {
    let mut budgets = settings.budgets.clone();
    for (index, device) in machine.indices().enumerate() {
        let taken = before.iter().filter_map(|forecast| forecast.devices.get(index));
        let free = before.first().and_then(|forecast| forecast.devices.get(index)?.free);
        if let Some(free) = free {
            budgets.insert(device, free.saturating_sub(taken.map(|share| share.total()).sum()));
        }
    }
    Settings { budgets, ..settings }
}

/// A failure that names its model, if it is one of several.
fn named(name: &str, error: Error) -> Failure {
    match failure(error) {
        Failure::OverLimits(sentence) => Failure::OverLimits(format!("{name}: {sentence}")),
        other => other,
    }
}

/// Loads a model, and repacks its weights before the first run.
fn loaded(blueprint: Blueprint) -> Result<Engine, Error> {
    let mut engine = with_bar("loading", |progress| Engine::load(blueprint, progress))?;
    with_bar("repacking", |progress| engine.repack(progress))?;
    Ok(engine)
}

/// The plans of a model and its draft model, or other ones without the devices that are lost.
fn on_what_is_left(
    planned: &Blueprint,
    draft: Option<&Blueprint>,
) -> Result<(Blueprint, Option<Blueprint>), Error> {
    let devices = planned.machine().devices();
    if devices.iter().all(|device| !device.facts().lost) {
        return Ok((planned.clone(), draft.cloned()));
    }
    let (machine, settings) = what_is_left(planned.machine(), planned.settings())?;
    match draft {
        None => Ok((Blueprint::plan(planned.model(), &machine, &settings)?, None)),
        Some(draft) => {
            let PairBlueprint { model, draft } =
                PairBlueprint::plan(planned.model(), draft.model(), &machine, &settings)?;
            Ok((model, Some(draft)))
        }
    }
}
