//! `orlop plan MODEL.gguf`: the memory of a model.

use std::borrow::Cow;
use std::path::Path;

use orlop::alloc::StepOrder;
use orlop::llm::{Blueprint, Error, Forecast, Outputs, PairBlueprint, Settings};
use orlop::{model_pictures, sched};

use crate::adapter_argument::adapted;
use crate::advice;
use crate::failure::Failure;
use crate::load::{MemoryReport, failure, open, open_draft};
use crate::memory_table;
use crate::output::Output;
use crate::printer::Printer;
use crate::quantity::short_bytes;

use super::arguments::PlanArguments;
use super::pictures::Pictures;

/// A model, alone or with a draft model.
enum Planned {
    One(Box<Blueprint>),
    Pair(Box<PairBlueprint>),
}

impl Planned {
    fn new(file: &Path, arguments: &PlanArguments) -> Result<Planned, Failure> {
        let model = adapted(open(Some(file))?, &arguments.settings.lora)?;
        let draft = open_draft(&arguments.draft)?;
        let machine = arguments.settings.machine()?;
        let layers = model.config().layers.len();
        let settings = arguments.settings.settings(&machine, layers, Outputs::Last)?;
        let settings = Settings { draft: arguments.draft.length(), ..settings };
        let planned = match draft {
            None => {
                Blueprint::plan_unchecked(&model, &machine, &settings).map(|one| Planned::One(Box::new(one)))
            }
            Some(draft) => PairBlueprint::plan_unchecked(&model, &draft, &machine, &settings)
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

/// A model's name in pictures.
pub(super) fn name(file: &Path) -> Cow<'_, str> {
    file.file_stem().unwrap_or(file.as_os_str()).to_string_lossy()
}

/// Plans a model with the given settings.
pub(super) fn plan(file: &Path, arguments: &PlanArguments) -> Result<Blueprint, Failure> {
    Planned::new(file, arguments).map(|planned| planned.model().clone())
}

/// Prints the memory of a model without loading it.
pub(super) fn run(file: &Path, arguments: &PlanArguments) -> Result<(), Failure> {
    let planned = Planned::new(file, arguments)?;
    let blueprint = planned.model();
    let forecast = planned.forecast_with(blueprint).map_err(failure)?;
    let largest = planned.largest_context().map_err(failure)?;
    if let Some(path) = &arguments.save {
        let plans = blueprint.save();
        let mut file = Output::create(path)?;
        file.write(&serde_json::to_string(&plans).map_err(|error| Failure::Other(error.into()))?)?;
        file.finish()?;
    }
    let given = arguments.order.reorder;
    let given = given.then(|| planned.forecast_with(&blueprint.with_order(StepOrder::Given)?));
    let given = given.transpose().map_err(failure)?;
    let mut printer = Printer::new();
    if arguments.json {
        let report = MemoryReport::new(&forecast).with_largest(largest);
        printer.json(&given.iter().fold(report, MemoryReport::with_given))?;
    } else {
        print(&mut printer, blueprint, &forecast, largest)?;
        for (given, share) in given.iter().flat_map(|given| given.devices.iter().zip(&forecast.devices)) {
            let (before, after) = (short_bytes(given.compute), short_bytes(share.compute));
            printer.line(format!(
                "compute on {}: {before} in the original order, {after} reordered",
                share.name
            ))?;
        }
    }
    if arguments.pictures.are_wanted() {
        let [batch, token] = model_pictures::pictures(blueprint, &name(file)).map_err(failure)?;
        arguments.pictures.deliver(&mut printer, &Pictures { plans: vec![batch], others: vec![token] })?;
    }
    if arguments.explain {
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
