//! `orlop plan MODEL.gguf`: the memory of a model.

use std::path::{Path, PathBuf};

use orlop::alloc::StepOrder;
use orlop::gguf::GgufFile;
use orlop::llm::{
    Blueprint, Error, Forecast, HotExperts, Model, ModelPart, Outputs, PairBlueprint, PartDecision, Settings,
    Synth,
};
use orlop::sched::{Machine, MachineDescription};
use orlop::view::Picture;
use orlop::{model_pictures, sched};

use crate::adapter_argument::adapted;
use crate::advice;
use crate::failure::Failure;
use crate::load::{MemoryReport, failure, open, open_draft};
use crate::memory_table;
use crate::model_arguments::{Predictions, SettingArguments};
use crate::model_plan_file::ModelPlanFile;
use crate::output::Output;
use crate::predicted::{Predicted, with_file_speed};
use crate::printer::Printer;
use crate::quantity::short_bytes;

use super::arguments::{PlanArguments, PredictionArguments};
use super::fit;
use super::pictures::Pictures;

/// A model, alone or with a draft model.
enum Planned {
    One(Box<Blueprint>),
    Pair(Box<PairBlueprint>),
}

/// A model to plan, and its name in pictures.
pub(super) struct PlannedModel {
    pub(super) model: Model,
    pub(super) name: String,
    /// Its file, if it has one.
    file: Option<PathBuf>,
}

impl PlannedModel {
    /// That of a file, with its adapters.
    pub(super) fn open(file: &Path, arguments: &PlanArguments) -> Result<PlannedModel, Failure> {
        let model = adapted(open(Some(file))?, &arguments.settings.lora)?;
        let name = file.file_stem().unwrap_or(file.as_os_str()).to_string_lossy().into_owned();
        Ok(PlannedModel { model, name, file: Some(file.to_owned()) })
    }

    /// One with the dimensions of a known model, and no weights.
    pub(super) fn preset(name: &str, arguments: &PlanArguments) -> Result<PlannedModel, Failure> {
        let preset = Synth::preset(name);
        let preset = preset.ok_or_else(|| Failure::BadInput(format!("unknown preset `{name}`")))?;
        let file_type = arguments.prediction.file_type;
        let outline = Synth { file_type, ..preset }.outline().map_err(failure)?;
        let model = Model::from_file(GgufFile::from_file(outline)).map_err(failure)?;
        Ok(PlannedModel { model, name: name.to_owned(), file: None })
    }
}

/// The machine to plan for: a described one, or this one with measured speeds.
pub(super) fn machine(model: &Model, arguments: &PlanArguments) -> Result<Machine, Failure> {
    let Some(path) = &arguments.prediction.machine else {
        let predictions = Predictions::Printed;
        return SettingArguments { predictions, ..arguments.settings.clone() }.machine(model);
    };
    let refused = |what: &dyn std::fmt::Display| {
        Failure::BadInput(format!("{}: {what}; describe a machine as in the guide", path.display()))
    };
    let text = std::fs::read_to_string(path).map_err(|error| refused(&error))?;
    let description: MachineDescription = serde_json::from_str(&text).map_err(|error| refused(&error))?;
    description.machine().map_err(|error| refused(&error))
}

impl Planned {
    fn new(planned: &PlannedModel, arguments: &PlanArguments) -> Result<Planned, Failure> {
        let model = &planned.model;
        let draft = open_draft(&arguments.draft)?;
        let machine = machine(model, arguments)?;
        let layers = model.config().layers.len();
        let settings = arguments.settings.settings(&machine, layers, Outputs::Last)?;
        let settings = Settings { draft: arguments.draft.length(), ..settings };
        let planned = match draft {
            None => {
                Blueprint::plan_unchecked(model, &machine, &settings).map(|one| Planned::One(Box::new(one)))
            }
            Some(draft) => PairBlueprint::plan_unchecked(model, &draft, &machine, &settings)
                .map(|pair| Planned::Pair(Box::new(pair))),
        };
        let planned = planned.map_err(failure)?;
        planned.model().check_plans().map_err(failure)?;
        Ok(planned)
    }

