//! `orlop plan`, as its users see it.

mod bad_graphs;
mod bad_problems;
mod capacities;
mod diff;
mod exact;
mod graphs;
mod options;
mod orders;
mod pictures;
mod problems;
mod support;
mod surroundings;
