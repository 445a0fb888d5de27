//! Chats on a terminal, and every example of `--help`, as a new user would try them.
#![cfg(unix)]

mod context;
mod examples;
mod goes_away;
mod mistakes;
#[path = "../model/rerankers.rs"]
mod rerankers;
#[allow(dead_code)] // the tests of `orlop plan` need more of it
#[path = "../plan/support.rs"]
mod support;
mod terminal;
mod turns;
#[allow(dead_code)] // the tests of commands that run models need more of it
#[path = "../model/with_model.rs"]
mod with_model;
