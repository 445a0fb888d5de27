//! Runs of a graph through a session, with planned memory.

use std::sync::Arc;

use orlop_alloc::Externals;
use orlop_backend::{BufferType, Device, DeviceError, RunOptions, Slot, StoredTensor};
use orlop_graph::{Graph, Leaf, TensorDesc, TensorId};
use orlop_sched::{DeviceId, Error, Machine, Session, SessionOptions};

use crate::execute::gather;

/// The contents of leaves, gaps included.
pub type Feeds = Vec<(TensorId, Vec<u8>)>;

/// Choices of [`run_planned`].
#[derive(Clone, Debug, Default)]
pub struct PlannedOptions {
    /// How the graph is lowered and planned.
    pub session: SessionOptions,
    /// How it is run.
    pub run: RunOptions,
    /// Where weights lie. Default: in the device's best memory for arenas.
    pub weights: Option<Arc<dyn BufferType>>,
}

/// Runs a graph once through a [`Session`], and reads everything that is there afterwards: the elements,
/// packed, of each tensor that [`kept`] lists.
///
/// `feeds` are as for [`crate::run_unplanned`], so both can be compared.
///
/// # Errors
/// [`DeviceError::Unbound`] for a weight without a feed and for a feed of something else than a leaf, and what
/// the session says.
pub fn run_planned(
    device: &Arc<dyn Device>,
    graph: &Graph,
    feeds: &[(TensorId, Vec<u8>)],
    options: &PlannedOptions,
) -> Result<Feeds, Error> {
    let mut session = Session::new(Machine::new([Arc::clone(device)])?, options.session.clone())?;
    run_in(&mut session, graph, feeds, options)
}

/// As [`run_planned`], in a session of the caller's: after other graphs, in arenas that are there already. States and
/// weights lie on the machine's first device.
///
/// # Errors
/// As [`run_planned`].
pub fn run_in(
    session: &mut Session,
    graph: &Graph,
    feeds: &[(TensorId, Vec<u8>)],
    options: &PlannedOptions,
) -> Result<Feeds, Error> {
    let is_leaf = |id: TensorId| graph.leaves().any(|(leaf, _)| leaf == id);
    if let Some((stray, _)) = feeds.iter().find(|(id, _)| !is_leaf(*id)) {
        return Err(DeviceError::Unbound { value: stray.to_string() }.into());
    }
    let arena = session.machine().arena(DeviceId::default());
    let mut externals = Externals::new();
    for (id, leaf) in graph.leaves().filter(|(_, leaf)| leaf.is_external()) {
        let weights = options.weights.as_ref().filter(|_| leaf == Leaf::Weight);
        let buffer_type = weights.unwrap_or(arena);
        let tensor = graph.tensor(id);
        let buffer = Arc::clone(buffer_type).allocate(buffer_type.alloc_bytes(&tensor.desc))?;
        let stored = StoredTensor::new(tensor.name.as_str(), tensor.desc, Slot { buffer, offset: 0 })?;
        stored.slot().buffer.init_tensor(&tensor.desc, 0)?;
        match fed(feeds, id) {
            Some(bytes) => stored.set(0, bytes)?,
            None if leaf == Leaf::State => stored.memset(0, tensor.desc.bytes(), 0)?,
            None => return Err(DeviceError::Unbound { value: tensor.name.clone() }.into()),
        }
        externals.insert(id, stored);
    }
    let plan = session.prepare(graph, &externals)?;
    for (id, leaf) in graph.leaves().filter(|(_, leaf)| !leaf.is_external()) {
        let zeros = || vec![0; graph.tensor(id).desc.bytes() as usize];
        match fed(feeds, id) {
            Some(bytes) => session.set(plan, id, bytes)?,
            None if leaf == Leaf::Persistent => session.set(plan, id, &zeros())?,
            // The run says that it is missing.
            None => {}
        }
    }
    session.run(plan, &options.run)?;
    let mut found = Vec::new();
    for id in kept(graph) {
        let desc = graph.tensor(id).desc;
        let mut bytes = vec![0; desc.bytes() as usize];
        session.get(plan, id, &mut bytes)?;
        found.push((id, packed(&desc, &bytes)?));
    }
    Ok(found)
}

/// The tensors of a graph whose contents a run leaves behind: its results, its states and its persistent leaves.
pub fn kept(graph: &Graph) -> Vec<TensorId> {
    let mut kept = graph.results();
    let lasting = graph.leaves().filter(|(_, leaf)| matches!(leaf, Leaf::State | Leaf::Persistent));
    for (id, _) in lasting {
        if !kept.contains(&id) {
            kept.push(id);
        }
    }
    kept
}

fn fed(feeds: &[(TensorId, Vec<u8>)], id: TensorId) -> Option<&[u8]> {
    feeds.iter().rfind(|(fed, _)| *fed == id).map(|(_, bytes)| &bytes[..])
}

/// A tensor's elements out of its bytes with gaps.
fn packed(desc: &TensorDesc, bytes: &[u8]) -> Result<Vec<u8>, DeviceError> {
    gather(desc, |at, out| {
        let start = at as usize;
        out.copy_from_slice(&bytes[start..start + out.len()]);
        Ok(())
    })
}
