//! The device trait, and what a device says of itself.

use std::fmt;
use std::sync::Arc;

use orlop_graph::{Op, TensorDesc};

use crate::{Bindings, BufferType, DeviceError, LowerOptions, Program, Queue, Reason, Role, Segment, Steps};

/// One device, as everything above sees it. Ops are data, so a new op is a new kernel and an arm of
/// [`Device::supports`], never a new method here.
pub trait Device: Send + Sync + fmt::Debug {
    /// Its name, unique among the devices of a program: `cpu`, `cuda0`.
    fn name(&self) -> &str;

    /// Estimates for placement, and facts for people.
    fn facts(&self) -> DeviceFacts;

    /// Its kinds of memory for a role, best first. Every device has at least one for [`Role::Arena`].
    fn buffer_types(&self, role: Role) -> &[Arc<dyn BufferType>];

    /// Whether it can run a node whose operands lie in these kinds of memory. What it accepts, it computes.
    fn supports(&self, node: &NodeQuery<'_>) -> Support;

    /// Groups the nodes of a segment into steps, one kernel each, and names the temporaries they need. Pure:
    /// equal segments and options give equal steps.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] for the first node it cannot run.
    fn lower(&self, segment: &Segment<'_>, options: &LowerOptions) -> Result<Steps, DeviceError>;

    /// Whether the steps of [`Device::lower`] may be compiled in any order that keeps conflicting accesses in order: their
    /// reads and writes then say all that matters. Default no: the order is the device's own.
    fn steps_may_move(&self) -> bool {
        false
    }

    /// Binds steps to memory. The program holds its buffers and can run many times.
    ///
    /// # Errors
    /// [`DeviceError::Unbound`] if a value that a step touches has no place, and what the device refuses.
    fn compile(&self, steps: &Steps, bindings: &Bindings) -> Result<Arc<dyn Program>, DeviceError>;

    /// A new queue of work.
    ///
    /// # Errors
    /// [`DeviceError::Lost`], or whatever keeps the device from making one.
    fn queue(&self) -> Result<Box<dyn Queue>, DeviceError>;
}

/// A node as [`Device::supports`] sees it.
#[derive(Clone, Debug)]
pub struct NodeQuery<'a> {
    /// The op.
    pub op: &'a Op,
    /// Its operands.
    pub inputs: &'a [Operand<'a>],
    /// Its result.
    pub output: Operand<'a>,
}

/// An operand or result, and the kind of memory it lies in or would.
#[derive(Clone, Copy, Debug)]
pub struct Operand<'a> {
    /// Element type, extents, strides.
    pub desc: &'a TensorDesc,
    /// Its kind of memory, `None` while nothing is decided.
    pub buffer_type: Option<&'a Arc<dyn BufferType>>,
}

/// A device's answer about a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Support {
    /// It runs it.
    Yes {
        /// It would run it even if weights had to be copied to it first.
        wants_offload: bool,
    },
    /// It does not, for this reason.
    No(Reason),
}

impl Support {
    /// Plain consent.
    pub const YES: Support = Support::Yes { wants_offload: false };

    /// Whether it runs the node.
    pub fn is_yes(&self) -> bool {
        matches!(self, Support::Yes { .. })
    }
}

/// What a device says of itself.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceFacts {
    /// What it is, in words.
    pub description: String,
    /// Its family.
    pub class: DeviceClass,
    /// Bytes of memory, where it is known.
    pub memory: Option<Memory>,
    /// Floating-point operations a second in large products; an estimate for placement.
    pub flops: f64,
    /// Bytes a second from its own memory.
    pub bytes_per_second: f64,
    /// Bytes that its last level of caches holds; 0 where that is unknown.
    pub cache_bytes: u64,
    /// Seconds to start one step.
    pub launch_seconds: f64,
    /// Its link to host memory.
    pub host_link: Link,
    /// Memory for transfers, beside what plans count.
    pub staging: StagingMemory,
    /// Whether its queues run beside the host and its events order them.
    pub asynchronous: bool,
    /// It has failed; nothing on it can be used any more.
    pub lost: bool,
}

/// Bytes of fixed size that transfers between host and device go through. They do not grow with what is transferred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StagingMemory {
    /// Taken when the device is made.
    pub device: u64,
    /// Taken by each queue when [`Queue::set`](crate::Queue::set) or [`Queue::get`](crate::Queue::get) is first called.
    pub queue: u64,
}

/// Families of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the names say it
pub enum DeviceClass {
    Cpu,
    Gpu,
    Accelerator,
    Test,
}

/// Bytes of a device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// All there is.
    pub total: u64,
    /// Not in use now.
    pub free: u64,
}

/// A link between two memories.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Bytes a second.
    pub bytes_per_second: f64,
    /// Seconds before the first byte.
    pub latency_seconds: f64,
}
