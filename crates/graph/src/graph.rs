//! Graphs as immutable values: tensors, nodes, and where storage lies.

use std::sync::Arc;

use crate::{CostOf, NodeId, Op, TensorDesc, TensorId};

/// A tensor graph: tensors, and nodes that compute some of them in the caller's order.
///
/// A graph holds no memory and never changes after [`crate::GraphBuilder::build`], so it can be planned, placed and
/// run several times, on several sets of devices. Clones share one graph.
#[derive(Clone, Debug)]
pub struct Graph(pub(crate) Arc<Parts>);

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Parts {
    pub(crate) tensors: Vec<Tensor>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) outputs: Vec<TensorId>,
}

impl PartialEq for Graph {
    fn eq(&self, other: &Graph) -> bool {
        self.is_same(other) || self.0 == other.0
    }
}

/// A tensor of a graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Its name, `t17` if none was given. Names are for people: they need not be unique.
    pub name: String,
    /// Element type, extents and strides.
    pub desc: TensorDesc,
    /// Where its elements lie.
    pub storage: Storage,
    /// Where its contents come from.
    pub origin: Origin,
}

/// A range of a root tensor's storage. Roots are never views: a view of a view lies in the same root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Storage {
    /// The tensor that owns the storage: a tensor that is not a view is its own root.
    pub root: TensorId,
    /// Bytes from the root's first element.
    pub offset: u64,
}

/// Where a tensor's contents come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// From outside the graph.
    Leaf(Leaf),
    /// From a node.
    Node(NodeId),
}

/// Who fills and keeps a tensor that no node computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Leaf {
    /// Set before each run; its memory is reused after the last read.
    Input,
    /// Set at any time, kept between runs.
    Persistent,
    /// In the caller's memory, read only.
    Weight,
    /// In the caller's memory, read and written (KV caches, recurrent states).
    State,
}

impl Leaf {
    /// Whether the memory is the caller's, so that no plan places it.
    pub fn is_external(self) -> bool {
        matches!(self, Leaf::Weight | Leaf::State)
    }
}

/// One computation.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// What is computed.
    pub op: Op,
    /// The operands.
    pub inputs: Vec<TensorId>,
    /// The result. Its storage is its own, or an operand's where the op is a view or a write.
    pub output: TensorId,
}

impl Graph {
    /// Whether both are clones of one graph. Equal graphs that were built twice are not.
    pub fn is_same(&self, other: &Graph) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// All tensors; `tensors()[id.index()]` is `tensor(id)`.
    pub fn tensors(&self) -> &[Tensor] {
        &self.0.tensors
    }

    /// All nodes in the caller's order; `nodes()[id.index()]` is `node(id)`.
    pub fn nodes(&self) -> &[Node] {
        &self.0.nodes
    }

    /// The tensors declared as outputs. When there are none, every result that no node reads counts as one.
    pub fn outputs(&self) -> &[TensorId] {
        &self.0.outputs
    }

    /// Ids of all tensors.
    pub fn tensor_ids(&self) -> impl ExactSizeIterator<Item = TensorId> + use<> {
        (0..self.0.tensors.len() as u32).map(TensorId)
    }

    /// Ids of all nodes, in the caller's order.
    pub fn node_ids(&self) -> impl ExactSizeIterator<Item = NodeId> + use<> {
        (0..self.0.nodes.len() as u32).map(NodeId)
    }

    /// A tensor.
    ///
    /// # Panics
    /// If the id is another graph's and out of range here; [`Graph::get`] does not.
    pub fn tensor(&self, id: TensorId) -> &Tensor {
        &self.0.tensors[id.index()]
    }

    /// A tensor, or `None` for an id that is not this graph's.
    pub fn get(&self, id: TensorId) -> Option<&Tensor> {
        self.0.tensors.get(id.index())
    }

    /// A node.
    ///
    /// # Panics
    /// If the id is another graph's and out of range here.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.0.nodes[id.index()]
    }

    /// Arithmetic operations that a node takes; see [`Cost`](crate::Cost).
    ///
    /// # Panics
    /// As [`Graph::node`].
    pub fn operations(&self, id: NodeId) -> f64 {
        let node = self.node(id);
        let operand = |index: usize| &self.tensor(node.inputs[index]).desc;
        let info = node.op.info();
        let elements = match info.cost_of {
            CostOf::Result => self.tensor(node.output).desc.elements(),
            CostOf::Operand(index) => operand(index).elements(),
        };
        info.cost.operations(elements, |index, dim| operand(index).extents[dim])
    }

    /// The first tensor with this name.
    pub fn find(&self, name: &str) -> Option<TensorId> {
        self.0.tensors.iter().position(|tensor| tensor.name == name).map(|index| TensorId(index as u32))
    }

    /// Leaves and who keeps them.
    pub fn leaves(&self) -> impl Iterator<Item = (TensorId, Leaf)> + '_ {
        self.tensor_ids().filter_map(|id| match self.tensor(id).origin {
            Origin::Leaf(leaf) => Some((id, leaf)),
            Origin::Node(_) => None,
        })
    }

    /// Whether the tensor lies in another's storage.
    pub fn is_view(&self, id: TensorId) -> bool {
        self.tensor(id).storage.root != id
    }

    /// Who keeps the tensor's storage, if it is a leaf's.
    pub fn root_leaf(&self, id: TensorId) -> Option<Leaf> {
        match self.tensor(self.tensor(id).storage.root).origin {
            Origin::Leaf(leaf) => Some(leaf),
            Origin::Node(_) => None,
        }
    }

    /// The tensors whose contents must be there after a run: the declared outputs, or, when there are none,
    /// every result that no node reads.
    pub fn results(&self) -> Vec<TensorId> {
        if !self.0.outputs.is_empty() {
            return self.0.outputs.clone();
        }
        let mut read = vec![false; self.0.tensors.len()];
        for node in &self.0.nodes {
            for input in &node.inputs {
                read[input.index()] = true;
            }
        }
        self.0.nodes.iter().map(|node| node.output).filter(|output| !read[output.index()]).collect()
    }
}
