//! Graphs, and running them.

use std::ffi::c_char;
use std::sync::{Arc, Mutex};

use orlop::alloc::{Externals, SetTensor, TensorSet};
use orlop::devices::{self, DeviceOptions};
use orlop::graph::{GraphBuilder, Leaf, Op, TensorDesc};
use orlop::{DType, Graph, Machine, PlanId, RunOptions, Session, SessionOptions, TensorId};

use crate::error::{Refusal, check_version, orlop_error, orlop_status, run};
use crate::model::{ORLOP_STRUCT_VERSION, give_all};
use crate::pointer;
use crate::shared::{Shared, lock};

/// What a leaf is.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum orlop_leaf_kind {
    /// It is set before each run.
    OrlopInput = 0,
    /// It keeps its contents between runs.
    OrlopPersistent = 1,
    /// It is given when the graph is prepared, and only read.
    OrlopWeight = 2,
    /// It is given when the graph is prepared, and nodes write it.
    OrlopState = 3,
}

/// Contents of a weight or state.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct orlop_external {
    /// ORLOP_STRUCT_VERSION.
    pub version: u32,
    /// Its name.
    pub name: *const c_char,
    /// Its contents, which are copied.
    pub bytes: *const u8,
    /// How many bytes.
    pub length: usize,
}

/// A graph: first it is built, then it never changes.
pub struct orlop_graph {
    state: Mutex<GraphState>,
}

struct GraphState {
    builder: Option<GraphBuilder>,
    ids: Vec<TensorId>,
    graph: Option<Graph>,
}

/// Runs graphs on devices.
pub struct orlop_session {
    shared: Arc<Shared<Session>>,
    machine: Machine,
}

/// A graph with memory on devices.
pub struct orlop_prepared {
    session: Arc<Shared<Session>>,
    plan: PlanId,
    graph: Graph,
    placement: String,
}

impl GraphState {
    fn builder(&mut self) -> Result<&mut GraphBuilder, Refusal> {
        self.builder.as_mut().ok_or_else(|| Refusal::argument("the graph was built already"))
    }

    fn id(&self, tensor: u32) -> Result<TensorId, Refusal> {
        let unknown = || Refusal::argument(format!("there is no tensor {tensor} among {}", self.ids.len()));
        self.ids.get(tensor as usize).copied().ok_or_else(unknown)
    }

    fn keep(&mut self, id: TensorId) -> u32 {
        self.ids.push(id);
        // Ids of tensors have 32 bits.
        self.ids.len() as u32 - 1
    }
}

fn tensor_id(graph: &Graph, tensor: u32) -> Result<TensorId, Refusal> {
    let unknown =
        || Refusal::argument(format!("there is no tensor {tensor} among {}", graph.tensors().len()));
    graph.tensor_ids().nth(tensor as usize).ok_or_else(unknown)
}

/// An empty graph.
///
/// # Safety
/// As the rules of the header say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orlop_graph_new(
    graph: *mut *mut orlop_graph,
    error: *mut *mut orlop_error,
) -> orlop_status {
    let work = || {
        let state = GraphState { builder: Some(GraphBuilder::new()), ids: Vec::new(), graph: None };
        // SAFETY: the caller promises it.
        unsafe { pointer::give_object(graph, orlop_graph { state: Mutex::new(state) }, "graph") }
    };
    // SAFETY: the caller promises it.
    unsafe { run(error, work) }
}

/// Frees a graph. What was prepared stays.
///
/// # Safety
/// As the rules of the header say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orlop_graph_free(graph: *mut orlop_graph) {
    // SAFETY: the caller promises it.
    unsafe { pointer::free(graph) };
}

