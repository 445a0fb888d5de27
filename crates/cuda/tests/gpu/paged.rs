//! Attention over rows in pages: one sequence and many, alone and in company, and numbers out of range.

use std::sync::Arc;

use orlop_alloc::{Externals, SetTensor, TensorSet};
use orlop_backend::{Device, DeviceError, Role, RunOptions};
use orlop_graph::{DType, FlashAttention, Graph, GraphBuilder, Leaf, PagedRows, Rope, RopeMode, TensorId};
use orlop_quant::encode;
use orlop_sched::{Error, Machine, Session, SessionOptions};
use orlop_testkit::{Feeds, Random, f32_bytes, i32_bytes};

use crate::Test;
use crate::support::{compare, numbers, outputs};

pub(crate) const TESTS: &[Test] = tests![
    paged_attention_agrees_with_the_reference,
    a_token_attends_alike_in_any_company,
    numbers_out_of_range_are_reported,
];

const PAGE_ROWS: u64 = 64;

/// Heads and pages.
#[derive(Clone, Copy, Debug)]
struct Shape {
    head: u64,
    heads: u64,
    kv_heads: u64,
    dtype: DType,
    window: u32,
    /// Pages of a sequence, and sequences.
    each: u64,
    sequences: u64,
}

const SHAPE: Shape =
    Shape { head: 128, heads: 8, kv_heads: 2, dtype: DType::F16, window: 0, each: 16, sequences: 5 };

/// Tokens of one sequence: which, its rows before them, how many.
type Run = (u64, u64, u64);

/// Rotation, caches in pages, attention; tokens come run after run.
struct Paged {
    graph: Graph,
    feeds: Feeds,
    kv_len: TensorId,
    pages: TensorId,
    sequences: TensorId,
}

/// Pages in an order that follows from a seed.
fn shuffled(count: u64, seed: u64) -> Vec<u64> {
    let (mut pages, mut random) = ((0..count).collect::<Vec<u64>>(), Random::new(seed));
    for index in (1..pages.len()).rev() {
        let other = ((f64::from(random.signed()) + 1.0) / 2.0 * (index + 1) as f64) as usize;
        pages.swap(index, other.min(index));
    }
    pages
}

