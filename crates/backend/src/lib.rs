//! The contract between devices and everything above them: memory, lowering, programs, queues.
//!
//! This page is for those who write a device. It explains the traits in the order in which they are used, and says who
//! checks what. A whole device, in fewer than 200 lines, is `crates/orlop/examples/05-own-device.rs`; the conformance set of
//! `orlop-testkit` runs every op of a device against a reference.
//!
//! # Design
//!
//! - **Ops are data.** A graph's nodes hold an [`Op`](orlop_graph::Op) and tensor ids. A new op is a new kernel and an answer
//!   of [`Device::supports`], never a new method of a trait.
//! - **Traits are object-safe.** A session mixes devices of any kind as `Arc<dyn Device>`; no enum lists them. The cost of
//!   dynamic dispatch is per segment and per run, not per op.
//! - **Memory is planned above.** Devices allocate whole buffers when asked, and compute at the offsets they are given. What a
//!   step needs beside the graph's tensors it declares as a temporary when it is lowered, so that the plan has a place for
//!   it. A device that allocates while it runs breaks forecasts of memory.
//! - **Callers validate, devices rely on it.** See [who checks what](#who-checks-what).
//! - **Errors are values.** Every failure that data, memory or hardware can cause is a [`DeviceError`]. A panic is a bug.
//! - **The host never waits at a buffer.** Conflicting accesses are refused ([`DeviceError::Busy`]) instead of delayed.
//!
//! # The traits in order of use
//!
//! | trait | made by | job |
//! |---|---|---|
//! | [`Device`] | the device's crate | facts, support, lowering, compiling |
//! | [`BufferType`] | the device, listed by [`Device::buffer_types`] | what a plan must know of a kind of memory; allocates |
//! | [`Buffer`] | [`BufferType::allocate`], [`BufferType::over`] | memory and access to it |
//! | [`Program`] | [`Device::compile`] | steps at fixed places, runs many times |
//! | [`Queue`] | [`Device::queue`] | runs programs and copies, in order |
//! | [`Event`] | [`Queue::record`] | a point in a queue's work |
//!
//! 1. **Facts.** [`Device::facts`] gives estimates for placement (throughput, the link to the host), the memory that is free,
//!    and whether the device is lost. It is asked often and must be cheap.
//! 2. **Memory.** [`Device::buffer_types`] lists buffer types for a [`Role`], best first. A plan is made from
//!    [`BufferType::alignment`], [`BufferType::max_bytes`] and [`BufferType::alloc_bytes`] before any buffer exists, so these
//!    are pure. Two handles are one type if they are one object ([`same_type`]).
//! 3. **Support.** [`Device::supports`] answers for one node: its op, and the description and buffer type of every operand.
//!    A buffer type of `None` means that it is not decided yet. What a device accepts it must be able to lower, compile and
//!    run; what it refuses comes with a [`Reason`] that people read.
//! 4. **Lowering.** [`Device::lower`] turns a [`Segment`], nodes that run one after the other, into [`Steps`]: one kernel each,
//!    with what it reads, what it writes, which operand a result may overwrite, and temporaries. It is pure: equal segments
//!    and options give equal steps, as plans are saved and compared. [`Segment::one_step_per_node`] is the plain lowering;
//!    [`StepEditor`] holds the tools to fuse and to add temporaries. A value that [`Segment::escapes`] must be written.
//! 5. **Compiling.** [`Device::compile`] gets the steps and a place for every value ([`Bindings`]), and returns a [`Program`]
//!    that keeps those buffers alive. Anything slow (kernel compilation, parameter packing) belongs here.
//! 6. **Running.** [`Queue::submit`] runs a program. [`Queue::copy`] moves tensors, [`Queue::set`] and [`Queue::get`] bytes of
//!    the host; [`Queue::record`] and [`Queue::wait`] order queues; [`Queue::sync`] waits, and reports errors.
//!
//! # Who checks what
//!
//! | fact | checked by | when |
//! |---|---|---|
//! | shapes and element types fit the op | `orlop-graph` | when the graph is built |
//! | the device takes the node in this memory | the caller asks [`Device::supports`] | placement; [`Device::lower`] asks again |
//! | tensors lie inside buffers, aligned | the memory plan, [`StoredTensor::new`] | planning, binding |
//! | results overlap only what they may | the memory plan and its checker | planning |
//! | steps are the device's own | [`Device::compile`] | compiling: steps may have been saved or changed |
//! | the program is the device's own | [`Queue::submit`] | [`DeviceError::Foreign`] |
//! | everything touched is claimed | [`Queue::submit`], [`Queue::copy`], [`Buffer::read`] and others | [`DeviceError::NotClaimed`] |
//! | offsets of an access lie inside the buffer | every method of [`Buffer`] | [`DeviceError::OutOfBounds`] |
//! | indices in the data are in range | the device, before the step writes | [`DeviceError::BadIndex`] |
//! | conflicting work is ordered | the caller of [`Queue::submit`] | its `# Safety` section |
//!
//! A device may rely on everything above it in this table. Because a caller can get the last row wrong, and memory safety
//! depends on it, submitting is `unsafe`.
//!
//! # Claims
//!
//! Every buffer has a [`Gate`]: any number of readers, or one writer. A [`Claim`] is the right of one thread to one buffer;
//! [`Claims`] are all buffers of one run. Both are taken at once or refused with [`DeviceError::Busy`].
//!
//! - A run claims what [`Program::touches`] lists, for writing where it writes. [`touched`] computes that list.
//! - A queue keeps a clone of the claims with each piece of work, and drops it when the work is done. Memory therefore stays
//!   claimed for exactly as long as something may touch it, whatever the caller drops. A queue beside the host keeps the
//!   program, or the buffers of a copy, for as long.
//! - [`Claims::lend`] gives one thread of a run a claim of its own. It is `unsafe`: the run's schedule must order the uses.
//! - The gate is the buffer's identity, and [`Gate::generation`] counts its writes: caches of contents compare it.
//!
//! # What a queue promises
//!
//! - Work is done in the order it was given. A queue whose work is done when a call returns needs [`Queue::submit`] alone: the
//!   other methods have defaults for it. One that runs beside the host sets [`DeviceFacts::asynchronous`] and overrides
//!   [`Queue::record`], [`Queue::wait`] and [`Queue::sync`].
//! - [`Queue::submit`] returns errors that it finds before the work begins. Errors of the work itself are returned at once by
//!   a synchronous queue, and by [`Queue::sync`] and [`Event::wait`] otherwise. The queue can be used again after either.
//! - A run ends between steps: [`RunOptions::cancel`] stops it there, a step with a bad index writes nothing, and what finished
//!   steps wrote stays written.
//! - [`Queue::copy`] pulls: the destination is this queue's device's, or the host's. The default copies through host memory,
//!   and asks the two buffers first whether they can do better ([`Buffer::pull`], [`Buffer::push`]).
//! - An [`Event`] of any queue can be given to any other: [`Queue::wait`] waits on the device for its own kind of event, and on
//!   the host for others.
//!
//! # Lifetimes
//!
//! Everything is reference-counted, and dropping the last handle frees. A [`Buffer`] holds its type, a [`Program`] its
//! buffers, a queue what its work needs. Dropping a queue waits for its work. No order of dropping devices, buffers, programs
//! and queues may be unsound; objects that share a context or a driver hold it.
//!
//! # Private layouts
//!
//! A buffer type with [`MemoryLayout::Private`] stores tensors in the device's own way, such as repacked weights. It takes and
//! returns whole tensors or whole rows ([`Buffer::write_rows`], [`Buffer::read_rows`]), byte for byte as they were stored.
//! Such tensors are contiguous and have no views; [`copy()`] refuses them. [`BufferType::alloc_bytes`] says how much a tensor
//! takes there, and [`Device::supports`] which operands may lie there. A loader takes the first type of [`Role::Weight`] that
//! every use of a weight accepts.
//!
//! # Host memory
//!
//! A buffer that the host reaches reports its memory ([`Buffer::host`]), and other devices use that pointer under a claim.
//! This is why [`Buffer`] is an `unsafe` trait. [`HostBufferType`] allocates such memory, on [large
//! pages](https://docs.kernel.org/admin-guide/mm/transhuge.html) where the system has them; [`ForeignBufferType`] lies over
//! memory that is there already, such as a mapped file.
//!
//! # Losing a device
//!
//! When hardware fails, a device returns [`DeviceError::Lost`] from then on, sets [`DeviceFacts::lost`], and never hangs: events
//! count as passed, and dropping its objects does nothing that waits. Sessions then plan again on the devices that are left;
//! the contents of its memory are gone.
//!
//! # What a minimal device needs
//!
//! - One buffer type; [`HostBufferType`] serves devices that compute in host memory.
//! - [`Device::supports`] for one op, and [`Segment::one_step_per_node`] as its `lower`.
//! - `compile`: look up each step's kernel, take the [`Slot`] of each value from the bindings, and keep the bindings and
//!   [`touched`].
//! - A queue with [`Queue::submit`] alone: check that the program is its own, check the claims, run.
//!
//! Sessions give ops that it refuses to other devices, and copy between them.
#![warn(clippy::unwrap_used)]

