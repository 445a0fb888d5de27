//! A graph as a scheduler runs it: placed, split, and with copies.

use std::collections::HashSet;
use std::ffi::c_int;

use super::copies::Copies;
use super::devices::Devices;
use super::place::{Scene, TensorFacts, place};
use super::ring::RingTensors;
use super::split::{GraphSplit, split};
use crate::error::Error;
use crate::graph_allocator::Ids;
use crate::graph_tensors::GraphTensors;
use crate::host::Host;
use crate::pointers::TensorMap;
use crate::raw::{GraphRef, RawGraph, RawGraphView, RawTensor, TensorRef};

/// A graph of the host's, cut into parts that one backend computes each.
#[derive(Debug)]
pub(crate) struct ScheduledGraph {
    host: &'static Host,
    tensors: GraphTensors,
    facts: Vec<TensorFacts>,
    homes: Vec<Option<usize>>,
    pub(crate) splits: Vec<GraphSplit>,
    /// The nodes of each split.
    pub(crate) views: Vec<RawGraphView>,
    pub(crate) copies: Copies,
    nodes: Vec<*mut RawTensor>,
    node_ids: Vec<c_int>,
    leaves: Vec<*mut RawTensor>,
    leaf_ids: Vec<c_int>,
    late_inputs: Vec<u32>,
}

impl ScheduledGraph {
    /// Places and splits a graph. Its nodes read copies afterwards.
    ///
    /// # Safety
    /// The graph and its tensors live, and no other thread uses them.
    pub(crate) unsafe fn new(
        host: &'static Host,
        devices: &Devices,
        graph: *mut RawGraph,
        given: &TensorMap<usize>,
        offload: bool,
    ) -> Result<ScheduledGraph, Error> {
        // SAFETY: `GraphRef::new` asks for null or a live graph that no other thread uses: this function's contract.
        let given_graph = unsafe { GraphRef::new(graph) }.ok_or(Error::Null { what: "the graph" })?;
        let tensors = GraphTensors::of(given_graph)?;
        let facts = devices.facts(&tensors);
        let about = devices.about(&tensors);
        let scene = Scene { graph: &tensors, facts: &facts, backends: &about };
        let of_user = tensors.tensors.iter().map(|tensor| given.get(tensor).copied()).collect();
        let homes = place(scene, of_user, offload)?;
        let cut = split(scene, &homes)?;
        drop(about);
        let copies = Copies::new(host, devices, &tensors, &cut)?;
        for read in &cut.reads {
            let node = tensors.tensors[tensors.nodes[read.step] as usize];
            node.set_source(read.slot, copies.copies[read.copy].copy);
        }
        let views = cut.splits.iter().map(|split| {
            let [start, end] = [split.nodes.start, split.nodes.end].map(|position| position as c_int);
            let mut view = devices.functions.graph_view(graph, start, end);
            devices.optimize(split.backend, &mut view);
            view.uid = devices.functions.graph_next_uid();
            view
        });
        let views = views.collect();
        let mut scheduled = ScheduledGraph {
            host,
            tensors,
            facts,
            homes,
            splits: cut.splits,
            views,
            copies,
            nodes: Vec::new(),
            node_ids: Vec::new(),
            leaves: Vec::new(),
            leaf_ids: Vec::new(),
            late_inputs: cut.late_inputs,
        };
        scheduled.list(given_graph);
        Ok(scheduled)
    }

    /// Lists what needs memory: the copies of each split and what they copy, then its nodes, in the order of its backend.
    fn list(&mut self, graph: GraphRef<'_>) {
        let mut nodes = graph.nodes().flatten();
        for split in &self.splits {
            for copied in &self.copies.copies[split.copies.clone()] {
                let home = self.home(copied.original).unwrap_or(split.backend);
                self.nodes.extend([copied.marker.as_ptr(), copied.copy.as_ptr()]);
                self.node_ids.extend([home as c_int, split.backend as c_int]);
            }
            for position in split.nodes.clone() {
                let Some(node) = nodes.next() else { break };
                // Its backend may have reordered the split.
                let number = self.tensors.nodes[position];
                let home = match self.tensors.tensors[number as usize] == node {
                    true => self.homes[number as usize],
                    false => self.home(node),
                };
                self.nodes.push(node.as_ptr());
                self.node_ids.push(home.unwrap_or(split.backend) as c_int);
            }
        }
        for number in &self.tensors.leaves {
            self.leaves.push(self.tensors.tensors[*number as usize].as_ptr());
            self.leaf_ids.push(self.homes[*number as usize].unwrap_or(0) as c_int);
        }
    }

