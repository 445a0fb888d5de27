//! Products with experts' matrices: token by token, or for many tokens at once in the order of their experts.

use bytemuck::{Pod, Zeroable};
use orlop_backend::{DeviceError, Precision, Step, StepValue};
use orlop_graph::{DType, Glu, Graph, Node, NodeId, Op, TensorId};

use super::mixture::Mixture;
use super::product::{
    FEW_WARPS, MAX_SHARED, PartParameter, TILE, TilesParameter, VectorParameter, group_columns, groups,
    readable, vector_shared,
};
use super::rows::Rounding;
use super::{Launch, LaunchContext, SORTED, SORTED_SOME, Spread, misfit, numbers, wide_rows};
use crate::modules::{Source, Variant};

/// What the vector kernel is told of experts.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct ExpertsParameter {
    experts: i32,
    step: i32,
    ids: u64,
    marks: u64,
    ids_token: i64,
    x_row: i64,
    x_token: i64,
    y_row: i64,
    y_token: i64,
    inputs: i32,
    used: i32,
    weights: u64,
    some: i32,
    gap: u32,
}

/// Whether an op is a product with experts' matrices.
fn is_product(op: &Op) -> bool {
    matches!(op, Op::MulMatId | Op::MulMatSome)
}

/// Whether the vector kernel computes products with experts' matrices: one of its products for each expert of a token.
pub(crate) fn experts_take(graph: &Graph, node: &Node, in_planes: bool) -> bool {
    if !is_product(&node.op) {
        return false;
    }
    let [a, b, ids] = [0, 1, 2].map(|slot| &graph.tensor(node.inputs[slot]).desc);
    let result = &graph.tensor(node.output).desc;
    let slots = result.extents[1].saturating_mul(result.extents[2]);
    readable(a, in_planes)
        && a.extents[3] == 1
        && result.elements() > 0
        && slots <= MAX_SLOTS
        && a.extents[0] > 0
        && a.elements() / 4 < u64::from(u32::MAX)
        && b.dtype == DType::F32
        && b.extents[3] == 1
        && b.extents[0].is_multiple_of(8)
        && wide_rows(graph, node.inputs[1])
        && (in_planes || graph.tensor(node.inputs[0]).storage.offset.is_multiple_of(16))
        && ids.strides[0] == 4
        && result.dtype == DType::F32
        && result.is_contiguous()
        && b.extents[0] * 4 <= MAX_SHARED
}

/// Tokens from which on experts read their weights once for all of them.
const MANY_TOKENS: u64 = 8;
/// Most experts that `sort` counts.
const MAX_EXPERTS: u64 = 4096;

/// Whether tensor cores compute products with experts' matrices, for tokens in the order of their experts.
pub(crate) fn grouped_takes(graph: &Graph, node: &Node, in_planes: bool) -> bool {
    experts_take(graph, node, in_planes) && {
        let [a, b] = [0, 1].map(|slot| &graph.tensor(node.inputs[slot]).desc);
        let tokens = graph.tensor(node.output).desc.extents[2];
        let used = graph.tensor(node.output).desc.extents[1];
        tokens >= MANY_TOKENS
            && a.dtype != DType::F32
            && a.extents[0].is_multiple_of(32)
            && a.extents[2] <= MAX_EXPERTS
            && b.is_contiguous()
            && (b.extents[1] == 1 || b.extents[1] == used)
    }
}

/// Most blocks in a grid's second direction.
const MAX_SLOTS: u64 = 65_535;
/// Blocks of a multiprocessor, if there are rows for them.
const BLOCKS: u64 = 4;

/// Products of a token with the matrices of its experts, as one step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ExpertProducts {
    pub(crate) matrix: TensorId,
    pub(crate) x: TensorId,
    pub(crate) ids: TensorId,
    /// -1 among the numbers is that of no expert.
    pub(crate) some: bool,
    /// A second matrix, and the function that takes both results.
    pub(crate) pair: Option<(TensorId, Glu)>,
    /// The sum of what the experts of a token have made of it.
    pub(crate) mixture: Option<Mixture>,
    pub(crate) output: TensorId,
}