/// Adds a leaf of an element type such as "f32". The first of up to four extents is the one that is contiguous in memory.
///
/// # Safety
/// As the rules of the header say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orlop_graph_leaf(
    graph: *const orlop_graph,
    kind: u32,
    name: *const c_char,
    dtype: *const c_char,
    extents: *const u64,
    dimensions: usize,
    tensor: *mut u32,
    error: *mut *mut orlop_error,
) -> orlop_status {
    let work = || {
        // SAFETY: the caller promises it.
        let graph = unsafe { pointer::object(graph, "graph") }?;
        // SAFETY: the caller promises it.
        let name = unsafe { pointer::text(name, "name") }?;
        // SAFETY: the caller promises it.
        let dtype = unsafe { pointer::text(dtype, "dtype") }?;
        // SAFETY: the caller promises it.
        let extents = unsafe { pointer::array(extents, dimensions, "extents") }?;
        let leaves = [Leaf::Input, Leaf::Persistent, Leaf::Weight, Leaf::State];
        let leaf = leaves.get(kind as usize).copied();
        let leaf = leaf.ok_or_else(|| Refusal::argument(format!("there are no leaves of kind {kind}")))?;
        let known = DType::from_name(dtype);
        let dtype = known.ok_or_else(|| Refusal::argument(format!("unknown element type `{dtype}`")))?;
        let mut state = lock(&graph.state, "graph")?;
        let id = state.builder()?.leaf(leaf, name, TensorDesc::contiguous(dtype, extents));
        let id = state.keep(id);
        // SAFETY: the caller promises it.
        unsafe { pointer::give(tensor, id) };
        Ok(())
    };
    // SAFETY: the caller promises it.
    unsafe { run(error, work) }
}

/// Adds a node. `op` is an op in JSON, such as `"add"` (with the quotes) or `{"scale": {"scale": 2, "bias": 0}}`. What is wrong
/// with it says orlop_graph_build.
///
/// # Safety
/// As the rules of the header say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orlop_graph_node(
    graph: *const orlop_graph,
    op: *const c_char,
    inputs: *const u32,
    count: usize,
    tensor: *mut u32,
    error: *mut *mut orlop_error,
) -> orlop_status {
    let work = || {
        // SAFETY: the caller promises it.
        let graph = unsafe { pointer::object(graph, "graph") }?;
        // SAFETY: the caller promises it.
        let op = unsafe { pointer::text(op, "op") }?;
        // SAFETY: the caller promises it.
        let inputs = unsafe { pointer::array(inputs, count, "inputs") }?;
        let op: Op = serde_json::from_str(op).map_err(|error| Refusal::argument(format!("op: {error}")))?;
        let mut state = lock(&graph.state, "graph")?;
        let inputs: Vec<TensorId> = inputs.iter().map(|id| state.id(*id)).collect::<Result<_, _>>()?;
        let id = state.builder()?.node(op, &inputs);
        let id = state.keep(id);
        // SAFETY: the caller promises it.
        unsafe { pointer::give(tensor, id) };
        Ok(())
    };
    // SAFETY: the caller promises it.
    unsafe { run(error, work) }
}

/// Declares an output.
///
/// # Safety
/// As the rules of the header say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orlop_graph_output(
    graph: *const orlop_graph,
    tensor: u32,
    error: *mut *mut orlop_error,
) -> orlop_status {
    let work = || {
        // SAFETY: the caller promises it.
        let graph = unsafe { pointer::object(graph, "graph") }?;
        let mut state = lock(&graph.state, "graph")?;
        let id = state.id(tensor)?;
        state.builder()?.output(id);
        Ok(())
    };
    // SAFETY: the caller promises it.
    unsafe { run(error, work) }
}

/// Ends building, and reports the first call that was refused.
///
/// # Safety
/// As the rules of the header say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orlop_graph_build(
    graph: *const orlop_graph,
    error: *mut *mut orlop_error,
) -> orlop_status {
    let work = || {
        // SAFETY: the caller promises it.
        let graph = unsafe { pointer::object(graph, "graph") }?;
        let mut state = lock(&graph.state, "graph")?;
        state.builder()?;
        let builder = state.builder.take().unwrap_or_default();
        state.graph = Some(builder.build().map_err(Refusal::failed)?);
        Ok(())
    };
    // SAFETY: the caller promises it.
    unsafe { run(error, work) }
}

