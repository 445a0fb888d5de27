//! The caller's memory of weights and states, by leaf of a graph.

use std::collections::HashMap;
use std::sync::Arc;

use orlop_backend::{BufferType, Gate, StoredTensor};
use orlop_graph::{Element, Graph, Leaf, TensorId};

use crate::{Error, SetTensor, TensorSet};

/// Tensors in memory of the caller's, for the external leaves of one graph. Several graphs can share the tensors, but
/// not this map: it goes by ids, which are each graph's own. [`Externals::by_name`] makes one for each.
#[derive(Clone, Debug, Default)]
pub struct Externals {
    tensors: HashMap<TensorId, StoredTensor>,
}

impl Externals {
    /// None yet.
    pub fn new() -> Externals {
        Externals::default()
    }

    /// The tensors that have the names of the graph's external leaves, others left out; of two with one name the last.
    pub fn by_name<'a>(graph: &Graph, tensors: impl IntoIterator<Item = &'a StoredTensor>) -> Externals {
        let named: HashMap<&str, &StoredTensor> =
            tensors.into_iter().map(|tensor| (tensor.name(), tensor)).collect();
        let leaves = graph.leaves().filter(|(_, leaf)| leaf.is_external());
        let found = leaves.filter_map(|(id, _)| {
            let tensor = named.get(graph.tensor(id).name.as_str())?;
            Some((id, StoredTensor::clone(tensor)))
        });
        Externals { tensors: found.collect() }
    }

    /// Weights with these contents, by name, in new memory of one type.
    ///
    /// # Errors
    /// [`Error::UnknownLeaf`] for a name that no external leaf has, what allocation meets, and
    /// [`DeviceError::WrongType`](orlop_backend::DeviceError::WrongType) or
    /// [`DeviceError::WrongLength`](orlop_backend::DeviceError::WrongLength) for contents that the leaf does not take.
    pub fn from_slices<T: Element>(
        graph: &Graph,
        memory: &Arc<dyn BufferType>,
        slices: &[(&str, &[T])],
    ) -> Result<Externals, Error> {
        let leaf = |name: &str| {
            let named = |(id, leaf): &(TensorId, Leaf)| leaf.is_external() && graph.tensor(*id).name == name;
            graph.leaves().find(named).ok_or_else(|| Error::UnknownLeaf { name: name.to_owned() })
        };
        let leaves = slices.iter().map(|(name, _)| leaf(name)).collect::<Result<Vec<_>, _>>()?;
        let tensors: Vec<SetTensor> = slices
            .iter()
            .zip(&leaves)
            .map(|((name, _), (id, _))| SetTensor::new(*name, graph.tensor(*id).desc))
            .collect();
        let set = TensorSet::allocate(memory, &tensors)?;
        for (tensor, (_, values)) in set.tensors().iter().zip(slices) {
            tensor.set_values(values)?;
        }
        Ok(Externals::by_name(graph, set.tensors()))
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

    /// Checks that every external leaf of the graph is there, and as the graph describes it, and that no state shares
    /// bytes with another leaf: nothing would order what is done to them.
    ///
    /// # Errors
    /// [`Error::MissingExternal`], [`Error::ExternalMismatch`], [`Error::ExternalsOverlap`].
    pub fn check(&self, graph: &Graph) -> Result<(), Error> {
        let missing = graph.leaves().find(|(id, leaf)| leaf.is_external() && self.get(*id).is_none());
        if let Some((id, _)) = missing {
            return Err(Error::MissingExternal { tensor: graph.tensor(id).name.clone() });
        }
        self.check_given(graph)?;
        self.check_apart(graph)
    }

    fn check_apart(&self, graph: &Graph) -> Result<(), Error> {
        // Buffer, first byte, end, whether it is written, who.
        let mut ranges: Vec<(*const Gate, u64, u64, bool, TensorId)> = Vec::new();
        for (id, leaf) in graph.leaves().filter(|(_, leaf)| leaf.is_external()) {
            if let Some(tensor) = self.get(id).filter(|tensor| !tensor.desc().is_empty()) {
                let (slot, bytes) = (tensor.slot(), tensor.desc().bytes());
                let gate = Arc::as_ptr(slot.buffer.gate());
                ranges.push((gate, slot.offset, slot.offset.saturating_add(bytes), leaf == Leaf::State, id));
            }
        }
        ranges.sort_unstable();
        let mut open: Option<(*const Gate, u64, u64, bool, TensorId)> = None;
        for range in ranges {
            if let Some(before) = open
                && before.0 == range.0
                && range.1 < before.2
            {
                if before.3 || range.3 {
                    let name = |id: TensorId| graph.tensor(id).name.clone();
                    return Err(Error::ExternalsOverlap { first: name(before.4), second: name(range.4) });
                }
                // Weights may share bytes; the one that ends last goes on.
                if before.2 >= range.2 {
                    continue;
                }
            }
            open = Some(range);
        }
        Ok(())
    }

    /// Checks those external leaves of the graph that are there.
    pub(crate) fn check_given(&self, graph: &Graph) -> Result<(), Error> {
        if self.tensors.is_empty() {
            return Ok(());
        }
        for (id, _) in graph.leaves().filter(|(_, leaf)| leaf.is_external()) {
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