    /// Nodes of the given graph.
    pub(crate) fn node_count(&self) -> usize {
        self.tensors.nodes.len()
    }

    /// What lies in the ring where several graphs run at a time: copies, and inputs that are read late.
    pub(crate) fn in_ring(&self) -> RingTensors {
        let of = |split: &GraphSplit| {
            let copies = &self.copies.copies[split.copies.clone()];
            copies.iter().map(|copied| (copied.copy, split.backend)).collect::<Vec<_>>()
        };
        let late = self.late_inputs.iter().filter_map(|input| {
            let (tensor, home) = (self.tensors.tensors[*input as usize], self.homes[*input as usize]);
            Some((tensor, home?))
        });
        self.splits.iter().flat_map(of).chain(late).collect()
    }

    /// Whether inputs are read after a computation was started.
    pub(crate) fn has_late_inputs(&self) -> bool {
        !self.late_inputs.is_empty()
    }

    /// The tensors that are copied, and those that ggml would copy.
    pub(crate) fn copied(&self) -> (Vec<TensorRef>, Vec<TensorRef>) {
        let of = |split: &GraphSplit| {
            let copies = &self.copies.copies[split.copies.clone()];
            copies.iter().map(|copied| (copied.original, split.backend)).collect::<Vec<_>>()
        };
        let own: Vec<(TensorRef, usize)> = self.splits.iter().flat_map(of).collect();
        let mut known = HashSet::new();
        let theirs = own.iter().filter(|copy| known.insert(**copy)).map(|(tensor, _)| *tensor).collect();
        (own.iter().map(|(tensor, _)| *tensor).collect(), theirs)
    }

    /// The backend of a tensor.
    pub(crate) fn home(&self, tensor: TensorRef) -> Option<usize> {
        self.homes[self.tensors.number_of(tensor)? as usize]
    }

    /// Whether a tensor has weights in memory that the host reads.
    pub(crate) fn is_host_weight(&self, tensor: TensorRef) -> bool {
        let facts = self.tensors.number_of(tensor).map(|number| self.facts[number as usize]);
        facts.is_some_and(|facts| facts.is_weight && facts.memory.is_some_and(|memory| memory.is_host))
    }

    pub(crate) fn bytes(&self, tensor: TensorRef) -> usize {
        self.host.nbytes(tensor.as_ptr())
    }

    /// The graph that needs memory, and the backends of its nodes and leaves.
    pub(crate) fn in_memory(&self) -> (GraphRef<'_>, Ids<'_>) {
        // SAFETY: `GraphRef::of` asks for tensors that live and are left alone: they are the given graph's, whose caller says so,
        // and those of the context that `copies` keeps.
        let graph = unsafe { GraphRef::of(&self.nodes, &self.leaves) };
        (graph, Ids { leaves: Some(&self.leaf_ids), nodes: Some(&self.node_ids) })
    }

    /// Gives nodes of a graph that read these copies the originals back.
    ///
    /// # Safety
    /// As [`Self::new`].
    pub(crate) unsafe fn restore(&self, graph: *mut RawGraph) {
        if self.copies.copies.is_empty() {
            return;
        }
        let originals: TensorMap<TensorRef> =
            self.copies.copies.iter().map(|copied| (copied.copy, copied.original)).collect();
        // SAFETY: as above.
        let Some(graph) = (unsafe { GraphRef::new(graph) }) else { return };
        for node in graph.nodes().flatten() {
            for (slot, source) in node.sources().into_iter().enumerate() {
                if let Some(original) = source.and_then(|source| originals.get(&source)) {
                    node.set_source(slot, *original);
                }
            }
        }
    }
}
