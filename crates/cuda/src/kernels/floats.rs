//! Products of matrices of F32 with rows of activations.

use bytemuck::{Pod, Zeroable};
use orlop_backend::{DeviceError, Step};
use orlop_graph::{DType, Graph, Leaf, Node, NodeId, Op, TensorId};

use super::{Launch, LaunchContext, Spread, misfit, wide_rows};
use crate::modules::{Source, Variant};

/// Most products of one launch.
const MAX_PRODUCTS: usize = 4;
/// Results of a block and of a thread, each way.
const TILES: [[u64; 2]; 2] = [[64, 4], [16, 2]];
/// Bytes of a row in a block's shared memory: 32 floats in 36 places, at four stages.
const ROW_BYTES: u64 = 4 * 36 * 4;
/// Most rows of a matrix: small tiles of them are the grid's second direction.
const MOST_ROWS: u64 = 16 * 65_535;

/// Products with one matrix.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FloatProducts {
    matrix: TensorId,
    /// What goes in, and what comes out.
    products: Vec<(TensorId, TensorId)>,
}

/// Whether the kernel computes a product.
pub(crate) fn floats_take(graph: &Graph, node: &Node) -> bool {
    if node.op != Op::MulMat {
        return false;
    }
    let [a, b] = [node.inputs[0], node.inputs[1]].map(|id| &graph.tensor(id).desc);
    let result = &graph.tensor(node.output).desc;
    [a, b, result].iter().all(|desc| desc.dtype == DType::F32)
        && a.extents[2..] == [1, 1]
        && a.extents[0] > 0
        && a.extents[0].is_multiple_of(4)
        && a.extents[1] <= MOST_ROWS
        && wide_rows(graph, node.inputs[0])
        && wide_rows(graph, node.inputs[1])
        && result.is_contiguous()
        && result.elements() > 0
        && [a, b, result].iter().all(|desc| i32::try_from(desc.elements()).is_ok())
}

impl FloatProducts {
    /// What nodes mean as one step: products with the same matrix.
    pub(crate) fn parse(graph: &Graph, nodes: &[NodeId]) -> Option<FloatProducts> {
        let (first, _) = nodes.split_first()?;
        let matrix = graph.node(*first).inputs[0];
        let product = |node: &NodeId| {
            let node = graph.node(*node);
            let fits = floats_take(graph, node) && node.inputs[0] == matrix;
            fits.then(|| (node.inputs[1], node.output))
        };
        let products = nodes.iter().map(product).collect::<Option<Vec<_>>>()?;
        (products.len() <= MAX_PRODUCTS).then_some(FloatProducts { matrix, products })
    }

    pub(crate) fn reads(&self) -> Vec<TensorId> {
        [self.matrix].into_iter().chain(self.products.iter().map(|(x, _)| *x)).collect()
    }

    pub(crate) fn writes(&self) -> Vec<TensorId> {
        self.products.iter().map(|(_, output)| *output).collect()
    }
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct ColumnsParameter {
    x: u64,
    y: u64,
    x_strides: [i64; 3],
    extents: [i32; 2],
    count: i32,
    first: i32,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct FloatProductsParameter {
    parts: [ColumnsParameter; MAX_PRODUCTS],
    w: u64,
    w_row: i64,
    m: i32,
    k: i32,
    early: i32,
    gap: u32,
}

/// Shared with `floats.cu`.
pub(super) const STRUCTURES: &[(&str, usize)] =
    &[("Columns", size_of::<ColumnsParameter>()), ("FloatProducts", size_of::<FloatProductsParameter>())];

/// Whether nothing in a run writes a matrix.
fn is_unwritten(graph: &Graph, matrix: TensorId) -> bool {
    let root = graph.tensor(matrix).storage.root;
    let written = |node: &Node| !node.op.is_view() && graph.tensor(node.output).storage.root == root;
    matches!(graph.root_leaf(matrix), Some(Leaf::Input | Leaf::Weight)) && !graph.nodes().iter().any(written)
}

pub(super) fn floats(
    site: &LaunchContext<'_>,
    step: &Step,
    launches: &mut Vec<Launch>,
) -> Result<(), DeviceError> {
    let FloatProducts { matrix, products } =
        FloatProducts::parse(site.graph(), &step.nodes).ok_or_else(|| misfit(site, step))?;
    let [k, m, ..] = site.desc(matrix).extents;
    let blocks = |tile: u64| {
        let columns = products.iter().map(|(x, _)| site.desc(*x).rows().div_ceil(tile));
        m.div_ceil(tile) * columns.sum::<u64>()
    };
    // Small tiles where large ones would leave multiprocessors idle.
    let fills = |[tile, _]: &[u64; 2]| blocks(*tile) >= u64::from(site.multiprocessors);
    let [tile, each] = TILES.into_iter().find(fills).unwrap_or(TILES[1]);
    let unused = ColumnsParameter { first: i32::MAX, ..ColumnsParameter::zeroed() };
    let mut parts = [unused; MAX_PRODUCTS];
    let mut places = 0;
    for ((x, y), part) in products.iter().zip(&mut parts) {
        let desc = site.desc(*x);
        let [_, strides @ ..] = desc.strides.map(|stride| stride as i64);
        *part = ColumnsParameter {
            x: site.at(*x)?,
            y: site.at(*y)?,
            x_strides: strides,
            extents: [desc.extents[1] as i32, desc.extents[2] as i32],
            count: desc.rows() as i32,
            first: places as i32,
        };
        places += desc.rows().div_ceil(tile);
    }
    let parameter = FloatProductsParameter {
        parts,
        w: site.at(matrix)?,
        w_row: site.desc(matrix).strides[1] as i64,
        m: m as i32,
        k: k as i32,
        early: i32::from(is_unwritten(site.graph(), matrix)),
        gap: 0,
    };
    let variant =
        Variant { source: Source::Floats, defines: vec![format!("TILE={tile}"), format!("EACH={each}")] };
    let threads = (tile / each).pow(2) as u32;
    let grid = [places as u32, m.div_ceil(tile) as u32, 1];
    let shared_bytes = (2 * tile * ROW_BYTES) as u32;
    let spread = Spread { grid, block: threads, shared_bytes };
    launches.push(site.launch(&variant, "float_products", spread, &parameter)?);
    Ok(())
}
