//! Canaries: before an op is used, the server computes a tiny example of it. Versions that are told wrongly, and forks that
//! use another's numbers, then fail at once, and not after the weights were sent.

use std::collections::HashMap;
use std::sync::Arc;

use orlop_backend::{Bindings, BufferType, Claim, DeviceError, LowerOptions, Role, SegmentTables, Slot};
use orlop_backend::{Device, NodeQuery, Operand};
use orlop_graph::{
    AccessKind, DType, FlashAttention, Glu, Graph, GraphBuilder, Leaf, NodeId, Op, SoftMax, SortDirection,
    TensorDesc, TensorId, Unary,
};

use super::device::RpcDevice;
use super::lower::lower;
use super::program::RpcProgram;

/// Numbers of an operand.
enum Numbers {
    Floats(Vec<u64>, Vec<f32>),
    Integers(Vec<u64>, Vec<i32>),
    /// As many ones of 16 bits.
    Ones(Vec<u64>),
}

use Numbers::{Floats, Integers, Ones};

/// An op on a few numbers, and what comes out.
struct Canary {
    op: Op,
    operands: Vec<Numbers>,
    expected: Vec<f32>,
}

/// Values that functions tell apart.
const X: [f32; 4] = [1.0, -2.0, 3.0, 0.5];
const Y: [f32; 4] = [0.5, 0.25, -1.5, 2.0];

/// Passes if the server computes examples of these ops, as far as there are some. One that it has passed is not repeated; one
/// that could not be tried is, the next time.
pub(super) fn try_ops<'a>(device: &RpcDevice, ops: impl Iterator<Item = &'a Op>) -> Result<(), DeviceError> {
    for canary in ops.filter_map(example) {
        let name = format!("{:?}", canary.op);
        if !device.has_passed(&name) {
            try_one(device, &canary)?;
            device.note_passed(name);
        }
    }
    Ok(())
}

fn try_one(device: &RpcDevice, canary: &Canary) -> Result<(), DeviceError> {
    let Some((graph, leaves, result)) = build(canary) else { return Ok(()) };
    // What is refused is not asked for in this form.
    let operand = |id: TensorId| Operand { desc: &graph.tensor(id).desc, buffer_type: None };
    let node = &graph.nodes()[0];
    let inputs: Vec<Operand<'_>> = node.inputs.iter().map(|id| operand(*id)).collect();
    let query = NodeQuery { op: &node.op, inputs: &inputs, output: operand(node.output) };
    if !device.supports(&query).is_yes() {
        return Ok(());
    }
    let memory: &Arc<dyn BufferType> = &device.buffer_types(Role::Arena)[0];
    let mut tables = SegmentTables::new(&graph);
    let nodes: Vec<NodeId> = graph.node_ids().collect();
    let segment = tables.segment(&graph, &nodes, |_| Some(Arc::clone(memory)), |_| true, None);
    let steps = lower(device, &segment, &LowerOptions::default())?;
    let mut bytes = 0;
    let mut place = |size: u64| {
        let begin = bytes;
        bytes += size.next_multiple_of(memory.alignment().max(4));
        begin
    };
    let mut offsets: HashMap<TensorId, u64> = HashMap::new();
    for id in graph.tensor_ids() {
        let root = graph.tensor(id).storage.root;
        let offset = match offsets.get(&root) {
            Some(known) => *known,
            None => place(graph.tensor(id).desc.bytes()),
        };
        offsets.insert(id, offset);
    }
    let temporaries: Vec<u64> = steps.temporaries.iter().map(|temporary| place(temporary.bytes)).collect();
    let buffer = Arc::clone(memory).allocate(bytes)?;
    let slot = |offset| Slot { buffer: Arc::clone(&buffer), offset };
    let bindings = Bindings {
        graph: graph.clone(),
        tensors: offsets.iter().map(|(id, offset)| (*id, slot(*offset))).collect(),
        temporaries: temporaries.into_iter().map(slot).collect(),
    };
    let program = RpcProgram::new(device, &steps, &bindings)?;
    let claim = Claim::take(&*buffer, AccessKind::Write)?;
    for (leaf, numbers) in leaves.iter().zip(&canary.operands) {
        buffer.write(&claim, offsets[leaf], &numbers.bytes())?;
    }
    program.run()?;
    let desc = graph.tensor(result).desc;
    let mut found = vec![0; desc.bytes() as usize];
    buffer.read(&claim, offsets[&result], &mut found)?;
    let number = |bytes: &[u8; 4]| match desc.dtype {
        DType::I32 => i32::from_le_bytes(*bytes) as f32,
        _ => f32::from_le_bytes(*bytes),
    };
    for (found, expected) in found.as_chunks().0.iter().map(number).zip(&canary.expected) {
        if (found - expected).abs() > 0.01 * expected.abs().max(1.0) || found.is_nan() {
            let op = canary.op.name();
            return Err(device.lose(format!("it computes {op} wrongly: {found} instead of {expected}")));
        }
    }
    Ok(())
}

