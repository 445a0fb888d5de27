//! The reference device against values worked out by hand, and the ways to run a graph without a plan.

mod arithmetic;
mod attention;
mod convolution;
mod device;
mod image;
mod movement;
mod norm;
mod product;
mod reduce;
mod rope;
mod rows;
mod ssm;
mod support;
mod unplanned;
