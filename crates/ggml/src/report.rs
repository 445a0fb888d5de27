//! What users can see of plans.

use std::path::Path;
use std::sync::atomic::Ordering;

use orlop_alloc::{MemoryPlan, plan_as_ggml};

use crate::census::Census;
use crate::drawn::Drawn;
use crate::picture;
use crate::runtime::{Ours, say};
use crate::usage::Assigned;

/// Prints sizes and writes the plan, where the user wants that.
pub(crate) fn plan(ours: &Ours, census: &Census, assigned: &Assigned, plan: &MemoryPlan) {
    if !ours.log && ours.folder.is_none() {
        return;
    }
    let Ok(theirs) = plan_as_ggml(&plan.usage) else { return };
    let number = ours.plans.fetch_add(1, Ordering::Relaxed) + 1;
    if ours.log {
        let arenas = plan.usage.arenas.iter().zip(plan.arenas.iter().zip(&theirs.arenas));
        for (info, (own, theirs)) in arenas {
            let (nodes, name) = (census.nodes.len(), &info.name);
            let (own, theirs) = (own.peak, theirs.peak);
            say(format_args!(
                "graph {number} of {nodes} nodes: {name} {own} bytes, by ggml's own plan {theirs}"
            ));
        }
    }
    if let Some(folder) = &ours.folder {
        let drawn = Drawn::new(&ours.host, number, census, assigned, plan, &theirs.arenas);
        if let Err(error) = write(folder, number, &drawn, [plan, &theirs]) {
            say(format_args!("plan {number} could not be written to {}: {error}", folder.display()));
        }
    }
}

fn write(folder: &Path, number: u64, drawn: &Drawn, [own, theirs]: [&MemoryPlan; 2]) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    // Several processes may write into one folder.
    let name = format!("{}-{number:04}", std::process::id());
    std::fs::write(folder.join(format!("{name}.json")), serde_json::to_string(drawn)? + "\n")?;
    match picture::page(drawn, own, theirs) {
        Ok(page) => std::fs::write(folder.join(format!("{name}.html")), page),
        // Everything in this graph has memory already.
        Err(orlop_view::Error::Empty { .. }) => Ok(()),
        Err(error) => Err(std::io::Error::other(error)),
    }
}