    fn model(&self) -> &Blueprint {
        match self {
            Planned::One(model) => model,
            Planned::Pair(pair) => &pair.model,
        }
    }

    /// What everything takes with the model planned like this.
    fn forecast_with(&self, model: &Blueprint) -> Result<Forecast, Error> {
        match self {
            Planned::One(_) => model.forecast(),
            Planned::Pair(pair) => pair.forecast_with(model),
        }
    }

    fn largest_context(&self) -> Result<Option<u64>, Error> {
        match self {
            Planned::One(model) => model.largest_context(),
            Planned::Pair(pair) => pair.largest_context(),
        }
    }
}

/// Plans a model with the given settings.
pub(super) fn plan(model: &PlannedModel, arguments: &PlanArguments) -> Result<Blueprint, Failure> {
    Planned::new(model, arguments).map(|planned| planned.model().clone())
}

/// The pictures of a batch and of a token.
pub(super) fn pictures(model: &PlannedModel, arguments: &PlanArguments) -> Result<[Picture; 2], Failure> {
    model_pictures::pictures(&plan(model, arguments)?, &model.name).map_err(failure)
}

/// Predicted speeds.
fn predicted(
    blueprint: &Blueprint,
    file: Option<&Path>,
    arguments: &PlanArguments,
) -> Result<Predicted, Failure> {
    let PredictionArguments { n_prompt, n_depth, .. } = arguments.prediction;
    let depth = n_depth.min(blueprint.context().saturating_sub(1));
    let prompt = n_prompt.clamp(1, (blueprint.context() - depth).max(1));
    let blueprint = with_file_speed(blueprint, file, arguments.settings.no_measure);
    let speed = blueprint.speed_forecast(prompt, depth).map_err(failure)?;
    Ok(Predicted::new(&speed, blueprint.machine()))
}

/// Prints the memory of a model without loading it.
pub(super) fn run(model: PlannedModel, arguments: &PlanArguments) -> Result<(), Failure> {
    if arguments.prediction.fit {
        return fit::run(&model.model, arguments);
    }
    let planned = Planned::new(&model, arguments)?;
    let blueprint = planned.model();
    let forecast = planned.forecast_with(blueprint).map_err(failure)?;
    let largest = planned.largest_context().map_err(failure)?;
    let predicted = forecast.fits().then(|| predicted(blueprint, model.file.as_deref(), arguments));
    let predicted = predicted.transpose()?;
    if let Some(path) = &arguments.save {
        let saved = ModelPlanFile::of(blueprint);
        let mut file = Output::create(path)?;
        file.write(&serde_json::to_string(&saved).map_err(|error| Failure::Other(error.into()))?)?;
        file.finish()?;
    }
    let given = arguments.order.reorder;
    let given = given.then(|| planned.forecast_with(&blueprint.with_order(StepOrder::Given)?));
    let given = given.transpose().map_err(failure)?;
    let mut printer = Printer::new();
    if arguments.json {
        let report = MemoryReport::new(&forecast).with_largest(largest).with_predicted(predicted);
        printer.json(&given.iter().fold(report, MemoryReport::with_given))?;
    } else {
        print(&mut printer, blueprint, &forecast, largest)?;
        predicted.iter().flat_map(Predicted::lines).try_for_each(|line| printer.line(line))?;
        for (given, share) in given.iter().flat_map(|given| given.devices.iter().zip(&forecast.devices)) {
            let (before, after) = (short_bytes(given.compute), short_bytes(share.compute));
            printer.line(format!(
                "compute on {}: {before} in the original order, {after} reordered",
                share.name
            ))?;
        }
    }
    if arguments.pictures.are_wanted() {
        let [batch, token] = model_pictures::pictures(blueprint, &model.name).map_err(failure)?;
        arguments.pictures.deliver(&mut printer, &Pictures { plans: vec![batch], others: vec![token] })?;
    }
    if arguments.explain {
        explain_parts(&mut printer, blueprint)?;
        let (graph, planned) = blueprint.planned_batch();
        explain(&mut printer, blueprint, graph, planned)?;
    }
    Ok(())
}

