//! A graph and its plan as JSON.

use orlop_alloc::{ArenaPlan, MemoryPlan, ValueId};
use serde::Serialize;

use crate::census::Census;
use crate::host::{Host, text};
use crate::usage::{Assigned, is_external};

/// A graph and its plan, as `orlop plan` reads and reports graphs.
#[derive(Serialize)]
pub(crate) struct Drawn {
    pub(crate) label: String,
    source: String,
    buffers: Vec<DrawnBuffer>,
    tensors: Vec<DrawnTensor>,
    #[serde(rename = "leafs")]
    leaves: Vec<(usize, usize)>,
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
    /// The op that makes a tensor.
    pub(crate) fn op(&self, tensor: usize) -> &str {
        &self.tensors[tensor].op
    }

    /// Whether the scheduler brings a tensor over from other memory: a node that computes nothing.
    pub(crate) fn is_copy(&self, tensor: usize) -> bool {
        self.op(tensor) == "NONE" && self.nodes.iter().any(|(node, _)| *node == tensor)
    }

    pub(crate) fn new(
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
            let place = plan.place(ValueId::new(index))?;
            Some((index, place.arena.index(), place.chunk, place.offset))
        });
        let version = host.version().map(text).unwrap_or_default();
        Drawn {
            label: format!("graph {number}"),
            source: format!("ggml {version}"),
            buffers: buffers.collect(),
            tensors: tensors(host, census, plan),
            leaves: pairs(&census.leaves, &assigned.leaves),
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
