//! Every kernel against the reference device.

mod attention;
mod compare;
mod convolution;
mod elementwise;
mod exact;
mod image;
mod movement;
mod norm;
mod product;
mod reduce;
mod rope;
mod rows;
mod soft_max;
mod ssm;
