//! Lowering and acceptance, which are pure and need no GPU.

use std::sync::Arc;

use orlop_backend::{
    Bindings, Buffer, BufferType, Device, DeviceClass, DeviceError, DeviceFacts, HostBufferType, Link,
    LowerOptions, MemoryLayout, NodeQuery, Operand, Precision, Program, Queue, Role, Segment, StagingMemory,
    Steps, Support,
};
use orlop_graph::{
    DType, FlashAttention, Glu, Graph, GraphBuilder, Leaf, NodeId, Op, PagedRows, Rope, RopeMode, TensorDesc,
    TensorId,
};
use orlop_testkit::conformance;

use super::{Limits, lower};
use crate::kernels::{
    DECODE, DEQUANTIZED, EXPERTS, F16_ACTIVATIONS, FLOATS, GROUPED, PROMPT, ROTATE, SCALED_NORM, SORTED_SOME,
    TILE_SHARED, TILES, VECTOR,
};
use crate::planes::Planes;
use crate::supports::supports;

/// Planes without memory.
#[derive(Debug)]
struct PaperPlanes;

impl BufferType for PaperPlanes {
    fn name(&self) -> &str {
        "paper planes"
    }
    fn alignment(&self) -> u64 {
        256
    }
    fn layout(&self) -> MemoryLayout {
        MemoryLayout::Private
    }
    fn alloc_bytes(&self, tensor: &TensorDesc) -> u64 {
        Planes::of(tensor).map_or(0, |planes| planes.bytes())
    }
    fn allocate(self: Arc<Self>, bytes: u64) -> Result<Arc<dyn Buffer>, DeviceError> {
        Err(DeviceError::OutOfMemory { buffer_type: self.name().to_owned(), bytes })
    }
}

/// A GPU on paper: it says what it would run, and how.
#[derive(Debug)]
struct Paper {
    plain: [Arc<dyn BufferType>; 1],
    weights: [Arc<dyn BufferType>; 2],
    shared: u32,
}

impl Paper {
    fn new(shared: u32) -> Paper {
        let plain: Arc<dyn BufferType> = HostBufferType::new("paper");
        Paper { weights: [Arc::new(PaperPlanes), Arc::clone(&plain)], plain: [plain], shared }
    }
}

impl Device for Paper {
    fn name(&self) -> &str {
        "paper"
    }
    fn facts(&self) -> DeviceFacts {
        DeviceFacts {
            description: String::new(),
            class: DeviceClass::Test,
            memory: None,
            flops: 1.0,
            bytes_per_second: 1.0,
            cache_bytes: 0,
            launch_seconds: 1.0,
            host_link: Link { bytes_per_second: 1.0, latency_seconds: 1.0 },
            staging: StagingMemory::default(),
            asynchronous: false,
            lost: false,
        }
    }
    fn buffer_types(&self, role: Role) -> &[Arc<dyn BufferType>] {
        if role == Role::Weight { &self.weights } else { &self.plain }
    }
    fn supports(&self, node: &NodeQuery<'_>) -> Support {
        supports(node, &self.plain[0], &self.weights, self.shared >= TILE_SHARED)
    }
    fn lower(&self, segment: &Segment<'_>, options: &LowerOptions) -> Result<Steps, DeviceError> {
        lower(self, segment, options, Limits { shared: self.shared, warp_groups: self.shared >= TILE_SHARED })
    }
    fn compile(&self, _: &Steps, _: &Bindings) -> Result<Arc<dyn Program>, DeviceError> {
        Err(DeviceError::Lost { device: "paper".to_owned(), reason: "it is paper".to_owned() })
    }
    fn queue(&self) -> Result<Box<dyn Queue>, DeviceError> {
        Err(DeviceError::Lost { device: "paper".to_owned(), reason: "it is paper".to_owned() })
    }
}

/// A layer of a transformer: norm, attention with a cache, norm, gated feed-forward part.
fn layer(tokens: u64, dtype: DType) -> Graph {
    layer_with(tokens, dtype, None)
}

