//! The scheduler of graphs over several backends (`ggml_backend_sched`).
//!
//! `place` chooses backends, `split` cuts the graph and lists copies: both are functions of the graph and of what `devices` knows
//! about backends. `graph` applies the result to the host's graph, [`GgmlGraphAllocator`] gives it memory, `compute` runs it.
//! Where several graphs run at a time, what is copied lies in a `ring` instead.

mod compute;
mod copies;
mod devices;
mod experts;
mod graph;
mod place;
mod report;
mod ring;
mod split;

use std::ptr::{dangling_mut, null_mut};

use crate::error::Error;
use crate::graph_allocator::GgmlGraphAllocator;
use crate::host::SchedulerHost;
use crate::pointers::TensorMap;
use crate::raw::{Backend, BufferType, EvalCallback, RawGraph, TensorRef};
use crate::runtime::Interposer;

pub(crate) use compute::Observer;
use devices::Devices;
use graph::ScheduledGraph;
use ring::Ring;

/// The object behind `ggml_backend_sched_t`.
#[derive(Debug)]
pub struct GgmlScheduler {
    ours: &'static Interposer,
    devices: Devices,
    memory: GgmlGraphAllocator,
    ring: Ring,
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
        let devices = Devices::new(&ours.host, functions, backends, bufts)?;
        let memory = GgmlGraphAllocator::new(ours, &devices.bufts)?;
        let ring = Ring::new(&ours.host, &devices, parallel);
        let given = TensorMap::default();
        Ok(GgmlScheduler {
            ours,
            devices,
            memory,
            ring,
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
        let backend = self.devices.position(backend)?;
        Ok(self.memory.buffer_bytes(backend) + self.ring.bytes(backend))
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

    /// Waits for all backends. Without graphs in flight, each takes the same place in the ring, and keeps its addresses.
    pub(crate) fn synchronize(&mut self) {
        self.devices.synchronize();
        if self.state != State::Allocated {
            self.ring.rewind();
        }
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
        // If this fails, the last graph does not run again.
        self.state = State::Reset;
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
        let in_ring = if self.ring.count > 1 { scheduled.in_ring() } else { Vec::new() };
        // They take no part in the plan: any address will do.
        in_ring.iter().for_each(|(tensor, _)| tensor.bind(null_mut(), dangling_mut::<usize>().cast()));
        let (graph, ids) = scheduled.in_memory();
        let sizes = self.memory.measure(graph, ids);
        in_ring.iter().for_each(|(tensor, _)| tensor.unbind());
        let needed = |(backend, bytes)| bytes + self.ring.needed(&self.devices, &in_ring, backend);
        Ok(sizes?.into_iter().enumerate().map(needed).collect())
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
            let in_ring = if self.ring.count > 1 { scheduled.in_ring() } else { Vec::new() };
            self.ring.grow(&self.devices, &in_ring)?;
            self.ring.bind(&self.devices, &in_ring)?;
            let (graph, ids) = scheduled.in_memory();
            let reserved = self.memory.reserve(graph, ids);
            in_ring.iter().for_each(|(tensor, _)| tensor.unbind());
            reserved?;
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
        self.ring.advance();
        if self.ring.count > 1 {
            let in_ring = scheduled.in_ring();
            self.ring.grow(&self.devices, &in_ring)?;
            if scheduled.has_late_inputs() {
                (0..self.devices.backends.len()).for_each(|backend| self.ring.wait(&self.devices, backend));
            }
            self.ring.bind(&self.devices, &in_ring)?;
        }
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
        unsafe { compute::compute(&self.devices, scheduled, &self.ring, self.observer) }
    }

    /// Graphs that may run at a time.
    pub(crate) fn copy_count(&self) -> usize {
        self.ring.count
    }
}

impl Drop for GgmlScheduler {
    fn drop(&mut self) {
        self.ring.free_events(&self.devices);
    }
}

impl Observer {
    /// An observer, unless the function is null.
    pub(crate) fn new(function: Option<EvalCallback>, data: *mut std::ffi::c_void) -> Option<Observer> {
        function.map(|function| Observer { function, data })
    }
}
