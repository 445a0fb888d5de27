//! Tensor graphs as immutable data: element types, shapes, views on storage roots, ops with typed
//! parameters, and the dependencies that follow from them.
//!
//! A [`Graph`] is built once by a [`GraphBuilder`] and never changes. It holds no memory and knows no
//! device. [`dependencies`] says which steps may not be exchanged, [`may_overwrite`] which operand a result
//! may take the place of; everything above (ordering, scheduling, allocation) goes by these two.
#![forbid(unsafe_code)]

mod access;
mod builder;
mod desc;
mod dot;
mod dtype;
mod error;
#[cfg(feature = "serde")]
mod float;
mod graph;
mod id;
mod infer;
#[cfg(feature = "serde")]
mod json;
mod op;
mod order;
mod overwrite;

pub use access::{Access, AccessKind, Edge, Hazard, dependencies};
pub use builder::GraphBuilder;
pub use desc::{DIMS, DescError, Runs, TensorDesc};
pub use dtype::{DType, UnknownDType};
pub use error::GraphError;
pub use graph::{Graph, Leaf, Node, Origin, Storage, Tensor};
pub use id::{NodeId, TensorId};
pub use infer::{OpError, infer};
pub use op::{
    FlashAttention, Glu, Interpolation, Op, Patch, Pool, PoolKind, Rope, RopeMode, SoftMax, SortDirection,
    Unary, Window,
};
pub use order::Order;
pub use overwrite::may_overwrite;
