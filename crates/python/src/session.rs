//! Sessions: graphs on devices.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use orlop::alloc::{Externals, SetTensor, TensorSet};
use orlop::cpu::{CpuDevice, Isa, ThreadPool};
use orlop::devices::{self, DeviceOptions};
use orlop::graph::Leaf;
use orlop::view::{Labels, Picture};
use orlop::{
    Constraints, DType, Device, Graph, Machine, PlanId, RunOptions, Session, SessionOptions, TensorId, sched,
};
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use serde::Serialize;

use crate::array::Numbers;
use crate::error::{bad_value, json_error, raised};
use crate::graph::FixedGraph;
use crate::picture::Pictures;
use crate::shared::Shared;

pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<GraphSession>()?;
    module.add_class::<PreparedGraph>()
}

/// Runs graphs on the devices of a machine.
#[pyclass(frozen, module = "orlop._orlop")]
pub(crate) struct GraphSession {
    shared: Shared<Session>,
    machine: Machine,
    /// Plans whose objects are gone; they are released at the next preparation.
    dropped: Mutex<Vec<PlanId>>,
}

/// A graph with memory on devices.
#[pyclass(frozen, module = "orlop._orlop")]
pub(crate) struct PreparedGraph {
    session: Py<GraphSession>,
    plan: PlanId,
    graph: Graph,
    /// Where each node runs, and why, as JSON.
    placement: String,
    pictures: Pictures,
    memory: Vec<(String, u64)>,
}

#[derive(Serialize)]
struct PlacedNode<'a> {
    tensor: &'a str,
    op: &'a str,
    device: &'a str,
    reason: String,
}

/// A device by name, or a CPU device with a name, threads and an instruction set of its own.
#[derive(FromPyObject)]
enum Wanted {
    Named(String),
    Cpu(String, usize, String),
}

fn cpu(name: &str, threads: usize, isa: &str) -> PyResult<Arc<dyn Device>> {
    let isa = match isa {
        "best" => Isa::detect(),
        "scalar" => Isa::Scalar,
        "neon" => Isa::Neon,
        "avx2" => Isa::Avx2,
        "avx512" => Isa::Avx512,
        "amx" => Isa::Amx,
        other => return Err(bad_value(format!("there is no instruction set `{other}`"))),
    };
    let pool = ThreadPool::new(threads.max(1)).map_err(raised)?;
    Ok(CpuDevice::with_isa(name, pool, isa))
}

#[pymethods]
impl GraphSession {
    #[staticmethod]
    fn open(py: Python<'_>, wanted: Vec<Wanted>, threads: Option<usize>) -> PyResult<GraphSession> {
        py.detach(|| {
            let defaults = DeviceOptions::default();
            let options = DeviceOptions { threads: threads.unwrap_or(defaults.threads).max(1), ..defaults };
            let name = |device: &Wanted| match device {
                Wanted::Named(name) => Some(name.clone()),
                Wanted::Cpu(..) => None,
            };
            let names: Vec<String> = wanted.iter().filter_map(name).collect();
            // Together, so that servers wait for each other's transfers and not one by one.
            let mut named = devices::named_apart(&names, &options).map_err(raised)?.into_iter();
            let mut found: Vec<Arc<dyn Device>> = Vec::new();
            for device in wanted {
                match device {
                    Wanted::Named(_) => found.extend(named.next().unwrap_or_default()),
                    Wanted::Cpu(name, threads, isa) => found.push(cpu(&name, threads, &isa)?),
                }
            }
            let machine = Machine::new(found).map_err(raised)?;
            let session = Session::new(machine.clone(), SessionOptions::default()).map_err(raised)?;
            Ok(GraphSession { shared: Shared::new("session", session), machine, dropped: Mutex::default() })
        })
    }

    /// Names of the devices, the most preferred first.
    fn devices(&self) -> Vec<String> {
        self.machine.indices().map(|device| self.machine.name(device).to_owned()).collect()
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.shared.close(py)
    }

    /// Places and plans a graph, and makes room for it. `externals` are contents of weights and states with the names of their
    /// devices; `assigned` are devices of tensors.
    fn prepare(
        slf: Py<Self>,
        py: Python<'_>,
        graph: PyRef<'_, FixedGraph>,
        externals: Vec<(String, String, PyBuffer<u8>, Option<String>)>,
        assigned: HashMap<usize, String>,
    ) -> PyResult<PreparedGraph> {
        let this = slf.get();
        let machine = &this.machine;
        let graph = graph.graph.clone();
        let mut given = Vec::with_capacity(externals.len());
        for (name, dtype, contents, device) in externals {
            let device = match device {
                Some(device) => machine.find(&device).map_err(raised)?,
                None => machine.indices().next().unwrap_or_default(),
            };
            given.push((external(&graph, &name, &dtype)?, contents.to_vec(py)?, device));
        }
        let mut constraints = Constraints::default();
        for (tensor, device) in assigned {
            let id = tensor_id(&graph, tensor)?;
            constraints.assigned.insert(id, machine.find(&device).map_err(raised)?);
        }
        let stored = py.detach(|| {
            let mut externals = Externals::new();
            for (id, contents, device) in &given {
                let tensor = graph.tensor(*id);
                let one = [SetTensor::new(tensor.name.as_str(), tensor.desc)];
                let set = TensorSet::allocate(machine.arena(*device), &one).map_err(raised)?;
                if let Some(stored) = set.tensors().first() {
                    check_bytes(&tensor.name, tensor.desc.bytes(), contents.len())?;
                    stored.set(0, contents).map_err(raised)?;
                    externals.insert(*id, stored.clone());
                }
            }
            Ok::<_, PyErr>(externals)
        })?;
        let prepared = this.shared.with(py, |session| {
            let dropped = std::mem::take(&mut *this.dropped.lock().unwrap_or_else(PoisonError::into_inner));
            dropped.iter().try_for_each(|plan| session.release(*plan))?;
            let plan = session.prepare_with(&graph, &stored, &constraints)?;
            let placed = session.placement(plan)?;
            let placement = placement_json(&graph, machine, placed);
            let (mut picture, mut memory) =
                (Picture { title: "graph".to_owned(), ..Picture::default() }, Vec::new());
            for device in machine.indices() {
                let (name, plan) = (machine.name(device), session.memory_plan(plan, device)?);
                let labels = Labels {
                    kind: &|_| orlop::view::Kind::Activation,
                    step: &|step| format!("step {step}"),
                    device: &|_| None,
                    arena: &|_| name.to_owned(),
                    at: &[],
                };
                if plan.arenas.iter().any(|arena| arena.peak > 0) {
                    picture.add_plan(plan, &labels);
                }
                memory.push((name.to_owned(), plan.arenas.iter().map(|arena| arena.peak).sum()));
            }
            Ok::<_, sched::Error>((plan, placement, picture, memory))
        });
        let (plan, placement, picture, memory) = prepared?;
        let placement = placement.map_err(json_error)?;
        let pictures = Pictures(vec![picture]);
        Ok(PreparedGraph { session: slf.clone_ref(py), plan, graph, placement, pictures, memory })
    }
}

