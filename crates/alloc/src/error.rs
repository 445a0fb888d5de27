//! What can go wrong.

#[cfg(feature = "buffers")]
use orlop_backend::DeviceError;
use orlop_graph::GraphError;
use orlop_plan::PlanError;

use crate::Misfit;

/// What can go wrong while memory is planned, bound or used. The object that was called is as it was before.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An alignment is zero or no power of two.
    #[error("{arena}: alignment {alignment} is not a power of two")]
    BadAlignment {
        /// The arena or region.
        arena: String,
        /// The alignment.
        alignment: u64,
    },
    /// A value is named that is not there.
    #[error("{user} refers to value {value}, there are {values}")]
    UnknownValue {
        /// The number.
        value: usize,
        /// How many there are.
        values: usize,
        /// Who refers to it.
        user: String,
    },
    /// A buffer number is out of range.
    #[error("{user} asks for buffer {id}, there are {buffers}")]
    BadBufferId {
        /// The number.
        id: usize,
        /// How many there are.
        buffers: usize,
        /// Who asks.
        user: String,
    },
    /// One buffer number per node or leaf is needed.
    #[error("{given} buffer numbers for {expected} {what}")]
    AssignmentLength {
        /// Nodes or leaves.
        what: &'static str,
        /// How many there are.
        expected: usize,
        /// How many numbers were given.
        given: usize,
    },
    /// A view's root is a view.
    #[error("`{view}` is a view of `{of}`, which is a view itself")]
    ViewOfView {
        /// The view.
        view: String,
        /// Its root.
        of: String,
    },
    /// A view ends outside its root.
    #[error("view `{view}` ends at byte {end} of `{root}`, which has {bytes}")]
    ViewOutside {
        /// The view.
        view: String,
        /// First byte after it.
        end: u64,
        /// Its root.
        root: String,
        /// The root's bytes.
        bytes: u64,
    },
    /// The lists of a usage that was read from somewhere do not belong together.
    #[error("{what} of a usage and its lists do not belong together")]
    BadLists {
        /// The part that does not fit.
        what: String,
    },
    /// A step offers to overwrite something it does not read or write.
    #[error("step {step} offers to overwrite a read or with a write that it does not have")]
    BadOverwrite {
        /// The step.
        step: usize,
    },
    /// A step reads what no leaf is and no step before it wrote.
    #[error("step {step} reads `{value}`, which nothing wrote")]
    NeverWritten {
        /// The value's name.
        value: String,
        /// The step.
        step: usize,
    },
    /// Memory was asked for a view, which lies in its root's.
    #[error("`{tensor}` is a view; bind it through its root")]
    IsView {
        /// The tensor's name.
        tensor: String,
    },
    /// Memory was asked for twice.
    #[error("`{tensor}` is allocated already")]
    AlreadyAllocated {
        /// The tensor's name.
        tensor: String,
    },
    /// Memory was given back that this allocator did not give.
    #[error("`{tensor}` is not allocated here")]
    NotAllocated {
        /// The tensor's name.
        tensor: String,
    },
    /// A region holds tensors of another graph than the one given.
    #[error("{allocated} tensors of another graph are allocated here; reset the region first")]
    OtherGraph {
        /// How many.
        allocated: usize,
    },
    /// A graph was to be placed in another order after a tensor was allocated by hand.
    #[error(
        "`{tensor}` was allocated by hand after the graph; reset the region to place the graph in another order"
    )]
    AllocatedSince {
        /// The tensor's name.
        tensor: String,
    },
    /// A view was to be bound before its root.
    #[error("view `{tensor}` of `{root}`, which has no memory")]
    ViewSourceUnallocated {
        /// The view's name.
        tensor: String,
        /// The root's name.
        root: String,
    },
    /// No free range is large enough.
    #[error("no room for `{tensor}`: {needed} bytes needed, {largest} at most in one piece")]
    OutOfSpace {
        /// The tensor's name.
        tensor: String,
        /// Bytes needed, rounded up.
        needed: u64,
        /// The largest free range.
        largest: u64,
    },
    /// A tensor is larger than any buffer of its type can be.
    #[error("`{tensor}` needs {bytes} bytes, one buffer of {buffer_type} holds at most {max}")]
    TooLarge {
        /// The tensor's name.
        tensor: String,
        /// Bytes needed.
        bytes: u64,
        /// Most bytes of a buffer.
        max: u64,
        /// Name of the buffer type.
        buffer_type: String,
    },
    /// A buffer could not be had.
    #[cfg(feature = "buffers")]
    #[error("allocating {bytes} bytes of {buffer_type}")]
    AllocFailed {
        /// Name of the buffer type.
        buffer_type: String,
        /// Bytes asked for.
        bytes: u64,
        /// Why not.
        source: Box<DeviceError>,
    },
    /// A graph allocator needs at least one buffer type.
    #[error("no buffer types were given")]
    NoBuffers,
    /// No plan was reserved.
    #[error("nothing is reserved yet")]
    NotReserved,
    /// A plan is for something else.
    #[error("the plan does not fit")]
    Misfit(#[from] Misfit),
    /// A plan within a capacity was asked for several arenas.
    #[error("a plan with copies to other memory is of one buffer, but there are {arenas}")]
    SeveralArenas {
        /// How many.
        arenas: usize,
    },
    /// A capacity is below what some step needs by itself.
    #[error("{at} needs {floor} bytes at once, more than the capacity of {capacity}")]
    BelowFloor {
        /// The capacity.
        capacity: u64,
        /// The least bytes of any plan.
        floor: u64,
        /// What needs them.
        at: String,
    },
    /// No plan within a capacity was found.
    #[error("the best plan found takes {best} bytes, more than the capacity of {capacity}")]
    NoPlanWithin {
        /// The capacity.
        capacity: u64,
        /// The smallest peak found.
        best: u64,
    },
    /// The planner refuses the problem.
    #[error("planning {arena}")]
    Plan {
        /// The arena.
        arena: String,
        /// Why.
        source: Box<PlanError>,
    },
    /// A graph or an order of it is refused.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// A device refuses.
    #[cfg(feature = "buffers")]
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Steps that a device made do not fit the graph.
    #[error("a graph was lowered to {what}")]
    BadLowering {
        /// What is wrong with it.
        what: String,
    },
    /// An external leaf was not given.
    #[error("`{tensor}` lies in the caller's memory, and none was given for it")]
    MissingExternal {
        /// The leaf's name.
        tensor: String,
    },
    /// A kernel cannot work in place where a plan does.
    #[error("`{kernel}` cannot write `{result}` where its operand `{operand}` lies")]
    NotAsPlaced {
        /// The device's kernel.
        kernel: String,
        /// The result.
        result: String,
        /// The operand with bytes in common.
        operand: String,
    },
    /// Contents were given for a leaf that the graph does not have.
    #[error("the graph has no weight or state `{name}`")]
    UnknownLeaf {
        /// The name.
        name: String,
    },
    /// An external leaf was given with another description.
    #[error("`{tensor}` is {expected} in the graph, {given} was given")]
    ExternalMismatch {
        /// The leaf's name.
        tensor: String,
        /// The graph's description.
        expected: Box<orlop_graph::TensorDesc>,
        /// The given tensor's.
        given: Box<orlop_graph::TensorDesc>,
    },
    /// Two leaves lie on the same bytes, and at least one of them is written.
    #[error(
        "`{first}` and `{second}` lie on the same bytes, and one of them is a state; make one a view of the other"
    )]
    ExternalsOverlap {
        /// One leaf's name.
        first: String,
        /// The other's.
        second: String,
    },
    /// A tensor id that is not one of the graph's.
    #[error("tensor {tensor} is not in this graph of {tensors}")]
    ForeignTensor {
        /// The id.
        tensor: orlop_graph::TensorId,
        /// How many there are.
        tensors: usize,
    },
    /// A range that was to be given back is not one that was handed out.
    #[error("`{tensor}`: {bytes} bytes at {offset} were not handed out like that")]
    BadRelease {
        /// The tensor's name.
        tensor: String,
        /// Where it lies.
        offset: u64,
        /// Its bytes.
        bytes: u64,
    },
}