impl ExpertProducts {
    /// What nodes mean as one step: a product; two products and a gated function; a product and a weighted sum.
    pub(crate) fn parse(graph: &Graph, nodes: &[NodeId]) -> Option<ExpertProducts> {
        let (first, rest) = nodes.split_first()?;
        let node = graph.node(*first);
        if !is_product(&node.op) {
            return None;
        }
        let [matrix, x, ids] = [node.inputs[0], node.inputs[1], node.inputs[2]];
        let (some, output) = (node.op == Op::MulMatSome, node.output);
        let alone = ExpertProducts { matrix, x, ids, some, pair: None, mixture: None, output };
        match rest {
            [] => Some(alone),
            [second, gated] if graph.node(*second).op == node.op => {
                let (second, gated) = (graph.node(*second), graph.node(*gated));
                let Op::Gated { gate, .. } = gated.op else { return None };
                let fits = second.inputs[1..] == node.inputs[1..]
                    && graph.tensor(second.inputs[0]).desc == graph.tensor(matrix).desc
                    && gated.inputs[..] == [node.output, second.output]
                    && graph.tensor(gated.output).desc == graph.tensor(node.output).desc;
                fits.then(|| ExpertProducts {
                    pair: Some((second.inputs[0], gate)),
                    output: gated.output,
                    ..alone
                })
            }
            _ => {
                let mixture = Mixture::parse(graph, rest).filter(|mixture| mixture.x == node.output)?;
                let [desc, inputs] = [matrix, x].map(|id| &graph.tensor(id).desc);
                let used = inputs.extents[1];
                let fits = inputs.is_contiguous()
                    && used == mixture.used
                    && used.saturating_mul(desc.extents[0]).saturating_mul(4) <= MAX_SHARED;
                fits.then_some(ExpertProducts { output: mixture.output, mixture: Some(mixture), ..alone })
            }
        }
    }

    pub(crate) fn reads(&self) -> Vec<TensorId> {
        let mixture = self.mixture.iter().flat_map(|mixture| [Some(mixture.weights), mixture.sum]).flatten();
        let pair = self.pair.map(|(matrix, _)| matrix);
        [self.matrix, self.x, self.ids].into_iter().chain(pair).chain(mixture).collect()
    }
}

/// Token by token.
pub(super) fn experts(
    site: &LaunchContext<'_>,
    step: &Step,
    index: i32,
    launches: &mut Vec<Launch>,
) -> Result<(), DeviceError> {
    let products = ExpertProducts::parse(site.graph(), &step.nodes).ok_or_else(|| misfit(site, step))?;
    let [matrix, x, ids] = [products.matrix, products.x, products.ids].map(|id| site.desc(id));
    let result = site.desc(products.output);
    let (k, m, dtype) = (matrix.extents[0], matrix.extents[1], matrix.dtype);
    let [used, tokens] = [ids.extents[0], ids.extents[1]];
    let stride = |stride: u64| stride as i64;
    let mut parameter = VectorParameter::zeroed();
    parameter.parts = [PartParameter { first: i32::MAX, ..PartParameter::zeroed() }; 4];
    let matrices = [Some(products.matrix), products.pair.map(|(second, _)| second)];
    for (part, matrix) in parameter.parts.iter_mut().zip(matrices.into_iter().flatten()) {
        let (w, starts, _) = site.planes(matrix)?;
        let y = site.at(products.output)?;
        *part = PartParameter { w, starts, y, rows: m as i32, ..PartParameter::zeroed() };
    }
    parameter.parts[1].first = i32::MAX;
    parameter.x = site.at(products.x)?;
    (parameter.k, parameter.count, parameter.rows) = (k as i32, 1, m as i32);
    parameter.gate = products.pair.map_or(0, |(_, gate)| numbers::gate(gate));
    parameter.experts = ExpertsParameter {
        experts: matrix.extents[2] as i32,
        step: index,
        ids: site.at(products.ids)?,
        marks: site.errors,
        ids_token: stride(ids.strides[1]),
        x_row: stride(x.strides[1]),
        x_token: stride(x.strides[2]),
        y_row: stride(result.strides[1]),
        y_token: stride(result.strides[2]),
        inputs: x.extents[1] as i32,
        used: used as i32,
        weights: 0,
        some: i32::from(products.some),
        gap: 0,
    };
    let exact = site.options.precision == Precision::F32;
    let (mode, slots, elements) = match &products.mixture {
        None => (1, used * tokens, k),
        Some(mixture) => {
            parameter.experts.weights = site.at(mixture.weights)?;
            parameter.experts.y_token = stride(result.strides[1]);
            parameter.parts[0].add = mixture.sum.map_or(Ok(0), |sum| site.at(sum))?;
            (2, tokens, k * used)
        }
    };
    let variant = Variant {
        source: Source::Vector,
        defines: vec![
            format!("WTYPE={}", dtype.gguf_id()),
            "ROWS=1".to_owned(),
            format!("EXACT={}", u8::from(exact)),
            format!("PAIR={}", u8::from(products.pair.is_some())),
            format!("WARPS={FEW_WARPS}"),
            format!("EXPERTS={mode}"),
        ],
    };
    let blocks = (BLOCKS * u64::from(site.multiprocessors)).div_ceil(slots).min(m.div_ceil(FEW_WARPS));
    let spread = Spread {
        grid: [blocks.max(1) as u32, slots as u32, 1],
        block: 32 * FEW_WARPS as u32,
        shared_bytes: vector_shared(dtype, elements, exact),
    };
    launches.push(site.launch(&variant, "vector_product", spread, &parameter)?);
    Ok(())
}