/// Numbers of a token follow from its sequence and position, and rows from theirs: not from their places.
fn paged(shape: Shape, mode: RopeMode, runs: &[Run], seed: u64) -> Paged {
    let Shape { head, heads, kv_heads, dtype, window, each, sequences: count } = shape;
    let tokens: Vec<(u64, u64)> = runs
        .iter()
        .flat_map(|(sequence, past, new)| (0..*new).map(move |token| (*sequence, past + token)))
        .collect();
    let (n, rows) = (tokens.len() as u64, each * count * PAGE_ROWS);
    let table = shuffled(each * count, seed);
    let place = |(sequence, row): (u64, u64)| {
        table[(sequence * each + row / PAGE_ROWS) as usize] * PAGE_ROWS + row % PAGE_ROWS
    };
    let mut b = GraphBuilder::new();
    let q = b.input("q", DType::F32, &[head, heads, n]);
    let [k, v] = ["k", "v"].map(|name| b.input(name, DType::F32, &[head, kv_heads, n]));
    let lists = ["positions", "rows", "kv_len", "sequences"].map(|name| b.input(name, DType::I32, &[n]));
    let [positions, indices, kv_len, sequences] = lists;
    let pages = b.input("pages", DType::I32, &[each, count]);
    let [k_cache, v_cache] = ["k cache", "v cache"].map(|name| b.state(name, dtype, &[head, rows, kv_heads]));
    let rope = Rope { mode, dims: head as u32, ..Rope::default() };
    let (q_turned, k_turned) = (b.rope(q, positions, None, rope), b.rope(k, positions, None, rope));
    let cached = [(k_cache, k_turned), (v_cache, v)].map(|(cache, new)| {
        let new = b.permute(new, [0, 2, 1, 3]);
        b.set_rows(cache, new, indices)
    });
    let turned = b.permute(q_turned, [0, 2, 1, 3]);
    let places = PagedRows { kv_len, pages, sequences, page_rows: PAGE_ROWS as u32 };
    let flash = FlashAttention { window, ..FlashAttention::scaled(0.3) };
    let attended = b.paged_attention([turned, cached[0], cached[1]], places, None, flash);
    b.output(attended);
    let graph = b.build().unwrap();

    let mut feeds: Feeds = Vec::new();
    for (id, count) in [(q, heads), (k, kv_heads), (v, kv_heads)] {
        let of = |(sequence, row): &(u64, u64)| {
            numbers(1 + id.index() as u64 + 100 * sequence + 10_000 * row, (head * count) as usize)
        };
        feeds.push((id, f32_bytes(&tokens.iter().flat_map(of).collect::<Vec<f32>>())));
    }
    for cache in [k_cache, v_cache] {
        // Rows that are not written yet, and free pages, are NaN.
        let mut values = vec![f32::NAN; (head * rows * kv_heads) as usize];
        for (sequence, past, _) in runs {
            for row in 0..*past {
                let at = place((*sequence, row));
                for kv_head in 0..kv_heads {
                    let seed = 7 + cache.index() as u64 + 10 * sequence + 1000 * row + 1_000_000 * kv_head;
                    let begin = ((kv_head * rows + at) * head) as usize;
                    values[begin..begin + head as usize].copy_from_slice(&numbers(seed, head as usize));
                }
            }
        }
        let mut bytes = vec![0; dtype.row_bytes(values.len() as u64).unwrap() as usize];
        encode(dtype, &values, &mut bytes).unwrap();
        feeds.push((cache, bytes));
    }
    let list = |of: &dyn Fn(&(u64, u64)) -> u64| {
        i32_bytes(&tokens.iter().map(|token| of(token) as i32).collect::<Vec<i32>>())
    };
    feeds.push((positions, list(&|(_, row)| *row)));
    feeds.push((indices, list(&|token| place(*token))));
    feeds.push((kv_len, list(&|(_, row)| row + 1)));
    feeds.push((sequences, list(&|(sequence, _)| *sequence)));
    feeds.push((pages, i32_bytes(&table.iter().map(|page| *page as i32).collect::<Vec<i32>>())));
    Paged { graph, feeds, kv_len, pages, sequences }
}

