//! The scheduler of graphs over several backends (`ggml_backend_sched`).
//!
//! `place` chooses backends, `split` cuts the graph and lists copies: both are functions of the graph and of what `devices` knows
//! about backends. `graph` applies the result to the host's graph, [`GgmlGraphAllocator`] gives it memory, `compute` runs it.

mod compute;
mod copies;
mod devices;
mod experts;
mod graph;
mod place;
mod report;
mod split;

use std::ffi::c_int;

use crate::error::Error;
use crate::graph_allocator::GgmlGraphAllocator;
use crate::host::SchedulerHost;
use crate::pointers::TensorMap;
use crate::raw::{Backend, BufferType, EvalCallback, RawGraph, TensorRef};
use crate::runtime::Interposer;

pub(crate) use compute::Observer;
use devices::Devices;
use graph::ScheduledGraph;

/// The object behind `ggml_backend_sched_t`.
#[derive(Debug)]
pub struct GgmlScheduler {
    ours: &'static Interposer,
    devices: Devices,
    memory: GgmlGraphAllocator,
    offload: bool,
    pub(crate) observer: Option<Observer>,
    /// The backends that the user chose.
    given: TensorMap<usize>,
    /// The last graph.
    graph: Option<ScheduledGraph>,
    /// What is known about the last graph's tensors.
    state: State,
}

/// What holds of the last graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing: its tensors may be gone.
    Reset,
    /// Its tensors have backends.
    Placed,
    /// They have memory, too.
    Allocated,
}

impl GgmlScheduler {
    pub(crate) fn new(
        ours: &'static Interposer,
        functions: &'static SchedulerHost,
        backends: &[*mut Backend],
        bufts: Option<&[*mut BufferType]>,
        parallel: bool,
        offload: bool,
    ) -> Result<GgmlScheduler, Error> {
        if parallel {
            return Err(Error::Parallel);
        }
        let devices = Devices::new(&ours.host, functions, backends, bufts)?;
        let memory = GgmlGraphAllocator::new(ours, &devices.bufts)?;
        let given = TensorMap::default();
        Ok(GgmlScheduler {
            ours,
            devices,
            memory,
            offload,
            observer: None,
            given,
            graph: None,
            state: State::Reset,
        })
    }

    pub(crate) fn backends(&self) -> &[*mut Backend] {
        &self.devices.backends
    }

    pub(crate) fn buffer_type(&self, backend: *mut Backend) -> Result<*mut BufferType, Error> {
        Ok(self.devices.bufts[self.devices.position(backend)?])
    }

    pub(crate) fn buffer_bytes(&self, backend: *mut Backend) -> Result<usize, Error> {
        Ok(self.memory.buffer_bytes(self.devices.position(backend)?))
    }

    /// Splits of the last graph.
    pub(crate) fn split_count(&self) -> usize {
        self.graph.as_ref().map_or(0, |graph| graph.splits.len())
    }

    pub(crate) fn choose(&mut self, tensor: TensorRef, backend: *mut Backend) -> Result<(), Error> {
        self.given.insert(tensor, self.devices.position(backend)?);
        Ok(())
    }

    /// The backend of a tensor of the last graph, or that the user chose.
    pub(crate) fn backend_of(&self, tensor: TensorRef) -> Option<*mut Backend> {
        let placed = self.graph.as_ref().filter(|_| self.state != State::Reset);
        let home = placed.and_then(|graph| graph.home(tensor)).or(self.given.get(&tensor).copied())?;
        Some(self.devices.backends[home])
    }

    /// Forgets the user's choices and the last graph's tensors.
    pub(crate) fn reset(&mut self) {
        self.given.clear();
        self.state = State::Reset;
    }

    pub(crate) fn synchronize(&self) {
        self.devices.synchronize();
    }

    /// Places and splits a graph.
    ///
    /// # Safety
    /// The graph and its tensors live, and no other thread uses them.
    pub(crate) unsafe fn split(&mut self, graph: *mut RawGraph) -> Result<&ScheduledGraph, Error> {
        if let Some(before) = &self.graph {
            // SAFETY: as this function.
            unsafe { before.restore(graph) };
        }
        let host = &self.ours.host;
        // SAFETY: as this function.
        let scheduled =
            unsafe { ScheduledGraph::new(host, &self.devices, graph, &self.given, self.offload) }?;
        self.state = State::Placed;
        report::splits(self.ours, &scheduled);
        Ok(self.graph.insert(scheduled))
    }

    /// Bytes that [`Self::reserve`] would allocate, for each backend.
    ///
    /// # Safety
    /// As [`Self::split`].
    pub(crate) unsafe fn measure(&mut self, graph: *mut RawGraph) -> Result<Vec<usize>, Error> {
        self.reset();
        self.synchronize();
        // SAFETY: as this function.
        unsafe { self.split(graph) }?;
        let Some(scheduled) = &self.graph else { return Ok(Vec::new()) };
        let (graph, ids) = scheduled.in_memory();
        self.memory.measure(graph, ids)
    }

    /// Allocates memory for a graph, and forgets it.
    ///
    /// # Safety
    /// As [`Self::split`].
    pub(crate) unsafe fn reserve(&mut self, graph: *mut RawGraph) -> Result<(), Error> {
        self.synchronize();
        // SAFETY: as this function.
        unsafe { self.split(graph) }?;
        if let Some(scheduled) = &self.graph {
            let (graph, ids) = scheduled.in_memory();
            self.memory.reserve(graph, ids)?;
        }
        self.reset();
        Ok(())
    }

    /// Gives a graph memory.
    ///
    /// # Safety
    /// As [`Self::split`].
    pub(crate) unsafe fn allocate(&mut self, graph: *mut RawGraph) -> Result<(), Error> {
        // SAFETY: as this function.
        unsafe { self.split(graph) }?;
        let Some(scheduled) = &self.graph else { return Ok(()) };
        let (graph, ids) = scheduled.in_memory();
        self.memory.allocate_as(graph, ids, || self.devices.synchronize())?;
        self.state = State::Allocated;
        Ok(())
    }

    /// Runs a graph, which gets memory first if it has none; it may still run when this returns.
    ///
    /// # Safety
    /// As [`Self::split`]; the graph is the last one if that was allocated.
    pub(crate) unsafe fn compute(&mut self, graph: *mut RawGraph) -> Result<(), Error> {
        if self.state != State::Allocated {
            if self.state == State::Placed {
                self.reset();
            }
            // SAFETY: as this function.
            unsafe { self.allocate(graph) }?;
        }
        let Some(scheduled) = &self.graph else { return Ok(()) };
        // SAFETY: as this function.
        unsafe { compute::compute(&self.devices, scheduled, self.observer) }
    }

    /// Copies of each input, for graphs that run at a time.
    pub(crate) fn copy_count(&self) -> c_int {
        1
    }
}

impl Observer {
    /// An observer, unless the function is null.
    pub(crate) fn new(function: Option<EvalCallback>, data: *mut std::ffi::c_void) -> Option<Observer> {
        function.map(|function| Observer { function, data })
    }
}
