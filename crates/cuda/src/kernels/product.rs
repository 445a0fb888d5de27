use bytemuck::{Pod, Zeroable};
use orlop_backend::{DeviceError, Precision, Step};
use orlop_graph::{DType, Glu, Graph, Leaf, Node, NodeId, Op, TensorDesc, TensorId};

use super::experts::ExpertsParameter;
use super::rows::{Rounding, ScaledNorm};
use super::{Launch, LaunchContext, Spread, misfit, numbers, wide_rows};
use crate::modules::{Source, Variant};
use crate::planes::Planes;

/// Most matrices of one launch.
pub(crate) const MAX_PARTS: usize = 4;
/// Warps of a multiprocessor for the vector kernel. One block has them all, as every block rounds the activations anew.
const WARPS: u64 = 32;
/// Warps of a block where there are not rows for all: so that more multiprocessors have some.
pub(super) const FEW_WARPS: u64 = 8;
/// Rows of activations up to which products cost what one costs: a few sequences that go on side by side.
const FEW_ROWS: u64 = 4;
const FEW_ROWS_OF_BYTES: u64 = 64;
/// Rows of activations from which on opening weights costs less than it saves.
const MANY_ROWS: u64 = 32;
/// Most bytes of activations that a block of it keeps.
pub(super) const MAX_SHARED: u64 = 96 << 10;

/// Products with one row of activations, in one launch.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct VectorProducts {
    /// What goes in, before the norm.
    pub(crate) x: TensorId,
    pub(crate) norm: Option<ScaledNorm>,
    pub(crate) parts: Vec<Part>,
    /// The function that takes both parts' results, and its result.
    pub(crate) gate: Option<(Glu, TensorId)>,
}

/// One matrix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Part {
    pub(crate) matrix: TensorId,
    /// Added to the product.
    pub(crate) sum: Option<TensorId>,
    pub(crate) output: TensorId,
}

/// Whether a type of weights in planes has kernels for products.
fn has_planes(desc: &TensorDesc) -> bool {
    Planes::of(desc).is_some()
}

/// Whether weights in blocks are used in planes; others cannot be read quickly.
pub(super) fn readable(desc: &TensorDesc, in_planes: bool) -> bool {
    match desc.dtype {
        DType::F32 | DType::F16 | DType::BF16 => desc.extents[0].is_multiple_of(8) && desc.is_contiguous(),
        _ => in_planes && has_planes(desc),
    }
}

/// Whether nothing in a run writes a matrix: kernels read it before the ones in front of them have ended.
fn is_fixed(graph: &Graph, matrix: TensorId) -> bool {
    graph.root_leaf(matrix) == Some(Leaf::Weight)
}

/// Whether the vector kernel computes a product.
pub(crate) fn vector_takes(graph: &Graph, node: &Node, in_planes: bool) -> bool {
    if node.op != Op::MulMat || !is_fixed(graph, node.inputs[0]) {
        return false;
    }
    let [a, b] = [node.inputs[0], node.inputs[1]].map(|id| &graph.tensor(id).desc);
    readable(a, in_planes)
        && a.extents[2..] == [1, 1]
        && a.extents[1] > 0
        && a.extents[0] > 0
        && b.rows() == 1
        && b.dtype == DType::F32
        && b.extents[0].is_multiple_of(4)
        && wide_rows(graph, node.inputs[1])
        && (in_planes || graph.tensor(node.inputs[0]).storage.offset.is_multiple_of(16))
        && graph.tensor(node.output).desc.dtype == DType::F32
        && b.extents[0] * 4 <= MAX_SHARED
}

