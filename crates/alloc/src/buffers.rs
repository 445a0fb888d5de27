//! Buffers: memory of devices, allocated as plans say or tensor by tensor.
//!
//! - [`Arenas`] own the buffers behind the arenas of plans. They only ever grow ([`Growth`]).
//! - A [`GraphAllocator`] plans graphs and binds them to its arenas; the result is an [`Allocation`].
//! - A [`TensorSet`] holds many tensors (weights, caches) in as few buffers as possible. [`Externals`] names those that a
//!   graph uses.
//! - A [`LinearAllocator`], a [`TensorAllocator`] and a [`RegionAllocator`] place tensors in one buffer, as a program asks
//!   for them; the last two can also measure how large the buffer must be.

mod arena;
mod externals;
mod graph_allocator;
mod linear;
mod observe;
mod placed_run;
mod region_allocator;
mod tensor_allocator;
mod tensor_set;

pub use arena::{Arenas, Grown, Growth};
pub use externals::Externals;
pub use graph_allocator::{Allocation, Assignment, GraphAllocator};
pub use linear::LinearAllocator;
pub use observe::{AllocEvent, Observer};
pub use region_allocator::RegionAllocator;
pub use tensor_allocator::TensorAllocator;
pub use tensor_set::{SetPlace, SetTensor, TensorSet};
