//! WGSL source of kernels.
//!
//! A [`Writer`] takes a kernel's operands (placement and description), parameters and body. It generates the functions that
//! read and write elements of each type, adds the library functions that the body calls, and numbers the parameters.
//! Values go into the parameters, not into the source, so one pipeline serves all shapes.
//!
//! These functions access an operand `x`; addresses are in bytes of its buffer:
//!
//! | function | result |
//! |---|---|
//! | `x_row(j, k, l)` | the address of a row |
//! | `x_at(row, i)` | element `i` of a row, as `f32` |
//! | `x_quad(row, i)` | elements `i` to `i + 3` for a multiple of 4 `i`; 0 beyond the row |
//! | `x_int(row, i)` | an integer, as `i32` |
//! | `x_put(row, i, v)` | stores an `f32` |
//! | `x_raw(at)`, `x_set(at, v)` | a word of 4, 2 or 1 bytes without conversion |

mod element;
mod library;
mod writer;

pub(crate) use element::{can_encode, can_read, can_write};
pub(crate) use writer::{Kernel, Place, WORKGROUP, Work, Writer, float_bits};
