use std::collections::HashMap;

use orlop_backend::StoredTensor;
use orlop_graph::{Graph, TensorId};

use crate::Error;

/// Tensors in memory of the caller's, for the external leafs of a graph. Several graphs can share them.
#[derive(Clone, Debug, Default)]
pub struct Externals {
    tensors: HashMap<TensorId, StoredTensor>,
}

impl Externals {
    /// None yet.
    pub fn new() -> Externals {
        Externals::default()
    }

    /// Gives the memory of a leaf.
    pub fn insert(&mut self, leaf: TensorId, tensor: StoredTensor) -> &mut Externals {
        self.tensors.insert(leaf, tensor);
        self
    }

    /// The memory of a leaf, if it was given.
    pub fn get(&self, leaf: TensorId) -> Option<&StoredTensor> {
        self.tensors.get(&leaf)
    }

    /// Checks that every external leaf of the graph is there, and as the graph describes it.
    ///
    /// # Errors
    /// [`Error::MissingExternal`], [`Error::ExternalMismatch`].
    pub fn check(&self, graph: &Graph) -> Result<(), Error> {
        let missing = graph.leafs().find(|(id, leaf)| leaf.is_external() && self.get(*id).is_none());
        if let Some((id, _)) = missing {
            return Err(Error::MissingExternal { tensor: graph.tensor(id).name.clone() });
        }
        self.check_given(graph)
    }

    /// Checks those external leafs of the graph that are there.
    pub(crate) fn check_given(&self, graph: &Graph) -> Result<(), Error> {
        if self.tensors.is_empty() {
            return Ok(());
        }
        for (id, _) in graph.leafs().filter(|(_, leaf)| leaf.is_external()) {
            let expected = &graph.tensor(id).desc;
            if let Some(given) = self.get(id).filter(|given| given.desc() != expected) {
                let tensor = graph.tensor(id).name.clone();
                let given = Box::new(*given.desc());
                return Err(Error::ExternalMismatch { tensor, expected: Box::new(*expected), given });
            }
        }
        Ok(())
    }
}
