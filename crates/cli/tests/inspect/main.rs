//! `orlop inspect`, as its users see it.

mod models;
mod refusals;
#[allow(dead_code)] // the tests of `orlop plan` need more of it
#[path = "../plan/support.rs"]
mod support;