fn paged_attention_agrees_with_the_reference(device: &Arc<dyn Device>) -> Vec<String> {
    let many: Vec<Run> = (0..40).map(|sequence| (sequence, 20 * sequence, 1)).collect();
    let mixed: Vec<Run> =
        [(0, 30, 90), (1, 100, 3)].into_iter().chain((2..14).map(|s| (s, 40 * s, 1))).collect();
    let wide = Shape { sequences: 40, ..SHAPE };
    let [blocks, nibbles] = [DType::Q8_0, DType::Q4_0].map(|dtype| Shape { dtype, ..SHAPE });
    let mut failures = Vec::new();
    for (name, shape, runs) in [
        ("one token", SHAPE, &[(1, 700, 1)][..]),
        ("the first token", SHAPE, &[(4, 0, 1)]),
        ("one token, heads of 64", Shape { head: 64, heads: 9, kv_heads: 3, ..SHAPE }, &[(2, 77, 1)]),
        ("one token, a window", Shape { window: 100, ..SHAPE }, &[(2, 800, 1)]),
        ("one token, bf16", Shape { head: 96, dtype: DType::BF16, ..SHAPE }, &[(2, 130, 1)]),
        ("one token, a long table", Shape { each: 160, sequences: 2, ..SHAPE }, &[(1, 3000, 1)]),
        ("a token of each", SHAPE, &[(0, 3, 1), (1, 64, 1), (2, 63, 1), (3, 1023, 1), (4, 500, 1)]),
        ("a token of many", wide, &many),
        ("a token of many, heads of 64", Shape { head: 64, heads: 4, kv_heads: 4, ..wide }, &many),
        ("a token of many, a window", Shape { window: 70, ..wide }, &many),
        ("a token of many, f32", Shape { dtype: DType::F32, ..wide }, &many),
        ("a few of each", SHAPE, &[(0, 3, 3), (1, 64, 2), (2, 800, 2)]),
        ("runs of some", SHAPE, &[(0, 3, 9), (1, 64, 20), (2, 800, 7), (3, 0, 8), (4, 10, 20)]),
        ("one prompt", Shape { sequences: 1, ..SHAPE }, &[(0, 0, 200)]),
        ("one prompt, a tile and some", Shape { sequences: 1, ..SHAPE }, &[(0, 100, 70)]),
        ("a prompt among others", SHAPE, &[(3, 200, 150)]),
        ("prompts", SHAPE, &[(0, 0, 100), (2, 500, 100), (1, 64, 64)]),
        ("prompts, heads of 256", Shape { head: 256, ..SHAPE }, &[(0, 0, 40), (2, 500, 60)]),
        ("prompts, heads of 80", Shape { head: 80, ..SHAPE }, &[(0, 0, 40), (2, 500, 60)]),
        ("prompts, a window", Shape { window: 50, ..SHAPE }, &[(0, 0, 100), (2, 500, 100)]),
        ("a prompt and tokens of others", wide, &mixed),
        ("one token, q8_0", blocks, &[(1, 700, 1)]),
        ("one token, q4_0, heads of 64", Shape { head: 64, heads: 9, kv_heads: 3, ..nibbles }, &[(2, 77, 1)]),
        ("one token, q8_0, a long table", Shape { each: 160, sequences: 2, ..blocks }, &[(1, 3000, 1)]),
        ("one token, q4_0, a window", Shape { window: 100, ..nibbles }, &[(2, 800, 1)]),
        ("a token of many, q8_0", Shape { sequences: 40, ..blocks }, &many),
        ("a token of many, q4_0", Shape { heads: 4, kv_heads: 4, sequences: 40, ..nibbles }, &many),
        ("runs of some, q8_0", blocks, &[(0, 3, 9), (1, 64, 20), (2, 800, 7), (3, 0, 8), (4, 10, 20)]),
        ("prompts, q4_0, heads of 64", Shape { head: 64, ..nibbles }, &[(0, 0, 100), (2, 500, 100)]),
        ("prompts, q8_0, a window", Shape { window: 50, ..blocks }, &[(0, 0, 100), (2, 500, 100)]),
        ("one prompt, q8_0", Shape { sequences: 1, ..blocks }, &[(0, 100, 70)]),
    ] {
        for mode in [RopeMode::Normal, RopeMode::Neox] {
            let Paged { graph, feeds, .. } = paged(shape, mode, runs, 3);
            let name = format!("{name}, {mode:?}");
            failures.extend(compare(&name, (device, Role::Weight), &graph, &feeds, 1e-4));
        }
    }
    failures
}

/// Bit for bit: alone, with others, and with its rows elsewhere.
fn a_token_attends_alike_in_any_company(device: &Arc<dyn Device>) -> Vec<String> {
    let mut failures = Vec::new();
    for (heads, kv_heads, dtype) in
        [(8, 2, DType::F16), (6, 2, DType::F16), (4, 4, DType::F16), (8, 2, DType::Q8_0), (4, 4, DType::Q4_0)]
    {
        let shape = Shape { heads, kv_heads, dtype, sequences: 20, ..SHAPE };
        let result = |runs: &[Run], seed: u64| {
            let Paged { graph, feeds, .. } = paged(shape, RopeMode::Neox, runs, seed);
            let all = outputs(device, Role::Weight, &graph, &feeds).remove(0);
            let [first, ..] = all.chunks((shape.head * heads) as usize).collect::<Vec<_>>()[..] else {
                return Vec::new();
            };
            first.iter().map(|number| number.to_bits()).collect()
        };
        for past in [5, 300, 999] {
            let with = |others: u64| -> Vec<Run> {
                [(0, past, 1)].into_iter().chain((1..=others).map(|other| (other, 50 * other, 1))).collect()
            };
            let two = result(&with(1), 1);
            for (others, seed) in [(1, 2), (3, 3), (7, 4), (19, 5)] {
                if result(&with(others), seed) != two {
                    failures.push(format!(
                        "{dtype}, {heads} heads, {past} rows: another result with {others} others"
                    ));
                }
            }
            let prompt: Vec<Run> = with(2).into_iter().chain([(5, 0, 90)]).collect();
            if result(&prompt, 6) != two {
                failures.push(format!("{dtype}, {heads} heads, {past} rows: another result with a prompt"));
            }
        }
    }
    failures
}

