//! Logs and files of plans for users.

use std::path::Path;
use std::sync::atomic::Ordering;

use orlop_alloc::{MemoryPlan, plan_as_ggml};

use crate::graph_tensors::GraphTensors;
use crate::picture;
use crate::plan_json::PlanJson;
use crate::runtime::{Interposer, log};
use crate::usage::ArenaAssignment;

/// Logs sizes and writes the plan, if enabled.
pub(crate) fn plan(
    ours: &Interposer,
    graph_tensors: &GraphTensors,
    assigned: &ArenaAssignment,
    plan: &MemoryPlan,
) {
    if !ours.reports() {
        return;
    }
    let Ok(theirs) = plan_as_ggml(&plan.usage) else { return };
    let number = ours.plans.fetch_add(1, Ordering::Relaxed) + 1;
    if ours.log {
        let arenas = plan.usage.arenas.iter().zip(plan.arenas.iter().zip(&theirs.arenas));
        for (info, (own, theirs)) in arenas {
            let (nodes, name) = (graph_tensors.nodes.len(), &info.name);
            let (own, theirs) = (own.peak, theirs.peak);
            log(format_args!("graph {number} ({nodes} nodes): {name} {own} bytes, ggml's plan {theirs}"));
        }
    }
    if let Some(folder) = &ours.folder {
        let json = PlanJson::new(&ours.host, number, graph_tensors, assigned, plan, &theirs.arenas);
        if let Err(error) = write(folder, number, &json, [plan, &theirs]) {
            log(format_args!("cannot write plan {number} to {}: {error}", folder.display()));
        }
    }
}

fn write(
    folder: &Path,
    number: u64,
    json: &PlanJson,
    [own, theirs]: [&MemoryPlan; 2],
) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    // Several processes may write into one folder.
    let name = format!("{}-{number:04}", std::process::id());
    std::fs::write(folder.join(format!("{name}.json")), serde_json::to_string(json)? + "\n")?;
    match picture::page(json, own, theirs) {
        Ok(page) => std::fs::write(folder.join(format!("{name}.html")), page),
        // All tensors of this graph are external.
        Err(orlop_view::Error::Empty { .. }) => Ok(()),
        Err(error) => Err(std::io::Error::other(error)),
    }
}
