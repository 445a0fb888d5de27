//! `orlop plan`, as its users see it.

mod bad_graphs;
mod bad_problems;
mod graphs;
mod problems;
mod support;
mod surroundings;