/// The pages that a layer's rows lie in.
#[derive(Clone, Copy)]
struct LayerPages {
    page_rows: u32,
    sequences: u64,
    /// Pages are computed by the graph.
    computed: bool,
}

const PAGES: LayerPages = LayerPages { page_rows: 64, sequences: 8, computed: false };

/// The same with rows in pages, of sequences with 4096 rows each.
fn layer_with(tokens: u64, dtype: DType, pages: Option<LayerPages>) -> Graph {
    let (head, heads, kv_heads, context, hidden) = (64, 4, 2, 4096, 512);
    let width = head * heads;
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[width, tokens]);
    let numbers = ["positions", "rows", "seen"].map(|name| b.input(name, DType::I32, &[tokens]));
    let [positions, rows, seen] = numbers;
    let weight = |b: &mut GraphBuilder, name: &str, extents: &[u64]| b.weight(name, dtype, extents);
    let normed = |b: &mut GraphBuilder, name: &str, x: TensorId| {
        let weight = b.weight(name, DType::F32, &[width]);
        let norm = b.rms_norm(x, 1e-5);
        b.mul(norm, weight)
    };
    let y = normed(&mut b, "norm", x);
    let [q, k, v] = [("q", heads), ("k", kv_heads), ("v", kv_heads)].map(|(name, heads)| {
        let matrix = weight(&mut b, name, &[width, head * heads]);
        b.mul_mat(matrix, y)
    });
    let rope = Rope { mode: RopeMode::Neox, dims: head as u32, ..Rope::default() };
    let q = b.reshape(q, &[head, heads, tokens]);
    let [k, v] = [k, v].map(|x| b.reshape(x, &[head, kv_heads, tokens]));
    let (q, k) = (b.rope(q, positions, None, rope), b.rope(k, positions, None, rope));
    let [k, v] = [("k cache", k), ("v cache", v)].map(|(name, new)| {
        let cache = b.state(name, DType::F16, &[head, context, kv_heads]);
        let new = b.permute(new, [0, 2, 1, 3]);
        b.set_rows(cache, new, rows)
    });
    let q = b.permute(q, [0, 2, 1, 3]);
    let flash = FlashAttention { kv_len: true, ..FlashAttention::scaled(0.1) };
    let attended = match pages {
        None => b.node(Op::FlashAttention(flash), &[q, k, v, seen]),
        Some(LayerPages { page_rows, sequences: count, computed }) => {
            let pages = b.input("pages", DType::I32, &[context / u64::from(page_rows), count]);
            let pages = if computed { b.cont(pages) } else { pages };
            let sequences = b.input("sequences", DType::I32, &[tokens]);
            let rows = PagedRows { kv_len: seen, pages, sequences, page_rows };
            b.paged_attention([q, k, v], rows, None, flash)
        }
    };
    let attended = b.reshape(attended, &[width, tokens]);
    let o = weight(&mut b, "o", &[width, width]);
    let product = b.mul_mat(o, attended);
    let residual = b.add(product, x);
    let y = normed(&mut b, "norm 2", residual);
    let [gate, up] = ["gate", "up"].map(|name| {
        let matrix = weight(&mut b, name, &[width, hidden]);
        b.mul_mat(matrix, y)
    });
    let activated = b.gated(Glu::Silu, gate, up);
    let down = weight(&mut b, "down", &[hidden, width]);
    let product = b.mul_mat(down, activated);
    let sum = b.add(residual, product);
    b.output(sum);
    b.build().unwrap()
}

/// Bytes of shared memory of a large GPU's blocks.
const LARGE: u32 = 227 << 10;

/// The kernels of a graph's steps, with its weights where the GPU likes them best.
fn lowered(graph: &Graph, options: &LowerOptions) -> Steps {
    lowered_on(Paper::new(LARGE), graph, options)
}

