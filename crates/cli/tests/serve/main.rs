//! `orlop serve`: its plan, its log, and how it starts and ends.
#![cfg(unix)]

mod guide;
mod many;
mod plan;
mod process;
#[path = "../model/rerankers.rs"]
mod rerankers;
mod shortened;
#[allow(dead_code)] // the tests of `orlop plan` need more of it
#[path = "../plan/support.rs"]
mod support;
#[allow(dead_code)] // the tests of models need more of it
#[path = "../model/with_model.rs"]
mod with_model;
