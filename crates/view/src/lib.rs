//! Memory plans as pictures: time against address, one rectangle per tensor.
//!
//! A [`Picture`] is plain data, created from a plan by [`Picture::of_plan`], [`Picture::of_problem`] or by hand. It can be
//! rendered as a self-contained HTML page ([`page`]), SVG ([`svg`]) or a text map ([`block_map`]), or compared with
//! another ([`Difference`]). This crate performs no I/O.
//!
//! ```
//! use orlop_plan::{BufferSpec, Problem, SolveOptions, solve};
//! use orlop_view::{Picture, page, svg};
//! let mut problem = Problem::default();
//! problem.push(BufferSpec::new(256, 64, 0..2))?;
//! problem.push(BufferSpec::new(128, 64, 1..4))?;
//! let plan = solve(&problem, &SolveOptions::default())?;
//! let picture = Picture::of_problem("two buffers", &problem, &plan, |index| format!("b{index}"));
//! assert_eq!(picture.peak(0), (1, 384));
//! assert!(svg(&picture)?.starts_with("<svg"));
//! assert!(page(&[picture])?.starts_with("<!doctype html>"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]
#![warn(clippy::unwrap_used)]

mod block_map;
mod bytes;
mod columns;
mod diff;
mod error;
mod lanes;
mod of_plan;
mod of_problem;
mod of_saved;
mod page;
mod palette;
mod picture;
mod svg;

pub use block_map::{MapStyle, block_map};
pub use bytes::short_bytes;
pub use diff::{BlockPlacement, Change, Difference, RegionChange};
pub use error::Error;
pub use of_plan::Labels;
pub use page::{page, page_beside};
pub use picture::{Block, Kind, Picture, Region, RegionKind, TradeOff};
pub use svg::svg;