fn lowered_on(paper: Paper, graph: &Graph, options: &LowerOptions) -> Steps {
    let [planes, plain] = [&paper.weights[0], &paper.plain[0]].map(Arc::clone);
    lowered_in(paper, graph, options, |id| {
        let quantised = graph.tensor(id).desc.dtype.is_quantized();
        let in_planes = graph.root_leaf(id) == Some(Leaf::Weight) && quantised;
        Arc::clone(if in_planes { &planes } else { &plain })
    })
}

/// The same with every tensor where `memory` says.
fn lowered_in(
    paper: Paper,
    graph: &Graph,
    options: &LowerOptions,
    memory: impl Fn(TensorId) -> Arc<dyn BufferType>,
) -> Steps {
    outcome(paper, graph, options, memory).unwrap()
}

fn outcome(
    paper: Paper,
    graph: &Graph,
    options: &LowerOptions,
    memory: impl Fn(TensorId) -> Arc<dyn BufferType>,
) -> Result<Steps, DeviceError> {
    let nodes: Vec<NodeId> = graph.node_ids().collect();
    let buffer_types: Vec<_> = graph.tensor_ids().map(|id| Some(memory(id))).collect();
    let escapes: Vec<bool> = graph.tensor_ids().map(|id| graph.outputs().contains(&id)).collect();
    let segment = Segment { graph, nodes: &nodes, buffer_types: &buffer_types, escapes: &escapes };
    paper.lower(&segment, options)
}

fn kernels(steps: &Steps) -> Vec<&str> {
    steps.steps.iter().map(|step| &*step.kernel).collect()
}

#[test]
fn one_token_s_layer_is_five_steps() {
    let steps = lowered(&layer(1, DType::Q4_0), &LowerOptions::default());
    // Norm and q, k, v; rotation, cache and attention; o and the sum; norm, gate, up and their product; down and the sum.
    assert_eq!(kernels(&steps), [VECTOR, DECODE, VECTOR, VECTOR, VECTOR]);
    // Attention to a long cache is divided, and its parts come together in planned memory.
    assert_eq!(steps.temporaries.len(), 1);
    assert_eq!(steps.temporaries[0].bytes, 4 * 8 * (64 + 2) * 4);
}

/// The kernel of a layer's attention with rows in pages, how many steps there are, and bytes for parts of results.
fn paged(tokens: u64, pages: LayerPages) -> (String, usize, u64) {
    let steps = lowered(&layer_with(tokens, DType::Q4_0, Some(pages)), &LowerOptions::default());
    let attends = |kernel: &&str| [DECODE, PROMPT, "flash_attention"].contains(kernel);
    let kernel = kernels(&steps).into_iter().find(attends).unwrap().to_owned();
    let parts = steps.temporaries.iter().filter(|value| value.name.starts_with("parts of"));
    (kernel, steps.steps.len(), parts.map(|value| value.bytes).sum())
}

#[test]
fn one_token_attends_to_pages_in_five_steps_too() {
    assert_eq!(paged(1, PAGES), (DECODE.to_owned(), 5, 4 * 8 * (64 + 2) * 4));
    // Pages that are computed may not be there yet when the kernel begins: the rotation is a step of its own, as are they.
    assert_eq!(paged(1, LayerPages { computed: true, ..PAGES }).1, 7);
}

#[test]
fn tokens_with_pages_go_one_by_one_or_to_tensor_cores() {
    let bytes = |tokens: u64| tokens * 4 * 8 * (64 + 2) * 4;
    let of = |tokens: u64, pages: LayerPages| {
        let (kernel, _, bytes) = paged(tokens, pages);
        (kernel, bytes)
    };
    assert_eq!(of(7, PAGES), (DECODE.to_owned(), bytes(7)));
    // Tokens of sequences that bring few of them still go one by one.
    assert_eq!(of(8, PAGES), (PROMPT.to_owned(), bytes(8)));
    assert_eq!(of(64, PAGES), (PROMPT.to_owned(), bytes(64)));
    // Of many tokens, eight of each tile at a time.
    assert_eq!(of(512, PAGES), (PROMPT.to_owned(), bytes(64)));
    let alone = LayerPages { sequences: 1, ..PAGES };
    assert_eq!(of(7, alone), (DECODE.to_owned(), bytes(7)));
    assert_eq!(of(512, alone), (PROMPT.to_owned(), 0));
    // Pages that blocks of rows do not divide have the general kernel.
    assert_eq!(of(8, LayerPages { page_rows: 32, ..PAGES }), ("flash_attention".to_owned(), 0));
}