fn print(
    printer: &mut Printer,
    blueprint: &Blueprint,
    forecast: &Forecast,
    largest: Option<u64>,
) -> Result<(), Failure> {
    printer.line(memory_table::table(forecast))?;
    let context = forecast.context;
    let streamed = forecast.devices.iter().map(|share| share.streamed).fold(0, u64::saturating_add);
    if streamed > 0 {
        printer.line(format!(
            "memory does not hold all weights: runs read {} of them from the model's file",
            short_bytes(streamed)
        ))?;
    }
    if forecast.fits() {
        let trained = blueprint.trained_context();
        if context > trained {
            return printer
                .line(format!("a context of {context} fits; the model was trained for {trained} tokens"));
        }
        let largest = largest.unwrap_or(context);
        return printer
            .line(format!("a context of {context} fits; the largest context that fits is {largest}"));
    }
    let divided = blueprint.most_layers().map_err(failure)?;
    printer.line(format!("a context of {context} does not fit; {}", advice::offers(largest, divided)))
}

/// Lists the device of each part, and what the next best one would cost; nothing if there is only one device.
fn explain_parts(printer: &mut Printer, blueprint: &Blueprint) -> Result<(), Failure> {
    let (decisions, machine) = (blueprint.decisions(), blueprint.machine());
    if decisions.parts.is_empty() {
        return Ok(());
    }
    printer.line(format!(
        "\nplacement of the parts, which takes at most {:.1} % more time than the best:",
        100.0 * (decisions.seconds / decisions.bound - 1.0)
    ))?;
    let count = blueprint.model().config().experts.map_or(0, |experts| experts.count);
    for PartDecision { part, device, next_best } in &decisions.parts {
        let hot = match part {
            ModelPart::Experts(layer) => blueprint.layout().hot[*layer].as_ref(),
            _ => None,
        };
        let next = match (hot, next_best) {
            (Some(HotExperts { device, experts }), _) => {
                format!("{} of {count} are hot, on {}", experts.len(), machine.name(*device))
            }
            (None, Some((other, extra))) => {
                format!("next best {}, {:+.3} ms", machine.name(*other), 1e3 * extra)
            }
            (None, None) => "no other device has room".to_owned(),
        };
        let part = match part {
            ModelPart::Input => "input".to_owned(),
            ModelPart::Layer(layer) => format!("layer {layer}"),
            ModelPart::Experts(layer) => format!("experts of layer {layer}"),
            ModelPart::HotExperts(layer) => format!("hot experts of layer {layer}"),
            ModelPart::Output => "output".to_owned(),
        };
        printer.line(format!("{part:<24}  {:<8}  {next}", machine.name(*device)))?;
    }
    Ok(())
}

/// Lists the storages live at the peak, and the device of every node of a batch.
fn explain(
    printer: &mut Printer,
    blueprint: &Blueprint,
    graph: &orlop::graph::Graph,
    planned: &sched::Planned,
) -> Result<(), Failure> {
    let machine = blueprint.machine();
    for device in machine.indices() {
        let plan = planned.memory_plan(machine, device);
        let (step, storages) = plan.peak(orlop::alloc::ArenaId::new(0));
        let name = machine.name(device);
        printer.line(format!("\npeak of {name}'s arena, at step {step} of a batch:"))?;
        for storage in storages.iter().take(20) {
            printer.line(format!("{:>12}  {}", short_bytes(storage.bytes), storage.name))?;
        }
    }
    printer.line("\nplacement of the nodes of a batch:")?;
    printer.line(planned.placement().table(graph, machine).to_string().trim_end())
}