/// How the places of tokens lie once they are in the order of their experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sorted {
    /// Places of a tile.
    columns: u32,
    /// Most tiles that there can be.
    tiles: u64,
    slots: u64,
    /// -1 among the numbers is that of no expert.
    some: bool,
}

impl Sorted {
    /// Of `ids` that choose among the matrices of a tensor. Tiles are about as large as what an expert gets.
    pub(crate) fn of(graph: &Graph, ids: TensorId, matrix: TensorId, some: bool) -> Sorted {
        let slots = graph.tensor(ids).desc.elements();
        let experts = graph.tensor(matrix).desc.extents[2].max(1);
        let columns = group_columns((slots / experts * 3 / 4).clamp(1, u64::from(TILE)));
        let kinds = experts + u64::from(some);
        Sorted { columns, tiles: slots / u64::from(columns) + kinds.min(slots), slots, some }
    }

    /// The kernel that writes it.
    pub(crate) fn kernel(&self) -> &'static str {
        if self.some { SORTED_SOME } else { SORTED }
    }

    /// Bytes of what `sort` writes.
    pub(crate) fn bytes(&self) -> u64 {
        (1 + self.tiles) * 16 + self.slots * 4
    }
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct SortParameter {
    ids: u64,
    sorted: u64,
    marks: u64,
    ids_row: i64,
    experts: i32,
    used: i32,
    tokens: i32,
    tile: i32,
    tiles: i32,
    step: i32,
    some: i32,
    gap: u32,
}

/// Shared with `experts.cu`.
pub(super) const SORT_STRUCTURES: &[(&str, usize)] = &[("Sort", size_of::<SortParameter>())];

/// Reads the numbers of experts and their matrices, writes a temporary.
pub(super) fn sort(
    site: &LaunchContext<'_>,
    step: &Step,
    index: i32,
    launches: &mut Vec<Launch>,
) -> Result<(), DeviceError> {
    let [StepValue::Tensor(ids), StepValue::Tensor(matrix)] = step.reads[..] else {
        return Err(misfit(site, step));
    };
    let (desc, experts) = (site.desc(ids), site.desc(matrix).extents[2]);
    let sorted = Sorted::of(site.graph(), ids, matrix, step.kernel == SORTED_SOME);
    let parameter = SortParameter {
        ids: site.at(ids)?,
        sorted: site.temporary(&step.writes)?,
        marks: site.errors,
        ids_row: desc.strides[1] as i64,
        experts: experts as i32,
        used: desc.extents[0] as i32,
        tokens: desc.extents[1] as i32,
        tile: sorted.columns as i32,
        tiles: sorted.tiles as i32,
        step: index,
        some: i32::from(sorted.some),
        gap: 0,
    };
    let spread = Spread { shared_bytes: 4 * (experts as u32 + 1), ..Spread::new(1, 1024) };
    let variant = Variant { source: Source::Experts, defines: vec!["TOKENS=1".to_owned()] };
    launches.push(site.launch(&variant, "sort", spread, &parameter)?);
    Ok(())
}

/// Many tokens at once. Reads rounded activations and what `sort` has written, both temporaries.
pub(super) fn grouped(
    site: &LaunchContext<'_>,
    step: &Step,
    launches: &mut Vec<Launch>,
) -> Result<(), DeviceError> {
    let products = ExpertProducts::parse(site.graph(), &step.nodes).ok_or_else(|| misfit(site, step))?;
    let [rounded, order] = site.temporaries(&step.reads)?[..] else { return Err(misfit(site, step)) };
    let [matrix, x, ids] = [products.matrix, products.x, products.ids].map(|id| site.desc(id));
    let result = site.desc(products.output);
    let sorted = Sorted::of(site.graph(), products.ids, products.matrix, products.some);
    let (w, starts, _) = site.planes(products.matrix)?;
    let (k, m) = (matrix.extents[0], matrix.extents[1]);
    let parameter = TilesParameter {
        w,
        starts,
        x: rounded,
        // F16 and BF16 take the same room.
        scales: rounded + Rounding::F16.bytes(k, x.rows())[0],
        add: 0,
        y: site.at(products.output)?,
        add_row: 0,
        y_row: result.strides[1] as i64,
        m: m as i32,
        n: 0,
        k: k as i32,
        fresh: 0,
        sorted: order,
        tiles: sorted.tiles as i32,
        shared: if x.extents[1] == 1 { ids.extents[0] as i32 } else { 1 },
    };
    let grid = [(m as u32).div_ceil(TILE), sorted.tiles as u32, 1];
    launches.push(groups(site, matrix.dtype, sorted.columns, grid, true, &parameter)?);
    Ok(())
}
