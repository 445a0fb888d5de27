//! Attention on the CPU device, against the reference.

use crate::compare::Case;
use orlop_backend::{Device, DeviceError, LowerOptions, Segment};
use orlop_cpu::{CpuDevice, ThreadPool};
use orlop_graph::{DType, FlashAttention, GraphBuilder, Leaf, NodeId, PagedRows, TensorDesc, TensorId};

const INF: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;
const PLAIN: FlashAttention = FlashAttention::scaled(0.3);

struct Shape {
    dk: u64,
    dv: u64,
    tokens: u64,
    heads: u64,
    seqs: u64,
    kv: u64,
    kv_heads: u64,
    kv_seqs: u64,
}

const SHAPES: [Shape; 7] = [
    Shape { dk: 1, dv: 1, tokens: 1, heads: 1, seqs: 1, kv: 1, kv_heads: 1, kv_seqs: 1 },
    Shape { dk: 32, dv: 64, tokens: 3, heads: 4, seqs: 2, kv: 9, kv_heads: 2, kv_seqs: 1 },
    Shape { dk: 64, dv: 32, tokens: 20, heads: 2, seqs: 2, kv: 70, kv_heads: 2, kv_seqs: 2 },
    Shape { dk: 64, dv: 64, tokens: 1, heads: 6, seqs: 1, kv: 300, kv_heads: 1, kv_seqs: 1 },
    Shape { dk: 5, dv: 3, tokens: 2, heads: 3, seqs: 1, kv: 65, kv_heads: 3, kv_seqs: 1 },
    // Many splits; more queries than one tile has.
    Shape { dk: 128, dv: 128, tokens: 1, heads: 4, seqs: 1, kv: 1500, kv_heads: 1, kv_seqs: 1 },
    Shape { dk: 64, dv: 80, tokens: 45, heads: 3, seqs: 1, kv: 150, kv_heads: 1, kv_seqs: 1 },
];

impl Shape {
    fn q(&self) -> [u64; 4] {
        [self.dk, self.tokens, self.heads, self.seqs]
    }

    fn k(&self) -> [u64; 4] {
        [self.dk, self.kv, self.kv_heads, self.kv_seqs]
    }

    fn v(&self) -> [u64; 4] {
        [self.dv, self.kv, self.kv_heads, self.kv_seqs]
    }

    fn qkv(&self, case: &mut Case) -> [TensorId; 3] {
        [self.q(), self.k(), self.v()].map(|extents| case.noise(DType::F32, &extents))
    }

    /// Lengths from 0 to all rows.
    fn lengths(&self, case: &mut Case) -> TensorId {
        let last = (self.tokens - 1).max(1);
        let lengths: Vec<f64> = (0..self.tokens).map(|token| (self.kv * token / last) as f64).collect();
        case.values(DType::I32, &[self.tokens], &lengths)
    }

    /// A mask that hides many rows, and all of the first token's.
    fn mask(&self, case: &mut Case, dtype: DType, heads: u64) -> TensorId {
        let extents = [self.kv, self.tokens + 1, heads, 1];
        let mut values = case.numbers(extents.iter().product());
        values.iter_mut().step_by(3).for_each(|x| *x = -INF);
        if self.tokens > 1 {
            values[..self.kv as usize].fill(-INF);
        }
        case.values(dtype, &extents, &values)
    }
}

#[test]
fn all_optional_operands() {
    for shape in &SHAPES {
        for choice in 0..16 {
            let (kv_len, mask, sinks, soft_cap) =
                (choice & 1 != 0, choice & 2 != 0, choice & 4 != 0, choice & 8 != 0);
            let mut case = Case::new();
            let operands = shape.qkv(&mut case);
            let kv_len = kv_len.then(|| shape.lengths(&mut case));
            let (dtype, heads) = if soft_cap { (DType::F16, shape.heads) } else { (DType::F32, 1) };
            let max_bias = if mask && soft_cap { 8.0 } else { 0.0 };
            let mask = mask.then(|| shape.mask(&mut case, dtype, heads));
            let sinks = sinks.then(|| case.noise(DType::F32, &[shape.heads]));
            let soft_cap = if soft_cap { 2.0 } else { 0.0 };
            let params = FlashAttention { max_bias, soft_cap, ..PLAIN };
            let y = case.b.flash_attention(operands, kv_len, mask, sinks, params);
            case.check(y, 1e-10);
        }
    }
}

