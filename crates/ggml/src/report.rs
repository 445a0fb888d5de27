//! What users can see of plans.

use std::path::Path;
use std::sync::atomic::Ordering;

use orlop_alloc::{ArenaPlan, MemoryPlan, plan_as_ggml};
use serde::Serialize;

use crate::census::Census;
use crate::host::{Host, text};
use crate::runtime::{Ours, say};
use crate::usage::{Assigned, is_external};

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
        if let Err(error) = write(folder, number, &drawn, plan) {
            say(format_args!("plan {number} could not be written to {}: {error}", folder.display()));
        }
    }
}

fn write(folder: &Path, number: u64, drawn: &Drawn, plan: &MemoryPlan) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let name = format!("{}-{number:04}", std::process::id());
    let json = serde_json::to_string(drawn)? + "\n";
    std::fs::write(folder.join(format!("{name}.json")), json)?;
    match html(&drawn.label, plan) {
        Some(page) => std::fs::write(folder.join(format!("{name}.html")), page),
        None => Ok(()),
    }
}

/// A page with a picture of the plan.
fn html(_label: &str, _plan: &MemoryPlan) -> Option<String> {
    None
}

/// A graph and its plan, as `orlop plan` reads and reports graphs.
#[derive(Serialize)]
struct Drawn {
    label: String,
    source: String,
    buffers: Vec<DrawnBuffer>,
    tensors: Vec<DrawnTensor>,
    leafs: Vec<(usize, usize)>,
    nodes: Vec<(usize, usize)>,
    reserved: Vec<u64>,
    planned: Vec<Vec<u64>>,
    /// Tensor, buffer, chunk, offset.
    plan: Vec<(usize, usize, u32, u64)>,
}

#[derive(Serialize)]
struct DrawnBuffer {
    name: String,
    alignment: u64,
    max_size: u64,
    same_as: usize,
    ggml: u64,
    peak: u64,
    bound: u64,
    optimal: bool,
}

#[derive(Serialize)]
struct DrawnTensor {
    name: String,
    op: String,
    #[serde(rename = "type")]
    dtype: String,
    ne: [i64; 4],
    nb: [usize; 4],
    bytes: u64,
    view_src: i64,
    view_offs: usize,
    input: bool,
    output: bool,
    external: bool,
    inplace: bool,
    src: Vec<u32>,
}

impl Drawn {
    fn new(
        host: &Host,
        number: u64,
        census: &Census,
        assigned: &Assigned,
        plan: &MemoryPlan,
        theirs: &[ArenaPlan],
    ) -> Drawn {
        let usage = &plan.usage;
        let arenas = usage.arenas.iter().zip(plan.arenas.iter().zip(theirs)).enumerate();
        let buffers = arenas.map(|(index, (info, (own, theirs)))| DrawnBuffer {
            name: info.name.clone(),
            alignment: info.alignment,
            max_size: info.max_chunk,
            same_as: index,
            ggml: theirs.peak,
            peak: own.peak,
            bound: theirs.bound,
            optimal: own.optimal,
        });
        let pairs = |numbers: &[u32], arenas: &[usize]| {
            numbers.iter().map(|number| *number as usize).zip(arenas.iter().copied()).collect()
        };
        let placed = (0..census.tensors.len()).filter(|index| census.roots[*index] as usize == *index);
        let places = placed.filter_map(|index| {
            let place = plan.place(orlop_alloc::ValueId::new(index))?;
            Some((index, place.arena.index(), place.chunk, place.offset))
        });
        let version = host.version().map(text).unwrap_or_default();
        Drawn {
            label: format!("graph {number}"),
            source: format!("ggml {version}"),
            buffers: buffers.collect(),
            tensors: tensors(host, census, plan),
            leafs: pairs(&census.leafs, &assigned.leafs),
            nodes: pairs(&census.nodes, &assigned.nodes),
            reserved: plan.arenas.iter().map(|arena| arena.peak).collect(),
            planned: plan.arenas.iter().map(|arena| arena.chunks.clone()).collect(),
            plan: places.collect(),
        }
    }
}

fn tensors(host: &Host, census: &Census, plan: &MemoryPlan) -> Vec<DrawnTensor> {
    let mut sources: Vec<Vec<u32>> = vec![Vec::new(); census.tensors.len()];
    let mut inplace = vec![false; census.tensors.len()];
    for (step, node) in census.nodes.iter().enumerate() {
        sources[*node as usize] = census.reads(step).collect();
        inplace[*node as usize] = !plan.usage.step(step).overwrites.is_empty();
    }
    let drawn = census.tensors.iter().enumerate().map(|(index, tensor)| {
        let value = &plan.usage.values()[index];
        let root = census.roots[index];
        let is_view = root as usize != index;
        let (dtype, ne, nb) = tensor.layout();
        let external = is_external(census, root as usize);
        DrawnTensor {
            name: tensor.name(),
            op: text(host.op_name(tensor.op())),
            dtype: text(host.type_name(dtype)),
            ne,
            nb,
            bytes: if is_view || external { host.nbytes(tensor.as_ptr()) as u64 } else { value.bytes },
            view_src: if is_view { i64::from(root) } else { -1 },
            view_offs: census.offsets[index],
            input: value.flags.input,
            output: value.flags.output,
            external,
            inplace: inplace[index],
            src: std::mem::take(&mut sources[index]),
        }
    });
    drawn.collect()
}
