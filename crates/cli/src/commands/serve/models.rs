//! The models of a server: which they are, what they take, and how they are loaded.

use std::path::PathBuf;

use clap::Args;
use orlop::http::{ServedModel, with_sequences};
use orlop::hub::HubModel;
use orlop::llm::{Blueprint, Engine, Error, Model, Outputs, Settings};
use orlop::sched::Machine;

use crate::adapter_argument::adapted;
use crate::failure::Failure;
use crate::hub;
use crate::load::{failure, model_file, open_for, plan_what_is_left, with_bar};
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
    pub(super) settings: SettingArguments,
}

/// A model that was opened.
pub(super) struct OpenModel {
    pub(super) name: String,
    pub(super) model: Model,
    pub(super) machine: Machine,
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

    /// How a model is planned.
    pub(super) fn settings(&self, open: &OpenModel, parallel: usize) -> Result<Settings, Failure> {
        let config = open.model.config();
        let settings = self.settings.settings(&open.machine, config.layers.len(), Outputs::Last)?;
        Ok(with_sequences(settings, config, parallel))
    }
}

/// A model that has been planned.
pub(super) struct PlannedModel {
    pub(super) name: String,
    pub(super) blueprint: Blueprint,
}

impl PlannedModel {
    /// Plans a model; one that does not fit is refused, unless it is only looked at.
    pub(super) fn of(open: &OpenModel, settings: &Settings, checked: bool) -> Result<PlannedModel, Failure> {
        let plan = if checked { Blueprint::plan } else { Blueprint::plan_unchecked };
        let blueprint = plan(&open.model, &open.machine, settings).map_err(|error| match failure(error) {
            Failure::OverLimits(sentence) => Failure::OverLimits(format!("{}: {sentence}", open.name)),
            other => other,
        })?;
        Ok(PlannedModel { name: open.name.clone(), blueprint })
    }

    /// What serves it.
    pub(super) fn served(
        self,
        sampling: orlop::SamplingOptions,
        verbose: bool,
    ) -> Result<ServedModel, Failure> {
        let planned = self.blueprint.clone();
        let load = move || {
            let mut engine =
                with_bar("loading", |progress| Engine::load(on_what_is_left(&planned)?, progress))?;
            with_bar("repacking", |progress| engine.repack(progress))?;
            if verbose {
                note(memory_table::table(&engine.memory()));
            }
            Ok(engine)
        };
        ServedModel::new(self.name, self.blueprint, sampling, load).map_err(failure)
    }
}

/// The plan of a model, or another one without the devices that are lost.
fn on_what_is_left(planned: &Blueprint) -> Result<Blueprint, Error> {
    let devices = planned.machine().devices();
    if devices.iter().all(|device| !device.facts().lost) {
        return Ok(planned.clone());
    }
    plan_what_is_left(planned.model(), planned.machine(), planned.settings())
}
