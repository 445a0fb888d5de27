use bytemuck::{Pod, Zeroable};
use orlop_backend::{DeviceError, Precision, Step};
use orlop_graph::{DType, Graph, Node, Op};

use super::product::{FEW_WARPS, MOST_SHARED, PartParameter, VectorParameter, readable, vector_shared};
use super::{Launch, LaunchContext, Spread, misfit, wide_rows};
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
}

/// Whether the vector kernel computes products with experts' matrices: one of its products for each expert of a token.
pub(crate) fn experts_take(graph: &Graph, node: &Node, in_planes: bool) -> bool {
    if node.op != Op::MulMatId {
        return false;
    }
    let [a, b, ids] = [0, 1, 2].map(|slot| &graph.tensor(node.inputs[slot]).desc);
    let result = &graph.tensor(node.output).desc;
    let slots = result.extents[1].saturating_mul(result.extents[2]);
    readable(a, in_planes)
        && a.extents[3] == 1
        && result.elements() > 0
        && slots <= MOST_SLOTS
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
        && b.extents[0] * 4 <= MOST_SHARED
}

/// Most blocks in a grid's second direction.
const MOST_SLOTS: u64 = 65_535;
/// Blocks of a multiprocessor, if there are rows for them.
const BLOCKS: u64 = 4;

pub(super) fn experts(
    site: &LaunchContext<'_>,
    step: &Step,
    index: i32,
    launches: &mut Vec<Launch>,
) -> Result<(), DeviceError> {
    let [node] = step.nodes[..] else { return Err(misfit(site, step)) };
    let node = site.graph().node(node);
    let [matrix, x, ids] = [0, 1, 2].map(|slot| site.desc(node.inputs[slot]));
    let result = site.desc(node.output);
    let (k, m, dtype) = (matrix.extents[0], matrix.extents[1], matrix.dtype);
    let [_, used, tokens, _] = result.extents;
    let (w, starts, _) = site.planes(node.inputs[0])?;
    let stride = |stride: u64| stride as i64;
    let mut parameter = VectorParameter::zeroed();
    parameter.parts = [PartParameter { first: i32::MAX, ..PartParameter::zeroed() }; 4];
    parameter.parts[0] =
        PartParameter { w, starts, y: site.at(node.output)?, rows: m as i32, ..PartParameter::zeroed() };
    parameter.x = site.at(node.inputs[1])?;
    (parameter.k, parameter.count, parameter.rows) = (k as i32, 1, m as i32);
    parameter.experts = ExpertsParameter {
        experts: matrix.extents[2] as i32,
        step: index,
        ids: site.at(node.inputs[2])?,
        marks: site.errors,
        ids_token: stride(ids.strides[1]),
        x_row: stride(x.strides[1]),
        x_token: stride(x.strides[2]),
        y_row: stride(result.strides[1]),
        y_token: stride(result.strides[2]),
        inputs: x.extents[1] as i32,
        used: used as i32,
    };
    let exact = site.options.precision == Precision::F32;
    let variant = Variant {
        source: Source::Vector,
        defines: vec![
            format!("WTYPE={}", dtype.gguf_id()),
            "ROWS=1".to_owned(),
            format!("EXACT={}", u8::from(exact)),
            "PAIR=0".to_owned(),
            format!("WARPS={FEW_WARPS}"),
            "EXPERTS=1".to_owned(),
        ],
    };
    let slots = used * tokens;
    let blocks = (BLOCKS * u64::from(site.multiprocessors)).div_ceil(slots).min(m.div_ceil(FEW_WARPS));
    let spread = Spread {
        grid: [blocks.max(1) as u32, slots as u32, 1],
        block: 32 * FEW_WARPS as u32,
        shared_bytes: vector_shared(dtype, k, exact),
    };
    launches.push(site.launch(&variant, "vector_product", spread, &parameter)?);
    Ok(())
}