/// Whether kernels on tensor cores compute a product.
pub(crate) fn tiles_take(graph: &Graph, node: &Node, in_planes: bool) -> bool {
    if node.op != Op::MulMat || !is_fixed(graph, node.inputs[0]) {
        return false;
    }
    let [a, b] = [node.inputs[0], node.inputs[1]].map(|id| &graph.tensor(id).desc);
    let result = &graph.tensor(node.output).desc;
    a.dtype != DType::F32
        && readable(a, in_planes)
        && a.extents[0] > 0
        && a.extents[0].is_multiple_of(32)
        && a.extents[2..] == [1, 1]
        && b.extents[2..] == [1, 1]
        && b.extents[1] > 1
        && b.dtype == DType::F32
        && wide_rows(graph, node.inputs[1])
        && (in_planes || graph.tensor(node.inputs[0]).storage.offset.is_multiple_of(16))
        && result.dtype == DType::F32
        && result.elements() > 0
}

/// Whether this many rows of activations are rounded to 8 bits, as one row is, rather than to F16. The fewer they are, the
/// more time that saves; and against weights of 8 bits, for somewhat more of them, it is what other engines do too.
pub(crate) fn suits_eight_bits(matrix: DType, rows: u64) -> bool {
    matrix.is_quantized() && rows <= if matrix == DType::Q8_0 { FEW_ROWS_OF_BYTES } else { FEW_ROWS }
}

/// Whether weights in a file's layout are worth dequantizing to F16, so that tensor cores compute a product.
pub(crate) fn opened_takes(graph: &Graph, node: &Node, in_planes: bool) -> bool {
    !in_planes && tiles_take(graph, node, true) && {
        let [matrix, x] = [node.inputs[0], node.inputs[1]].map(|id| &graph.tensor(id).desc);
        suits_opening(matrix, x.extents[1])
    }
}

/// Whether a quantized matrix is read so often that it is dequantized first.
fn suits_opening(matrix: &TensorDesc, rows: u64) -> bool {
    matrix.dtype.is_quantized() && matrix.is_contiguous() && rows >= MANY_ROWS
}

/// Whether tensor cores would compute a product of a matrix that is copied to the GPU as it is.
pub(crate) fn suits_bringing(matrix: &TensorDesc, x: &TensorDesc) -> bool {
    let plain = matches!(matrix.dtype, DType::F16 | DType::BF16) && x.extents[1] >= MANY_ROWS;
    (plain || suits_opening(matrix, x.extents[1]))
        && matrix.extents[0].is_multiple_of(32)
        && matrix.extents[2..] == [1, 1]
        && x.extents[2..] == [1, 1]
        && x.dtype == DType::F32
}

/// What is added to a product by a sum, if it is a tensor of the same layout, or a row for all.
pub(super) fn addend(graph: &Graph, add: &Node, product: TensorId) -> Option<TensorId> {
    if add.op != Op::Add {
        return None;
    }
    let result = &graph.tensor(product).desc;
    let other = match add.inputs[..] {
        [a, b] if a == product => b,
        [a, b] if b == product && graph.tensor(a).desc == *result => a,
        _ => return None,
    };
    let desc = &graph.tensor(other).desc;
    let row = desc.extents == [result.extents[0], 1, 1, 1];
    let fits = desc.dtype == DType::F32 && desc.is_contiguous() && (desc == result || row);
    (fits && other != product && graph.tensor(add.output).desc == *result).then_some(other)
}

