//! Errors of devices, and reasons of refusals.

use orlop_graph::{DType, TensorDesc};

/// What can go wrong between a caller and a device. None of these leaves anything half changed, unless its documentation says
/// so.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The device has no memory left for a buffer.
    #[error("no memory for a buffer of {bytes} bytes of {buffer_type}")]
    OutOfMemory {
        /// Name of the buffer type.
        buffer_type: String,
        /// Bytes asked for.
        bytes: u64,
    },
    /// A buffer exceeds what its type can hold.
    #[error("a buffer of {bytes} bytes exceeds the {max} bytes that {buffer_type} allows")]
    TooLarge {
        /// Name of the buffer type.
        buffer_type: String,
        /// Bytes asked for.
        bytes: u64,
        /// Most bytes of one buffer.
        max: u64,
    },
    /// An alignment is zero or no power of two.
    #[error("alignment {0} is no power of two")]
    BadAlignment(u64),
    /// The caller's memory does not begin at the buffer type's alignment.
    #[error("memory at address {address:#x} is not aligned to {alignment}")]
    MisalignedBase {
        /// The address.
        address: u64,
        /// The buffer type's alignment.
        alignment: u64,
    },
    /// A tensor would begin at an offset that its buffer type does not allow.
    #[error("offset {offset} of `{tensor}` is not aligned to {alignment}")]
    MisalignedOffset {
        /// The tensor's name.
        tensor: String,
        /// The offset.
        offset: u64,
        /// The buffer type's alignment.
        alignment: u64,
    },
    /// A tensor or an access lies outside its buffer or tensor.
    #[error("{bytes} bytes at offset {offset} of `{tensor}`, which has {available}")]
    OutOfBounds {
        /// The tensor's name.
        tensor: String,
        /// First byte touched.
        offset: u64,
        /// Bytes touched.
        bytes: u64,
        /// Bytes there are.
        available: u64,
    },
    /// Host memory handed over has another length than the rows it stands for.
    #[error("{given} bytes of host memory for `{tensor}`, {expected} are needed")]
    WrongLength {
        /// The tensor's name.
        tensor: String,
        /// Bytes needed.
        expected: u64,
        /// Bytes handed over.
        given: u64,
    },
    /// Numbers of one type for a tensor of another.
    #[error("`{tensor}` has elements of type {expected}, not {given}")]
    WrongType {
        /// The tensor's name.
        tensor: String,
        /// The tensor's element type.
        expected: DType,
        /// The type that the caller used.
        given: DType,
    },
    /// Two tensors of different element type or extents cannot be copied byte by byte.
    #[error("cannot copy `{from}` ({}) to `{to}` ({})", .descs[0], .descs[1])]
    LayoutMismatch {
        /// Source name.
        from: String,
        /// Destination name.
        to: String,
        /// Descriptions of the two.
        descs: Box<[TensorDesc; 2]>,
    },
    /// A buffer with a private layout was asked for something other than whole tensors or whole rows.
    #[error("`{tensor}` has the private layout of {buffer_type}: {rule}")]
    PrivateLayout {
        /// The tensor's name.
        tensor: String,
        /// Name of the buffer type.
        buffer_type: String,
        /// What is possible.
        rule: &'static str,
    },
    /// The memory cannot be written.
    #[error("{buffer_type} is read-only")]
    ReadOnly {
        /// Name of the buffer type.
        buffer_type: String,
    },
    /// Memory of this kind is allocated; it does not lie over existing bytes.
    #[error("{buffer_type} cannot lie over bytes that are there already")]
    NotBorrowed {
        /// Name of the buffer type.
        buffer_type: String,
    },
    /// Other work holds a conflicting claim. Claims never wait: try again, or use a second session.
    #[error("a buffer of {buffer_type} is busy: {holder}")]
    Busy {
        /// Name of the buffer type.
        buffer_type: String,
        /// Who holds it.
        holder: Holder,
    },
    /// An access came without the claim that allows it.
    #[error("a buffer of {buffer_type} is touched without a claim to it")]
    NotClaimed {
        /// Name of the buffer type.
        buffer_type: String,
    },
    /// A program, event or buffer of one device was given to another.
    #[error("{what} belongs to {owner}, not to {device}")]
    Foreign {
        /// What was given.
        what: &'static str,
        /// Whose it is.
        owner: String,
        /// Who got it.
        device: String,
    },
    /// A value that a program needs has no place.
    #[error("`{value}` has no place in memory")]
    Unbound {
        /// The tensor's or temporary's name.
        value: String,
    },
    /// The device cannot compute this.
    #[error("{device} cannot run {op} for `{tensor}`: {reason}")]
    Unsupported {
        /// The device.
        device: String,
        /// The op.
        op: String,
        /// Name of the result.
        tensor: String,
        /// Why not.
        reason: Reason,
    },
    /// A row or expert number in the data is out of range. Nothing was written by that step.
    #[error("{op} for `{tensor}`: index {index} of {rows}")]
    BadIndex {
        /// The op.
        op: String,
        /// Name of the result.
        tensor: String,
        /// The number found.
        index: i64,
        /// How many rows there are.
        rows: u64,
    },
    /// A kernel panicked: a mistake in the device. The run ended there.
    #[error("the kernel of {op} for `{tensor}` panicked")]
    KernelPanicked {
        /// The op.
        op: String,
        /// Name of the result.
        tensor: String,
    },
    /// The run was cancelled; what the finished steps wrote stays written.
    #[error("cancelled before step {step} of {steps}")]
    Cancelled {
        /// First step that did not run.
        step: usize,
        /// Steps there were.
        steps: usize,
    },
    /// A run asked for more threads than its program was lowered for, or for none.
    #[error("{asked} threads asked for, 1 to {max} are possible")]
    BadThreads {
        /// Threads asked for.
        asked: usize,
        /// Threads the program was lowered for.
        max: usize,
    },
    /// The device is gone, and what it held with it.
    #[error("{device} is lost: {reason}")]
    Lost {
        /// The device.
        device: String,
        /// What it said.
        reason: String,
    },
}

/// Who holds a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// This many readers.
    Readers(u64),
    /// One writer.
    Writer,
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Holder::Readers(1) => f.write_str("a reader"),
            Holder::Readers(count) => write!(f, "{count} readers"),
            Holder::Writer => f.write_str("a writer"),
        }
    }
}

/// Why a device refuses a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// It has no kernel for the op.
    #[error("no kernel for this op")]
    Op,
    /// It has no kernel for this element type.
    #[error("no kernel for {dtype} as operand {operand}")]
    DType {
        /// Position of the operand; the result comes after the last.
        operand: usize,
        /// Its element type.
        dtype: orlop_graph::DType,
    },
    /// Its kernels do not take these strides.
    #[error("operand {operand} has strides that no kernel takes")]
    Strides {
        /// Position of the operand; the result comes after the last.
        operand: usize,
    },
    /// It cannot reach an operand's memory.
    #[error("operand {operand} lies in {buffer_type}")]
    BufferType {
        /// Position of the operand; the result comes after the last.
        operand: usize,
        /// Where it lies.
        buffer_type: String,
    },
    /// A limit of the device.
    #[error("{limit} is {value}, at most {max} is possible")]
    Limit {
        /// What is limited.
        limit: &'static str,
        /// What was asked for.
        value: u64,
        /// The limit.
        max: u64,
    },
}
