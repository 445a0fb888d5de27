use bytemuck::{Pod, Zeroable};
use orlop_backend::{DeviceError, Step, Value};
use orlop_graph::{DType, Graph, NodeId, Op, TensorId};

use super::{Launch, Site, Spread, misfit, wide_rows};
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

/// Threads for a row of so many elements, four at a time.
fn row_threads(k: u64) -> u32 {
    (k / 4).next_multiple_of(32).clamp(32, 1024) as u32
}

pub(super) fn scaled_norm(site: &Site<'_>, step: &Step, launches: &mut Vec<Launch>) -> Result<(), DeviceError> {
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

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct HalvesParameter {
    x: u64,
    y: u64,
    scales: u64,
    x_row: i64,
    rows: i64,
    k: i32,
    bfloat: i32,
}

/// Bytes of rows of halves, and of the scales behind them.
pub(crate) fn halves_bytes(k: u64, rows: u64) -> [u64; 2] {
    [k.saturating_mul(rows).saturating_mul(2).next_multiple_of(256), rows.saturating_mul(4)]
}

/// Reads activations, writes a temporary; which halves is in the kernel's name.
pub(super) fn halves(site: &Site<'_>, step: &Step, launches: &mut Vec<Launch>) -> Result<(), DeviceError> {
    let [Value::Tensor(x), Value::Tensor(weight)] = step.reads[..] else { return Err(misfit(site, step)) };
    let desc = site.desc(x);
    let (k, rows) = (desc.extents[0], desc.extents[1]);
    let y = site.temporary(&step.writes)?;
    let parameter = HalvesParameter {
        x: site.at(x)?,
        y,
        scales: y + halves_bytes(k, rows)[0],
        x_row: desc.strides[1] as i64,
        rows: rows as i64,
        k: k as i32,
        bfloat: i32::from(site.desc(weight).dtype == DType::BF16),
    };
    let spread = Spread::new(rows, row_threads(k));
    launches.push(site.launch(&Variant::plain(Source::Rows), "halves", spread, &parameter)?);
    Ok(())
}