impl VectorProducts {
    /// What nodes mean as one step: a norm with its factors, products, each with a sum behind it, a gated function.
    pub(crate) fn parse(graph: &Graph, nodes: &[NodeId]) -> Option<VectorProducts> {
        let normed = nodes.first().is_some_and(|node| matches!(graph.node(*node).op, Op::RmsNorm { .. }));
        let (before, nodes) = nodes.split_at(if normed { 2.min(nodes.len()) } else { 0 });
        let norm = if normed { Some(ScaledNorm::parse(graph, before)?) } else { None };
        let mut parts: Vec<Part> = Vec::new();
        let (mut x, mut gate) = (None, None);
        for node in nodes.iter().map(|node| graph.node(*node)) {
            match &node.op {
                Op::MulMat if gate.is_none() && parts.len() < MAX_PARTS => {
                    if x.is_some_and(|x| x != node.inputs[1]) {
                        return None;
                    }
                    x = Some(node.inputs[1]);
                    parts.push(Part { matrix: node.inputs[0], sum: None, output: node.output });
                }
                Op::Add => {
                    let part = parts.iter_mut().find(|part| node.inputs.contains(&part.output))?;
                    if part.sum.is_some() {
                        return None;
                    }
                    part.sum = Some(addend(graph, node, part.output)?);
                    part.output = node.output;
                }
                Op::Gated { gate: function, .. } if parts.len() == 2 && gate.is_none() => {
                    let both = [parts[0], parts[1]];
                    let fits = node.inputs[..] == both.map(|part| part.output)
                        && both.iter().all(|part| part.sum.is_none())
                        && graph.tensor(both[0].matrix).desc == graph.tensor(both[1].matrix).desc;
                    gate = fits.then_some((*function, node.output));
                    gate?;
                }
                _ => return None,
            }
        }
        let x = x?;
        let dtype = |part: &Part| graph.tensor(part.matrix).desc.dtype;
        if parts.iter().any(|part| dtype(part) != dtype(&parts[0])) {
            return None;
        }
        if norm.is_some_and(|norm| {
            norm.output != x || norm.bias.is_some() || graph.tensor(norm.x).desc.rows() != 1
        }) {
            return None;
        }
        Some(VectorProducts { x: norm.map_or(x, |norm| norm.x), norm, parts, gate })
    }

    pub(crate) fn reads(&self) -> Vec<TensorId> {
        let parts = self.parts.iter().flat_map(|part| [Some(part.matrix), part.sum]);
        let before = [Some(self.x), self.norm.map(|norm| norm.weight)];
        before.into_iter().chain(parts).flatten().collect()
    }

