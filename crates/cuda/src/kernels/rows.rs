use bytemuck::{Pod, Zeroable};
use orlop_backend::{DeviceError, Step, StepValue};
use orlop_graph::{DType, Glu, Graph, NodeId, Op, TensorDesc, TensorId};

use super::{
    EIGHT_BIT, F16_ACTIVATIONS, I8_ACTIVATIONS, Launch, LaunchContext, Spread, misfit, numbers, wide_rows,
};
use crate::modules::{Source, Variant};

/// A norm with what follows it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ScaledNorm {
    pub(crate) x: TensorId,
    pub(crate) weight: TensorId,
    pub(crate) bias: Option<TensorId>,
    pub(crate) output: TensorId,
    pub(crate) eps: f32,
    /// The mean is subtracted first.
    pub(crate) mean: bool,
}

impl ScaledNorm {
    /// What nodes mean as one step, if its kernel takes them: a norm, a product with a row of factors, a sum with a row.
    pub(crate) fn parse(graph: &Graph, nodes: &[NodeId]) -> Option<ScaledNorm> {
        let (norm, rest) = nodes.split_first()?;
        let (mul, add) = rest.split_first()?;
        let (norm, mul) = (graph.node(*norm), graph.node(*mul));
        let (eps, mean) = match norm.op {
            Op::RmsNorm { eps } => (eps, false),
            Op::Norm { eps } => (eps, true),
            _ => return None,
        };
        let x = norm.inputs[0];
        let row = |id: TensorId| {
            let desc = &graph.tensor(id).desc;
            desc.dtype == DType::F32
                && desc.extents == [graph.tensor(x).desc.extents[0], 1, 1, 1]
                && wide_rows(graph, id)
        };
        let operand = |node: &orlop_graph::Node, op: &Op, first: TensorId| {
            (node.op == *op && node.inputs[0] == first && row(node.inputs[1])).then(|| node.inputs[1])
        };
        let weight = operand(mul, &Op::Mul, norm.output)?;
        let bias = match add {
            [] => None,
            [add] => Some(operand(graph.node(*add), &Op::Add, mul.output)?),
            _ => return None,
        };
        let output = add.first().map_or(mul.output, |add| graph.node(*add).output);
        let plain = |id: TensorId| {
            let desc = &graph.tensor(id).desc;
            desc.dtype == DType::F32 && desc.is_contiguous() && wide_rows(graph, id)
        };
        let fits = plain(x) && plain(output) && graph.tensor(x).desc.extents[0].is_multiple_of(4);
        fits.then_some(ScaledNorm { x, weight, bias, output, eps, mean })
    }
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct ScaledNormParameter {
    x: u64,
    weight: u64,
    bias: u64,
    y: u64,
    x_row: i64,
    y_row: i64,
    rows: i64,
    k: i32,
    mean: i32,
    eps: f32,
    gap: u32,
}

/// Threads for a row of this many elements, four at a time.
pub(super) fn row_threads(k: u64) -> u32 {
    (k / 4).next_multiple_of(32).clamp(32, 1024) as u32
}

pub(super) fn scaled_norm(
    site: &LaunchContext<'_>,
    step: &Step,
    launches: &mut Vec<Launch>,
) -> Result<(), DeviceError> {
    let norm = ScaledNorm::parse(site.graph(), &step.nodes).ok_or_else(|| misfit(site, step))?;
    let desc = site.desc(norm.x);
    let k = desc.extents[0];
    let parameter = ScaledNormParameter {
        x: site.at(norm.x)?,
        weight: site.at(norm.weight)?,
        bias: norm.bias.map_or(Ok(0), |bias| site.at(bias))?,
        y: site.at(norm.output)?,
        x_row: desc.row_bytes() as i64,
        y_row: desc.row_bytes() as i64,
        rows: desc.rows() as i64,
        k: k as i32,
        mean: i32::from(norm.mean),
        eps: norm.eps,
        gap: 0,
    };
    if desc.elements() > 0 {
        let spread = Spread::new(desc.rows(), row_threads(k));
        launches.push(site.launch(&Variant::plain(Source::Rows), "scaled_norm", spread, &parameter)?);
    }
    Ok(())
}

/// What activations are rounded to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rounding {
    F16,
    BF16,
    /// 32 elements with a scale of their own.
    Int8,
}

