//! A graph of a model with its plan: what forecasts, saved plans and pictures read, and what an engine runs.

use std::collections::HashMap;
use std::sync::Arc;

use orlop_alloc::Externals;
use orlop_backend::BufferType;
use orlop_graph::TensorId;
use orlop_sched::{Constraints, Machine, Planned, SessionOptions};

use crate::draft::{CacheTensor, ModelGraph};
use crate::weight_memory::{Uses, WeightPlace, offloaded_from};
use crate::weights::LoadedTensors;
use crate::{Error, LayerPlacement, Settings};

/// A graph that is placed, split, lowered and planned.
#[derive(Clone, Debug)]
pub(crate) struct PlannedGraph {
    pub(crate) graph: ModelGraph,
    pub(crate) planned: Arc<Planned>,
    /// Weights that it takes from the mapped file.
    pub(crate) mapped: Vec<MappedLeaf>,
}

/// A weight that a graph takes from the mapped file although it has a place elsewhere.
#[derive(Clone, Debug)]
pub(crate) struct MappedLeaf {
    pub(crate) leaf: TensorId,
    /// The weight's name.
    pub(crate) name: Arc<str>,
    pub(crate) memory: Arc<dyn BufferType>,
}

/// What graphs of a model are planned by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GraphPlanner<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) settings: &'a Settings,
    pub(crate) weights: &'a [WeightPlace],
    pub(crate) layout: &'a LayerPlacement,
}

impl GraphPlanner<'_> {
    /// Plans a graph. `is_pending` says which of the weights are to be used mapped, because they are not where they
    /// belong yet.
    pub(crate) fn plan(
        &self,
        graph: ModelGraph,
        is_pending: impl Fn(&WeightPlace) -> bool,
    ) -> Result<PlannedGraph, Error> {
        let uses = Uses::of(&graph.graph);
        let (mut mapped, mut pinned) = (Vec::new(), HashMap::new());
        // Graphs of one model use the same weights in the same order.
        for (used, place) in graph.weights.iter().zip(self.weights) {
            let leaf = used.leaf;
            let pending = place.while_pending.as_ref().filter(|_| is_pending(place));
            let memory = match pending.or_else(|| offloaded_from(self.machine, &uses, leaf, place)) {
                Some(memory) => {
                    let name = Arc::clone(&place.name);
                    mapped.push(MappedLeaf { leaf, name, memory: Arc::clone(memory) });
                    memory
                }
                None => &place.memory,
            };
            pinned.insert(leaf, Arc::clone(memory));
        }
        for CacheTensor { tensor, layer, .. } in &graph.caches {
            pinned.insert(*tensor, Arc::clone(self.machine.arena(self.layout.caches[*layer])));
        }
        let assigned = graph.assigned.iter().map(|(result, part)| (*result, self.layout.device(*part)));
        let constraints = Constraints { pinned, assigned: assigned.collect(), ..Constraints::default() };
        let planned =
            Planned::by_rules(&graph.graph, self.machine, &constraints, &session_options(self.settings))?;
        Ok(PlannedGraph { graph, planned: Arc::new(planned), mapped })
    }
}

impl PlannedGraph {
    /// The memory of its weights and caches.
    pub(crate) fn externals(&self, loaded: &LoadedTensors) -> Externals {
        let mut externals = Externals::by_name(&self.graph.graph, &loaded.tensors);
        for MappedLeaf { leaf, name, .. } in &self.mapped {
            if let Some(stored) = loaded.mapped.get(name) {
                externals.insert(*leaf, stored.clone());
            }
        }
        externals
    }
}

/// How a session plans with a model's settings.
pub(crate) fn session_options(settings: &Settings) -> SessionOptions {
    SessionOptions {
        lower: settings.lower(),
        order: settings.order,
        known: Arc::clone(&settings.plans),
        keep_offloaded: false,
        observer: settings.observer.clone(),
        ..SessionOptions::default()
    }
}