/// A session over devices: their names with commas between, the most preferred first; NULL for the CPU. `threads` is for the
/// CPU; 0: one for each core.
///
/// # Safety
/// As the rules of the header say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orlop_session_new(
    names: *const c_char,
    threads: u32,
    session: *mut *mut orlop_session,
    error: *mut *mut orlop_error,
) -> orlop_status {
    let work = || {
        let names = if names.is_null() {
            "cpu"
        } else {
            // SAFETY: the caller promises it.
            unsafe { pointer::text(names, "names") }?
        };
        if session.is_null() {
            return Err(Refusal::null("session"));
        }
        let names: Vec<String> = names.split(',').map(|name| name.trim().to_owned()).collect();
        let defaults = DeviceOptions::default();
        let threads = if threads == 0 { defaults.threads } else { threads as usize };
        let options = DeviceOptions { threads, ..defaults };
        let machine = Machine::new(devices::named(&names, &options).map_err(Refusal::failed)?);
        let machine = machine.map_err(Refusal::failed)?;
        let made = Session::new(machine.clone(), SessionOptions::default()).map_err(Refusal::failed)?;
        let made = orlop_session { shared: Arc::new(Shared::new("session", made)), machine };
        // SAFETY: the caller promises it.
        unsafe { pointer::give_object(session, made, "session") }
    };
    // SAFETY: the caller promises it.
    unsafe { run(error, work) }
}

/// Frees a session. Its memory is free when its last prepared graph is, too.
///
/// # Safety
/// As the rules of the header say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orlop_session_free(session: *mut orlop_session) {
    // SAFETY: the caller promises it.
    unsafe { pointer::free(session) };
}

/// Places and plans a graph that was built, and makes room for it. Weights and states lie on the first device.
///
/// # Safety
/// As the rules of the header say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orlop_session_prepare(
    session: *const orlop_session,
    graph: *const orlop_graph,
    externals: *const orlop_external,
    count: usize,
    prepared: *mut *mut orlop_prepared,
    error: *mut *mut orlop_error,
) -> orlop_status {
    let work = || {
        // SAFETY: the caller promises it.
        let session = unsafe { pointer::object(session, "session") }?;
        // SAFETY: the caller promises it.
        let graph = unsafe { pointer::object(graph, "graph") }?;
        // SAFETY: the caller promises it.
        let given = unsafe { pointer::array(externals, count, "externals") }?;
        if prepared.is_null() {
            return Err(Refusal::null("prepared"));
        }
        let graph = lock(&graph.state, "graph")?.graph.clone();
        let graph = graph.ok_or_else(|| Refusal::argument("the graph was not built"))?;
        let first = session.machine.indices().next().unwrap_or_default();
        let mut externals = Externals::new();
        for external in given {
            check_version("orlop_external", external.version, ORLOP_STRUCT_VERSION)?;
            // SAFETY: the caller promises it.
            let name = unsafe { pointer::text(external.name, "the name of an external") }?;
            // SAFETY: the caller promises it.
            let bytes = unsafe { pointer::array(external.bytes, external.length, name) }?;
            let named = |(id, leaf): &(TensorId, Leaf)| leaf.is_external() && graph.tensor(*id).name == name;
            let (id, _) = graph
                .leaves()
                .find(named)
                .ok_or_else(|| Refusal::argument(format!("the graph has no weight or state `{name}`")))?;
            let desc = graph.tensor(id).desc;
            if bytes.len() as u64 != desc.bytes() {
                let (expected, given) = (desc.bytes(), bytes.len());
                return Err(Refusal::argument(format!(
                    "`{name}` takes {expected} bytes, and {given} were given"
                )));
            }
            let set = TensorSet::allocate(session.machine.arena(first), &[SetTensor::new(name, desc)]);
            for stored in set.map_err(Refusal::failed)?.tensors() {
                stored.set(0, bytes).map_err(Refusal::failed)?;
                externals.insert(id, stored.clone());
            }
        }
        let mut locked = session.shared.lock()?;
        let plan = locked.prepare(&graph, &externals).map_err(Refusal::failed)?;
        let placement = locked.placement(plan).map_err(Refusal::failed)?;
        let placement = placement.table(&graph, &session.machine).to_string();
        let made = orlop_prepared { session: Arc::clone(&session.shared), plan, graph, placement };
        // SAFETY: the caller promises it.
        unsafe { pointer::give_object(prepared, made, "prepared") }
    };
    // SAFETY: the caller promises it.
    unsafe { run(error, work) }
}

