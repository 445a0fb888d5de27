//! What a server would take, and how many sequences it has room for.

use orlop::http::CachePlan;
use orlop::llm::Blueprint;
use serde::Serialize;
use serde_json::json;

use crate::failure::Failure;
use crate::load::{MemoryReport, failure};
use crate::memory_table;
use crate::printer::Printer;
use crate::quantity::short_bytes;

#[derive(Serialize)]
struct Sequences {
    context: u64,
    count: u64,
}

/// Prints the plan of a server, as a table or as JSON.
pub(crate) fn print(
    blueprint: &Blueprint,
    context: Option<u64>,
    parallel: usize,
    json: bool,
) -> Result<(), Failure> {
    let forecast = blueprint.forecast().map_err(failure)?;
    let plan = CachePlan::of(blueprint, context, parallel).map_err(failure)?;
    let CachePlan { bytes_per_token, rows, sequences } = plan;
    if json {
        let sequences: Vec<Sequences> =
            sequences.iter().map(|(context, count)| Sequences { context: *context, count: *count }).collect();
        let memory = MemoryReport::new(&forecast);
        return Printer::new().json(&json!({
            "devices": memory.devices,
            "fits": forecast.fits(),
            "cache_bytes_per_token": bytes_per_token,
            "rows": rows,
            "sequences": sequences,
        }));
    }
    let mut printer = Printer::new();
    printer.line(memory_table::table(&forecast))?;
    printer.line(format!("cache: {rows} tokens, {} each", short_bytes(bytes_per_token)))?;
    printer.line(format!("{:>10}  {}", "context", "sequences at the same time"))?;
    for (context, count) in sequences {
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
