//! `orlop plan`, as its users see it.

mod bad_graphs;
mod bad_problems;
mod exact;
mod graphs;
mod problems;
mod support;
mod surroundings;