/// Frees a prepared graph.
///
/// # Safety
/// As the rules of the header say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orlop_prepared_free(prepared: *mut orlop_prepared) {
    // SAFETY: the caller promises it.
    unsafe { pointer::free(prepared) };
}

/// Releases the plan in its session, now or when the call that uses the session ends.
impl Drop for orlop_prepared {
    fn drop(&mut self) {
        self.session.release(self.plan);
    }
}

/// Sets an input or a persistent leaf, all of it.
///
/// # Safety
/// As the rules of the header say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orlop_prepared_set(
    prepared: *const orlop_prepared,
    tensor: u32,
    bytes: *const u8,
    length: usize,
    error: *mut *mut orlop_error,
) -> orlop_status {
    let work = || {
        // SAFETY: the caller promises it.
        let prepared = unsafe { pointer::object(prepared, "prepared") }?;
        // SAFETY: the caller promises it.
        let bytes = unsafe { pointer::array(bytes, length, "bytes") }?;
        let id = tensor_id(&prepared.graph, tensor)?;
        prepared.session.lock()?.set(prepared.plan, id, bytes).map_err(Refusal::failed)
    };
    // SAFETY: the caller promises it.
    unsafe { run(error, work) }
}

/// Runs a prepared graph.
///
/// # Safety
/// As the rules of the header say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orlop_prepared_run(
    prepared: *const orlop_prepared,
    error: *mut *mut orlop_error,
) -> orlop_status {
    let work = || {
        // SAFETY: the caller promises it.
        let prepared = unsafe { pointer::object(prepared, "prepared") }?;
        let mut session = prepared.session.lock()?;
        session.run(prepared.plan, &RunOptions::default()).map_err(Refusal::failed)
    };
    // SAFETY: the caller promises it.
    unsafe { run(error, work) }
}

/// Reads an output of the last run, a persistent leaf or a state, all of it.
///
/// # Safety
/// As the rules of the header say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orlop_prepared_get(
    prepared: *const orlop_prepared,
    tensor: u32,
    bytes: *mut u8,
    length: usize,
    error: *mut *mut orlop_error,
) -> orlop_status {
    let work = || {
        // SAFETY: the caller promises it.
        let prepared = unsafe { pointer::object(prepared, "prepared") }?;
        // SAFETY: the caller promises it.
        let bytes = unsafe { pointer::array_mut(bytes, length, "bytes") }?;
        let id = tensor_id(&prepared.graph, tensor)?;
        prepared.session.lock()?.get(prepared.plan, id, bytes).map_err(Refusal::failed)
    };
    // SAFETY: the caller promises it.
    unsafe { run(error, work) }
}