mod buffer;
mod copy;
mod device;
mod error;
mod gate;
mod host;
mod large_pages;
mod lower;
mod queue;
mod read_ring;
mod step_editor;
mod stored;

pub use buffer::{Buffer, BufferType, HostSpan, MemoryLayout, PrivateRows, Role, Slot, same_type};
pub use copy::{CopyRoute, copy, copy_claimed, copy_route};
pub use device::{
    Device, DeviceClass, DeviceFacts, Link, Memory, NodeQuery, Operand, StagingMemory, Support,
};
pub use error::{DeviceError, Holder, Reason};
pub use gate::{Claim, Claims, Gate};
pub use host::{ForeignBufferType, HOST_ALIGNMENT, HostBufferType};
pub use large_pages::has_large_pages;
pub use lower::{
    Bindings, LowerOptions, Overwrite, Precision, Segment, SegmentTables, Step, StepValue, Steps, Temporary,
    overwrites, touched,
};
pub use orlop_graph::SharedBytes;
pub use queue::{
    Cancel, Event, PendingRead, Program, Queue, ReadBytes, RunOptions, StepClock, Touch, get_unstaged,
    set_unstaged,
};
pub use read_ring::{ReadBlock, ReadRing, StagedRead};
pub use step_editor::{FusionPass, StepEditor};
pub use stored::{Pieces, StoredTensor};
