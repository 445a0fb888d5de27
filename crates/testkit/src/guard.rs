//! A guard around any device whose memory the host can read: it finds steps that write where they may not, and makes
//! reads of memory that holds no value visible.
//!
//! [`Guarded`] is a device around another. It lowers like the inner one, with a red zone after every tensor and
//! temporary. It runs the inner device's steps one by one; before each it fills everything that the step may
//! not read (not yet written, or dead, and the red zones) with ones, which is NaN in every floating-point type,
//! and afterwards it compares all memory with a copy: nothing but the step's results and temporaries may have
//! changed. A step that works in place is also run out of place first, and both results must be equal. Plans in
//! which a step overwrites what a later one reads, or an operand that it may not, are refused at
//! [`orlop_backend::Device::compile`].
//!
//! Stray reads show in the results, which then differ from those of an unguarded run. Everything else is a
//! [`Trespass`]: the run fails, and [`Guarded::trespasses`] lists them.
//!
//! [`Guarded::by_program`] watches whole programs instead, for what is too large to be watched step by step.

mod device;
mod lives;
mod program;
mod queue;
mod spans;
mod trespass;
mod whole;

pub use device::{Guarded, ZONE};
pub use trespass::{Offence, Trespass, Victim};