    pub(crate) fn writes(&self) -> Vec<TensorId> {
        match self.gate {
            Some((_, output)) => vec![output],
            None => self.parts.iter().map(|part| part.output).collect(),
        }
    }
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct PartParameter {
    pub(super) w: u64,
    pub(super) starts: [u64; 4],
    pub(super) add: u64,
    pub(super) y: u64,
    pub(super) rows: i32,
    pub(super) first: i32,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct VectorParameter {
    pub(super) parts: [PartParameter; MAX_PARTS],
    pub(super) x: u64,
    norm: u64,
    eps: f32,
    pub(super) k: i32,
    pub(super) count: i32,
    pub(super) rows: i32,
    pub(super) gate: i32,
    gap: u32,
    pub(super) experts: ExpertsParameter,
}

/// Shared with `vector.cu`.
pub(super) const VECTOR_STRUCTURES: &[(&str, usize)] =
    &[("Part", size_of::<PartParameter>()), ("Vector", size_of::<VectorParameter>())];

/// How rows are spread: those that a warp takes at a time, warps of a block, and blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct VectorSpread {
    together: u64,
    warps: u64,
    blocks: u64,
}

/// Short rows are few loads, so a warp takes several at a time, but never of two parts. Every warp has as many as others.
fn vector_spread(parts: &[u64], k: u64, gated: bool, multiprocessors: u32) -> VectorSpread {
    let rows: u64 = if gated { parts[0] } else { parts.iter().sum() };
    let all = WARPS * u64::from(multiprocessors);
    let fits = |together: &u64| {
        let whole = gated || parts.iter().all(|part| part.is_multiple_of(*together));
        k <= 2048 && whole && rows / together >= all
    };
    let choices: &[u64] = if gated { &[2] } else { &[4, 2] };
    let together = choices.iter().copied().find(fits).unwrap_or(1);
    let pieces = rows.div_ceil(together);
    if pieces * 2 <= all {
        return VectorSpread { together, warps: FEW_WARPS, blocks: pieces.div_ceil(FEW_WARPS) };
    }
    let goes = pieces.div_ceil(all).max(1);
    VectorSpread { together, warps: WARPS, blocks: pieces.div_ceil(WARPS * goes) }
}

pub(super) fn vector(
    site: &LaunchContext<'_>,
    step: &Step,
    launches: &mut Vec<Launch>,
) -> Result<(), DeviceError> {
    let products = VectorProducts::parse(site.graph(), &step.nodes).ok_or_else(|| misfit(site, step))?;
    let unused = PartParameter { first: i32::MAX, ..PartParameter::zeroed() };
    let mut parts = [unused; MAX_PARTS];
    let mut rows = 0;
    for (part, parameter) in products.parts.iter().zip(&mut parts) {
        let (w, starts, _) = site.planes(part.matrix)?;
        let own = site.desc(part.matrix).extents[1];
        *parameter = PartParameter {
            w,
            starts,
            add: part.sum.map_or(Ok(0), |sum| site.at(sum))?,
            y: products.gate.map_or_else(|| site.at(part.output), |(_, output)| site.at(output))?,
            rows: own as i32,
            first: rows as i32,
        };
        rows = if products.gate.is_some() { own } else { rows + own };
    }
    let matrix = site.desc(products.parts[0].matrix);
    let (k, dtype) = (matrix.extents[0], matrix.dtype);
    let exact = site.options.precision == Precision::F32;
    let each: Vec<u64> = products.parts.iter().map(|part| site.desc(part.matrix).extents[1]).collect();
    let VectorSpread { together, warps, blocks } =
        vector_spread(&each, k, products.gate.is_some(), site.multiprocessors);
    let variant = Variant {
        source: Source::Vector,
        defines: vec![
            format!("WTYPE={}", dtype.gguf_id()),
            format!("ROWS={together}"),
            format!("EXACT={}", u8::from(exact)),
            format!("PAIR={}", u8::from(products.gate.is_some())),
            format!("WARPS={warps}"),
            "EXPERTS=0".to_owned(),
        ],
    };
    let parameter = VectorParameter {
        parts,
        x: site.at(products.x)?,
        norm: products.norm.map_or(Ok(0), |norm| site.at(norm.weight))?,
        eps: products.norm.map_or(0.0, |norm| norm.eps),
        k: k as i32,
        count: products.parts.len() as i32,
        rows: rows as i32,
        gate: products.gate.map_or(0, |(gate, _)| numbers::gate(gate)),
        gap: 0,
        experts: ExpertsParameter::zeroed(),
    };
    let shared_bytes = vector_shared(dtype, k, exact);
    let spread = Spread { shared_bytes, ..Spread::new(blocks, 32 * warps as u32) };
    launches.push(site.launch(&variant, "vector_product", spread, &parameter)?);
    Ok(())
}

/// Bytes of activations in a block's shared memory. Rounded: a byte an element, and up to four numbers for 32.
pub(super) fn vector_shared(dtype: DType, k: u64, exact: bool) -> u32 {
    (if dtype.is_quantized() && !exact { k + k / 32 * 16 } else { k * 4 }) as u32
}

/// A product with many rows of activations, and what is added to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TileProduct {
    pub(crate) x: TensorId,
    pub(crate) part: Part,
}

