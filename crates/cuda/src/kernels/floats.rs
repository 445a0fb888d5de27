//! Products of matrices of F32 with rows of activations, which may go into caches in blocks.

use bytemuck::{Pod, Zeroable};
use orlop_backend::{DeviceError, Step};
use orlop_graph::{DType, Graph, Node, NodeId, Op, TensorId};

use super::{Launch, LaunchContext, Spread, is_unwritten, misfit, wide_rows};
use crate::modules::{Source, Variant};

/// Most products of one launch.
const MAX_PRODUCTS: usize = 4;
/// Results of a block and of a thread, each way.
const TILES: [[u64; 2]; 2] = [[64, 4], [32, 2]];
/// Bytes of a row in a block's shared memory: 32 floats in 36 places, at four stages.
const ROW_BYTES: u64 = 4 * 36 * 4;
/// Most rows of a matrix: small tiles of them are the grid's second direction.
const MOST_ROWS: u64 = 32 * 65_535;

/// Products with one matrix.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FloatProducts {
    matrix: TensorId,
    products: Vec<FloatProduct>,
}

/// Rows of activations, and their results.
#[derive(Clone, Copy, Debug, PartialEq)]
struct FloatProduct {
    x: TensorId,
    output: TensorId,
    /// The results are rows of a cache, the output: which.
    indices: Option<TensorId>,
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
    /// What nodes mean as one step: products with the same matrix, and rows of caches that their results become.
    pub(crate) fn parse(graph: &Graph, nodes: &[NodeId]) -> Option<FloatProducts> {
        let (first, _) = nodes.split_first()?;
        let matrix = *graph.node(*first).inputs.first()?;
        let mut products: Vec<FloatProduct> = Vec::new();
        for node in nodes.iter().map(|node| graph.node(*node)) {
            if node.op == Op::SetRows {
                let root = graph.tensor(node.inputs[1]).storage.root;
                let product = products.iter_mut().find(|product| product.output == root)?;
                (product.output, product.indices) = (node.output, Some(written_rows(graph, node, product)?));
            } else if floats_take(graph, node) && node.inputs[0] == matrix {
                products.push(FloatProduct { x: node.inputs[1], output: node.output, indices: None });
            } else {
                return None;
            }
        }
        (products.len() <= MAX_PRODUCTS).then_some(FloatProducts { matrix, products })
    }

    pub(crate) fn reads(&self, graph: &Graph) -> Vec<TensorId> {
        // What is written by rows is read too: the rows that are left stay.
        let written =
            |product: &FloatProduct| product.indices.map(|_| graph.tensor(product.output).storage.root);
        let reads = |product: &FloatProduct| [Some(product.x), product.indices, written(product)];
        [self.matrix].into_iter().chain(self.products.iter().flat_map(reads).flatten()).collect()
    }

    pub(crate) fn writes(&self) -> Vec<TensorId> {
        self.products.iter().map(|product| product.output).collect()
    }
}

/// The indices of the rows that a product's results become, if the kernel writes them: each token's heads go to planes of
/// their own.
fn written_rows(graph: &Graph, node: &Node, product: &FloatProduct) -> Option<TensorId> {
    let [into, rows, indices] = node.inputs[..] else { return None };
    let desc = |id: TensorId| &graph.tensor(id).desc;
    let (result, source, target) = (desc(product.output), desc(rows), desc(into));
    let [m, heads, tokens, last] = result.extents;
    let fits = product.indices.is_none()
        && matches!(target.dtype, DType::Q8_0 | DType::Q4_0)
        && target.strides[0] == target.dtype.block_bytes()
        && last == 1
        && graph.tensor(rows).storage.offset == 0
        && source.extents == [m, tokens, heads, 1]
        && source.strides[0] == 4
        && (tokens == 1 || source.strides[1] == result.strides[2])
        && (heads == 1 || source.strides[2] == result.strides[1])
        && desc(indices).is_contiguous()
        && desc(indices).extents[1..] == [1; 3];
    fits.then_some(indices)
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
    indices: u64,
    y_head: i64,
    y_row: i64,
    rows: i64,
    dtype: i32,
    wide: i32,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct FloatProductsParameter {
    parts: [ColumnsParameter; MAX_PRODUCTS],
    w: u64,
    w_row: i64,
    m: i32,
    k: i32,
    marks: u64,
    step: i32,
    early: i32,
}

/// Shared with `floats.cu`.
pub(super) const STRUCTURES: &[(&str, usize)] =
    &[("Columns", size_of::<ColumnsParameter>()), ("FloatProducts", size_of::<FloatProductsParameter>())];

pub(super) fn floats(
    site: &LaunchContext<'_>,
    step: &Step,
    index: i32,
    launches: &mut Vec<Launch>,
) -> Result<(), DeviceError> {
    let FloatProducts { matrix, products } =
        FloatProducts::parse(site.graph(), &step.nodes).ok_or_else(|| misfit(site, step))?;
    let [k, m, ..] = site.desc(matrix).extents;
    let blocks = |tile: u64| {
        let columns = products.iter().map(|product| site.desc(product.x).rows().div_ceil(tile));
        m.div_ceil(tile) * columns.sum::<u64>()
    };
    // Small tiles where large ones would leave multiprocessors idle.
    let fills = |[tile, _]: &[u64; 2]| blocks(*tile) >= u64::from(site.multiprocessors);
    let [tile, each] = TILES.into_iter().find(fills).unwrap_or(TILES[1]);
    let unused = ColumnsParameter { first: i32::MAX, ..ColumnsParameter::zeroed() };
    let mut parts = [unused; MAX_PRODUCTS];
    let mut places = 0;
    for (FloatProduct { x, output, indices }, part) in products.iter().zip(&mut parts) {
        let (desc, y) = (site.desc(*x), site.desc(*output));
        let [_, strides @ ..] = desc.strides.map(|stride| stride as i64);
        *part = ColumnsParameter {
            x: site.at(*x)?,
            y: site.at(*output)?,
            x_strides: strides,
            extents: [desc.extents[1] as i32, desc.extents[2] as i32],
            count: desc.rows() as i32,
            first: places as i32,
            indices: indices.map_or(Ok(0), |indices| site.at(indices))?,
            y_head: y.strides[2] as i64,
            y_row: y.strides[1] as i64,
            rows: y.extents[1] as i64,
            dtype: y.dtype.gguf_id() as i32,
            wide: i32::from(indices.is_some_and(|indices| site.desc(indices).dtype == DType::I64)),
        };
        places += desc.rows().div_ceil(tile);
    }
    let parameter = FloatProductsParameter {
        parts,
        w: site.at(matrix)?,
        w_row: site.desc(matrix).strides[1] as i64,
        m: m as i32,
        k: k as i32,
        marks: site.errors,
        step: index,
        early: i32::from(is_unwritten(site.graph(), matrix)),
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
