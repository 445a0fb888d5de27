//! The JSON report of a graph and its plan.

use orlop_alloc::{ArenaPlan, MemoryPlan, ValueId};
use serde::Serialize;

use crate::graph_tensors::GraphTensors;
use crate::host::{Host, text};
use crate::usage::{ArenaAssignment, is_external};

/// A graph and its plan in the format of `orlop plan`.
#[derive(Serialize)]
pub(crate) struct PlanJson {
    pub(crate) label: String,
    source: String,
    buffers: Vec<BufferJson>,
    tensors: Vec<TensorJson>,
    #[serde(rename = "leafs")]
    leaves: Vec<(usize, usize)>,
    nodes: Vec<(usize, usize)>,
    reserved: Vec<u64>,
    planned: Vec<Vec<u64>>,
    /// Tensor, buffer, chunk, offset.
    plan: Vec<(usize, usize, u32, u64)>,
}

#[derive(Serialize)]
struct BufferJson {
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
struct TensorJson {
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

impl PlanJson {
    /// The op that computes a tensor.
    pub(crate) fn op(&self, tensor: usize) -> &str {
        &self.tensors[tensor].op
    }

    /// Whether the scheduler copies a tensor from other memory: a node without an op.
    pub(crate) fn is_copy(&self, tensor: usize) -> bool {
        self.op(tensor) == "NONE" && self.nodes.iter().any(|(node, _)| *node == tensor)
    }

    pub(crate) fn new(
        host: &Host,
        number: u64,
        graph_tensors: &GraphTensors,
        assigned: &ArenaAssignment,
        plan: &MemoryPlan,
        theirs: &[ArenaPlan],
    ) -> PlanJson {
        let usage = &plan.usage;
        let arenas = usage.arenas.iter().zip(plan.arenas.iter().zip(theirs)).enumerate();
        let buffers = arenas.map(|(index, (info, (own, theirs)))| BufferJson {
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
        let placed =
            (0..graph_tensors.tensors.len()).filter(|index| graph_tensors.roots[*index] as usize == *index);
        let places = placed.filter_map(|index| {
            let place = plan.place(ValueId::new(index))?;
            Some((index, place.arena.index(), place.chunk, place.offset))
        });
        let version = host.version().map(text).unwrap_or_default();
        PlanJson {
            label: format!("graph {number}"),
            source: format!("ggml {version}"),
            buffers: buffers.collect(),
            tensors: tensors(host, graph_tensors, plan),
            leaves: pairs(&graph_tensors.leaves, &assigned.leaves),
            nodes: pairs(&graph_tensors.nodes, &assigned.nodes),
            reserved: plan.arenas.iter().map(|arena| arena.peak).collect(),
            planned: plan.arenas.iter().map(|arena| arena.chunks.clone()).collect(),
            plan: places.collect(),
        }
    }
}

fn tensors(host: &Host, graph_tensors: &GraphTensors, plan: &MemoryPlan) -> Vec<TensorJson> {
    let mut sources: Vec<Vec<u32>> = vec![Vec::new(); graph_tensors.tensors.len()];
    let mut inplace = vec![false; graph_tensors.tensors.len()];
    for (step, node) in graph_tensors.nodes.iter().enumerate() {
        sources[*node as usize] = graph_tensors.reads(step).collect();
        inplace[*node as usize] = !plan.usage.step(step).overwrites.is_empty();
    }
    let json = graph_tensors.tensors.iter().enumerate().map(|(index, tensor)| {
        let value = &plan.usage.values()[index];
        let root = graph_tensors.roots[index];
        let is_view = root as usize != index;
        let (dtype, ne, nb) = tensor.layout();
        let external = is_external(graph_tensors, root as usize);
        TensorJson {
            name: tensor.name(),
            op: text(host.op_name(tensor.op())),
            dtype: text(host.type_name(dtype)),
            ne,
            nb,
            bytes: if is_view || external { host.nbytes(tensor.as_ptr()) as u64 } else { value.bytes },
            view_src: if is_view { i64::from(root) } else { -1 },
            view_offs: graph_tensors.offsets[index],
            input: value.flags.input,
            output: value.flags.output,
            external,
            inplace: inplace[index],
            src: std::mem::take(&mut sources[index]),
        }
    });
    json.collect()
}
