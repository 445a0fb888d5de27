//! Files, read and written.
#![allow(clippy::unwrap_used)] // whatever is here is a test

mod by_hand;
mod damage;
mod round_trip;
mod split;
mod support;
mod writing;