impl TileProduct {
    pub(crate) fn parse(graph: &Graph, nodes: &[NodeId]) -> Option<TileProduct> {
        let (product, add) = nodes.split_first()?;
        let product = graph.node(*product);
        let mut part = Part { matrix: product.inputs[0], sum: None, output: product.output };
        if let [add] = add {
            let add = graph.node(*add);
            part.sum = Some(addend(graph, add, product.output)?);
            part.output = add.output;
        }
        (product.op == Op::MulMat && add.len() < 2).then_some(TileProduct { x: product.inputs[1], part })
    }
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct TilesParameter {
    pub(super) w: u64,
    pub(super) starts: [u64; 4],
    pub(super) x: u64,
    pub(super) scales: u64,
    pub(super) add: u64,
    pub(super) y: u64,
    pub(super) add_row: i64,
    pub(super) y_row: i64,
    pub(super) m: i32,
    pub(super) n: i32,
    pub(super) k: i32,
    pub(super) fresh: i32,
    /// Of experts: what `sort` has written, most tiles there, and how many places in a row have the same activations.
    pub(super) sorted: u64,
    pub(super) tiles: i32,
    pub(super) shared: i32,
}

/// Shared with `tiles.cu` and `groups.cu`.
pub(super) const TILES_STRUCTURES: &[(&str, usize)] = &[("Tiles", size_of::<TilesParameter>())];
/// Shared with `int8_tiles.cu`.
pub(super) const INT8_TILES_STRUCTURES: &[(&str, usize)] = &[("Product", size_of::<TilesParameter>())];

/// Results of a block in each direction, and bytes of its shared memory.
pub(super) const TILE: u32 = 128;
pub(crate) const TILE_SHARED: u32 = 6 * 32 * 1024 + 1024;

/// The type of the weights, and what a kernel of many rows is given.
fn tiles_parameter(
    site: &LaunchContext<'_>,
    step: &Step,
    rounding: Rounding,
) -> Result<(DType, TilesParameter), DeviceError> {
    let TileProduct { x, part } =
        TileProduct::parse(site.graph(), &step.nodes).ok_or_else(|| misfit(site, step))?;
    let (matrix, activations) = (site.desc(part.matrix), site.desc(x));
    let (k, m, n) = (matrix.extents[0], matrix.extents[1], activations.extents[1]);
    // Dequantized weights come first.
    let temporaries = site.temporaries(&step.reads)?;
    let (w, starts, rounded, dtype) = match temporaries[..] {
        [opened, rounded] => (opened, [0; 4], rounded, DType::F16),
        [rounded] => {
            let (w, starts, _) = site.planes(part.matrix)?;
            (w, starts, rounded, matrix.dtype)
        }
        _ => return Err(misfit(site, step)),
    };
    let row = |id: TensorId| if site.desc(id).extents[1] == 1 { 0 } else { site.desc(id).strides[1] as i64 };
    let parameter = TilesParameter {
        w,
        starts,
        x: rounded,
        scales: rounded + rounding.bytes(k, n)[0],
        add: part.sum.map_or(Ok(0), |sum| site.at(sum))?,
        y: site.at(part.output)?,
        add_row: part.sum.map_or(0, row),
        y_row: site.desc(part.output).strides[1] as i64,
        m: m as i32,
        n: n as i32,
        k: k as i32,
        fresh: i32::from(temporaries.len() > 1),
        sorted: 0,
        tiles: 0,
        shared: 1,
    };
    Ok((dtype, parameter))
}

pub(super) fn tiles(
    site: &LaunchContext<'_>,
    step: &Step,
    launches: &mut Vec<Launch>,
) -> Result<(), DeviceError> {
    // F16 and BF16 take the same room.
    let (dtype, parameter) = tiles_parameter(site, step, Rounding::F16)?;
    let blocks = |results: i32, tile: u32| (results as u32).div_ceil(tile);
    if site.modules.has_warp_groups() {
        let columns = group_columns(parameter.n as u64);
        let grid = [blocks(parameter.m, TILE), blocks(parameter.n, columns)];
        let split = group_split(grid[0] * grid[1], parameter.k as u32, columns, site.multiprocessors);
        launches.push(groups(site, dtype, columns, [grid[0], grid[1], split], false, &parameter)?);
        return Ok(());
    }
    let variant = Variant { source: Source::Tiles, defines: vec![format!("WTYPE={}", dtype.gguf_id())] };
    let grid = [blocks(parameter.m, TILE), blocks(parameter.n, TILE), 1];
    let spread = Spread { grid, block: 512, shared_bytes: TILE_SHARED };
    launches.push(site.launch(&variant, "tile_product", spread, &parameter)?);
    Ok(())
}

/// Columns of results that a block of the kernel for groups of warps may have.
const GROUP_COLUMNS: [u32; 4] = [16, 32, 64, TILE];
/// Most blocks of a cluster that every GPU with clusters has room for.
const MAX_SPLIT: u32 = 8;

/// The fewest columns of a block that take this many rows of activations.
pub(super) fn group_columns(rows: u64) -> u32 {
    GROUP_COLUMNS.into_iter().find(|columns| rows <= u64::from(*columns)).unwrap_or(TILE)
}

/// Blocks that compute the same results, each from a part of the elements: where there would be too few blocks to read the
/// weights at the speed of memory.
fn group_split(blocks: u32, k: u32, columns: u32, multiprocessors: u32) -> u32 {
    if columns == TILE {
        return 1;
    }
    let steps = k.div_ceil(128);
    (2 * multiprocessors / blocks.max(1)).min(steps / 2).clamp(1, MAX_SPLIT)
}

/// A launch of the kernel for groups of warps. The last number of the grid is the blocks that compute the same results.
pub(super) fn groups(
    site: &LaunchContext<'_>,
    dtype: DType,
    columns: u32,
    grid: [u32; 3],
    experts: bool,
    parameter: &TilesParameter,
) -> Result<Launch, DeviceError> {
    let variant = Variant {
        source: Source::Groups,
        defines: vec![
            format!("WTYPE={}", dtype.gguf_id()),
            format!("BN={columns}"),
            format!("SPLIT={}", grid[2]),
            format!("EXPERTS={}", u8::from(experts)),
        ],
    };
    // Four stages of activations, two tiles of 64 elements each.
    let shared_bytes = 4 * 2 * columns * 128 + 1024;
    site.launch(&variant, "tile_product", Spread { grid, block: 256, shared_bytes }, parameter)
}

/// Most rows of activations of a block of the kernel in 8 bits.
const EIGHT_BIT_COLUMNS: [u32; 4] = [8, 16, 32, 64];

pub(super) fn eight_bit(
    site: &LaunchContext<'_>,
    step: &Step,
    launches: &mut Vec<Launch>,
) -> Result<(), DeviceError> {
    let (dtype, parameter) = tiles_parameter(site, step, Rounding::Int8)?;
    let [.., most] = EIGHT_BIT_COLUMNS;
    let (m, n) = (parameter.m as u32, parameter.n as u32);
    let columns = EIGHT_BIT_COLUMNS.into_iter().find(|columns| n <= *columns).unwrap_or(most);
    let variant = Variant {
        source: Source::Int8Tiles,
        defines: vec![format!("WTYPE={}", dtype.gguf_id()), format!("COLUMNS={columns}")],
    };
    // The fewer the rows of activations, the fewer those of the matrix, so that there are blocks for the whole GPU.
    let rows = if columns > 8 { 32 } else { 16 };
    // The sums of eight warps, four numbers more than rows a column.
    let shared_bytes = 8 * columns * (rows + 4) * 4;
    let grid = [m.div_ceil(rows), n.div_ceil(columns), 1];
    let spread = Spread { grid, block: 256, shared_bytes };
    launches.push(site.launch(&variant, "eight_bit_product", spread, &parameter)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_spread_evenly_over_the_card() {
        let spread = |parts: &[u64], k, gated| {
            let VectorSpread { together, warps, blocks } = vector_spread(parts, k, gated, 132);
            (together, warps, blocks)
        };
        assert_eq!(spread(&[4096], 4096, false), (1, 32, 128));
        // Three rows for each warp, rather than two for all and a third for some.
        assert_eq!(spread(&[4096, 4096, 4096], 4096, false), (1, 32, 128));
        assert_eq!(spread(&[11008, 11008], 4096, true), (1, 32, 115));
        // Short rows go together, few rows to many multiprocessors.
        assert_eq!(spread(&[49152], 576, false), (4, 32, 128));
        assert_eq!(spread(&[576, 192, 192], 576, false), (1, 8, 120));
        // A warp never has rows of two parts.
        assert_eq!(spread(&[24575, 24577], 576, false).0, 1);
    }

    #[test]
    fn products_with_few_results_are_split_over_the_card() {
        let split = |m: u32, k| group_split(m.div_ceil(TILE), k, 16, 132);
        assert_eq!([split(4096, 4096), split(11_008, 4096), split(32_000, 4096)], [8, 3, 1]);
        // No block has less than two steps.
        assert_eq!([split(256, 512), split(256, 128)], [2, 1]);
        assert_eq!(group_split(32, 4096, TILE, 132), 1);
        assert_eq!([1, 16, 17, 64, 65, 4096].map(group_columns), [16, 16, 32, 64, 128, 128]);
    }
}
