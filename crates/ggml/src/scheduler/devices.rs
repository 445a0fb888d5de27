//! The backends of a scheduler, as the host's functions describe them.

use std::cell::RefCell;
use std::ffi::c_void;

use super::place::{Backends, BufferKind, Memory, OpKind, TensorFacts};
use crate::error::Error;
use crate::graph_tensors::GraphTensors;
use crate::host::{Host, SchedulerHost, text};
use crate::raw::{
    Backend, Buffer, BufferType, DEVICE_CPU, FLAG_INPUT, RawGraphView, TensorRef, USAGE_WEIGHTS,
};

/// Most backends of a scheduler, as in ggml.
const MAX_BACKENDS: usize = 16;

/// Backends, in order of preference, and the buffers of each.
#[derive(Debug)]
pub(crate) struct Devices {
    host: &'static Host,
    pub(crate) functions: &'static SchedulerHost,
    pub(crate) backends: Vec<*mut Backend>,
    pub(crate) bufts: Vec<*mut BufferType>,
    optimizers: Vec<Option<Optimizer>>,
    /// The kind of each operation met.
    kinds: RefCell<Vec<Option<OpKind>>>,
}

/// A backend's function that reorders the nodes of a split.
type Optimizer = unsafe extern "C" fn(backend: *mut Backend, graph: *mut RawGraphView);

impl Devices {
    /// Refuses backends whose layout is not known.
    pub(crate) fn new(
        host: &'static Host,
        functions: &'static SchedulerHost,
        backends: &[*mut Backend],
        bufts: Option<&[*mut BufferType]>,
    ) -> Result<Devices, Error> {
        let bad = || Error::BadBackends { count: i32::try_from(backends.len()).unwrap_or(i32::MAX) };
        let last = backends.last().copied().ok_or_else(bad)?;
        if backends.len() > MAX_BACKENDS || backends.contains(&std::ptr::null_mut()) {
            return Err(bad());
        }
        let device = functions.backend_device(last);
        if device.is_null() || functions.device_type(device) != DEVICE_CPU {
            return Err(bad());
        }
        let optimizers = backends
            .iter()
            .enumerate()
            .map(|(backend, at)| optimizer(functions, *at).ok_or(Error::UnknownBackend { backend }));
        let optimizers = optimizers.collect::<Result<_, Error>>()?;
        let own = || backends.iter().map(|backend| host.default_buffer_type(*backend)).collect();
        let bufts = bufts.map_or_else(own, <[_]>::to_vec);
        let reads = |(backend, buft): (&*mut Backend, &*mut BufferType)| {
            !buft.is_null() && functions.supports_buft(*backend, *buft)
        };
        if !backends.iter().zip(&bufts).all(reads) {
            return Err(bad());
        }
        let kinds = RefCell::default();
        Ok(Devices { host, functions, backends: backends.to_vec(), bufts, optimizers, kinds })
    }

    pub(crate) fn position(&self, backend: *mut Backend) -> Result<usize, Error> {
        self.backends.iter().position(|known| *known == backend).ok_or(Error::ForeignBackend)
    }

    pub(crate) fn name(&self, backend: usize) -> String {
        text(self.functions.backend_name(self.backends[backend]))
    }

    pub(crate) fn synchronize(&self) {
        self.backends.iter().for_each(|backend| self.functions.synchronize(*backend));
    }

    /// Lets a backend reorder the nodes of a split.
    pub(crate) fn optimize(&self, backend: usize, graph: &mut RawGraphView) {
        if let Some(optimizer) = self.optimizers[backend] {
            // SAFETY: the function asks for its backend and a graph of the host's layout: `new` took it from this backend, and the
            // host's `ggml_graph_view` made the graph.
            unsafe { optimizer(self.backends[backend], graph) };
        }
    }

