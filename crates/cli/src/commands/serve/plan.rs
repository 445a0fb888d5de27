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
    let mut printer = Printer::new();
    if json {
        let sequences: Vec<Sequences> =
            sequences.iter().map(|(context, count)| Sequences { context: *context, count: *count }).collect();
        let memory = MemoryReport::new(&forecast);
        return printer.json(&json!({
            "devices": memory.devices,
            "fits": forecast.fits(),
            "cache_bytes_per_token": bytes_per_token,
            "rows": rows,
            "sequences": sequences,
        }));
    }
    printer.line(memory_table::table(&forecast))?;
    printer.line(format!("cache: {rows} tokens, {} each", short_bytes(bytes_per_token)))?;
    printer.line(format!("{:>10}  {}", "context", "sequences at the same time"))?;
    for (context, count) in sequences {
        printer.line(format!("{context:>10}  {count}"))?;
    }
    Ok(())
}
