//! Convolutions of one and two dimensions, plain, depthwise and transposed.

use orlop_graph::{DType, Op, Window};

use crate::conformance::Tolerance::{Exact, Product};
use crate::conformance::case::{Lie, Table};
use crate::fill::Fill;

/// An op for a window.
type Convolution = fn(Window) -> Op;

/// Windows that fit kernels of up to 3 on data of at least 9.
fn windows() -> [(&'static str, Window); 6] {
    let plain = Window::default();
    [
        ("plain", plain),
        ("stride", Window { stride: [2, 3], ..plain }),
        ("padding", Window { padding: [1, 2], ..plain }),
        ("dilation", Window { dilation: [2, 3], ..plain }),
        ("all", Window { stride: [2, 1], padding: [2, 1], dilation: [1, 2] }),
        ("all odd", Window { stride: [3, 2], padding: [0, 3], dilation: [3, 1] }),
    ]
}

pub(super) fn add(table: &mut Table) {
    one_dimension(table);
    two_dimensions(table);
    transposed(table);
    im2col(table);
}

fn one_dimension(table: &mut Table) {
    for (detail, window) in windows() {
        for (kernel, batch) in [(DType::F32, 1), (DType::F16, 3)] {
            table.add("conv_1d", format!("{detail} {kernel} batch {batch}"), Product, |d| {
                let kernel = d.weight(kernel, &[3, 4, 5], Fill::SIGNED);
                let data = d.f32(&[11, 4, batch]);
                d.b.conv_1d(kernel, data, window)
            });
        }
    }
    for lie in Lie::ODD {
        table.add("conv_1d", lie, Product, |d| {
            let kernel = d.lying(lie, DType::F32, &[3, 4, 5], Fill::SIGNED);
            let data = d.lying(lie, DType::F32, &[9, 4, 2], Fill::SIGNED);
            d.b.conv_1d(kernel, data, Window::default())
        });
    }
    table.add("conv_1d", "kernel of one", Product, |d| {
        let kernel = d.weight(DType::F32, &[1, 4, 5], Fill::SIGNED);
        let data = d.input(DType::F16, &[9, 4, 2], Fill::SIGNED);
        d.b.conv_1d(kernel, data, Window::default())
    });
}

fn two_dimensions(table: &mut Table) {
    let kinds: [(&str, Convolution, [u64; 4]); 2] =
        [("conv_2d", Op::Conv2d, [3, 2, 4, 5]), ("conv_depthwise_2d", Op::ConvDepthwise2d, [3, 2, 1, 4])];
    for (kind, op, extents) in kinds {
        for (detail, window) in windows() {
            for (kernel, batch) in [(DType::F32, 2), (DType::F16, 1)] {
                table.add(kind, format!("{detail} {kernel} batch {batch}"), Product, |d| {
                    let kernel = d.weight(kernel, &extents, Fill::SIGNED);
                    let data = d.f32(&[9, 10, 4, batch]);
                    d.b.node(op(window), &[kernel, data])
                });
            }
        }
        for lie in Lie::ODD {
            table.add(kind, lie, Product, |d| {
                let kernel = d.lying(lie, DType::F32, &extents, Fill::SIGNED);
                let data = d.lying(lie, DType::F32, &[7, 6, 4], Fill::SIGNED);
                d.b.node(op(Window::default()), &[kernel, data])
            });
        }
        table.add(kind, "f16 data", Product, |d| {
            let kernel = d.weight(DType::F16, &extents, Fill::SIGNED);
            let data = d.input(DType::F16, &[7, 6, 4], Fill::SIGNED);
            d.b.node(op(Window::default()), &[kernel, data])
        });
    }
}

fn transposed(table: &mut Table) {
    for stride in [1, 2, 3] {
        for dtype in [DType::F32, DType::F16] {
            table.add("conv_transpose_1d", format!("stride {stride} {dtype}"), Product, |d| {
                let kernel = d.weight(dtype, &[3, 5, 4], Fill::SIGNED);
                let data = d.f32(&[7, 4]);
                d.b.node(Op::ConvTranspose1d { stride }, &[kernel, data])
            });
            table.add("conv_transpose_2d", format!("stride {stride} {dtype}"), Product, |d| {
                let kernel = d.weight(dtype, &[3, 2, 5, 4], Fill::SIGNED);
                let data = d.f32(&[5, 4, 4, 2]);
                d.b.node(Op::ConvTranspose2d { stride }, &[kernel, data])
            });
        }
    }
    for lie in [Lie::Padded, Lie::Permuted, Lie::Transposed] {
        table.add("conv_transpose_1d", lie, Product, |d| {
            let kernel = d.lying(lie, DType::F32, &[3, 5, 4], Fill::SIGNED);
            let data = d.lying(Lie::Transposed, DType::F32, &[7, 4], Fill::SIGNED);
            d.b.node(Op::ConvTranspose1d { stride: 2 }, &[kernel, data])
        });
        table.add("conv_transpose_2d", lie, Product, |d| {
            let kernel = d.lying(lie, DType::F32, &[3, 2, 5, 4], Fill::SIGNED);
            let data = d.lying(lie, DType::F32, &[5, 4, 4, 2], Fill::SIGNED);
            d.b.node(Op::ConvTranspose2d { stride: 2 }, &[kernel, data])
        });
    }
}

fn im2col(table: &mut Table) {
    for (detail, window) in windows() {
        for dtype in [DType::F32, DType::F16] {
            table.add("im2col 1d", format!("{detail} {dtype}"), Exact, |d| {
                let kernel = d.weight(DType::F16, &[3, 4, 5], Fill::SIGNED);
                let data = d.f32(&[11, 4, 3]);
                d.b.im2col(kernel, data, window, false, dtype)
            });
            table.add("im2col 2d", format!("{detail} {dtype}"), Exact, |d| {
                let kernel = d.weight(DType::F16, &[3, 2, 4, 5], Fill::SIGNED);
                let data = d.f32(&[9, 10, 4, 2]);
                d.b.im2col(kernel, data, window, true, dtype)
            });
        }
    }
    for lie in Lie::ODD {
        table.add("im2col 2d", lie, Exact, |d| {
            let kernel = d.weight(DType::F32, &[3, 2, 4, 5], Fill::SIGNED);
            let data = d.lying(lie, DType::F32, &[7, 6, 4], Fill::SIGNED);
            d.b.im2col(kernel, data, Window::default(), true, DType::F32)
        });
    }
}
