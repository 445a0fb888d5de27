//! Graphs: building them, and what they are.

use orlop::graph::{GraphBuilder, Leaf, Op};
use orlop::{DType, Graph, TensorId};
use pyo3::prelude::*;

use crate::array::shape_of;
use crate::error::{bad_value, json_error, raised};

pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<GraphMaking>()?;
    module.add_class::<FixedGraph>()
}

/// A graph while it is built. Tensors are numbers, in the order in which they were made.
#[pyclass(module = "orlop._orlop")]
pub(crate) struct GraphMaking {
    builder: Option<GraphBuilder>,
    ids: Vec<TensorId>,
}

impl GraphMaking {
    fn builder(&mut self) -> PyResult<&mut GraphBuilder> {
        self.builder.as_mut().ok_or_else(|| bad_value("the graph was built already"))
    }

    fn id(&self, tensor: usize) -> PyResult<TensorId> {
        let unknown = || bad_value(format!("there is no tensor {tensor} among {}", self.ids.len()));
        self.ids.get(tensor).copied().ok_or_else(unknown)
    }

    fn keep(&mut self, id: TensorId) -> usize {
        self.ids.push(id);
        self.ids.len() - 1
    }
}

#[pymethods]
impl GraphMaking {
    #[new]
    fn new() -> GraphMaking {
        GraphMaking { builder: Some(GraphBuilder::new()), ids: Vec::new() }
    }

    /// A leaf, its shape outermost first.
    fn leaf(&mut self, kind: &str, name: &str, dtype: &str, shape: Vec<u64>) -> PyResult<usize> {
        let extents: Vec<u64> = shape.into_iter().rev().collect();
        let known = DType::from_name(dtype);
        let dtype = known.ok_or_else(|| bad_value(format!("unknown element type `{dtype}`")))?;
        let leaf = match kind {
            "input" => Leaf::Input,
            "persistent" => Leaf::Persistent,
            "weight" => Leaf::Weight,
            "state" => Leaf::State,
            other => return Err(bad_value(format!("there are no leaves of the kind `{other}`"))),
        };
        let desc = orlop::graph::TensorDesc::contiguous(dtype, &extents);
        let id = self.builder()?.leaf(leaf, name, desc);
        Ok(self.keep(id))
    }

    /// A node of an op in JSON.
    fn node(&mut self, op: &str, inputs: Vec<usize>) -> PyResult<usize> {
        let op: Op = serde_json::from_str(op).map_err(json_error)?;
        let inputs: Vec<TensorId> =
            inputs.into_iter().map(|input| self.id(input)).collect::<PyResult<_>>()?;
        let id = self.builder()?.node(op, &inputs);
        Ok(self.keep(id))
    }

    fn name(&mut self, tensor: usize, name: &str) -> PyResult<()> {
        let id = self.id(tensor)?;
        self.builder()?.name(id, name);
        Ok(())
    }

    fn output(&mut self, tensor: usize) -> PyResult<()> {
        let id = self.id(tensor)?;
        self.builder()?.output(id);
        Ok(())
    }

    /// The shape so far, outermost first.
    fn shape(&mut self, tensor: usize) -> PyResult<Vec<u64>> {
        let id = self.id(tensor)?;
        Ok(shape_of(&self.builder()?.desc(id).extents))
    }

    fn dtype(&mut self, tensor: usize) -> PyResult<&'static str> {
        let id = self.id(tensor)?;
        Ok(self.builder()?.desc(id).dtype.name())
    }

    /// The finished graph.
    fn build(&mut self) -> PyResult<FixedGraph> {
        self.builder()?;
        let builder = self.builder.take().unwrap_or_default();
        Ok(FixedGraph { graph: builder.build().map_err(raised)? })
    }
}

/// A graph, which never changes.
#[pyclass(frozen, module = "orlop._orlop")]
pub(crate) struct FixedGraph {
    pub(crate) graph: Graph,
}

#[pymethods]
impl FixedGraph {
    #[staticmethod]
    fn from_json(text: &str) -> PyResult<FixedGraph> {
        Ok(FixedGraph { graph: Graph::from_json(text).map_err(raised)? })
    }

    fn to_json(&self) -> PyResult<String> {
        self.graph.to_json().map_err(raised)
    }

    /// Name, element type, shape (outermost first) and kind of all tensors: a kind of leaf, or an op.
    fn tensors(&self) -> Vec<(String, &'static str, Vec<u64>, String)> {
        let tensor = |tensor: &orlop::graph::Tensor| {
            let kind = match tensor.origin {
                orlop::graph::Origin::Leaf(leaf) => format!("{leaf:?}").to_lowercase(),
                orlop::graph::Origin::Node(node) => self.graph.node(node).op.name().to_owned(),
            };
            (tensor.name.clone(), tensor.desc.dtype.name(), shape_of(&tensor.desc.extents), kind)
        };
        self.graph.tensors().iter().map(tensor).collect()
    }

    fn outputs(&self) -> Vec<usize> {
        self.graph.outputs().iter().map(|id| id.index()).collect()
    }
}