/// A length, a sequence and a page, each beyond what there is; what no query looks at may be anything.
fn numbers_out_of_range_are_reported(device: &Arc<dyn Device>) -> Vec<String> {
    let mut failures = Vec::new();
    let fused: &[Run] = &[(1, 700, 1)];
    let few: &[Run] = &[(0, 30, 1), (1, 700, 2)];
    let prompt: &[Run] = &[(1, 600, 101)];
    for (name, runs, dtype) in [
        ("one token", fused, DType::F16),
        ("some", few, DType::F16),
        ("a prompt", prompt, DType::F16),
        ("one token, q8_0", fused, DType::Q8_0),
        ("a prompt, q4_0", prompt, DType::Q4_0),
    ] {
        let paged = paged(Shape { dtype, ..SHAPE }, RopeMode::Neox, runs, 9);
        let Paged { kv_len, pages, sequences, .. } = paged;
        let tokens = runs.iter().map(|run| run.2 as usize).sum::<usize>();
        let (last, limit) = (tokens - 1, SHAPE.each * PAGE_ROWS);
        let total = SHAPE.each * SHAPE.sequences;
        // Page 10 of sequence 1 has rows 640 to 703; page 11 none that is seen.
        let page = |page: u64| (SHAPE.each + page) as usize;
        for (id, at, number, rows) in [
            (kv_len, last, limit as i32 + 1, Some(limit)),
            (kv_len, last, -1, Some(limit)),
            (sequences, last, SHAPE.sequences as i32, Some(SHAPE.sequences)),
            (sequences, last, -3, Some(SHAPE.sequences)),
            (pages, page(10), total as i32, Some(total)),
            (pages, page(0), -1, Some(total)),
            (pages, page(11), -1, None),
            (pages, page(15), 1 << 30, None),
        ] {
            let found = run_with(device, &paged, id, at, number);
            let fits = match (&found, rows) {
                (Ok(()), None) => true,
                (Err(Error::Device { source, .. }), Some(wanted)) => {
                    matches!(&**source, DeviceError::BadIndex { index, rows, .. } if (*index, *rows) == (number.into(), wanted))
                }
                _ => false,
            };
            if !fits {
                failures.push(format!("{name}: {number} gave {found:?}, not an error of {rows:?} rows"));
            }
        }
    }
    failures
}

/// Runs a graph with one number of an input exchanged, and again without.
fn run_with(
    device: &Arc<dyn Device>,
    paged: &Paged,
    id: TensorId,
    at: usize,
    number: i32,
) -> Result<(), Error> {
    let plain = device.buffer_types(Role::Arena)[0].clone();
    let mut externals = Externals::new();
    let leaves: Vec<(TensorId, Leaf)> = paged.graph.leaves().collect();
    for (leaf, bytes) in paged.feeds.iter().filter(|(leaf, _)| leaves.contains(&(*leaf, Leaf::State))) {
        let tensor = paged.graph.tensor(*leaf);
        let set = TensorSet::allocate(&plain, &[SetTensor::new(tensor.name.as_str(), tensor.desc)]).unwrap();
        set.tensors()[0].set(0, bytes).unwrap();
        externals.insert(*leaf, set.tensors()[0].clone());
    }
    let mut session = Session::new(Machine::new([Arc::clone(device)]).unwrap(), SessionOptions::default())?;
    let plan = session.prepare(&paged.graph, &externals)?;
    let mut run = |exchanged: bool| {
        for (leaf, bytes) in paged.feeds.iter().filter(|(leaf, _)| leaves.contains(&(*leaf, Leaf::Input))) {
            let mut bytes = bytes.clone();
            if *leaf == id && exchanged {
                bytes[4 * at..][..4].copy_from_slice(&number.to_le_bytes());
            }
            session.set(plan, *leaf, &bytes)?;
        }
        session.run(plan, &RunOptions::default())
    };
    let outcome = run(true);
    run(false)?;
    outcome
}
