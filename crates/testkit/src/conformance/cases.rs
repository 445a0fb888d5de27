//! The cases, one file per family of ops.

mod arithmetic;
mod attention;
mod blocks;
mod convolution;
mod image;
mod movement;
mod norm;
mod patch;
mod product;
mod reduce;
mod rope;
mod rows;
mod soft_max;
mod sort;
mod ssm;
mod unary;
mod views;

use orlop_graph::DType;

use super::case::{Case, Table};

/// Every case, always the same and in the same order.
pub fn cases() -> Vec<Case> {
    let mut table = Table::default();
    arithmetic::add(&mut table);
    unary::add(&mut table);
    views::add(&mut table);
    movement::add(&mut table);
    patch::add(&mut table);
    rows::add(&mut table);
    reduce::add(&mut table);
    sort::add(&mut table);
    norm::add(&mut table);
    soft_max::add(&mut table);
    product::add(&mut table);
    rope::add(&mut table);
    attention::add(&mut table);
    convolution::add(&mut table);
    image::add(&mut table);
    ssm::add(&mut table);
    blocks::add(&mut table);
    table.cases
}

/// Floating-point types of activations other than F32.
const HALVES: [DType; 2] = [DType::F16, DType::BF16];

/// Every quantised type that can be encoded.
fn quantised() -> impl Iterator<Item = DType> {
    DType::all().filter(|dtype| dtype.is_quantized() && orlop_quant::supports_encode(*dtype))
}