impl Drop for PreparedGraph {
    fn drop(&mut self) {
        self.session.get().dropped.lock().unwrap_or_else(PoisonError::into_inner).push(self.plan);
    }
}

fn placement_json(
    graph: &Graph,
    machine: &Machine,
    placed: &sched::Placement,
) -> Result<String, serde_json::Error> {
    let node = |id| {
        let (node, placed) = (graph.node(id), placed.node(id));
        PlacedNode {
            tensor: &graph.tensor(node.output).name,
            op: node.op.name(),
            device: machine.name(placed.device),
            reason: placed.why.text(graph, machine),
        }
    };
    serde_json::to_string(&graph.node_ids().map(node).collect::<Vec<_>>())
}

fn tensor_id(graph: &Graph, index: usize) -> PyResult<TensorId> {
    let unknown = || bad_value(format!("there is no tensor {index} among {}", graph.tensors().len()));
    graph.tensor_ids().nth(index).ok_or_else(unknown)
}

fn external(graph: &Graph, name: &str, dtype: &str) -> PyResult<TensorId> {
    let named = |(id, leaf): &(TensorId, Leaf)| leaf.is_external() && graph.tensor(*id).name == name;
    let found = graph.leaves().find(named);
    let (id, _) = found.ok_or_else(|| bad_value(format!("the graph has no weight or state `{name}`")))?;
    check_dtype(graph, id, dtype)?;
    Ok(id)
}

/// Contents must be of the tensor's element type; those of types with blocks, which numpy does not know, come as bytes.
fn check_dtype(graph: &Graph, id: TensorId, given: &str) -> PyResult<()> {
    let tensor = graph.tensor(id);
    let expected = tensor.desc.dtype;
    let raw = given == "u8" && (expected.is_quantized() || expected == DType::BF16);
    if raw || given == expected.name() {
        return Ok(());
    }
    Err(pyo3::exceptions::PyTypeError::new_err(format!(
        "`{}` has the element type {expected}, and {given} was given",
        tensor.name
    )))
}

fn check_bytes(name: &str, expected: u64, given: usize) -> PyResult<()> {
    match given as u64 == expected {
        true => Ok(()),
        false => Err(bad_value(format!("`{name}` takes {expected} bytes, and {given} were given"))),
    }
}

#[pymethods]
impl PreparedGraph {
    /// Sets an input or a persistent leaf.
    fn set(&self, py: Python<'_>, tensor: usize, dtype: &str, contents: PyBuffer<u8>) -> PyResult<()> {
        let id = tensor_id(&self.graph, tensor)?;
        check_dtype(&self.graph, id, dtype)?;
        let contents = contents.to_vec(py)?;
        let tensor = self.graph.tensor(id);
        check_bytes(&tensor.name, tensor.desc.bytes(), contents.len())?;
        self.session.get().shared.with(py, |session| session.set(self.plan, id, &contents))
    }

    fn run(&self, py: Python<'_>) -> PyResult<()> {
        self.session.get().shared.compute(py, |session, cancel| {
            session.run(self.plan, &RunOptions { cancel: Some(cancel.clone()), ..RunOptions::default() })
        })
    }

    /// Reads an output, a persistent leaf or a state.
    fn get(&self, py: Python<'_>, tensor: usize) -> PyResult<Numbers> {
        let id = tensor_id(&self.graph, tensor)?;
        let desc = self.graph.tensor(id).desc;
        let mut bytes = vec![0; usize::try_from(desc.bytes()).map_err(bad_value)?];
        self.session.get().shared.with(py, |session| session.get(self.plan, id, &mut bytes))?;
        Ok(Numbers::tensor(bytes, desc.dtype, &desc.extents))
    }

    fn placement(&self) -> &str {
        &self.placement
    }

    /// Bytes of each device's arena.
    fn memory(&self) -> Vec<(String, u64)> {
        self.memory.clone()
    }

    fn html(&self) -> PyResult<String> {
        self.pictures.html()
    }

    fn svg(&self) -> PyResult<String> {
        self.pictures.svg()
    }

    fn beside(&self, other: &PreparedGraph) -> PyResult<(String, String)> {
        self.pictures.beside(&other.pictures)
    }
}