impl Rounding {
    /// What the kernel of a product with a matrix of a type takes.
    pub(crate) fn of(kernel: &str, matrix: DType) -> Rounding {
        match matrix {
            _ if kernel == EIGHT_BIT => Rounding::Int8,
            DType::BF16 => Rounding::BF16,
            _ => Rounding::F16,
        }
    }

    /// The kernel that rounds so.
    pub(crate) fn kernel(self) -> &'static str {
        if self == Rounding::Int8 { I8_ACTIVATIONS } else { F16_ACTIVATIONS }
    }

    /// Its name in words.
    pub(crate) fn words(self) -> &'static str {
        if self == Rounding::Int8 { "int8" } else { "F16" }
    }

    /// Bytes of rows, and of the numbers behind them: a scale for each row, or four for 32 elements.
    pub(crate) fn bytes(self, k: u64, rows: u64) -> [u64; 2] {
        let elements = k.saturating_mul(rows);
        match self {
            Rounding::Int8 => [elements.next_multiple_of(256), (elements / 32).saturating_mul(16)],
            _ => [elements.saturating_mul(2).next_multiple_of(256), rows.saturating_mul(4)],
        }
    }
}

/// What activations are computed from on their way to fewer bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rounded {
    /// Nothing: they are there.
    Plain(TensorId),
    /// A norm.
    Normed(ScaledNorm),
    /// A gated function of the first, times the second.
    Gated(Glu, [TensorId; 2]),
}

impl Rounded {
    /// What nodes mean in a step that rounds their result, if its kernel takes them.
    pub(crate) fn parse(graph: &Graph, nodes: &[NodeId]) -> Option<Rounded> {
        if let Some(norm) = ScaledNorm::parse(graph, nodes) {
            let rows = graph.tensor(norm.x).desc;
            let fits = !norm.mean && norm.bias.is_none() && rows.extents[2..] == [1, 1];
            return fits.then_some(Rounded::Normed(norm));
        }
        let [node] = nodes else { return None };
        let node = graph.node(*node);
        let (Op::Gated { gate, .. }, [a, b]) = (&node.op, &node.inputs[..]) else { return None };
        let plain = |id: &TensorId| {
            let desc = &graph.tensor(*id).desc;
            desc.dtype == DType::F32
                && (desc.extents[2..] == [1, 1] || desc.is_contiguous())
                && wide_rows(graph, *id)
        };
        let fits = plain(a) && plain(b) && graph.tensor(*a).desc.extents[0].is_multiple_of(4);
        fits.then_some(Rounded::Gated(*gate, [*a, *b]))
    }