    /// What decides the backends of a graph's tensors.
    pub(crate) fn facts(&self, graph: &GraphTensors) -> Vec<TensorFacts> {
        let mut buffers: Vec<(*mut Buffer, Memory, bool)> = Vec::new();
        let mut memory_of = |buffer: *mut Buffer| {
            if buffer.is_null() {
                return None;
            }
            if let Some((_, memory, weights)) = buffers.iter().find(|(known, ..)| *known == buffer) {
                return Some((*memory, *weights));
            }
            let kind = BufferKind(self.functions.buffer_type(buffer).addr());
            let memory = Memory { kind, is_host: self.functions.buffer_is_host(buffer) };
            let weights = self.functions.buffer_usage(buffer) == USAGE_WEIGHTS;
            buffers.push((buffer, memory, weights));
            Some((memory, weights))
        };
        let facts = |(tensor, root): (&TensorRef, &u32)| {
            let root = graph.tensors[*root as usize];
            TensorFacts {
                kind: self.kind_of(tensor.op()),
                is_input: tensor.flags() & FLAG_INPUT != 0,
                memory: memory_of(root.buffer()).map(|(memory, _)| memory),
                is_weight: memory_of(tensor.buffer()).is_some_and(|(_, weights)| weights),
            }
        };
        graph.tensors.iter().zip(&graph.roots).map(facts).collect()
    }

    /// Numbers of operations differ between versions, their names do not.
    pub(crate) fn kind_of(&self, op: i32) -> OpKind {
        let mut kinds = self.kinds.borrow_mut();
        let at = op.unsigned_abs() as usize;
        if kinds.len() <= at {
            kinds.resize(at + 1, None);
        }
        *kinds[at].get_or_insert_with(|| match text(self.host.op_name(op)).as_str() {
            "VIEW" | "RESHAPE" | "PERMUTE" | "TRANSPOSE" => OpKind::Alias,
            "ROPE" | "FLASH_ATTN_EXT" => OpKind::SmallWeights,
            "MUL_MAT_ID" => OpKind::Experts,
            _ => OpKind::Other,
        })
    }

    /// The backends' answers about this graph.
    pub(crate) fn about<'a>(&'a self, graph: &'a GraphTensors) -> impl Backends + use<'a> {
        About { devices: self, graph }
    }
}

struct About<'a> {
    devices: &'a Devices,
    graph: &'a GraphTensors,
}

impl Backends for About<'_> {
    fn count(&self) -> usize {
        self.devices.backends.len()
    }

    fn kind(&self, backend: usize) -> BufferKind {
        BufferKind(self.devices.bufts[backend].addr())
    }

    fn runs(&self, backend: usize, tensor: u32) -> bool {
        let tensor = self.graph.tensors[tensor as usize].as_ptr();
        self.devices.functions.supports_op(self.devices.backends[backend], tensor)
    }

    fn reads(&self, backend: usize, kind: BufferKind) -> bool {
        let buft = std::ptr::with_exposed_provenance_mut(kind.0);
        self.devices.functions.supports_buft(self.devices.backends[backend], buft)
    }

    fn takes_over(&self, backend: usize, tensor: u32) -> bool {
        let tensor = self.graph.tensors[tensor as usize].as_ptr();
        self.devices.functions.offload_op(self.devices.backends[backend], tensor)
    }
}

/// Words of a backend before its device: an id and a table of functions, of which the last reorders nodes in versions that have
/// it. `None` if the layout is another.
fn optimizer(functions: &SchedulerHost, backend: *mut Backend) -> Option<Option<Optimizer>> {
    /// The device's word in versions without that function, with it, and with copies of rows.
    const DEVICE: [(usize, bool); 3] = [(14, false), (15, true), (17, true)];
    let word = |index: usize| {
        // SAFETY: `read` asks for a live word: a backend of any version has an id, at least 13 functions, a device and a context,
        // and a longer one is read to its device only.
        unsafe { backend.cast::<*const c_void>().wrapping_add(index).read() }
    };
    let device: *const c_void = functions.backend_device(backend).cast_const().cast();
    if device.is_null() || word(0) != functions.backend_guid(backend) {
        return None;
    }
    let (at, has) = *DEVICE.iter().find(|(at, _)| word(*at) == device)?;
    if !has {
        return Some(None);
    }
    // SAFETY: `transmute` asks for null, which is `None`, or a function of this type: it is the last of a backend's table of this
    // length.
    Some(unsafe { std::mem::transmute::<*const c_void, Option<Optimizer>>(word(at - 1)) })
}