fn build(canary: &Canary) -> Option<(Graph, Vec<TensorId>, TensorId)> {
    let mut builder = GraphBuilder::new();
    let leaf = |numbers: &Numbers| {
        let desc = TensorDesc::contiguous(numbers.dtype(), numbers.extents());
        builder.leaf(Leaf::State, "canary", desc)
    };
    let leaves: Vec<TensorId> = canary.operands.iter().map(leaf).collect();
    let result = builder.node(canary.op.clone(), &leaves);
    builder.output(result);
    Some((builder.build().ok()?, leaves, result))
}

impl Numbers {
    fn dtype(&self) -> DType {
        match self {
            Floats(..) => DType::F32,
            Integers(..) => DType::I32,
            Ones(_) => DType::F16,
        }
    }

    fn extents(&self) -> &[u64] {
        match self {
            Floats(extents, _) | Integers(extents, _) | Ones(extents) => extents,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        match self {
            Floats(_, numbers) => numbers.iter().flat_map(|number| number.to_le_bytes()).collect(),
            Integers(_, numbers) => numbers.iter().flat_map(|number| number.to_le_bytes()).collect(),
            Ones(extents) => 0x3c00u16.to_le_bytes().repeat(extents.iter().product::<u64>() as usize),
        }
    }
}

fn example(op: &Op) -> Option<Canary> {
    let x = || Floats(vec![4], X.to_vec());
    let y = || Floats(vec![4], Y.to_vec());
    let each = |function: &dyn Fn(f32) -> f32| X.map(function).to_vec();
    let both = |function: &dyn Fn(f32, f32) -> f32| -> Vec<f32> {
        X.iter().zip(Y).map(|(x, y)| function(*x, y)).collect()
    };
    let mean_square = X.iter().map(|x| x * x).sum::<f32>() / 4.0;
    let mean = X.iter().sum::<f32>() / 4.0;
    let (operands, expected) = match op {
        Op::Dup | Op::Cont => (vec![x()], X.to_vec()),
        Op::Copy => (vec![x(), y()], X.to_vec()),
        Op::GetRows => (vec![Floats(vec![2, 2], X.to_vec()), Integers(vec![1], vec![1])], vec![3.0, 0.5]),
        Op::SetRows => {
            let rows = Floats(vec![2, 1], vec![7.0, 8.0]);
            let table = Floats(vec![2, 2], X.to_vec());
            (vec![table, rows, Integers(vec![1], vec![1])], vec![1.0, -2.0, 7.0, 8.0])
        }
        Op::Add => (vec![x(), y()], both(&|x, y| x + y)),
        Op::Sub => (vec![x(), y()], both(&|x, y| x - y)),
        Op::Mul => (vec![x(), y()], both(&|x, y| x * y)),
        Op::Div => (vec![x(), y()], both(&|x, y| x / y)),
        Op::Unary(function) => (vec![x()], each(&unary(*function)?)),
        Op::Gated { gate, .. } => (vec![x(), y()], both(&gated(*gate)?)),
        Op::SumRows | Op::Sum => (vec![x()], vec![4.0 * mean]),
        Op::Mean => (vec![x()], vec![mean]),
        Op::CumSum => (vec![x()], vec![1.0, -1.0, 2.0, 2.5]),
        Op::ArgMax => (vec![x()], vec![2.0]),
        Op::ArgSort { .. } | Op::TopK { .. } => (vec![x()], vec![2.0, 0.0, 3.0, 1.0]),
        Op::RmsNorm { .. } => (vec![x()], each(&|x| x / mean_square.sqrt())),
        Op::Norm { .. } => {
            let deviation = (mean_square - mean * mean).sqrt();
            (vec![x()], each(&|x| (x - mean) / deviation))
        }
        Op::L2Norm { .. } => (vec![x()], each(&|x| x / (4.0 * mean_square).sqrt())),
        Op::SoftMax(_) => {
            let sum: f32 = X.iter().map(|x| x.exp()).sum();
            (vec![x()], each(&|x| x.exp() / sum))
        }
        Op::MulMat => {
            let rows = Floats(vec![4, 2], [X, Y].concat());
            let products = [X, Y].map(|row| row.iter().zip(Y).map(|(a, b)| a * b).sum());
            (vec![rows, y()], products.to_vec())
        }
        Op::FlashAttention(_) => {
            let queries = Floats(vec![64, 1], vec![0.5; 64]);
            (vec![queries, Ones(vec![64, 1]), Ones(vec![64, 1])], vec![1.0; 64])
        }
        Op::Scale { .. } => (vec![x()], each(&|x| 2.0 * x + 1.0)),
        Op::Clamp { .. } => (vec![x()], each(&|x| x.clamp(-1.0, 2.0))),
        Op::Repeat { .. } => (vec![x()], [X, X].concat()),
        Op::Concat { .. } => (vec![x(), y()], [X, Y].concat()),
        Op::Arange { .. } => (Vec::new(), vec![0.0, 1.0, 2.0]),
        Op::View { .. }
        | Op::Reshape { .. }
        | Op::Permute { .. }
        | Op::Transpose
        | Op::Cast { .. }
        | Op::Set(_)
        | Op::Acc(_)
        | Op::Pad { .. }
        | Op::Roll { .. }
        | Op::Add1
        | Op::LeakyRelu { .. }
        | Op::GroupNorm { .. }
        | Op::DiagMaskInf { .. }
        | Op::DiagMaskZero { .. }
        | Op::MulMatId
        | Op::MulMatSome
        | Op::OutProd
        | Op::Rope(_)
        | Op::Im2Col { .. }
        | Op::Conv1d(_)
        | Op::Conv2d(_)
        | Op::ConvDepthwise2d(_)
        | Op::ConvTranspose1d { .. }
        | Op::ConvTranspose2d { .. }
        | Op::Pool1d(_)
        | Op::Pool2d(_)
        | Op::Upscale { .. }
        | Op::TimestepEmbedding { .. }
        | Op::SsmConv
        | Op::SsmScan
        | Op::DeltaScan
        | Op::Custom { .. } => return None,
    };
    let op = match op {
        Op::Gated { gate, .. } => Op::Gated { gate: *gate, swapped: false },
        Op::ArgSort { .. } => Op::ArgSort { direction: SortDirection::Descending },
        Op::TopK { .. } => Op::TopK { k: 4 },
        Op::RmsNorm { .. } => Op::RmsNorm { eps: 0.0 },
        Op::Norm { .. } => Op::Norm { eps: 0.0 },
        Op::L2Norm { .. } => Op::L2Norm { eps: 0.0 },
        Op::SoftMax(_) => Op::SoftMax(SoftMax { scale: 1.0, max_bias: 0.0, mask: false, sinks: false }),
        Op::FlashAttention(_) => Op::FlashAttention(FlashAttention::scaled(0.1)),
        Op::Scale { .. } => Op::Scale { scale: 2.0, bias: 1.0 },
        Op::Clamp { .. } => Op::Clamp { min: -1.0, max: 2.0 },
        Op::Repeat { .. } => Op::Repeat { extents: [4, 2, 1, 1] },
        Op::Concat { .. } => Op::Concat { axis: 0 },
        Op::Arange { .. } => Op::Arange { start: 0.0, stop: 3.0, step: 1.0 },
        other => other.clone(),
    };
    Some(Canary { op, operands, expected })
}

/// Functions that have an example: numbers of [`X`] may be negative.
fn unary(function: Unary) -> Option<fn(f32) -> f32> {
    Some(match function {
        Unary::Sqr => |x| x * x,
        Unary::Exp => f32::exp,
        Unary::Sin => f32::sin,
        Unary::Cos => f32::cos,
        Unary::Neg => |x| -x,
        Unary::Abs => f32::abs,
        Unary::Sgn => f32::signum,
        Unary::Step => |x| f32::from(x > 0.0),
        Unary::Relu => |x| x.max(0.0),
        Unary::Gelu => gelu,
        Unary::Silu => silu,
        Unary::Sigmoid => |x| 1.0 / (1.0 + (-x).exp()),
        Unary::Tanh => f32::tanh,
        Unary::Softplus => |x| (1.0 + x.exp()).ln(),
        Unary::Sqrt
        | Unary::Log
        | Unary::GeluErf
        | Unary::GeluQuick
        | Unary::Elu
        | Unary::HardSwish
        | Unary::HardSigmoid => return None,
    })
}

fn gated(gate: Glu) -> Option<fn(f32, f32) -> f32> {
    Some(match gate {
        Glu::Relu => |x, y| x.max(0.0) * y,
        Glu::Gelu => |x, y| gelu(x) * y,
        Glu::Silu => |x, y| silu(x) * y,
        Glu::GeluErf | Glu::GeluQuick => return None,
    })
}

fn silu(x: f32) -> f32 {
    x / (1.0 + (-x).exp())
}

fn gelu(x: f32) -> f32 {
    0.5 * x * (1.0 + (0.797_884_6 * (x + 0.044_715 * x * x * x)).tanh())
}
