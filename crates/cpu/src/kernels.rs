//! Kernels by family. Each family's file says which ops it computes; this one only collects them.

mod attention;
mod convolution;
mod elementwise;
mod movement;
mod norm;
mod picture;
mod product;
mod reduce;
mod rope;
mod rows;
mod soft_max;
mod sort;
mod ssm;

use orlop_graph::Op;

use crate::task::Kernel;

/// The kernel of an op, if there is one. Views have none and need none.
pub(crate) fn kernel(op: &Op) -> Option<Kernel> {
    const FAMILIES: [fn(&Op) -> Option<Kernel>; 13] = [
        attention::kernel,
        convolution::kernel,
        elementwise::kernel,
        movement::kernel,
        norm::kernel,
        picture::kernel,
        product::kernel,
        reduce::kernel,
        rope::kernel,
        rows::kernel,
        soft_max::kernel,
        sort::kernel,
        ssm::kernel,
    ];
    FAMILIES.iter().find_map(|family| family(op))
}
