//! Graphs on byte vectors, without a device.

use orlop_backend::DeviceError;
use orlop_graph::{DType, Graph, Origin, TensorDesc, TensorId};

use crate::decode_elements;
use crate::elements::packed_bytes;
use crate::execute::{Memory, execute, gather, scatter};

/// Runs a graph on plain byte vectors, one for each tensor that owns storage: no device, no plan, nothing that
/// could be reused too early. Contents stay between runs, so states and persistent leaves work as they should.
///
/// ```
/// use orlop_graph::{DType, GraphBuilder};
/// use orlop_testkit::{Interpreter, f32_bytes};
///
/// let mut b = GraphBuilder::new();
/// let x = b.input("x", DType::F32, &[2]);
/// let y = b.sqr(x);
/// let mut run = Interpreter::new(&b.build()?)?;
/// run.set(x, &f32_bytes(&[3.0, -4.0]))?;
/// run.run()?;
/// assert_eq!(run.f32s(y)?, [9.0, 16.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Interpreter {
    graph: Graph,
    memory: Roots,
}

const NAME: &str = "the interpreter";

impl Interpreter {
    /// Zeros for every tensor of the graph.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`] if the graph describes more than there is.
    pub fn new(graph: &Graph) -> Result<Interpreter, DeviceError> {
        let mut roots = Vec::with_capacity(graph.tensors().len());
        for id in graph.tensor_ids() {
            let bytes = if graph.is_view(id) { 0 } else { graph.tensor(id).desc.bytes() };
            let mut storage: Vec<u8> = Vec::new();
            let fits = usize::try_from(bytes).ok().filter(|bytes| storage.try_reserve_exact(*bytes).is_ok());
            let Some(length) = fits else {
                return Err(DeviceError::OutOfMemory { buffer_type: NAME.to_owned(), bytes });
            };
            storage.resize(length, 0);
            roots.push(storage);
        }
        Ok(Interpreter { graph: graph.clone(), memory: Roots { graph: graph.clone(), roots } })
    }

    /// Sets a leaf's bytes, gaps included.
    ///
    /// # Errors
    /// [`DeviceError::Unbound`] if the tensor is no leaf of the graph, [`DeviceError::WrongLength`].
    pub fn set(&mut self, leaf: TensorId, bytes: &[u8]) -> Result<(), DeviceError> {
        let tensor = self.graph.get(leaf).filter(|tensor| matches!(tensor.origin, Origin::Leaf(_)));
        let tensor = tensor.ok_or_else(|| DeviceError::Unbound { value: leaf.to_string() })?;
        let root = &mut self.memory.roots[leaf.index()];
        if root.len() != bytes.len() {
            return Err(DeviceError::WrongLength {
                tensor: tensor.name.clone(),
                expected: root.len() as u64,
                given: bytes.len() as u64,
            });
        }
        root.copy_from_slice(bytes);
        Ok(())
    }

    /// Runs all nodes in the graph's order.
    ///
    /// # Errors
    /// [`DeviceError::BadIndex`] and [`DeviceError::Unsupported`]; what earlier nodes wrote stays written.
    pub fn run(&mut self) -> Result<(), DeviceError> {
        let graph = self.graph.clone();
        graph.nodes().iter().try_for_each(|node| execute(NAME, &graph, node, &mut self.memory))
    }

    /// As [`Interpreter::run`]; `observe` sees each node's result, packed, as soon as it is computed.
    ///
    /// # Errors
    /// As there.
    pub fn run_observed(&mut self, mut observe: impl FnMut(TensorId, Vec<u8>)) -> Result<(), DeviceError> {
        let graph = self.graph.clone();
        graph.nodes().iter().try_for_each(|node| {
            execute(NAME, &graph, node, &mut self.memory)?;
            observe(node.output, self.bytes(node.output)?);
            Ok(())
        })
    }

    /// A tensor's elements as they are now, packed.
    ///
    /// # Errors
    /// [`DeviceError::Unbound`] if the tensor is not the graph's.
    pub fn bytes(&self, tensor: TensorId) -> Result<Vec<u8>, DeviceError> {
        let found = self.graph.get(tensor);
        let found = found.ok_or_else(|| DeviceError::Unbound { value: tensor.to_string() })?;
        self.memory.load(tensor, &found.desc)
    }

    /// A tensor's elements as numbers.
    ///
    /// # Errors
    /// As [`Interpreter::bytes`], and [`DeviceError::Unsupported`] for a type without a codec.
    pub fn f64s(&self, tensor: TensorId) -> Result<Vec<f64>, DeviceError> {
        numbers(&self.graph, tensor, &self.bytes(tensor)?)
    }

    /// As [`Interpreter::f64s`], rounded to `f32`.
    ///
    /// # Errors
    /// As [`Interpreter::f64s`].
    pub fn f32s(&self, tensor: TensorId) -> Result<Vec<f32>, DeviceError> {
        Ok(self.f64s(tensor)?.into_iter().map(|value| value as f32).collect())
    }
}

/// Packed elements as numbers, for reading back.
pub(crate) fn numbers(graph: &Graph, tensor: TensorId, bytes: &[u8]) -> Result<Vec<f64>, DeviceError> {
    let tensor = graph.get(tensor).ok_or_else(|| DeviceError::Unbound { value: tensor.to_string() })?;
    let dtype: DType = tensor.desc.dtype;
    decode_elements(dtype, bytes).map_err(|_| DeviceError::Unsupported {
        device: "the host".to_owned(),
        op: "read".to_owned(),
        tensor: tensor.name.clone(),
        reason: orlop_backend::Reason::DType { operand: 0, dtype },
    })
}

/// One vector a root; views have none.
#[derive(Clone, Debug)]
struct Roots {
    graph: Graph,
    roots: Vec<Vec<u8>>,
}

impl Roots {
    fn out_of_bounds(&self, tensor: TensorId, offset: u64, bytes: u64) -> DeviceError {
        let root = self.graph.tensor(tensor).storage.root;
        let available = self.roots[root.index()].len() as u64;
        DeviceError::OutOfBounds { tensor: self.graph.tensor(tensor).name.clone(), offset, bytes, available }
    }
}

impl Memory for Roots {
    fn load(&self, tensor: TensorId, desc: &TensorDesc) -> Result<Vec<u8>, DeviceError> {
        let storage = self.graph.tensor(tensor).storage;
        let root = &self.roots[storage.root.index()];
        gather(desc, |at, bytes| {
            let start = (storage.offset + at) as usize;
            let found = root.get(start..start + bytes.len());
            let found = found.ok_or_else(|| self.out_of_bounds(tensor, at, bytes.len() as u64))?;
            bytes.copy_from_slice(found);
            Ok(())
        })
    }

    fn store(
        &mut self,
        tensor: TensorId,
        offset: u64,
        part: &TensorDesc,
        packed: &[u8],
    ) -> Result<(), DeviceError> {
        let storage = self.graph.tensor(tensor).storage;
        let error = self.out_of_bounds(tensor, offset, packed_bytes(part));
        let root = &mut self.roots[storage.root.index()];
        scatter(part, packed, |at, bytes| {
            let start = (storage.offset + offset + at) as usize;
            let place = root.get_mut(start..start + bytes.len()).ok_or_else(|| error.clone())?;
            place.copy_from_slice(bytes);
            Ok(())
        })
    }
}
