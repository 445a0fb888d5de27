//! A graph that a session has prepared.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use orlop_alloc::{Error as AllocError, Externals};
use orlop_backend::StoredTensor;
use orlop_graph::{Graph, Tensor, TensorId};

use crate::session::compile::Compiled;
use crate::session::inputs::{Inputs, unbound};
use crate::session::marks::Marks;
use crate::session::run::Awaited;
use crate::{Error, Planned, TransferId};

/// A graph ready to run: pure values, memory of its own, and programs once it has run.
pub(crate) struct Prepared {
    pub(crate) graph: Graph,
    pub(crate) externals: Externals,
    /// Grows with every use.
    pub(crate) used: u64,
    pub(crate) planned: Arc<Planned>,
    pub(crate) persistent: HashMap<TensorId, StoredTensor>,
    /// Resident copies: which transfer of the schedule, and its number among the session's residents.
    pub(crate) resident: BTreeMap<TransferId, usize>,
    pub(crate) results: Vec<TensorId>,
    /// What is waited for of each split.
    pub(crate) awaited: Vec<Awaited>,
    pub(crate) compiled: Option<Compiled>,
    /// One for each run that may be in flight.
    pub(crate) slots: Vec<Slot>,
    /// The slot whose inputs are set next.
    pub(crate) next: usize,
    /// The slot of the last run that ended well.
    pub(crate) latest: Option<usize>,
}

/// What belongs to one run in flight.
#[derive(Default)]
pub(crate) struct Slot {
    pub(crate) inputs: Inputs,
    /// Inputs and results where they lie now; empty until they are asked for.
    pub(crate) places: HashMap<TensorId, StoredTensor>,
    pub(crate) state: State,
    /// Whether the results of its run are still there.
    pub(crate) readable: bool,
    pub(crate) marks: Marks,
}

#[derive(Debug, Default)]
pub(crate) enum State {
    #[default]
    Idle,
    InFlight(u64),
    /// This run has ended.
    Done(u64, Result<(), Error>),
}

impl Prepared {
    pub(crate) fn tensor(&self, id: TensorId) -> Result<&Tensor, Error> {
        let tensors = self.graph.tensors().len();
        self.graph.get(id).ok_or(Error::ForeignTensor { tensor: id, tensors })
    }

    /// A tensor whose root is kept beside the arenas.
    pub(crate) fn outside(&self, id: TensorId) -> Result<StoredTensor, Error> {
        let tensor = self.graph.tensor(id);
        let root = tensor.storage.root;
        let stored = self.persistent.get(&root).or_else(|| self.externals.get(root));
        let stored = stored.ok_or_else(|| unbound(&tensor.name))?;
        if id == root {
            return Ok(stored.clone());
        }
        let view = stored.view(tensor.name.as_str(), tensor.desc, tensor.storage.offset);
        Ok(view.map_err(AllocError::from)?)
    }

    /// Gives up what lies in the arenas: inputs that were set, results.
    pub(crate) fn forget_contents(&mut self) {
        for slot in &mut self.slots {
            slot.inputs.forget();
            slot.readable = false;
        }
        self.latest = None;
    }

    /// Gives up what depends on where the arenas are, too.
    pub(crate) fn forget_places(&mut self) {
        self.compiled = None;
        self.slots.iter_mut().for_each(|slot| slot.places.clear());
        self.forget_contents();
    }
}
