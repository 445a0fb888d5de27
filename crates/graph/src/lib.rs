//! Tensor graphs as immutable data: element types, shapes, views on storage roots, ops with typed
//! parameters, and the dependencies that follow from them.
//!
//! A [`Graph`] is built once by a [`GraphBuilder`] and never changes. It holds no memory and is independent of
//! devices. [`dependencies`] says which steps may not be exchanged, [`may_overwrite`] which operand's memory a result
//! may take; ordering, scheduling and allocation go by these two. [`OPS`] has one entry per op.
#![forbid(unsafe_code)]
#![warn(clippy::unwrap_used)]

mod access;
mod builder;
mod desc;
mod dot;
mod dtype;
mod element;
mod error;
#[cfg(feature = "serde")]
mod float;
mod graph;
mod id;
#[cfg(feature = "serde")]
mod json;
mod op;
mod order;
mod shared_bytes;

pub use access::{Access, AccessKind, Edge, Hazard, dependencies};
pub use builder::GraphBuilder;
pub use desc::{DIMS, DescError, Runs, TensorDesc};
pub use dtype::{DType, UnknownDType};
pub use element::Element;
pub use error::GraphError;
pub use graph::{Graph, Leaf, Node, Origin, Storage, Tensor};
pub use id::{NodeId, TensorId};
pub use op::{
    Arity, Cost, CostOf, FlashAttention, Glu, Interpolation, OPS, Op, OpError, OpInfo, PagedRows, Patch,
    Pool, PoolKind, Rope, RopeMode, SampleSource, SoftMax, SortDirection, Unary, Window, infer,
    may_overwrite,
};
pub use order::Order;
pub use shared_bytes::SharedBytes;
