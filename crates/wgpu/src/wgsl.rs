//! The text of kernels.
//!
//! A [`Writer`] is given a kernel's operands (where each lies, and its description) and parameters, and its body. It
//! knows how elements of each type are read and written, adds the functions that the body calls, and numbers the
//! parameters. Numbers go into the parameters, not into the text, so that one pipeline serves all shapes.
//!
//! An operand `x` is reached by these functions, all addresses being in bytes of its buffer:
//!
//! | function | what it gives |
//! |---|---|
//! | `x_row(j, k, l)` | the address of a row |
//! | `x_at(row, i)` | element `i` of a row, as `f32` |
//! | `x_quad(row, i)` | elements `i` to `i + 3`, `i` being a multiple of 4; what lies beyond the row is 0 |
//! | `x_int(row, i)` | an integer, as `i32` |
//! | `x_put(row, i, v)` | stores an `f32` |
//! | `x_raw(at)`, `x_set(at, v)` | a word of 4, 2 or 1 bytes as it is |

mod element;
mod library;
mod writer;

pub(crate) use element::{can_encode, can_read, can_write};
pub(crate) use writer::{Kernel, Place, WORKGROUP, Work, Writer, float_bits};