#[test]
fn windows_of_any_size() {
    for shape in &SHAPES {
        for (window, masked) in [(1, false), (2, true), (63, false), (64, false), (65, true), (400, false)] {
            let mut case = Case::new();
            let operands = shape.qkv(&mut case);
            let kv_len = Some(shape.lengths(&mut case)).filter(|_| window % 2 == 1);
            let mask = masked.then(|| shape.mask(&mut case, DType::F32, 1));
            let params = FlashAttention { window, ..PLAIN };
            let y = case.b.flash_attention(operands, kv_len, mask, None, params);
            case.check(y, 1e-10);
        }
    }
}

#[test]
fn all_types_of_keys_and_values() {
    let shape = &SHAPES[1];
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::F64, DType::Q8_0, DType::Q4_0, DType::IQ4_NL] {
        for q in [DType::F32, DType::F16, DType::BF16] {
            let mut case = Case::new();
            let q = case.noise(q, &shape.q());
            let k = case.noise(dtype, &shape.k());
            let v = case.gaps(dtype, shape.v());
            let y = case.b.flash_attention([q, k, v], None, None, None, PLAIN);
            case.check(y, 1e-10);
        }
    }
}

#[test]
fn permuted_operands() {
    let shape = &SHAPES[2];
    let mut case = Case::new();
    // Heads before tokens, as projections give them; values with the rows of a head side by side.
    let q = case.noise(DType::F32, &[shape.dk, shape.heads, shape.tokens, shape.seqs]);
    let k = case.noise(DType::F16, &[shape.dk, shape.kv_heads, shape.kv, shape.kv_seqs]);
    let (q, k) = (case.b.permute(q, [0, 2, 1, 3]), case.b.permute(k, [0, 2, 1, 3]));
    let v = case.transposed(DType::F16, shape.v());
    let y = case.b.flash_attention([q, k, v], None, None, None, PLAIN);
    case.check(y, 1e-10);
}

#[test]
fn rows_that_are_not_seen_may_hold_anything() {
    let nans = |seen: usize| -> Vec<f64> { (0..100).map(|i| if i < seen { 0.5 } else { NAN }).collect() };
    let mut case = Case::new();
    let q = case.noise(DType::F32, &[1, 3, 1]);
    let k = case.values(DType::F32, &[1, 100, 1], &nans(70));
    let v = case.values(DType::F32, &[1, 100, 1], &nans(70));
    let lengths = case.values(DType::I32, &[3], &[70.0, 0.0, 66.0]);
    let y = case.b.flash_attention([q, k, v], Some(lengths), None, None, PLAIN);
    case.check(y, 1e-10);

    let mut case = Case::new();
    let q = case.noise(DType::F32, &[1, 2, 1]);
    let k = case.values(DType::F32, &[1, 100, 1], &nans(30));
    let v = case.values(DType::F32, &[1, 100, 1], &nans(30));
    let mask: Vec<f64> = (0..200).map(|i| if i < 30 { 0.0 } else { -INF }).collect();
    let mask = case.values(DType::F16, &[100, 2], &mask);
    let y = case.b.flash_attention([q, k, v], None, Some(mask), None, PLAIN);
    case.check(y, 1e-10);
}

#[test]
fn seen_rows_that_are_no_numbers() {
    for (value, sink) in [(NAN, 0.0), (INF, 0.0), (-INF, 0.0), (0.0, NAN), (0.0, INF), (0.0, -INF)] {
        let mut case = Case::new();
        let q = case.values(DType::F32, &[1, 1, 1], &[1.0]);
        let mut keys = case.numbers(90);
        keys[7] = value;
        let k = case.values(DType::F32, &[1, 90, 1], &keys);
        let v = case.noise(DType::F32, &[2, 90, 1]);
        let sinks = case.values(DType::F32, &[1], &[sink]);
        let y = case.b.flash_attention([q, k, v], None, None, Some(sinks), PLAIN);
        case.check(y, 1e-10);
    }
}

#[test]
fn empty_operands() {
    // Rows of length 0 have equal scores; no rows at all give zeros.
    for (dk, kv) in [(0, 5), (4, 0)] {
        let mut case = Case::new();
        let q = case.noise(DType::F32, &[dk, 3, 2]);
        let k = case.noise(DType::F32, &[dk, kv, 1]);
        let v = case.noise(DType::F32, &[4, kv, 1]);
        let y = case.b.flash_attention([q, k, v], None, None, None, PLAIN);
        case.check(y, 1e-10);
    }
    let mut case = Case::new();
    let [q, k, v] = [[4, 0, 2], [4, 3, 2], [4, 3, 2]].map(|extents| case.noise(DType::F32, &extents));
    let y = case.b.flash_attention([q, k, v], None, None, None, PLAIN);
    case.check(y, 0.0);
}

