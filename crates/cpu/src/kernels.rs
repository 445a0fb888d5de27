//! Kernels by family. [`kernel`] names the family of every op; the family's file has the kernel.

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

use crate::task::{
    Check, FloatScratch, Kernel, KernelBody, StepKernel, StepOperand, StepOperands, StepShape,
};

/// The kernel of an op, or `None` for ops that this device refuses and for views, which need none.
pub(crate) fn kernel(op: &Op) -> Option<Kernel> {
    match op {
        Op::View { .. } | Op::Reshape { .. } | Op::Permute { .. } | Op::Transpose => None,
        Op::Dup
        | Op::Cast { .. }
        | Op::Copy
        | Op::Cont
        | Op::Set(_)
        | Op::Acc(_)
        | Op::Repeat { .. }
        | Op::Concat { .. }
        | Op::Pad { .. }
        | Op::Roll { .. }
        | Op::Arange { .. } => movement::kernel(op),
        Op::GetRows | Op::SetRows => rows::kernel(op),
        Op::Add
        | Op::Add1
        | Op::Sub
        | Op::Mul
        | Op::Div
        | Op::Scale { .. }
        | Op::Clamp { .. }
        | Op::Unary(_)
        | Op::LeakyRelu { .. }
        | Op::Gated { .. } => elementwise::kernel(op),
        Op::Sum | Op::SumRows | Op::Mean | Op::CumSum | Op::ArgMax => reduce::kernel(op),
        Op::ArgSort { .. } | Op::TopK { .. } => sort::kernel(op),
        Op::Norm { .. } | Op::RmsNorm { .. } | Op::GroupNorm { .. } | Op::L2Norm { .. } => norm::kernel(op),
        Op::SoftMax(_) | Op::DiagMaskInf { .. } | Op::DiagMaskZero { .. } => soft_max::kernel(op),
        Op::MulMat | Op::MulMatId | Op::OutProd => product::kernel(op),
        Op::Rope(_) => rope::kernel(op),
        Op::FlashAttention(_) => attention::kernel(op),
        Op::Im2Col { .. }
        | Op::Conv1d(_)
        | Op::Conv2d(_)
        | Op::ConvDepthwise2d(_)
        | Op::ConvTranspose1d { .. }
        | Op::ConvTranspose2d { .. } => convolution::kernel(op),
        Op::Pool1d(_) | Op::Pool2d(_) | Op::Upscale { .. } | Op::TimestepEmbedding { .. } => {
            image::kernel(op)
        }
        Op::SsmConv | Op::SsmScan => ssm::kernel(op),
        Op::Custom { .. } => None,
    }
}

/// The kernel of a fused step or of a part of a node, by the name that steps have.
pub(crate) fn named(name: &str) -> Option<StepKernel> {
    const FAMILIES: [fn(&str) -> Option<StepKernel>; 5] =
        [attention::named, elementwise::named, norm::named, product::named, rope::named];
    FAMILIES.iter().find_map(|family| family(name))
}

/// The kernel of a step and what that touches; `None` for steps that this device has not made.
pub(crate) fn of_step(graph: &Graph, step: &Step) -> Option<(SelectedKernel, StepOperands)> {
    if let Some(kernel) = named(&step.kernel) {
        return Some((SelectedKernel::Named(kernel), (kernel.operands)(graph, step)?));
    }
    let [node] = step.nodes[..] else { return None };
    let node = graph.nodes().get(node.index())?;
    let reads = node.inputs.iter().copied().map(StepOperand::Tensor).collect();
    let operands = StepOperands { reads, writes: vec![StepOperand::Tensor(node.output)] };
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
    pub(crate) fn needs(&self, shape: &StepShape<'_>) -> FloatScratch {
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

#[cfg(test)]
mod tests {
    use orlop_graph::OPS;

    use super::*;

    #[test]
    fn families_have_the_kernels_that_they_are_asked_for() {
        for info in OPS {
            let needs_none = info.view || info.name == "custom";
            assert_eq!(kernel(&info.example()).is_none(), needs_none, "{} in `kernels/`", info.name);
        }
    }
}
