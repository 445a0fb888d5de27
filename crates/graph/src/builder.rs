//! Building graphs: leaves, names, outputs, and nodes of any op. The methods of single ops stand beside their entries
//! in `op/`.

use std::sync::Arc;

use crate::graph::Parts;
use crate::{
    DIMS, DType, DescError, Graph, GraphError, Leaf, Node, NodeId, Op, OpError, Origin, Storage, Tensor,
    TensorDesc, TensorId, infer,
};

/// Builds a [`Graph`], one tensor after the other.
///
/// Methods never fail: the builder keeps the first error, skips calls that depend on it, and returns it from
/// [`GraphBuilder::build`]. So code that builds a model reads like the model.
///
/// ```
/// use orlop_graph::{DType, GraphBuilder};
/// let mut b = GraphBuilder::new();
/// let x = b.input("x", DType::F32, &[64, 2]);
/// let w = b.weight("w", DType::Q4_0, &[64, 32]);
/// let h = b.mul_mat(w, x);
/// let y = b.silu(h);
/// b.output(y);
/// let graph = b.build()?;
/// assert_eq!(graph.tensor(y).desc.extents, [32, 2, 1, 1]);
/// # Ok::<(), orlop_graph::GraphError>(())
/// ```
#[derive(Debug, Default)]
pub struct GraphBuilder {
    graph: Parts,
    /// Placeholders for results of refused calls; nodes that read them are placeholders, too, without errors.
    poisoned: Vec<bool>,
    error: Option<GraphError>,
}

impl GraphBuilder {
    /// An empty graph.
    pub fn new() -> GraphBuilder {
        GraphBuilder::default()
    }

    /// The finished graph.
    ///
    /// # Errors
    /// The first error, with the tensor's name and the numbers.
    pub fn build(self) -> Result<Graph, GraphError> {
        match self.error {
            Some(error) => Err(error),
            None => Ok(Graph(Arc::new(self.graph))),
        }
    }

    /// The description of a tensor built so far; an empty one after a refused call or for a foreign id.
    pub fn desc(&self, id: TensorId) -> TensorDesc {
        self.graph.tensors.get(id.index()).map_or(EMPTY, |tensor| tensor.desc)
    }

    // --- leaves ---

    /// A tensor to be set before each run.
    pub fn input(&mut self, name: &str, dtype: DType, extents: &[u64]) -> TensorId {
        self.leaf(Leaf::Input, name, TensorDesc::contiguous(dtype, extents))
    }

    /// A tensor that keeps its contents between runs.
    pub fn persistent(&mut self, name: &str, dtype: DType, extents: &[u64]) -> TensorId {
        self.leaf(Leaf::Persistent, name, TensorDesc::contiguous(dtype, extents))
    }

    /// A tensor in the caller's memory that is only read.
    pub fn weight(&mut self, name: &str, dtype: DType, extents: &[u64]) -> TensorId {
        self.leaf(Leaf::Weight, name, TensorDesc::contiguous(dtype, extents))
    }

    /// A tensor in the caller's memory that is read and written.
    pub fn state(&mut self, name: &str, dtype: DType, extents: &[u64]) -> TensorId {
        self.leaf(Leaf::State, name, TensorDesc::contiguous(dtype, extents))
    }

    /// A leaf of any description, such as one with padded rows.
    pub fn leaf(&mut self, leaf: Leaf, name: &str, desc: Result<TensorDesc, DescError>) -> TensorId {
        let Some(id) = self.next_tensor() else { return TensorId(0) };
        // The fields are public, so a description made by hand is checked like any other.
        let desc = desc.and_then(|desc| TensorDesc::strided(desc.dtype, desc.extents, desc.strides));
        let (desc, poisoned) = match desc {
            Ok(desc) => (desc, false),
            Err(error) => {
                self.fail(GraphError::Leaf { name: name.to_owned(), source: error.into() });
                (EMPTY, true)
            }
        };
        let storage = Storage { root: id, offset: 0 };
        self.graph.tensors.push(Tensor { name: name.to_owned(), desc, storage, origin: Origin::Leaf(leaf) });
        self.poisoned.push(poisoned);
        id
    }