/// Where each node runs and why, as a table. `length` gets its bytes, also if `capacity` is smaller.
///
/// # Safety
/// As the rules of the header say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orlop_prepared_placement(
    prepared: *const orlop_prepared,
    text: *mut c_char,
    capacity: usize,
    length: *mut usize,
    error: *mut *mut orlop_error,
) -> orlop_status {
    let work = || {
        // SAFETY: the caller promises it.
        let prepared = unsafe { pointer::object(prepared, "prepared") }?;
        // SAFETY: the caller promises it.
        unsafe { give_all(prepared.placement.as_bytes(), text.cast(), capacity, length, "text") }
    };
    // SAFETY: the caller promises it.
    unsafe { run(error, work) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    fn ok(status: orlop_status) {
        assert_eq!(status, orlop_status::OrlopOk);
    }

    /// y = relu(x), prepared in a session of its own.
    fn prepared() -> (*mut orlop_session, *mut orlop_prepared) {
        let (mut graph, mut session, mut made) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        let (mut x, mut y, extents, none) = (0, 0, [4], ptr::null_mut());
        let (name, f32, relu) = (c"x".as_ptr(), c"f32".as_ptr(), c"{\"unary\": \"relu\"}".as_ptr());
        // SAFETY: the place is ours.
        ok(unsafe { orlop_graph_new(&mut graph, none) });
        // SAFETY: the graph lives, texts end with a zero, and the places are ours.
        ok(unsafe { orlop_graph_leaf(graph, 0, name, f32, extents.as_ptr(), 1, &mut x, none) });
        // SAFETY: as before.
        ok(unsafe { orlop_graph_node(graph, relu, &x, 1, &mut y, none) });
        // SAFETY: as before.
        ok(unsafe { orlop_graph_output(graph, y, none) });
        // SAFETY: as before.
        ok(unsafe { orlop_graph_build(graph, none) });
        // SAFETY: the place is ours.
        ok(unsafe { orlop_session_new(ptr::null(), 1, &mut session, none) });
        // SAFETY: graph and session live, and the place is ours.
        ok(unsafe { orlop_session_prepare(session, graph, ptr::null(), 0, &mut made, none) });
        // SAFETY: it is not used again.
        unsafe { orlop_graph_free(graph) };
        (session, made)
    }

    #[test]
    fn a_graph_that_is_freed_while_a_call_uses_its_session_is_released_by_the_next_call() {
        let (session, made) = prepared();
        // SAFETY: it lives.
        let shared = Arc::clone(&unsafe { &*session }.shared);
        // SAFETY: it lives.
        let plan = unsafe { &*made }.plan;
        let call = shared.lock().unwrap();
        // SAFETY: it is not used again.
        unsafe { orlop_prepared_free(made) };
        assert!(call.placement(plan).is_ok());
        drop(call);
        assert!(shared.lock().unwrap().placement(plan).is_err());
        // SAFETY: it is not used again.
        unsafe { orlop_session_free(session) };
    }

    #[test]
    fn externals_of_another_version_are_refused() {
        let (session, made) = prepared();
        let external = orlop_external { version: 9, name: ptr::null(), bytes: ptr::null(), length: 0 };
        let (mut graph, mut other, mut error) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        // SAFETY: the places are ours.
        ok(unsafe { orlop_graph_new(&mut graph, ptr::null_mut()) });
        // SAFETY: the graph lives.
        ok(unsafe { orlop_graph_build(graph, ptr::null_mut()) });
        // SAFETY: objects live, and the places are ours.
        let status = unsafe { orlop_session_prepare(session, graph, &external, 1, &mut other, &mut error) };
        // SAFETY: it is an error of the last call.
        let message = unsafe { crate::error::orlop_error_message(error) };
        // SAFETY: the text ends with a zero, and lives as long as the error.
        let message = unsafe { std::ffi::CStr::from_ptr(message) };
        assert_eq!(status, orlop_status::OrlopBadArgument);
        assert!(message.to_str().unwrap().starts_with("orlop_external has version 9"), "{message:?}");
        // SAFETY: none is used again.
        unsafe { crate::error::orlop_error_free(error) };
        // SAFETY: as before.
        unsafe { orlop_graph_free(graph) };
        // SAFETY: as before.
        unsafe { orlop_prepared_free(made) };
        // SAFETY: as before.
        unsafe { orlop_session_free(session) };
    }
}
