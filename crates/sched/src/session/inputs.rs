//! What a session is told and asked: inputs that are set, tensors that are written and read as a whole.

use orlop_backend::{DeviceError, StoredTensor};
use orlop_graph::{Graph, Leaf, TensorId};

use crate::Error;

/// Which inputs of a graph were set since the last run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inputs {
    /// Each input, and whether it is there.
    list: Vec<(TensorId, bool)>,
}

impl Inputs {
    /// A graph's inputs, none of them set.
    pub(crate) fn of(graph: &Graph) -> Inputs {
        Inputs { list: leaves_of(graph, Leaf::Input).map(|id| (id, false)).collect() }
    }

    /// Notes that an input is there.
    pub(crate) fn set(&mut self, input: TensorId) {
        self.list.iter_mut().filter(|(id, _)| *id == input).for_each(|(_, there)| *there = true);
    }

    /// All of them must be set again.
    pub(crate) fn forget(&mut self) {
        self.list.iter_mut().for_each(|(_, there)| *there = false);
    }

    /// Passes if all are there.
    pub(crate) fn check(&self, graph: &Graph) -> Result<(), Error> {
        match self.list.iter().find(|(_, there)| !there) {
            Some((id, _)) => Err(Error::InputNotSet(graph.tensor(*id).name.clone())),
            None => Ok(()),
        }
    }
}

/// The leaves that are kept in one way.
pub(crate) fn leaves_of(graph: &Graph, kind: Leaf) -> impl Iterator<Item = TensorId> + '_ {
    graph.leaves().filter(move |(_, leaf)| *leaf == kind).map(|(id, _)| id)
}

/// The error for a value without a place.
pub(crate) fn unbound(name: &str) -> Error {
    DeviceError::Unbound { value: name.to_owned() }.into()
}

/// Sets a tensor, all of it.
pub(crate) fn set_whole(stored: &StoredTensor, bytes: &[u8]) -> Result<(), Error> {
    check_length(stored, bytes.len())?;
    Ok(stored.set(0, bytes)?)
}

/// Reads bytes at an offset of a tensor, or all of it.
pub(crate) fn get_at(stored: &StoredTensor, offset: Option<u64>, bytes: &mut [u8]) -> Result<(), Error> {
    if offset.is_none() {
        check_length(stored, bytes.len())?;
    }
    Ok(stored.get(offset.unwrap_or(0), bytes)?)
}

/// Passes if host memory is as long as a tensor.
pub(crate) fn check_length(stored: &StoredTensor, given: usize) -> Result<(), Error> {
    let (expected, given) = (stored.desc().bytes(), given as u64);
    if given == expected {
        return Ok(());
    }
    Err(DeviceError::WrongLength { tensor: stored.name().to_owned(), expected, given }.into())
}
