//! What a server would take, and how many sequences it has room for.

use orlop::http::CachePlan;
use orlop::llm::Forecast;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::load::{MemoryReport, failure};
use crate::memory_table;
use crate::printer::Printer;
use crate::quantity::short_bytes;

use super::models::{PlannedEmbedder, PlannedModel};

/// A model of a server, and what it takes.
struct PlanLine<'a> {
    name: &'a str,
    forecast: Forecast,
    /// Of models that make text.
    cache: Option<CachePlan>,
}

/// Prints the plan of a server, as a table or as JSON.
pub(super) fn print(
    embedders: &[PlannedEmbedder],
    texts: &[PlannedModel],
    context: &dyn Fn(&PlannedModel) -> u64,
    parallel: usize,
    json: bool,
) -> Result<(), Failure> {
    let embedders = embedders
        .iter()
        .map(|model| Ok(PlanLine { name: &model.name, forecast: model.forecast()?, cache: None }));
    let texts = texts.iter().map(|model| {
        let cache = CachePlan::of(&model.blueprint, Some(context(model)), parallel).map_err(failure)?;
        Ok(PlanLine { name: &model.name, forecast: model.forecast()?, cache: Some(cache) })
    });
    let plans: Vec<PlanLine<'_>> = embedders.chain(texts).collect::<Result<_, Failure>>()?;
    let first = plans[0].forecast.clone();
    let together = plans.iter().skip(1).fold(first, |all, plan| all.with(&plan.forecast));
    let mut printer = Printer::new();
    match (plans.as_slice(), json) {
        ([plan], true) => printer.json(&object(plan)),
        ([plan], false) => table(plan, &mut printer),
        (plans, true) => {
            let objects = plans.iter().map(|plan| {
                let mut object = object(plan);
                object["name"] = plan.name.into();
                object
            });
            printer.json(&json!({ "models": objects.collect::<Value>(), "fit_together": together.fits() }))
        }
        (plans, false) => {
            for plan in plans {
                printer.line(format!("{}:", plan.name))?;
                table(plan, &mut printer)?;
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

fn object(plan: &PlanLine<'_>) -> Value {
    let PlanLine { forecast, cache, .. } = plan;
    let mut object = json!({ "devices": MemoryReport::new(forecast).devices, "fits": forecast.fits() });
    if let Some(CachePlan { bytes_per_token, rows, sequences, .. }) = cache {
        let sequences = sequences.iter();
        let sequences = sequences.map(|(context, count)| json!({ "context": context, "count": count }));
        object["cache_bytes_per_token"] = (*bytes_per_token).into();
        object["rows"] = (*rows).into();
        object["sequences"] = sequences.collect();
    }
    object
}

fn table(plan: &PlanLine<'_>, printer: &mut Printer) -> Result<(), Failure> {
    printer.line(memory_table::table(&plan.forecast))?;
    let Some(CachePlan { bytes_per_token, rows, sequences, .. }) = &plan.cache else { return Ok(()) };
    printer.line(format!("cache: {rows} tokens, {} each", short_bytes(*bytes_per_token)))?;
    printer.line(format!("{:>10}  {}", "context", "sequences at the same time"))?;
    for (context, count) in sequences {
        printer.line(format!("{context:>10}  {count}"))?;
    }
    Ok(())
}
