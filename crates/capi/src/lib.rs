//! The C interface of Orlop, `include/orlop.h`: models, sequences, plans and graphs behind opaque pointers.
//!
//! No panic leaves a function: it becomes the status `ORLOP_PANIC`. Pointers are read and written in the module `pointer` only,
//! under the rules at the top of the header.
#![allow(non_camel_case_types, clippy::too_many_arguments)] // names and arguments of C
#![warn(clippy::unwrap_used)]

mod error;
mod graph;
mod model;
mod plan;
mod pointer;
mod sequence;
mod shared;

pub use error::*;
pub use graph::*;
pub use model::*;
pub use plan::*;
pub use sequence::*;
