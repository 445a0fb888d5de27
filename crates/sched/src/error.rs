//! What can go wrong.

use orlop_alloc::{Error as AllocError, SavedMemoryPlanError};
use orlop_backend::DeviceError;
use orlop_graph::TensorId;

use crate::SplitId;

/// What can go wrong while a graph is spread over devices. The object that was called is as it was before.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A machine needs at least one device.
    #[error("no devices were given")]
    NoDevices,
    /// Two devices of one name.
    #[error("two devices are named {0}")]
    DuplicateDevice(String),
    /// A device has no memory for results.
    #[error("{device} has no memory for results")]
    NoArena {
        /// The device.
        device: String,
    },
    /// A machine was described with numbers that no machine has.
    #[error("the description of a machine: {0}")]
    BadDescription(String),
    /// No device of that name.
    #[error("no device is named {name}; there are: {}", .known.join(", "))]
    UnknownDevice {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// No device runs a node.
    #[error("no device can run {op} for `{tensor}`: {}", .refusals.join("; "))]
    Unplaceable {
        /// The op.
        op: String,
        /// Name of the result.
        tensor: String,
        /// Each device's reason.
        refusals: Vec<String>,
    },
    /// A node was assigned to a device that cannot run it.
    #[error("`{tensor}` was assigned to {device}, which cannot run {op}: {reason}")]
    BadAssignment {
        /// Name of the result.
        tensor: String,
        /// The device.
        device: String,
        /// The op.
        op: String,
        /// Why not.
        reason: String,
    },
    /// A node writes into storage that no device can write which runs the op.
    #[error(
        "{op} writes into `{storage}`, which lies in {buffer_type}: no device that runs it can write there"
    )]
    StorageOutOfReach {
        /// The op.
        op: String,
        /// Name of the storage's root.
        storage: String,
        /// Where that lies.
        buffer_type: String,
    },
    /// A node was assigned to another device than the one that owns the storage it writes into.
    #[error("`{tensor}` writes into `{storage}` on {owner}, but was assigned to {device}")]
    ConflictingPin {
        /// Name of the result.
        tensor: String,
        /// Name of the storage's root.
        storage: String,
        /// The device that owns it.
        owner: String,
        /// The device it was assigned to.
        device: String,
    },
    /// A plan that this session does not have.
    #[error("no plan {plan} in this session, which has made {plans}")]
    UnknownPlan {
        /// Its number.
        plan: usize,
        /// How many plans the session has made.
        plans: usize,
    },
    /// A tensor that cannot be set: it is neither an input nor a persistent leaf.
    #[error("`{tensor}` is neither an input nor a persistent leaf")]
    NotInput {
        /// The tensor's name.
        tensor: String,
    },
    /// A tensor that cannot be read after a run: it is not an output, and it is not kept between runs.
    #[error("`{tensor}` is not an output, and it is not kept between runs")]
    NotOutput {
        /// The tensor's name.
        tensor: String,
    },
    /// A run without all inputs set since the last one.
    #[error("input `{0}` was not set since the last run")]
    InputNotSet(String),
    /// Results were asked for before any run, or after another plan's run in the same memory.
    #[error("`{tensor}` has no contents: its plan did not run last")]
    NotRun {
        /// The tensor's name.
        tensor: String,
    },
    /// A tensor id that is not one of the graph's.
    #[error("tensor {tensor} is not in this graph of {tensors}")]
    ForeignTensor {
        /// The id.
        tensor: TensorId,
        /// How many there are.
        tensors: usize,
    },
    /// Something was to be observed that no node computes: a leaf or a view.
    #[error("`{tensor}` cannot be observed: it is a leaf or a view, and nothing computes it")]
    NotComputed {
        /// The tensor's name.
        tensor: String,
    },
    /// A placement is of another graph.
    #[error(
        "a placement of {placed_nodes} nodes and {placed_tensors} tensors for a graph of {nodes} and {tensors}"
    )]
    ForeignPlacement {
        /// Nodes of the graph.
        nodes: usize,
        /// Tensors of the graph.
        tensors: usize,
        /// Nodes that were placed.
        placed_nodes: usize,
        /// Tensors that were known when they were.
        placed_tensors: usize,
    },
    /// A plan that a session was to adopt was made for something else.
    #[error("the plan was made for {planned_for}")]
    ForeignPlan {
        /// What it was made for.
        planned_for: String,
    },
    /// A schedule has other splits than the plan it was to be compared with.
    #[error("a schedule of {given} splits for a plan of {splits}, and they are not the same")]
    ForeignSchedule {
        /// Splits of the plan.
        splits: usize,
        /// Splits given.
        given: usize,
    },
    /// A schedule speaks of what is not there.
    #[error("split {split} of the schedule {what}")]
    BadSchedule {
        /// The split.
        split: SplitId,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A plan does not fit a budget.
    #[error("{device} would need {needed} bytes, {budget} are allowed; most at step {step}: {}", .largest.join(", "))]
    OverBudget {
        /// The device.
        device: String,
        /// Bytes needed.
        needed: u64,
        /// Bytes allowed.
        budget: u64,
        /// The step at which most is in use.
        step: usize,
        /// The largest values in use there, with their bytes.
        largest: Vec<String>,
    },
    /// Something of a device's went wrong.
    #[error("{device}, split {split}")]
    Device {
        /// The device.
        device: String,
        /// The split it was working on.
        split: SplitId,
        /// What went wrong.
        source: Box<DeviceError>,
    },
    /// A device is gone, and what lay on it.
    #[error("{device}, split {split}: lost, and with it {}", if .tensors.is_empty() { "nothing that cannot be computed again".to_owned() } else { .tensors.join(", ") })]
    DeviceLost {
        /// The device.
        device: String,
        /// The split during which it was noticed.
        split: SplitId,
        /// The weights, states and persistent leaves of the graph that lay there. With none, the graph can run on the
        /// other devices ([`crate::Session::recover`]).
        tensors: Vec<String>,
        /// What the device said.
        source: Box<DeviceError>,
    },
    /// Data that only a lost device had.
    #[error("{} lay on a device that is lost", .tensors.join(", "))]
    DataLost {
        /// The weights, states and persistent leaves.
        tensors: Vec<String>,
    },
    /// As many runs as may be are in flight, and the next one needs the place of one that was not waited for.
    #[error("{runs} runs are in flight, as many as may be; wait for the first of them")]
    InFlight {
        /// How many there are.
        runs: usize,
    },
    /// No such run, or another has taken its place.
    #[error("run {run} is not there, or another has taken its place")]
    UnknownRun {
        /// The run's number.
        run: u64,
    },
    /// A graph needs more memory than was reserved, and none may be added.
    #[error("{device} would need {needed} bytes, {reserved} are reserved")]
    WouldGrow {
        /// The kind of memory.
        device: String,
        /// Bytes needed.
        needed: u64,
        /// Bytes there are.
        reserved: u64,
    },
    /// Memory could not be planned or had.
    #[error("{device}")]
    Memory {
        /// The device.
        device: String,
        /// Why not.
        source: Box<AllocError>,
    },
    /// A plan that was made before is not one of this graph, or is damaged.
    #[error(transparent)]
    SavedPlan(#[from] SavedMemoryPlanError),
    /// The caller's observer panicked; the run ended there.
    #[error("the observer panicked after split {split}")]
    ObserverPanicked {
        /// The split whose result it saw.
        split: SplitId,
    },
    /// Two splits could touch the same bytes at the same time.
    #[error(transparent)]
    Race(#[from] crate::Race),
    /// External leaves, contents or claims of memory.
    #[error(transparent)]
    Alloc(#[from] AllocError),
}

impl Error {
    /// What a device said, if that is the cause.
    pub fn device_error(&self) -> Option<&DeviceError> {
        match self {
            Error::Device { source, .. } | Error::DeviceLost { source, .. } => Some(source),
            _ => match self.alloc_error()? {
                AllocError::Device(source) => Some(source),
                AllocError::AllocFailed { source, .. } => Some(source),
                _ => None,
            },
        }
    }

    /// What an allocator or the memory planner said, if that is the cause.
    pub fn alloc_error(&self) -> Option<&AllocError> {
        match self {
            Error::Memory { source, .. } => Some(source),
            Error::Alloc(source) => Some(source),
            _ => None,
        }
    }
}

impl From<DeviceError> for Error {
    fn from(source: DeviceError) -> Error {
        Error::Alloc(source.into())
    }
}

pub(crate) fn failed(device: &str, split: SplitId, source: DeviceError) -> Error {
    // Another device that reaches for a lost device's memory meets the loss, too.
    let device = match &source {
        DeviceError::Lost { device, .. } => device.as_str(),
        _ => device,
    };
    Error::Device { device: device.to_owned(), split, source: Box::new(source) }
}