    // --- flags and names ---

    /// Declares an output: its contents are available after a run. Once one is declared, unread results are kept
    /// only if they are outputs.
    pub fn output(&mut self, id: TensorId) -> TensorId {
        if self.known(id) && !self.graph.outputs.contains(&id) {
            self.graph.outputs.push(id);
        }
        id
    }

    /// Names a tensor.
    pub fn name(&mut self, id: TensorId, name: impl Into<String>) -> TensorId {
        if self.known(id) {
            let tensor = &mut self.graph.tensors[id.index()];
            tensor.name = name.into();
            // A node is named after it was added, so the error of a refused one gets the name here.
            if let Some(GraphError::Op { node, name, .. }) = &mut self.error
                && tensor.origin == Origin::Node(*node)
            {
                name.clone_from(&tensor.name);
            }
        }
        id
    }

    // --- nodes ---

    /// A node with any op; the named methods are shorthand for this one.
    pub fn node(&mut self, op: Op, inputs: &[TensorId]) -> TensorId {
        self.checked_node(op, inputs, Ok(()))
    }

    /// A node; `so_far` is the outcome of earlier checks of its parameters.
    pub(crate) fn checked_node(
        &mut self,
        op: Op,
        inputs: &[TensorId],
        so_far: Result<(), DescError>,
    ) -> TensorId {
        let Some(id) = self.next_tensor() else { return TensorId(0) };
        let node = NodeId(self.graph.nodes.len() as u32);
        let name = id.to_string();
        let mut poisoned = false;
        for input in inputs {
            poisoned |= !self.known(*input) || self.poisoned[input.index()];
        }
        let mut desc = EMPTY;
        let mut storage = Storage { root: id, offset: 0 };
        if !poisoned {
            let operands: Vec<TensorDesc> = inputs.iter().map(|input| self.desc(*input)).collect();
            match so_far.map_err(OpError::from).and_then(|()| infer(&op, &operands)) {
                Ok(result) => {
                    desc = result;
                    storage = self.storage(&op, inputs).unwrap_or(storage);
                }
                Err(source) => {
                    poisoned = true;
                    self.fail(GraphError::Op { node, op: op.name().to_owned(), name: name.clone(), source });
                }
            }
        }
        if storage.root != id && !op.is_view() {
            let root = &self.graph.tensors[storage.root.index()];
            if root.origin == Origin::Leaf(Leaf::Weight) {
                let error =
                    GraphError::WritesWeight { node, op: op.name().to_owned(), name: root.name.clone() };
                self.fail(error);
            }
        }
        self.graph.tensors.push(Tensor { name, desc, storage, origin: Origin::Node(node) });
        self.graph.nodes.push(Node { op, inputs: inputs.to_vec(), output: id });
        self.poisoned.push(poisoned);
        id
    }

    fn storage(&self, op: &Op, inputs: &[TensorId]) -> Option<Storage> {
        let operand = &self.graph.tensors[inputs[op.storage_operand()?].index()];
        let shift = if let Op::View { offset, .. } = op { *offset } else { 0 };
        // Cannot overflow: the view ends within the operand, and the operand within its root.
        Some(Storage { root: operand.storage.root, offset: operand.storage.offset + shift })
    }

    fn next_tensor(&mut self) -> Option<TensorId> {
        match u32::try_from(self.graph.tensors.len()) {
            Ok(index) if index < u32::MAX => Some(TensorId(index)),
            _ => {
                self.fail(GraphError::Full);
                None
            }
        }
    }

    fn known(&mut self, id: TensorId) -> bool {
        let tensors = self.graph.tensors.len();
        if id.index() < tensors {
            return true;
        }
        self.fail(GraphError::ForeignTensor { tensor: id, tensors });
        false
    }

    #[cfg(feature = "serde")]
    pub(crate) fn failed(&self) -> bool {
        self.error.is_some()
    }

    pub(crate) fn fail(&mut self, error: GraphError) {
        self.error.get_or_insert(error);
    }
}

const EMPTY: TensorDesc = TensorDesc { dtype: DType::F32, extents: [0; DIMS], strides: [4; DIMS] };
