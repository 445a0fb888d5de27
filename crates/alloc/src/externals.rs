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
        for (id, leaf) in graph.leafs() {
            if !leaf.is_external() {
                continue;
            }
            let expected = &graph.tensor(id).desc;
            let tensor = graph.tensor(id).name.clone();
            match self.get(id) {
                None => return Err(Error::MissingExternal { tensor }),
                Some(given) if given.desc() != expected => {
                    let given = Box::new(*given.desc());
                    return Err(Error::ExternalMismatch { tensor, expected: Box::new(*expected), given });
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}
