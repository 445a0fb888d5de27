//! Kernels by family. Each family's file says which ops it computes; this one only collects them.

mod attention;
mod convolution;
mod elementwise;
mod image;
mod movement;
mod norm;
mod product;
mod reduce;
mod rope;
mod rows;
mod soft_max;
mod sort;
mod ssm;

use orlop_backend::Step;
use orlop_graph::{Graph, Op};

pub(crate) use attention::ATTENTION_IN_EIGHT_BITS;
pub(crate) use elementwise::{GATED_IN_EIGHT_BITS, GATED_IN_EIGHT_BITS_JOINTLY};
pub(crate) use norm::{SCALED_NORM, SCALED_NORM_IN_EIGHT_BITS, SCALED_NORM_IN_EIGHT_BITS_JOINTLY};
pub(crate) use product::{
    EIGHT_BIT_PRODUCT, EIGHT_BIT_PRODUCT_AND_SUMS, EIGHT_BIT_PRODUCT_ID, EIGHT_BIT_PRODUCTS, ROUND,
    ROUND_JOINTLY, eight_bit_desc, joins, takes_eight_bits, takes_joint,
};
pub(crate) use rope::ROPE_INTO_ROWS;

use crate::task::{Check, FloatScratch, Kernel, KernelBody, Operand, Operands, Shape, StepKernel};

/// The kernel of an op, if there is one. Views have none and need none.
pub(crate) fn kernel(op: &Op) -> Option<Kernel> {
    const FAMILIES: [fn(&Op) -> Option<Kernel>; 13] = [
        attention::kernel,
        convolution::kernel,
        elementwise::kernel,
        image::kernel,
        movement::kernel,
        norm::kernel,
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

/// A kernel that is no op's own, by the name that steps have: of several nodes, or of a part of one.
pub(crate) fn named(name: &str) -> Option<StepKernel> {
    const FAMILIES: [fn(&str) -> Option<StepKernel>; 5] =
        [attention::named, elementwise::named, norm::named, product::named, rope::named];
    FAMILIES.iter().find_map(|family| family(name))
}

/// The kernel of a step and what that touches; `None` for steps that this device has not made.
pub(crate) fn of_step(graph: &Graph, step: &Step) -> Option<(SelectedKernel, Operands)> {
    if let Some(kernel) = named(&step.kernel) {
        return Some((SelectedKernel::Named(kernel), (kernel.operands)(graph, step)?));
    }
    let [node] = step.nodes[..] else { return None };
    let node = graph.nodes().get(node.index())?;
    let reads = node.inputs.iter().copied().map(Operand::Tensor).collect();
    let operands = Operands { reads, writes: vec![Operand::Tensor(node.output)] };
    Some((SelectedKernel::Node(kernel(&node.op)?), operands))
}

/// The kernel of a step.
#[derive(Clone, Copy)]
pub(crate) enum SelectedKernel {
    /// That of its only node's op.
    Node(Kernel),
    /// One with a name of its own.
    Named(StepKernel),
}

impl SelectedKernel {
    pub(crate) fn needs(&self, shape: &Shape<'_>) -> FloatScratch {
        match (self, &shape.ops[..], &shape.writes[..]) {
            (SelectedKernel::Node(kernel), [op, ..], [result, ..]) => FloatScratch {
                scratch: (kernel.scratch)(op, &shape.reads, result),
                shared: (kernel.shared)(op, &shape.reads, result),
            },
            (SelectedKernel::Node(_), ..) => FloatScratch::default(),
            (SelectedKernel::Named(kernel), ..) => (kernel.needs)(shape),
        }
    }

    pub(crate) fn check(&self) -> Option<Check> {
        match self {
            SelectedKernel::Node(kernel) => kernel.check,
            SelectedKernel::Named(kernel) => kernel.check,
        }
    }

    pub(crate) fn body(&self) -> &KernelBody {
        match self {
            SelectedKernel::Node(kernel) => &kernel.body,
            SelectedKernel::Named(kernel) => &kernel.body,
        }
    }
}