#[test]
fn many_tokens_go_to_tensor_cores_in_f16() {
    let steps = lowered(&layer(40, DType::Q4_0), &LowerOptions::default());
    let expected = [
        F16_ACTIVATIONS,
        TILES,
        TILES,
        TILES,
        ROTATE,
        PROMPT,
        F16_ACTIVATIONS,
        TILES,
        F16_ACTIVATIONS,
        TILES,
        TILES,
        F16_ACTIVATIONS,
        TILES,
    ];
    assert_eq!(kernels(&steps), expected);
    // Norms and the gated function are computed as they are rounded.
    let rounded: Vec<usize> = steps
        .steps
        .iter()
        .filter(|step| step.kernel == F16_ACTIVATIONS)
        .map(|step| step.nodes.len())
        .collect();
    assert_eq!(rounded, [2, 0, 2, 1]);
}

#[test]
fn what_a_step_takes_twice_is_not_fused_away() {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[64, 5]);
    let (weight, matrix) = (b.weight("weight", DType::F32, &[64]), b.weight("matrix", DType::Q8_0, &[64, 8]));
    let normed = b.rms_norm(x, 1e-5);
    let squared = b.mul(normed, normed);
    let normed = b.rms_norm(squared, 1e-5);
    let scaled = b.mul(normed, weight);
    let twice = b.add(scaled, scaled);
    let product = b.mul_mat(matrix, twice);
    let result = b.add(product, product);
    b.output(result);
    let graph = b.build().unwrap();
    let steps = lowered(&graph, &LowerOptions { precision: Precision::F32, ..LowerOptions::default() });
    assert_eq!(kernels(&steps), ["rms_norm", "mul", SCALED_NORM, "add", "mul_mat", "add"]);
}

#[test]
fn experts_have_a_kernel_of_their_own() {
    let mut b = GraphBuilder::new();
    let w = b.weight("w", DType::Q4_K, &[256, 64, 8]);
    let x = b.input("x", DType::F32, &[256, 1, 3]);
    let ids = b.input("ids", DType::I32, &[2, 3]);
    let y = b.node(Op::MulMatId, &[w, x, ids]);
    b.output(y);
    let graph = b.build().unwrap();
    assert_eq!(kernels(&lowered(&graph, &LowerOptions::default())), [EXPERTS]);
}

