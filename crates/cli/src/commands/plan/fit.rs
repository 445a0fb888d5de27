//! `orlop plan --fit`: the ways to run a model that fit.

use orlop::llm::{Blueprint, FitChoice, FittingType, Model, Outputs, Workload};
use serde::Serialize;

use crate::failure::Failure;
use crate::load::failure;
use crate::predicted::Predicted;
use crate::printer::Printer;
use crate::quantity::short_bytes;

use super::arguments::{PlanArguments, PredictionArguments};
use super::model::machine;

#[derive(Serialize)]
struct Report {
    choices: Vec<Choice>,
    /// The largest type of the model that fits on the first device.
    fitting_type: Option<Fitting>,
}

#[derive(Serialize)]
struct Choice {
    context: u64,
    cache_type: &'static str,
    /// Layers on the first device.
    layers_on_device: usize,
    predicted: Predicted,
    bytes: u64,
}

#[derive(Serialize)]
struct Fitting {
    name: &'static str,
    /// Of all tensors.
    bytes: u64,
}

/// Lists what fits.
pub(super) fn run(model: &Model, arguments: &PlanArguments) -> Result<(), Failure> {
    let machine = machine(model, arguments)?;
    let layers = model.config().layers.len();
    let settings = arguments.settings.settings(&machine, layers, Outputs::Last)?;
    let PredictionArguments { n_prompt: prompt, n_depth: depth, .. } = arguments.prediction;
    let work = Workload { prompt: prompt.max(1), depth, ..Workload::default() };
    let found = FitChoice::all(model, &machine, &settings, &work).map_err(failure)?;
    let blueprint = Blueprint::plan_unchecked(model, &machine, &settings).map_err(failure)?;
    let fitting = blueprint.fitting_type().map_err(failure)?;
    let fitting = fitting.map(|FittingType { file_type, bytes }| Fitting { name: file_type.name(), bytes });
    let choice = |choice: &FitChoice| Choice {
        context: choice.context,
        cache_type: choice.cache.name(),
        layers_on_device: choice.forecast.layers.first().copied().unwrap_or(0),
        predicted: Predicted::new(&choice.speed, &machine),
        bytes: choice.bytes(),
    };
    let report = Report { choices: found.iter().map(choice).collect(), fitting_type: fitting };
    let mut printer = Printer::new();
    if arguments.json {
        return printer.json(&report);
    }
    let first = machine.indices().next().map_or("", |first| machine.name(first));
    let on_first = format!("layers on {first}");
    printer.line(format!(
        "{:>10}  {:>6}  {on_first:>16}  {:>12}  {:>18}  {:>18}",
        "context", "cache", "memory", "prompt", "generation"
    ))?;
    for Choice { context, cache_type, layers_on_device, predicted, bytes } in &report.choices {
        let [prompt, generation] = predicted.rates().map(|rate| format!("{rate:.1} tokens/s"));
        let memory = short_bytes(*bytes);
        printer.line(format!(
            "{context:>10}  {cache_type:>6}  {layers_on_device:>16}  {memory:>12}  {prompt:>18}  {generation:>18}"
        ))?;
    }
    if report.choices.is_empty() {
        printer.line("nothing fits")?;
    }
    match &report.fitting_type {
        Some(Fitting { name, bytes }) => printer.line(format!(
            "{name} is the largest type of this model that fits on {first}: {}",
            short_bytes(*bytes)
        )),
        None => printer.line(format!("no type of this model fits on {first}")),
    }
}
