//! Kernels, one file per family of ops. [`kernel`] names the kernel of every op.

mod attention;
mod convolution;
mod delta;
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

pub(crate) use attention::ATTENTION;
pub(crate) use elementwise::GATED_VALUES;
pub(crate) use norm::SCALED_NORM;
pub(crate) use product::{
    PRODUCT, PRODUCT_AND_SUMS, PRODUCT_ID, PRODUCTS, ROUND, Rounding, joins, takes_rounded,
};
pub(crate) use rope::ROPE_INTO_ROWS;

use crate::task::{
    Check, FloatScratch, Kernel, KernelBody, StepKernel, StepOperand, StepOperands, StepShape,
};

/// The kernel of an op, or `None` for ops that this device refuses and for views, which need none.
pub(crate) fn kernel(op: &Op) -> Option<Kernel> {
    Some(match op {
        Op::View { .. } | Op::Reshape { .. } | Op::Permute { .. } | Op::Transpose => return None,
        Op::Dup | Op::Cont => movement::COPY,
        Op::Cast { .. } | Op::Copy => movement::CONVERT,
        Op::GetRows => rows::GET_ROWS,
        Op::SetRows => rows::SET_ROWS,
        Op::Set(_) => movement::SET,
        Op::Acc(_) => movement::ACCUMULATE,
        Op::Repeat { .. } => movement::REPEAT,
        Op::Concat { .. } => movement::CONCAT,
        Op::Pad { .. } => movement::PAD,
        Op::Roll { .. } => movement::ROLL,
        Op::Arange { .. } => movement::ARANGE,
        Op::Add | Op::Add1 | Op::Sub | Op::Mul | Op::Div => elementwise::BINARY,
        Op::Scale { .. } | Op::Clamp { .. } | Op::Unary(_) | Op::LeakyRelu { .. } => elementwise::UNARY,
        Op::Gated { .. } => elementwise::GATED,
        Op::Sum => reduce::SUM,
        Op::SumRows | Op::Mean => reduce::SUM_ROWS,
        Op::CumSum => reduce::RUNNING_SUMS,
        Op::ArgMax => reduce::ARG_MAX,
        Op::ArgSort { .. } | Op::TopK { .. } => sort::SORT,
        Op::Norm { .. } | Op::RmsNorm { .. } | Op::L2Norm { .. } => norm::ROWS,
        Op::GroupNorm { .. } => norm::GROUPS,
        Op::SoftMax(_) => soft_max::SOFT_MAX,
        Op::DiagMaskInf { .. } | Op::DiagMaskZero { .. } => soft_max::DIAGONAL,
        Op::MulMat => product::MUL_MAT,
        Op::MulMatId | Op::MulMatSome => product::MUL_MAT_ID,
        Op::OutProd => product::OUT_PROD,
        Op::Rope(_) => rope::ROPE,
        Op::FlashAttention(_) => attention::FLASH_ATTENTION,
        Op::Im2Col { .. } => convolution::IM2COL,
        Op::Conv1d(_) | Op::Conv2d(_) => convolution::CONVOLUTION,
        Op::ConvDepthwise2d(_) => convolution::DEPTHWISE,
        Op::ConvTranspose1d { .. } | Op::ConvTranspose2d { .. } => convolution::TRANSPOSED,
        Op::Pool1d(_) | Op::Pool2d(_) => image::POOL,
        Op::Upscale { .. } => image::UPSCALE,
        Op::TimestepEmbedding { .. } => image::TIMESTEP_EMBEDDING,
        Op::SsmConv => ssm::CONVOLUTION,
        Op::SsmScan => ssm::SCAN,
        Op::DeltaScan => delta::SCAN,
        Op::Custom { .. } => return None,
    })
}

/// The kernel of a fused step or of a part of a node, by the name that steps have.
pub(crate) fn named(name: &str) -> Option<StepKernel> {
    type Family = fn(&str, Option<Rounding>) -> Option<StepKernel>;
    const FAMILIES: [Family; 5] =
        [attention::named, elementwise::named, norm::named, product::named, rope::named];
    let (name, rounding) = Rounding::split(name);
    FAMILIES.iter().find_map(|family| family(name, rounding))
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
