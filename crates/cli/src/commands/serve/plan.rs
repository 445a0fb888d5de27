//! What a server would take, and how many sequences it has room for.

use orlop::http::CachePlan;
use orlop::llm::{Blueprint, Forecast};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::load::{MemoryReport, failure};
use crate::memory_table;
use crate::printer::Printer;
use crate::quantity::short_bytes;

use super::models::PlannedModel;

/// Prints the plan of a server, as a table or as JSON.
pub(super) fn print(
    models: &[PlannedModel],
    context: &dyn Fn(&PlannedModel) -> u64,
    parallel: usize,
    json: bool,
) -> Result<(), Failure> {
    let plans = models.iter().map(|model| {
        let plan = CachePlan::of(&model.blueprint, Some(context(model)), parallel).map_err(failure)?;
        Ok((model.name.as_str(), model.blueprint.forecast().map_err(failure)?, plan))
    });
    let plans: Vec<(&str, Forecast, CachePlan)> = plans.collect::<Result<_, Failure>>()?;
    let together = plans.iter().skip(1).fold(plans[0].1.clone(), |all, (_, forecast, _)| all.with(forecast));
    let mut printer = Printer::new();
    match (plans.as_slice(), json) {
        ([(_, forecast, plan)], true) => printer.json(&object(forecast, plan)),
        ([(_, forecast, plan)], false) => table(forecast, plan, &mut printer),
        (plans, true) => {
            let objects = plans.iter().map(|(name, forecast, plan)| {
                let mut object = object(forecast, plan);
                object["name"] = (*name).into();
                object
            });
            printer.json(&json!({ "models": objects.collect::<Value>(), "fit_together": together.fits() }))
        }
        (plans, false) => {
            for (name, forecast, plan) in plans {
                printer.line(format!("{name}:"))?;
                table(forecast, plan, &mut printer)?;
                printer.line("")?;
            }
            printer.line(match together.fits() {
                true => "all models fit together: each is loaded when it is named, and stays",
                false => {
                    "the models do not fit together: each is loaded when it is named, and others leave for it"
                }
            })
        }
    }
}

fn object(forecast: &Forecast, plan: &CachePlan) -> Value {
    let sequences = plan.sequences.iter();
    let sequences = sequences.map(|(context, count)| json!({ "context": context, "count": count }));
    json!({
        "devices": MemoryReport::new(forecast).devices,
        "fits": forecast.fits(),
        "cache_bytes_per_token": plan.bytes_per_token,
        "rows": plan.rows,
        "sequences": sequences.collect::<Value>(),
    })
}

fn table(forecast: &Forecast, plan: &CachePlan, printer: &mut Printer) -> Result<(), Failure> {
    printer.line(memory_table::table(forecast))?;
    printer.line(format!("cache: {} tokens, {} each", plan.rows, short_bytes(plan.bytes_per_token)))?;
    printer.line(format!("{:>10}  {}", "context", "sequences at the same time"))?;
    for (context, count) in &plan.sequences {
        printer.line(format!("{context:>10}  {count}"))?;
    }
    Ok(())
}

/// Prints the plan of a server that keeps no sequences, as a table or as JSON.
pub(crate) fn print_memory(blueprint: &Blueprint, json: bool) -> Result<(), Failure> {
    let forecast = blueprint.forecast().map_err(failure)?;
    match json {
        true => Printer::new()
            .json(&json!({ "devices": MemoryReport::new(&forecast).devices, "fits": forecast.fits() })),
        false => Printer::new().line(memory_table::table(&forecast)),
    }
}