    pub(crate) fn reads(&self) -> Vec<TensorId> {
        match self {
            Rounded::Plain(x) => vec![*x],
            Rounded::Normed(norm) => vec![norm.x, norm.weight],
            Rounded::Gated(_, both) => both.to_vec(),
        }
    }
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct OpenedParameter {
    x: u64,
    y: u64,
    elements: i64,
    dtype: i32,
    block: i32,
    bytes: i32,
    gap: u32,
}

/// Bytes of a matrix in F16.
pub(crate) fn opened_bytes(matrix: &TensorDesc) -> u64 {
    matrix.elements().saturating_mul(2)
}

/// Reads a matrix, writes a temporary.
pub(super) fn dequantize(
    site: &LaunchContext<'_>,
    step: &Step,
    launches: &mut Vec<Launch>,
) -> Result<(), DeviceError> {
    let Some(StepValue::Tensor(matrix)) = step.reads.first() else { return Err(misfit(site, step)) };
    let desc = site.desc(*matrix);
    let parameter = OpenedParameter {
        x: site.at(*matrix)?,
        y: site.temporary(&step.writes)?,
        elements: desc.elements() as i64,
        dtype: desc.dtype.gguf_id() as i32,
        block: desc.dtype.block_elements() as i32,
        bytes: desc.dtype.block_bytes() as i32,
        gap: 0,
    };
    let spread = Spread::new(desc.elements().div_ceil(8 * 256), 256);
    launches.push(site.launch(&Variant::plain(Source::Rows), "dequantize", spread, &parameter)?);
    Ok(())
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct RoundedParameter {
    x: u64,
    other: u64,
    weight: u64,
    y: u64,
    scales: u64,
    x_row: i64,
    other_row: i64,
    rows: i64,
    eps: f32,
    k: i32,
    bfloat: i32,
    gate: i32,
}

/// Reads activations, or what they are computed from, and last a weight that says to which type; writes a temporary.
pub(super) fn round(
    site: &LaunchContext<'_>,
    step: &Step,
    launches: &mut Vec<Launch>,
) -> Result<(), DeviceError> {
    let (Some(StepValue::Tensor(x)), Some(StepValue::Tensor(weight))) =
        (step.reads.first(), step.reads.last())
    else {
        return Err(misfit(site, step));
    };
    let rounded = if step.nodes.is_empty() {
        Rounded::Plain(*x)
    } else {
        Rounded::parse(site.graph(), &step.nodes).ok_or_else(|| misfit(site, step))?
    };
    let desc = site.desc(*x);
    let (k, rows) = (desc.extents[0], desc.rows());
    // In further dimensions, rows lie one after the other.
    let row =
        |desc: &TensorDesc| if desc.extents[1] == 1 { desc.row_bytes() } else { desc.strides[1] } as i64;
    let int8 = step.kernel == I8_ACTIVATIONS;
    let rounding = Rounding::of(if int8 { EIGHT_BIT } else { "" }, site.desc(*weight).dtype);
    let y = site.temporary(&step.writes)?;
    let (norm, gate) = match rounded {
        Rounded::Plain(_) => (None, None),
        Rounded::Normed(norm) => (Some(norm), None),
        Rounded::Gated(gate, [_, other]) => (None, Some((gate, other))),
    };
    let parameter = RoundedParameter {
        x: site.at(*x)?,
        other: gate.map_or(Ok(0), |(_, other)| site.at(other))?,
        weight: norm.map_or(Ok(0), |norm| site.at(norm.weight))?,
        y,
        scales: y + rounding.bytes(k, rows)[0],
        x_row: row(desc),
        other_row: gate.map_or(0, |(_, other)| row(site.desc(other))),
        rows: rows as i64,
        eps: norm.map_or(0.0, |norm| norm.eps),
        k: k as i32,
        bfloat: i32::from(rounding == Rounding::BF16),
        gate: gate.map_or(0, |(gate, _)| numbers::gate(gate)),
    };
    let spread = Spread::new(rows, row_threads(k));
    launches.push(site.launch(&Variant::plain(Source::Rows), rounding.kernel(), spread, &parameter)?);
    Ok(())
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct LargestParameter {
    x: u64,
    y: u64,
    x_row: i64,
    rows: i64,
    k: i32,
    gap: u32,
}

/// Shared with `rows.cu`.
pub(super) const STRUCTURES: &[(&str, usize)] = &[
    ("ScaledNorm", size_of::<ScaledNormParameter>()),
    ("Rounded", size_of::<RoundedParameter>()),
    ("Opened", size_of::<OpenedParameter>()),
    ("Largest", size_of::<LargestParameter>()),
];

/// Whether rows of floats lie so that `largest` can go through them.
pub(super) fn largest_takes(graph: &Graph, x: TensorId) -> bool {
    let desc = &graph.tensor(x).desc;
    desc.dtype == DType::F32
        && desc.extents[2..] == [1, 1]
        && i32::try_from(desc.extents[0]).is_ok()
        && desc.elements() > 0
        && wide_rows(graph, x)
}

/// Where each row's largest element is.
pub(super) fn largest(
    site: &LaunchContext<'_>,
    [x, y]: [TensorId; 2],
    launches: &mut Vec<Launch>,
) -> Result<(), DeviceError> {
    let desc = site.desc(x);
    let [k, rows, ..] = desc.extents;
    let parameter = LargestParameter {
        x: site.at(x)?,
        y: site.at(y)?,
        x_row: desc.strides[1] as i64,
        rows: rows as i64,
        k: k as i32,
        gap: 0,
    };
    let spread = Spread::new(rows, row_threads(k));
    launches.push(site.launch(&Variant::plain(Source::Rows), "largest", spread, &parameter)?);
    Ok(())
}
