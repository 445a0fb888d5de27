//! Scalar codecs for the element types of GGUF files.
//!
//! [`decode`] turns the bytes of a row into `f32`, [`encode`] goes the other way, and [`decode_f64`] serves
//! reference arithmetic. All three work on any whole number of blocks and check lengths against
//! [`DType::row_bytes`](orlop_graph::DType::row_bytes).
//!
//! ```
//! use orlop_graph::DType;
//! use orlop_quant::{decode, encode};
//!
//! let row: Vec<f32> = (0..64).map(|i| i as f32 - 32.0).collect();
//! let mut bytes = vec![0; DType::Q8_0.row_bytes(64).unwrap() as usize];
//! encode(DType::Q8_0, &row, &mut bytes)?;
//! let mut back = [0.0; 64];
//! decode(DType::Q8_0, &bytes, &mut back)?;
//! assert!(row.iter().zip(back).all(|(a, b)| (a - b).abs() < 0.15));
//! # Ok::<(), orlop_quant::QuantError>(())
//! ```
//!
//! [`layout`] describes the bytes of every block type. Each type also has a module of its own, for kernels that work on
//! packed blocks. They share one shape: `LAYOUT`, `ELEMENTS` and `BYTES`, `quants` for the unpacked integers,
//! `decode_block` and `encode_block`.
//!
//! # Values that do not fit
//!
//! Encoding is defined for every input and never panics:
//!
//! - A block with a NaN or an infinity in it becomes a block that decodes to NaN throughout. MXFP4 has no NaN
//!   in GGUF's reading of it, so there every element decodes to infinity; in NVFP4, which has neither, to 2688, the largest
//!   number it has.
//! - Finite values so large that the block's scale overflows its 16-bit field store an infinite scale, as the
//!   format's reference implementation does; such a block decodes to infinities and NaN.
//! - Values so small that the scale underflows decode to zero.
#![forbid(unsafe_code)]
#![warn(clippy::unwrap_used)]

mod error;
mod fields;
pub mod layout;
mod rows;
mod search;

pub mod bits;
pub mod grid;
mod grid_search;
pub mod iq1_m;
pub mod iq1_s;
pub mod iq2_s;
pub mod iq2_xs;
pub mod iq2_xxs;
pub mod iq3_s;
pub mod iq3_xxs;
pub mod iq4;
pub mod iq4_nl;
pub mod iq4_xs;
pub mod mxfp4;
pub mod nvfp4;
pub mod plain;
pub mod q1_0;
pub mod q2_0;
pub mod q2_k;
pub mod q3_k;
pub mod q4_0;
pub mod q4_1;
pub mod q4_k;
pub mod q5_0;
pub mod q5_1;
pub mod q5_k;
pub mod q6_k;
pub mod q8_0;
pub mod q8_1;
pub mod q8_k;
pub mod tq1_0;
pub mod tq2_0;

pub use error::QuantError;
pub use layout::{
    BLOCK_LAYOUTS, BlockField, BlockLayout, FieldRole, Integers, Packing, block_layout, block_types,
    weight_types,
};
pub use rows::{
    decode, decode_f64, encode, encode_weighted, supports_decode, supports_encode, uses_importance,
};