#[test]
fn lengths_out_of_range_are_refused() {
    for bad in [-1.0, 4.0, f64::from(i32::MIN)] {
        let mut case = Case::new();
        let x = case.noise(DType::F32, &[2, 3, 1]);
        let lengths = case.values(DType::I32, &[3], &[3.0, bad, 0.0]);
        case.b.flash_attention([x, x, x], Some(lengths), None, None, PLAIN);
        assert!(matches!(case.error(), DeviceError::BadIndex { rows: 3, .. }));
        let mut case = Case::new();
        let x = case.noise(DType::F32, &[2, 3, 1]);
        let [ends, firsts] = [[3.0; 3], [0.0, bad, 3.0]].map(|list| case.values(DType::I32, &[3], &list));
        case.b.ranged_attention([x, x, x], [firsts, ends], None, PLAIN);
        assert!(matches!(case.error(), DeviceError::BadIndex { rows: 3, .. }));
    }
}

#[test]
fn memory_beside_operands_does_not_grow_with_the_context() {
    let temporaries = |tokens: u64, kv: u64| -> u64 {
        let mut b = GraphBuilder::new();
        let [q, k, v] = [[64, tokens, 9], [64, kv, 3], [64, kv, 3]].map(|extents| {
            b.leaf(Leaf::State, &format!("{extents:?}{kv}"), TensorDesc::contiguous(DType::F16, &extents))
        });
        b.flash_attention([q, k, v], None, None, None, PLAIN);
        let graph = b.build().unwrap();
        let nodes: Vec<NodeId> = graph.node_ids().collect();
        let count = graph.tensor_ids().count();
        let (types, escapes) = (vec![None; count], vec![true; count]);
        let segment = Segment { graph: &graph, nodes: &nodes, buffer_types: &types, escapes: &escapes };
        let device = CpuDevice::new(ThreadPool::new(2).unwrap());
        let options = LowerOptions { max_threads: 2, ..LowerOptions::default() };
        let steps = device.lower(&segment, &options).unwrap();
        steps.temporaries.iter().map(|temporary| temporary.bytes).sum()
    };
    for tokens in [1, 4, 512] {
        assert_eq!(temporaries(tokens, 512), temporaries(tokens, 65_536), "{tokens} tokens");
        assert!(temporaries(tokens, 512) < 1 << 20, "{tokens} tokens: {}", temporaries(tokens, 512));
    }
    assert!(temporaries(1, 512) < 200_000, "{}", temporaries(1, 512));
    assert_eq!(temporaries(512, 4096), temporaries(4096, 4096));
}

/// Attention of some queries, each of a token of a sequence, with rows that depend on nothing but sequence and number.
struct PagedCase {
    dtype: DType,
    dims: [u64; 2],
    window: u32,
    soft_cap: f32,
    /// Pages of each sequence.
    pages: Vec<Vec<u64>>,
}

const HEADS: [u64; 2] = [6, 2];

