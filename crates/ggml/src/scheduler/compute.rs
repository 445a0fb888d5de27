//! Runs the splits of a graph.

use std::ffi::c_void;

use super::devices::Devices;
use super::experts::copy_experts;
use super::graph::ScheduledGraph;
use super::ring::Ring;
use super::split::GraphSplit;
use crate::error::Error;
use crate::raw::{EvalCallback, FLAG_INPUT, RawGraphView, STATUS_SUCCESS, TensorRef};

/// A user's function that observes results.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observer {
    pub(crate) function: EvalCallback,
    pub(crate) data: *mut c_void,
}

impl Observer {
    /// Whether the user wants to see a tensor, or, with `ask` false, to continue after it.
    fn answer(self, tensor: TensorRef, ask: bool) -> bool {
        // SAFETY: the user set a function that takes any tensor of a graph, and this data.
        unsafe { (self.function)(tensor.as_ptr(), ask, self.data) }
    }
}

/// Runs all splits, in order; they may still run when this returns.
///
/// # Safety
/// The graph that was scheduled lives and has memory, and no other thread uses it.
pub(crate) unsafe fn compute(
    devices: &Devices,
    graph: &ScheduledGraph,
    ring: &Ring,
    observer: Option<Observer>,
) -> Result<(), Error> {
    let mut before: Option<usize> = None;
    for (split, view) in graph.splits.iter().zip(&graph.views) {
        // Memory of the split before may be reused by this one, which no copy orders after it.
        if split.copies.is_empty()
            && let Some(before) = before.filter(|before| *before != split.backend)
        {
            ring.wait(devices, before);
        }
        copy_inputs(devices, graph, ring, split, view);
        if view.n_nodes > 0 {
            let continues = match observer {
                None => run(devices, split.backend, *view).map(|()| true),
                Some(observer) => observed(devices, split.backend, *view, observer),
            };
            if !continues? {
                return Ok(());
            }
        }
        ring.record(devices, split.backend);
        before = Some(split.backend);
    }
    Ok(())
}

fn run(devices: &Devices, backend: usize, mut view: RawGraphView) -> Result<(), Error> {
    match devices.functions.graph_compute_async(devices.backends[backend], &mut view) {
        STATUS_SUCCESS => Ok(()),
        status => Err(Error::NotComputed { backend: devices.name(backend), status }),
    }
}

/// Copies what a split reads from other backends. The user's inputs are there already and come first: they travel while the
/// results are still computed.
fn copy_inputs(
    devices: &Devices,
    graph: &ScheduledGraph,
    ring: &Ring,
    split: &GraphSplit,
    view: &RawGraphView,
) {
    let functions = devices.functions;
    let backend = devices.backends[split.backend];
    let copied = &graph.copies.copies[split.copies.clone()];
    let is_input = |tensor: TensorRef| tensor.flags() & FLAG_INPUT != 0;
    for tensor in copied.iter().filter(|tensor| is_input(tensor.original)) {
        // Copied before this returns: the user may write the next ones then.
        ring.wait(devices, split.backend);
        functions.tensor_copy(tensor.original.as_ptr(), tensor.copy.as_ptr());
    }
    for tensor in copied.iter().filter(|tensor| !is_input(tensor.original)) {
        let Some(home) = graph.home(tensor.original) else { continue };
        ring.order(devices, split.backend);
        if copy_experts(devices, graph, split, view, tensor) {
            continue;
        }
        let (from, to) = (tensor.original.as_ptr(), tensor.copy.as_ptr());
        functions.tensor_copy_async(devices.backends[home], backend, from, to);
    }
}

/// Runs a split in parts that end where the user wants to see a result; `false` if the user cancels.
fn observed(
    devices: &Devices,
    backend: usize,
    view: RawGraphView,
    observer: Observer,
) -> Result<bool, Error> {
    let count = usize::try_from(view.n_nodes).unwrap_or(0);
    // SAFETY: `from_raw_parts` asks for `count` entries that stay as they are: a view has `n_nodes`, and its graph is left alone.
    let nodes = unsafe { std::slice::from_raw_parts(view.nodes, count) };
    let mut start = 0;
    while start < count {
        let mut end = start;
        let (last, is_wanted) = loop {
            // SAFETY: `TensorRef::new` asks for null or a tensor of the graph that runs: nodes are.
            let node = unsafe { TensorRef::new(nodes[end]) };
            let node = node.ok_or(Error::NullTensor { list: "nodes", position: end })?;
            end += 1;
            let is_wanted = observer.answer(node, true);
            if is_wanted || end == count {
                break (node, is_wanted);
            }
        };
        let part = RawGraphView {
            n_nodes: (end - start) as i32,
            nodes: view.nodes.wrapping_add(start),
            uid: 0,
            ..view
        };
        run(devices, backend, part)?;
        devices.functions.synchronize(devices.backends[backend]);
        if is_wanted && !observer.answer(last, false) {
            return Ok(false);
        }
        start = end;
    }
    Ok(true)
}
