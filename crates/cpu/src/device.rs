use std::fmt;
use std::sync::Arc;

use orlop_backend::{
    Bindings, BufferType, Device, DeviceClass, DeviceError, DeviceFacts, ForeignBufferType, HostBufferType,
    Layout, Link, LowerOptions, Memory, NodeQuery, Program, Queue, Reason, Role, Segment, Steps, Support,
    Temporary, Value,
};
use orlop_graph::{Op, TensorDesc};

use crate::isa::Isa;
use crate::kernels::kernel;
use crate::pool::Pool;
use crate::program::CpuProgram;
use crate::queue::CpuQueue;

/// The processor as a device: computes in host memory, on the threads of a pool.
pub struct CpuDevice {
    name: Arc<str>,
    pool: Arc<Pool>,
    isa: Isa,
    host: [Arc<dyn BufferType>; 1],
    weights: [Arc<dyn BufferType>; 2],
    mapped: Arc<ForeignBufferType>,
}

impl CpuDevice {
    /// A device named `cpu` on a pool, with the best instructions there are.
    pub fn new(pool: Arc<Pool>) -> Arc<CpuDevice> {
        CpuDevice::with_isa("cpu", pool, Isa::detect())
    }

    /// A device with a name and instructions of the caller's choice; what the machine lacks is left out.
    pub fn with_isa(name: &str, pool: Arc<Pool>, isa: Isa) -> Arc<CpuDevice> {
        let host: Arc<dyn BufferType> = HostBufferType::new(name);
        let mapped = ForeignBufferType::mapped(format!("{name} mapped"));
        Arc::new(CpuDevice {
            name: name.into(),
            pool,
            isa: isa.min(Isa::detect()),
            weights: [Arc::clone(&mapped) as _, Arc::clone(&host)],
            host: [host],
            mapped,
        })
    }

    /// The pool it runs on.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// The instructions that its kernels use.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// The type of buffers over mapped files, in which weights are used in place.
    pub fn mapped(&self) -> &Arc<ForeignBufferType> {
        &self.mapped
    }
}

impl Device for CpuDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn facts(&self) -> DeviceFacts {
        let threads = self.pool.threads();
        DeviceFacts {
            description: format!("{threads} threads, {}", self.isa),
            class: DeviceClass::Cpu,
            memory: memory(),
            flops: 3e10 * threads as f64,
            bytes_per_second: 1.5e10,
            launch_seconds: 1e-6,
            host_link: Link { bytes_per_second: 1.5e10, latency_seconds: 0.0 },
            asynchronous: false,
            lost: false,
        }
    }

    fn buffer_types(&self, role: Role) -> &[Arc<dyn BufferType>] {
        match role {
            Role::Arena | Role::Staging => &self.host,
            Role::Weight => &self.weights,
        }
    }

    fn supports(&self, node: &NodeQuery<'_>) -> Support {
        for (operand, tensor) in node.inputs.iter().chain([&node.output]).enumerate() {
            if let Some(buffer_type) = tensor.buffer_type
                && (!buffer_type.is_host() || buffer_type.layout() == Layout::Private)
            {
                let buffer_type = buffer_type.name().to_owned();
                return Support::No(Reason::BufferType { operand, buffer_type });
            }
        }
        if node.op.is_view() {
            return Support::YES;
        }
        let Some(kernel) = kernel(node.op) else { return Support::No(Reason::Op) };
        let operands: Vec<TensorDesc> = node.inputs.iter().map(|operand| *operand.desc).collect();
        match (kernel.accepts)(node.op, &operands, node.output.desc) {
            Ok(()) => Support::YES,
            Err(reason) => Support::No(reason),
        }
    }

    fn lower(&self, segment: &Segment<'_>, options: &LowerOptions) -> Result<Steps, DeviceError> {
        let max_threads = options.max_threads.clamp(1, self.pool.threads());
        let options = LowerOptions { max_threads, ..options.clone() };
        let mut steps = segment.one_step_per_node(self, &options)?;
        for index in 0..steps.steps.len() {
            let node = segment.graph.node(steps.steps[index].nodes[0]);
            let desc = |id: &orlop_graph::TensorId| segment.graph.tensor(*id).desc;
            let operands: Vec<TensorDesc> = node.inputs.iter().map(desc).collect();
            let needs = Needs::of(&node.op, &operands, &desc(&node.output), max_threads);
            for (what, bytes) in [("scratch", needs.scratch_bytes), ("shared", needs.shared_bytes)] {
                if bytes > 0 {
                    let name = format!("{what} of {}", segment.graph.tensor(node.output).name);
                    let number = steps.temporaries.len();
                    steps.temporaries.push(Temporary { name, bytes, first: index, last: index });
                    steps.steps[index].writes.push(Value::Temporary(number));
                }
            }
        }
        Ok(steps)
    }

    fn compile(&self, steps: &Steps, bindings: &Bindings) -> Result<Arc<dyn Program>, DeviceError> {
        Ok(Arc::new(CpuProgram::new(steps, bindings, self.isa, &self.name)?))
    }

    fn queue(&self) -> Result<Box<dyn Queue>, DeviceError> {
        Ok(Box::new(CpuQueue::new(Arc::clone(&self.name), Arc::clone(&self.pool))))
    }
}

impl fmt::Debug for CpuDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} threads, {})", self.name, self.pool.threads(), self.isa)
    }
}

/// Temporary memory of one step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    /// Bytes of one thread's scratch: whole cache lines, so that threads do not share any.
    pub(crate) per_thread: u64,
    pub(crate) scratch_bytes: u64,
    pub(crate) shared: (u64, u64),
    pub(crate) shared_bytes: u64,
}

impl Needs {
    pub(crate) fn of(op: &Op, operands: &[TensorDesc], result: &TensorDesc, threads: usize) -> Needs {
        let Some(kernel) = kernel(op) else {
            return Needs { per_thread: 0, scratch_bytes: 0, shared: (0, 0), shared_bytes: 0 };
        };
        let floats = (kernel.scratch)(op, operands, result);
        let per_thread = floats.saturating_mul(4).checked_next_multiple_of(64).unwrap_or(u64::MAX - 63);
        let shared = (kernel.shared)(op, operands, result);
        Needs {
            per_thread,
            scratch_bytes: per_thread.saturating_mul(threads as u64),
            shared,
            shared_bytes: shared.0.saturating_mul(shared.1).saturating_mul(4),
        }
    }
}

/// Memory of the machine, where the system tells.
fn memory() -> Option<Memory> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kib = |key: &str| -> Option<u64> {
        let line = text.lines().find(|line| line.starts_with(key))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    Some(Memory { total: kib("MemTotal:")? * 1024, free: kib("MemAvailable:")? * 1024 })
}