impl PagedCase {
    /// What each instruction set gives for queries of sequences that see some rows.
    fn run(&self, queries: &[(u64, u64)], threads: usize) -> Vec<Vec<f64>> {
        let [dk, dv] = self.dims;
        let count = queries.len() as u64;
        let total: u64 = self.pages.iter().map(|pages| pages.len() as u64).sum::<u64>() + 1;
        let mut case = Case::new();
        let value =
            |seed: u64| f64::from((seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u32) / 8e6 - 1.0;
        let tensor = |case: &mut Case, width: u64, salt: u64| {
            let mut values = vec![f64::NAN; (width * total * 64 * HEADS[1]) as usize];
            for (sequence, pages) in self.pages.iter().enumerate() {
                for (row, head, column) in (0..pages.len() as u64 * 64)
                    .flat_map(|row| (0..HEADS[1]).map(move |head| (row, head)))
                    .flat_map(|(row, head)| (0..width).map(move |column| (row, head, column)))
                {
                    let place = pages[row as usize / 64] * 64 + row % 64;
                    let index = (head * total * 64 + place) * width + column;
                    let seed = (((sequence as u64 * 4096 + row) * 8 + head) * 512 + column) * 4 + salt;
                    values[index as usize] = value(seed + 1);
                }
            }
            case.values(self.dtype, &[width, total * 64, HEADS[1]], &values)
        };
        let (k, v) = (tensor(&mut case, dk, 0), tensor(&mut case, dv, 1));
        let elements = (0..HEADS[0]).flat_map(|head| queries.iter().map(move |query| (head, *query)));
        let elements = elements
            .flat_map(|(head, (sequence, rows))| {
                (0..dk).map(move |column| value(((sequence * 4096 + rows) * 8 + head) * 512 + column + 77))
            })
            .collect::<Vec<f64>>();
        let q = case.values(DType::F32, &[dk, count, HEADS[0]], &elements);
        let integers = |numbers: Vec<u64>| numbers.into_iter().map(|x| x as f64).collect::<Vec<f64>>();
        let lengths = integers(queries.iter().map(|query| query.1).collect());
        let sequences = integers(queries.iter().map(|query| query.0).collect());
        let each = self.pages.iter().map(Vec::len).max().unwrap_or(0);
        let table =
            self.pages.iter().flat_map(|pages| pages.iter().copied().chain(vec![99; each - pages.len()]));
        let table = integers(table.collect());
        let kv_len = case.values(DType::I32, &[count], &lengths);
        let sequences = case.values(DType::I32, &[count], &sequences);
        let pages = case.values(DType::I32, &[each as u64, self.pages.len() as u64], &table);
        let rows = PagedRows { kv_len, pages, sequences, page_rows: 64 };
        let params = FlashAttention { window: self.window, soft_cap: self.soft_cap, ..PLAIN };
        let y = case.b.paged_attention([q, k, v], rows, None, params);
        case.results(y, threads)
    }
}

#[test]
fn a_query_gives_the_same_alone_in_any_batch_and_from_any_pages() {
    let orders = [
        vec![vec![0, 1, 2, 3, 4, 5, 6, 7, 8, 9], vec![10, 11, 12, 13, 14], vec![15]],
        vec![vec![9, 3, 15, 1, 4, 10, 6, 7, 8, 0], vec![2, 11, 14, 13, 12], vec![5]],
    ];
    // One sequence's tokens one after the other, single tokens of others, and some that see nothing.
    let mut queries: Vec<(u64, u64)> = (560..600).map(|rows| (0, rows)).collect();
    queries.extend([(1, 300), (2, 64), (1, 1), (2, 0), (0, 257), (0, 640), (1, 255), (1, 256)]);
    for (dtype, dims, window, soft_cap) in [
        (DType::F16, [64, 64], 0, 0.0),
        (DType::F16, [64, 32], 100, 0.0),
        (DType::F16, [128, 128], 0, 0.0),
        (DType::Q8_0, [64, 64], 0, 0.0),
        (DType::F32, [20, 12], 70, 3.0),
    ] {
        let cases = orders.clone().map(|pages| PagedCase { dtype, dims, window, soft_cap, pages });
        let together = cases[0].run(&queries, 5);
        let [heads, width] = [HEADS[0], dims[1]].map(|x| x as usize);
        for (index, query) in queries.iter().enumerate().filter(|(index, _)| index % 7 == 0 || *index > 38) {
            let alone = cases[1].run(&[*query], 1);
            for (together, alone) in together.iter().zip(&alone) {
                let found = &together[index * heads * width..][..heads * width];
                assert_eq!(found, alone, "{dtype} {query:?} window {window}");
            }
        }
        // In another order of tokens, in pairs and on two threads.
        for pair in queries.chunks(2).step_by(3) {
            let swapped: Vec<(u64, u64)> = pair.iter().rev().copied().collect();
            let (a, b) = (cases[0].run(pair, 2), cases[1].run(&swapped, 3));
            for (a, b) in a.iter().zip(&b) {
                let rows: Vec<&[f64]> = b.chunks(heads * width).rev().collect();
                assert_eq!(a, &rows.concat(), "{dtype} {pair:?}");
            }
        }
    }
}

#[test]
fn pages_and_sequences_out_of_range_are_refused() {
    for (lengths, sequences, page) in [
        ([65, 129], [0, 1], 1),
        ([64, 2], [0, 2], 1),
        ([64, 2], [0, -1], 1),
        ([65, 2], [0, 1], 4),
        ([65, 2], [0, 1], -1),
    ] {
        let mut case = Case::new();
        let q = case.noise(DType::F32, &[16, 2, 1]);
        let [k, v] = [(); 2].map(|()| case.noise(DType::F16, &[16, 256, 1]));
        let numbers = |x: [i32; 2]| x.map(f64::from);
        let kv_len = case.values(DType::I32, &[2], &numbers(lengths));
        let pages = case.values(DType::I32, &[2, 2], &[0.0, f64::from(page), 2.0, 3.0]);
        let sequences = case.values(DType::I32, &[2], &numbers(sequences));
        let rows = PagedRows { kv_len, pages, sequences, page_rows: 64 };
        case.b.paged_attention([q, k, v], rows, None, PLAIN);
        assert!(matches!(case.error(), DeviceError::BadIndex { .. }));
    }
}
