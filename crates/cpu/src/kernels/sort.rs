//! Indices in the order of a row's elements. NaN counts as smaller than every number; equal elements keep their
//! order.

use std::cmp::Ordering;

use orlop_graph::{Op, SortDirection, TensorDesc};

use super::reduce::float_operand;
use crate::access::RowIndex;
use crate::isa::Isa;
use crate::task::{Kernel, KernelBody, Task, Thread, row_at};
use crate::vector::{Floats, LargestOf, on};

// SAFETY: the phase rule: each row of the result is one thread's; the operand lies apart.
pub(crate) const SORT: Kernel = Kernel::simple(float_operand, three_rows, unsafe { KernelBody::new(sort) });

/// A row, and a pair for each element of it.
fn three_rows(_: &Op, operands: &[TensorDesc], _: &TensorDesc) -> u64 {
    operands[0].extents[0].saturating_mul(3)
}

/// An element's value, and the bits of its index.
type Pair = [f32; 2];

fn sort(task: &Task, thread: Thread, scratch: &mut [f32]) {
    let src = &task.src[0];
    let length = src.desc.extents[0] as usize;
    let (row, rest) = scratch.split_at_mut(length);
    let pairs = &mut rest.as_chunks_mut::<2>().0[..length];
    for number in thread.part(src.desc.rows()) {
        let at = row_at(&src.desc, number);
        src.read(task.isa, 0, at, row);
        if let Op::TopK { k } = task.op {
            let count = candidates(task.isa, row, k as usize, pairs);
            write(task, at, largest(&mut pairs[..count], k as usize));
            continue;
        }
        for (index, (pair, value)) in pairs.iter_mut().zip(&*row).enumerate() {
            *pair = [*value, f32::from_bits(index as u32)];
        }
        let sorted = match task.op {
            Op::ArgSort { direction: SortDirection::Ascending } => {
                pairs.sort_unstable_by(|a, b| compare(a[0], b[0]).then_with(|| order(a, b)));
                &*pairs
            }
            _ => {
                pairs.sort_unstable_by(falling);
                &*pairs
            }
        };
        write(task, at, sorted);
    }
}

fn write(task: &Task, at: RowIndex, sorted: &[Pair]) {
    for (column, [_, index]) in (0..).zip(sorted) {
        task.dst.set_integer(column, at, i64::from(index.to_bits()));
    }
}

/// Elements among which the `k` largest are, in the beginning of `pairs`; returns how many.
fn candidates(isa: Isa, row: &[f32], k: usize, pairs: &mut [Pair]) -> usize {
    const PART: usize = 64;
    if k == 0 {
        return 0;
    }
    let (mut count, mut limit) = (0, f32::NAN);
    // What comes later and is not above the smallest of `k` others is not among the largest.
    let room = (2 * k + PART).min(pairs.len());
    for (first, part) in (0..).step_by(PART).zip(row.chunks(PART)) {
        if !limit.is_nan() && on(isa, LargestOf(Floats::from(part))) <= limit {
            continue;
        }
        for (index, value) in (first..).zip(part) {
            if count >= k && !above(*value, limit) {
                continue;
            }
            if count == room {
                pairs[..count].select_nth_unstable_by(k - 1, falling);
                (count, limit) = (k, pairs[k - 1][0]);
                if !above(*value, limit) {
                    continue;
                }
            }
            pairs[count] = [*value, f32::from_bits(index)];
            count += 1;
        }
    }
    count
}

/// The `k` largest, in order.
fn largest(pairs: &mut [Pair], k: usize) -> &[Pair] {
    if k == 0 || k > pairs.len() {
        return &[];
    }
    pairs.select_nth_unstable_by(k - 1, falling);
    let largest = &mut pairs[..k];
    largest.sort_unstable_by(falling);
    largest
}

/// Largest first; of equals the one that came first.
fn falling(a: &Pair, b: &Pair) -> Ordering {
    compare(b[0], a[0]).then_with(|| order(a, b))
}

fn order(a: &Pair, b: &Pair) -> Ordering {
    a[1].to_bits().cmp(&b[1].to_bits())
}

/// NaN is below every number, and all NaNs are equal.
fn compare(a: f32, b: f32) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| b.is_nan().cmp(&a.is_nan()))
}

/// Whether `a` comes after `b` in that order.
fn above(a: f32, b: f32) -> bool {
    compare(a, b) == Ordering::Greater
}
