//! Sums and sorts.

use orlop_graph::{Op, SortDirection};

use super::{accepts, f16, f32, i32, refuses_operand, refuses_parameter};

#[test]
fn sums_and_means_keep_the_type() {
    accepts(Op::Sum, &[f32(&[3, 4, 5])], f32(&[1]));
    accepts(Op::SumRows, &[f16(&[3, 4, 5])], f16(&[1, 4, 5]));
    accepts(Op::Mean, &[f32(&[3, 4, 5])], f32(&[1, 4, 5]));
    for op in [Op::Sum, Op::SumRows, Op::Mean] {
        refuses_operand(op, &[i32(&[3])], 0);
    }
}

#[test]
fn the_largest_of_each_row_takes_the_rows_extents() {
    accepts(Op::ArgMax, &[f32(&[9, 4])], i32(&[4]));
    accepts(Op::ArgMax, &[f32(&[9, 4, 3, 2])], i32(&[4, 3, 2]));
    accepts(Op::ArgMax, &[f32(&[0, 0])], i32(&[0]));
    refuses_operand(Op::ArgMax, &[f32(&[0, 4])], 0);
}

#[test]
fn rows_longer_than_i32_counts_have_no_indices() {
    let row = f32(&[1 << 31]);
    refuses_operand(Op::ArgMax, &[row], 0);
    refuses_operand(Op::ArgSort { direction: SortDirection::Ascending }, &[row], 0);
    refuses_operand(Op::TopK { k: 1 }, &[row], 0);
    accepts(Op::ArgMax, &[f32(&[(1 << 31) - 1])], i32(&[1]));
}

#[test]
fn sorts_give_an_index_an_element_and_top_k_gives_k() {
    let sort = Op::ArgSort { direction: SortDirection::Descending };
    accepts(sort.clone(), &[f32(&[9, 4])], i32(&[9, 4]));
    refuses_operand(sort, &[i32(&[9])], 0);
    accepts(Op::TopK { k: 9 }, &[f32(&[9, 4, 2])], i32(&[9, 4, 2]));
    accepts(Op::TopK { k: 0 }, &[f32(&[9])], i32(&[0]));
    refuses_parameter(Op::TopK { k: 10 }, &[f32(&[9, 4])], "k");
}
