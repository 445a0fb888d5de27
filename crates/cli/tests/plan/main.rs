//! `orlop plan`, as its users see it.

mod bad_graphs;
mod bad_problems;
mod exact;
mod graphs;
mod orders;
mod problems;
mod support;
mod surroundings;