#[test]
fn experts_of_which_some_are_here_have_the_same_kernels() {
    let kernels_for = |tokens: u64| {
        let mut b = GraphBuilder::new();
        let w = b.weight("w", DType::Q4_K, &[256, 64, 8]);
        let x = b.input("x", DType::F32, &[256, 1, tokens]);
        let ids = b.input("ids", DType::I32, &[2, tokens]);
        let y = b.mul_mat_some(w, x, ids);
        b.output(y);
        let steps = lowered(&b.build().unwrap(), &LowerOptions::default());
        kernels(&steps).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(kernels_for(3), [EXPERTS]);
    assert_eq!(kernels_for(40), [F16_ACTIVATIONS, SORTED_SOME, GROUPED]);
}

#[test]
fn caches_in_blocks_have_kernels_of_their_own() {
    let kernels_for = |dtype: DType, tokens: u64| {
        let (head, heads, rows) = (64, 4, 1024);
        let mut b = GraphBuilder::new();
        let matrix = b.input("matrix", DType::F32, &[head, head]);
        let [positions, indices, seen] =
            ["positions", "rows", "seen"].map(|name| b.input(name, DType::I32, &[tokens]));
        let [q, k, v] = ["q", "k", "v"].map(|name| b.input(name, DType::F32, &[head, heads, tokens]));
        let rope = Rope { dims: head as u32, ..Rope::default() };
        let [q, k] = [q, k].map(|x| b.rope(x, positions, None, rope));
        let [k, v] = [k, v].map(|x| b.mul_mat(matrix, x));
        let [k, v] = [("k cache", k), ("v cache", v)].map(|(name, new)| {
            let cache = b.state(name, dtype, &[head, rows, heads]);
            let new = b.permute(new, [0, 2, 1, 3]);
            b.set_rows(cache, new, indices)
        });
        let q = b.mul_mat(matrix, q);
        let q = b.permute(q, [0, 2, 1, 3]);
        let flash = FlashAttention { kv_len: true, ..FlashAttention::scaled(0.1) };
        let attended = b.node(Op::FlashAttention(flash), &[q, k, v, seen]);
        let attended = b.mul_mat(matrix, attended);
        b.output(attended);
        let steps = lowered(&b.build().unwrap(), &LowerOptions::default());
        kernels(&steps).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    // Rotary positions; products of queries, keys and values with the matrix, which write rows; attention; its product.
    for dtype in [DType::Q8_0, DType::Q4_0] {
        assert_eq!(kernels_for(dtype, 1), [ROTATE, FLOATS, DECODE, FLOATS]);
        assert_eq!(kernels_for(dtype, 40), [ROTATE, FLOATS, PROMPT, FLOATS]);
    }
    let [.., attention, _] = &kernels_for(DType::Q5_1, 1)[..] else { panic!("two steps at least") };
    assert_eq!(attention, "flash_attention");
}

#[test]
fn weights_as_they_are_in_a_file_are_opened_for_many_tokens() {
    let graph = layer(40, DType::Q4_0);
    let paper = Paper::new(LARGE);
    let plain: Arc<dyn BufferType> = Arc::clone(&paper.plain[0]);
    let steps = lowered_in(paper, &graph, &LowerOptions::default(), |_| Arc::clone(&plain));
    let count = |kernel| kernels(&steps).into_iter().filter(|known| *known == kernel).count();
    assert_eq!((count(DEQUANTIZED), count(TILES), count(F16_ACTIVATIONS)), (7, 7, 4));
    let opened = steps.temporaries.iter().find(|value| value.name == "down in F16").unwrap();
    assert_eq!(opened.bytes, 512 * 256 * 2);
}

#[test]
fn only_products_of_many_rows_are_wanted_with_weights_that_lie_elsewhere() {
    let paper = Paper::new(LARGE);
    let wants = |dtype: DType, tokens: u64| {
        let graph = layer(tokens, dtype);
        let node = graph.nodes().iter().find(|node| node.op == Op::MulMat).unwrap();
        let operand = |id: &TensorId| Operand { desc: &graph.tensor(*id).desc, buffer_type: None };
        let inputs: Vec<Operand<'_>> = node.inputs.iter().map(operand).collect();
        let query = NodeQuery { op: &node.op, inputs: &inputs, output: operand(&node.output) };
        paper.supports(&query) == Support::Yes { wants_offload: true }
    };
    for dtype in [DType::Q4_0, DType::Q6_K, DType::F16] {
        assert!(wants(dtype, 512) && wants(dtype, 32), "{dtype}");
        assert!(!wants(dtype, 31) && !wants(dtype, 1), "{dtype}");
    }
    assert!(!wants(DType::F32, 512));
}

#[test]
fn a_card_without_room_for_tiles_does_without() {
    let steps = lowered_on(Paper::new(99 << 10), &layer(40, DType::Q4_0), &LowerOptions::default());
    assert!(!kernels(&steps).contains(&TILES));
}

#[test]
fn nothing_is_rounded_where_that_is_asked_for() {
    let exact = LowerOptions { precision: Precision::F32, ..LowerOptions::default() };
    let steps = lowered(&layer(40, DType::Q4_0), &exact);
    assert!(kernels(&steps).iter().all(|kernel| ![F16_ACTIVATIONS, TILES, PROMPT].contains(kernel)));
}

#[test]
fn without_fusion_every_node_is_a_step_of_its_own() {
    let graph = layer(1, DType::Q4_0);
    let plain = LowerOptions { fusion: false, ..LowerOptions::default() };
    let steps = lowered(&graph, &plain);
    let nodes = graph.nodes().iter().filter(|node| !node.op.is_view()).count();
    assert_eq!(steps.steps.len(), nodes);
    assert!(steps.steps.iter().all(|step| step.nodes.len() == 1));
}

#[test]
fn equal_segments_become_equal_steps() {
    let graph = layer(1, DType::Q6_K);
    let options = LowerOptions::default();
    assert_eq!(lowered(&graph, &options), lowered(&graph, &options));
}

#[test]
fn planes_are_for_products_and_rows_alone() {
    let paper = Paper::new(LARGE);
    let desc = TensorDesc::contiguous(DType::Q4_0, &[64, 8]).unwrap();
    let x = TensorDesc::contiguous(DType::F32, &[64, 2]).unwrap();
    let y = TensorDesc::contiguous(DType::F32, &[8, 2]).unwrap();
    let operand = |desc, memory| orlop_backend::Operand { desc, buffer_type: Some(memory) };
    let [planes, plain] = [&paper.weights[0], &paper.plain[0]];
    let query = |op, first| {
        let inputs = [operand(&desc, first), operand(&x, plain)];
        paper.supports(&NodeQuery { op, inputs: &inputs, output: operand(&y, plain) }).is_yes()
    };
    assert!(query(&Op::MulMat, planes));
    assert!(query(&Op::MulMat, plain));
    assert!(!query(&Op::OutProd, planes));
    let elsewhere: Arc<dyn BufferType> = HostBufferType::new("elsewhere");
    assert!(!query(&Op::MulMat, &elsewhere));
}

/// Whether a graph is refused that writes into views of one table.
fn is_refused(write: impl Fn(&mut GraphBuilder, TensorId) -> TensorId) -> bool {
    let mut b = GraphBuilder::new();
    let table = b.state("table", DType::I32, &[8, 16]);
    let written = write(&mut b, table);
    let kept = b.cont(written);
    b.output(kept);
    let paper = Paper::new(LARGE);
    let plain: Arc<dyn BufferType> = Arc::clone(&paper.plain[0]);
    let lowered = outcome(paper, &b.build().unwrap(), &LowerOptions::default(), |_| Arc::clone(&plain));
    matches!(lowered, Err(DeviceError::Unsupported { .. }))
}

#[test]
fn what_is_written_is_not_read_elsewhere_by_the_same_step() {
    let view = |b: &mut GraphBuilder, table: TensorId, row: u64, rows: u64| {
        b.view(table, [8, rows, 1, 1], [4, 32, 32 * rows, 32 * rows], 32 * row)
    };
    let copy = |from: u64, to: u64| {
        is_refused(|b, table| {
            let [from, to] = [from, to].map(|row| view(b, table, row, 4));
            b.copy(from, to)
        })
    };
    assert!(copy(0, 1) && copy(3, 0));
    assert!(!copy(0, 4) && !copy(2, 2));
    // Indices in a row of the table: among those that are written, or not.
    let rows = |indices: u64| {
        is_refused(|b, table| {
            let into = view(b, table, 0, 4);
            let indices = b.view(table, [2, 1, 1, 1], [4, 8, 8, 8], 32 * indices);
            let new = b.input("new", DType::F32, &[8, 2]);
            b.set_rows(into, new, indices)
        })
    };
    assert!(rows(0) && rows(3));
    assert!(!rows(4));
}

#[test]
fn elements_off_their_alignment_are_refused() {
    let paper = Paper::new(LARGE);
    let [root, even] = [[8, 1], [4, 1]].map(|extents| TensorDesc::contiguous(DType::F32, &extents).unwrap());
    let strided = |bytes: u64| TensorDesc::strided(DType::F32, [1, 2, 1, 1], [4, bytes, 24, 24]).unwrap();
    let takes = |op: &Op, input: &TensorDesc, output: &TensorDesc| {
        let [input, output] = [input, output].map(|desc| Operand { desc, buffer_type: None });
        paper.supports(&NodeQuery { op, inputs: &[input], output }).is_yes()
    };
    let view = |offset: u64| Op::View { extents: even.extents, strides: even.strides, offset };
    assert!(takes(&view(4), &root, &even) && !takes(&view(2), &root, &even));
    let rows = TensorDesc::contiguous(DType::F32, &[1, 2]).unwrap();
    assert!(takes(&Op::Cont, &strided(8), &rows) && !takes(&Op::Cont, &strided(6), &rows));
}

/// Attention of one token whose last operand, sinks, is made from the turned queries.
fn with_sinks(sinks_of: impl Fn(&mut GraphBuilder, TensorId) -> TensorId) -> Graph {
    let (head, heads, context) = (64, 4, 256);
    let mut b = GraphBuilder::new();
    let [q, k, v] = ["q", "k", "v"].map(|name| b.input(name, DType::F32, &[head, heads, 1]));
    let [positions, rows, seen] = ["positions", "rows", "seen"].map(|name| b.input(name, DType::I32, &[1]));
    let rope = Rope { mode: RopeMode::Neox, dims: head as u32, ..Rope::default() };
    let (q, k) = (b.rope(q, positions, None, rope), b.rope(k, positions, None, rope));
    let [k, v] = [("k cache", k), ("v cache", v)].map(|(name, new)| {
        let cache = b.state(name, DType::F16, &[head, context, heads]);
        let new = b.permute(new, [0, 2, 1, 3]);
        b.set_rows(cache, new, rows)
    });
    let sinks = sinks_of(&mut b, q);
    let q = b.permute(q, [0, 2, 1, 3]);
    let flash = FlashAttention { kv_len: true, sinks: true, ..FlashAttention::scaled(0.1) };
    let attended = b.node(Op::FlashAttention(flash), &[q, k, v, seen, sinks]);
    b.output(attended);
    b.build().unwrap()
}

#[test]
fn queries_that_are_read_once_more_are_not_fused_away() {
    let apart = with_sinks(|b, _| b.input("sinks", DType::F32, &[4]));
    assert_eq!(kernels(&lowered(&apart, &LowerOptions::default())), [DECODE]);
    let same = with_sinks(|b, q| b.view(q, [4, 1, 1, 1], [4, 16, 16, 16], 0));
    assert_eq!(kernels(&lowered(&same, &LowerOptions::default())), [ROTATE, DECODE]);
}

#[test]
fn activations_that_are_also_added_are_written() {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[64, 40]);
    let (weight, matrix) =
        (b.weight("weight", DType::F32, &[64]), b.weight("matrix", DType::Q4_0, &[64, 64]));
    let normed = b.rms_norm(x, 1e-5);
    let normed = b.mul(normed, weight);
    let product = b.mul_mat(matrix, normed);
    let same = b.view(normed, [64, 40, 1, 1], [4, 256, 10240, 10240], 0);
    let sum = b.add(product, same);
    b.output(sum);
    let steps = lowered(&b.build().unwrap(), &LowerOptions::default());
    assert_eq!(kernels(&steps), [SCALED_NORM, F16_ACTIVATIONS, TILES]);
}

#[test]
fn the_ops_page_has_what_is_accepted() {
    let paper = Paper::new(TILE_SHARED);
    conformance::check_ops_page("cuda", &conformance::acceptance("cuda", |node| paper.supports(node)));
}
