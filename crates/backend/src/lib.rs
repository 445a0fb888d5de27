//! What a device is: its memory ([`BufferType`], [`Buffer`]), how it takes a graph apart ([`Device::lower`]),
//! and how it runs it ([`Device::compile`], [`Queue`]). Plus what every device shares: buffers in host
//! memory, checked access to tensors in buffers ([`StoredTensor`]), copies between any two of them
//! ([`copy()`]), and claims that keep runs and callers apart ([`Claims`]).
//!
//! Whoever calls a device has validated shapes, element types and bounds; devices may rely on that.

mod buffer;
mod copy;
mod device;
mod error;
mod gate;
mod host;
mod large_pages;
mod lower;
mod queue;
mod step_editor;
mod stored;

pub use buffer::{Buffer, BufferType, HostSpan, MemoryLayout, PrivateRows, Role, Slot, same_type};
pub use copy::{CopyRoute, copy, copy_claimed, copy_route};
pub use device::{Device, DeviceClass, DeviceFacts, Link, Memory, NodeQuery, Operand, Support};
pub use error::{DeviceError, Holder, Reason};
pub use gate::{Claim, Claims, Gate};
pub use host::{ForeignBufferType, HOST_ALIGNMENT, HostBufferType};
pub use large_pages::has_large_pages;
pub use lower::{
    Bindings, LowerOptions, Overwrite, Precision, Segment, SegmentTables, Step, StepValue, Steps, Temporary,
    overwrites, touched,
};
pub use orlop_graph::SharedBytes;
pub use queue::{Cancel, Event, Program, Queue, RunOptions, StepClock, Touch};
pub use step_editor::{FusionPass, StepEditor};
pub use stored::{Pieces, StoredTensor};
