//! Attention: heads, caches, masks, sinks, windows.

use orlop_graph::{DType, FlashAttention, PagedRows, TensorId};

use crate::conformance::Tolerance::Attention;
use crate::conformance::case::{Draft, Lie, Table};
use crate::fill::Fill;

const KIND: &str = "flash_attention";

/// Sizes of one attention.
#[derive(Clone, Copy)]
struct Size {
    dk: u64,
    dv: u64,
    tokens: u64,
    kv: u64,
    heads: u64,
    kv_heads: u64,
    seqs: u64,
    /// Sequences may share what they see.
    kv_seqs: u64,
}

const SMALL: Size = Size { dk: 32, dv: 32, tokens: 3, kv: 17, heads: 4, kv_heads: 2, seqs: 1, kv_seqs: 1 };
const TWO: Size = Size { seqs: 2, kv_seqs: 2, ..SMALL };

/// What else there is.
#[derive(Clone, Copy)]
struct Given {
    types: [DType; 3],
    lie: Lie,
    kv_len: Option<[f64; 3]>,
    mask: Option<DType>,
    /// Heads and sequences of the mask; `None` for one of all heads and a sequence for each.
    masks: Option<[u64; 2]>,
    sinks: bool,
    max_bias: f32,
    soft_cap: f32,
    window: u32,
}

const PLAIN: Given = Given {
    types: [DType::F32, DType::F32, DType::F32],
    lie: Lie::Plain,
    kv_len: None,
    mask: None,
    masks: None,
    sinks: false,
    max_bias: 0.0,
    soft_cap: 0.0,
    window: 0,
};

pub(super) fn add(table: &mut Table) {
    let mut case = |kind: &str, detail: String, size: Size, given: Given| {
        table.add(kind, detail, Attention, |d| build(d, size, given));
    };
    for (detail, size) in [
        ("one of each", Size { dk: 1, dv: 1, tokens: 1, kv: 1, heads: 1, kv_heads: 1, ..SMALL }),
        ("heads of their own", Size { kv_heads: 4, ..SMALL }),
        ("grouped heads", SMALL),
        ("one kv head", Size { kv_heads: 1, ..SMALL }),
        ("other value size", Size { dv: 24, ..SMALL }),
        ("odd sizes", Size { dk: 13, dv: 7, tokens: 5, kv: 11, heads: 3, kv_heads: 3, ..TWO }),
        ("one token", Size { tokens: 1, kv: 70, ..SMALL }),
        ("many tokens", Size { tokens: 21, kv: 21, heads: 2, kv_heads: 1, ..SMALL }),
        ("two sequences", TWO),
        ("two sequences of one cache", Size { kv_seqs: 1, ..TWO }),
        ("four sequences of two caches", Size { seqs: 4, ..TWO }),
        ("many tokens of one cache", Size { tokens: 21, kv: 40, kv_seqs: 1, ..TWO }),
        ("large heads", Size { dk: 128, dv: 128, ..SMALL }),
        ("no tokens", Size { tokens: 0, ..SMALL }),
    ] {
        for kv in [DType::F32, DType::F16] {
            let given = Given { types: [DType::F32, kv, kv], ..PLAIN };
            case(KIND, format!("{detail} {kv}"), size, given);
        }
    }
    let kinds = [DType::F32, DType::F16, DType::BF16, DType::Q8_0, DType::Q4_0];
    for k in kinds {
        for v in kinds {
            if k != v && ![k, v].contains(&DType::F16) {
                continue;
            }
            let given = Given { types: [DType::F32, k, v], mask: Some(DType::F16), ..PLAIN };
            case(&format!("{KIND} types"), format!("k {k} v {v}"), SMALL, given);
        }
    }
    for q in [DType::F16, DType::BF16] {
        let given = Given { types: [q, DType::F16, DType::F16], ..PLAIN };
        case(&format!("{KIND} types"), format!("q {q}"), SMALL, given);
    }
    for kv in [DType::F32, DType::F16, DType::Q8_0] {
        let types = [DType::F32, kv, kv];
        for (detail, lengths) in [
            ("none", [0.0, 0.0, 0.0]),
            ("causal", [15.0, 16.0, 17.0]),
            ("full", [17.0, 17.0, 17.0]),
            ("mixed", [0.0, 9.0, 1.0]),
        ] {
            let given = Given { types, kv_len: Some(lengths), ..PLAIN };
            case(&format!("{KIND} kv_len"), format!("{detail} {kv}"), SMALL, given);
            let given = Given { mask: Some(DType::F16), sinks: true, ..given };
            case(&format!("{KIND} kv_len"), format!("{detail} {kv}, mask, sinks"), SMALL, given);
        }
        for (detail, window, lengths) in [
            ("one row", 1, [15.0, 16.0, 17.0]),
            ("some", 5, [0.0, 9.0, 3.0]),
            ("all", 99, [15.0, 16.0, 17.0]),
        ] {
            let given = Given { types, window, kv_len: Some(lengths), ..PLAIN };
            case(&format!("{KIND} window"), format!("{detail} {kv}"), SMALL, given);
            let given = Given { mask: Some(DType::F16), kv_len: None, ..given };
            case(&format!("{KIND} window"), format!("{detail} {kv}, mask"), SMALL, given);
        }
        for mask in [DType::F16, DType::F32] {
            let given = Given { types, mask: Some(mask), ..PLAIN };
            case(&format!("{KIND} mask"), format!("{mask}, kv {kv}"), SMALL, given);
            case(&format!("{KIND} mask"), format!("{mask}, kv {kv}, sequences"), TWO, given);
            for (detail, size, masks) in [
                ("a head each", SMALL, [4, 1]),
                ("two heads each", SMALL, [2, 1]),
                ("a head and sequence each", TWO, [4, 2]),
                ("two heads each for all sequences", TWO, [2, 1]),
                ("one for all sequences, one cache", Size { kv_seqs: 1, ..TWO }, [1, 1]),
                ("a head each, many tokens", Size { tokens: 21, kv: 40, ..TWO }, [4, 2]),
            ] {
                let given = Given { masks: Some(masks), ..given };
                case(&format!("{KIND} mask"), format!("{mask}, kv {kv}, {detail}"), size, given);
            }
            let given = Given { max_bias: 8.0, ..given };
            case(&format!("{KIND} alibi"), format!("{mask}, kv {kv}"), SMALL, given);
            let six = Size { heads: 6, ..SMALL };
            case(&format!("{KIND} alibi"), format!("{mask}, kv {kv}, six heads"), six, given);
        }
        let given = Given { types, soft_cap: 0.75, ..PLAIN };
        case(&format!("{KIND} soft_cap"), kv.to_string(), SMALL, given);
        let given =
            Given { types, soft_cap: 2.0, mask: Some(DType::F32), kv_len: Some([3.0, 17.0, 8.0]), ..PLAIN };
        case(&format!("{KIND} soft_cap"), format!("{kv}, mask, kv_len"), SMALL, given);
        let given = Given { types, sinks: true, ..PLAIN };
        case(&format!("{KIND} sinks"), kv.to_string(), SMALL, given);
        for lie in Lie::ROWS {
            let given = Given { types, lie, mask: Some(DType::F16), ..PLAIN };
            case(KIND, format!("{lie} {kv}"), SMALL, given);
        }
    }
    for lie in [Lie::Transposed, Lie::Spread] {
        case(KIND, lie.to_string(), SMALL, Given { lie, ..PLAIN });
    }
    range_cases(table);
    paged_cases(table);
}

fn build(d: &mut Draft, size: Size, given: Given) -> TensorId {
    let Size { dk, dv, tokens, kv, heads, kv_heads, seqs, kv_seqs } = size;
    let [q, k, v] = given.types;
    let fill = Fill::Uniform { low: -1.5, high: 1.5 };
    let operands = [
        d.lying(given.lie, q, &[dk, tokens, heads, seqs], fill.clone()),
        d.lying(given.lie, k, &[dk, kv, kv_heads, kv_seqs], fill.clone()),
        d.lying(given.lie, v, &[dv, kv, kv_heads, kv_seqs], fill),
    ];
    let kv_len = given.kv_len.map(|lengths| d.input(DType::I32, &[tokens], Fill::Values(lengths.to_vec())));
    let hidden = Fill::OneOf(vec![0.0, 0.0, -0.5, f64::NEG_INFINITY]);
    let [mask_heads, mask_seqs] = given.masks.unwrap_or([1, seqs]);
    let mask = given.mask.map(|dtype| d.input(dtype, &[kv, tokens + 1, mask_heads, mask_seqs], hidden));
    let sinks = given.sinks.then(|| d.input(DType::F32, &[heads], Fill::SIGNED));
    let params = FlashAttention {
        scale: 1.0 / (dk as f32).sqrt(),
        max_bias: given.max_bias,
        soft_cap: given.soft_cap,
        window: given.window,
        ..FlashAttention::scaled(1.0)
    };
    d.b.flash_attention(operands, kv_len, mask, sinks, params)
}

/// Texts one behind the other, windows that reach forward, nothing to see, and many tokens.
fn range_cases(table: &mut Table) {
    let texts: Vec<(i32, i32)> = [0..40, 40..41, 41..130]
        .into_iter()
        .flat_map(|rows| (rows.start..rows.end).map(move |_| (rows.start, rows.end)))
        .collect();
    let windows: Vec<(i32, i32)> = (0..130).map(|row: i32| ((row - 8).max(0), (row + 9).min(130))).collect();
    let lists: [(&str, &[(i32, i32)]); 5] = [
        ("some rows", &[(3, 9), (0, 17), (16, 17)]),
        ("nothing to see", &[(5, 5), (9, 2), (17, 17), (0, 0)]),
        ("one token", &[(60, 130)]),
        ("texts", &texts),
        ("windows", &windows),
    ];
    for (detail, ranges) in lists {
        for kv in [DType::F32, DType::F16, DType::Q8_0] {
            let types = [DType::F32, kv, kv];
            for (more, given) in [
                ("", PLAIN),
                (", mask", Given { mask: Some(DType::F32), max_bias: 8.0, ..PLAIN }),
                (", window, soft_cap", Given { window: 5, soft_cap: 2.0, ..PLAIN }),
            ] {
                let rows = ranges.iter().map(|(_, end)| *end).max().unwrap_or(0).max(17) as u64;
                let size = Size { kv: rows, tokens: ranges.len() as u64, dk: 64, dv: 64, ..SMALL };
                let given = Given { types, ..given };
                let build = |d: &mut Draft| build_ranged(d, size, given, ranges);
                table.add(&format!("{KIND} kv_first"), format!("{detail} {kv}{more}"), Attention, build);
            }
        }
    }
}

fn build_ranged(d: &mut Draft, size: Size, given: Given, ranges: &[(i32, i32)]) -> TensorId {
    let Size { dk, dv, tokens, kv, heads, kv_heads, .. } = size;
    let [q, k, v] = given.types;
    let fill = Fill::Uniform { low: -1.5, high: 1.5 };
    let operands = [
        d.input(q, &[dk, tokens, heads], fill.clone()),
        d.input(k, &[dk, kv, kv_heads], fill.clone()),
        d.input(v, &[dv, kv, kv_heads], fill),
    ];
    let numbers =
        |number: fn(&(i32, i32)) -> i32| Fill::Values(ranges.iter().map(number).map(f64::from).collect());
    let first = d.input(DType::I32, &[tokens], numbers(|range| range.0));
    let end = d.input(DType::I32, &[tokens], numbers(|range| range.1));
    let hidden = Fill::OneOf(vec![0.0, -1.0, -0.5, f64::NEG_INFINITY]);
    let mask = given.mask.map(|dtype| d.input(dtype, &[kv, tokens], hidden));
    let params = FlashAttention {
        max_bias: given.max_bias,
        soft_cap: given.soft_cap,
        window: given.window,
        ..FlashAttention::scaled(1.0 / (dk as f32).sqrt())
    };
    d.b.ranged_attention(operands, [first, end], mask, params)
}

/// Rows of some sequences in pages.
#[derive(Clone, Copy)]
struct Paged<'a> {
    size: Size,
    given: Given,
    page_rows: u32,
    /// Pages of each sequence. Pages that no query looks at may be anything.
    pages: &'a [&'a [i32]],
    /// The sequence of each token, and how many rows it sees.
    tokens: &'a [(i32, i32)],
}

/// Tokens of sequences one after the other, of one alone, side by side, with nothing to see, and many.
fn paged_cases(table: &mut Table) {
    let size = Size { dk: 64, dv: 64, ..SMALL };
    let two: &[&[i32]] = &[&[3, 0, 5], &[1, 4, 2]];
    let base =
        Paged { size, given: PLAIN, page_rows: 64, pages: two, tokens: &[(0, 130), (0, 131), (1, 70)] };
    let shared: &[&[i32]] = &[&[2, 0], &[2, 1], &[2, 3]];
    let many: Vec<(i32, i32)> = (0..40).map(|token| (token / 20, 100 + token % 20)).collect();

    let long: &[&[i32]] = &[&[9, 8, 7, 6, 5, 4, 3, 2, 1, 0], &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]];
    for (detail, paged) in [
        ("sequences one after the other", base),
        ("one token of each", Paged { tokens: &[(0, 129), (1, 64)], ..base }),
        ("one token", Paged { tokens: &[(1, 150)], ..base }),
        ("the first row", Paged { tokens: &[(1, 1), (0, 1)], ..base }),
        ("nothing to see", Paged { tokens: &[(1, 0), (0, 65), (0, 0)], ..base }),
        ("sequences side by side", Paged { tokens: &[(0, 9), (1, 80), (0, 10), (1, 81)], ..base }),
        ("a shared page", Paged { pages: shared, tokens: &[(0, 65), (1, 66), (2, 128)], ..base }),
        ("many tokens", Paged { tokens: &many, ..base }),
        ("many rows", Paged { pages: long, tokens: &[(0, 640), (1, 577), (0, 300)], ..base }),
        ("large pages", Paged { page_rows: 128, tokens: &[(0, 300), (1, 128)], ..base }),
        ("whole pages", Paged { tokens: &[(0, 64), (0, 128), (1, 192)], ..base }),
    ] {
        for kv in [DType::F32, DType::F16, DType::Q8_0] {
            let given = Given { types: [DType::F32, kv, kv], ..PLAIN };
            let paged = Paged { given, ..paged };
            add_paged(table, format!("{detail} {kv}"), paged);
            let sinks = Given { sinks: true, ..given };
            add_paged(table, format!("{detail} {kv}, sinks"), Paged { given: sinks, ..paged });
        }
    }
    // Pages before the windows are gone.
    let gone: &[&[i32]] = &[&[-1, 5, 0], &[99, 4, 3]];
    for (window, kv) in [(3, DType::F32), (50, DType::F16), (66, DType::F16), (60, DType::Q8_0)] {
        let given = Given { types: [DType::F32, kv, kv], window, ..PLAIN };
        let tokens = &[(0, 131), (0, 132), (1, 190), (1, 192)];
        add_paged(table, format!("window of {window} {kv}"), Paged { given, pages: gone, tokens, ..base });
    }
    let given = Given { types: [DType::F32, DType::F16, DType::F16], soft_cap: 0.75, ..PLAIN };
    add_paged(table, "soft_cap".to_owned(), Paged { given, ..base });
    for (detail, size) in [
        ("one kv head", Size { kv_heads: 1, ..size }),
        ("heads of their own", Size { kv_heads: 4, ..size }),
        ("heads of 128", Size { dk: 128, dv: 128, ..size }),
        ("heads of 80", Size { dk: 80, dv: 80, ..size }),
        ("heads of 256", Size { dk: 256, dv: 256, ..size }),
        ("other value size", Size { dv: 96, ..size }),
        ("odd sizes", Size { dk: 13, dv: 7, ..size }),
    ] {
        let given = Given { types: [DType::F32, DType::F16, DType::F16], ..PLAIN };
        add_paged(table, detail.to_owned(), Paged { size, given, ..base });
        add_paged(table, format!("{detail}, many"), Paged { size, given, tokens: &many, ..base });
    }
}

fn add_paged(table: &mut Table, detail: String, paged: Paged<'_>) {
    table.add(&format!("{KIND} paged"), detail, Attention, |d| build_paged(d, paged));
}

fn build_paged(d: &mut Draft, paged: Paged<'_>) -> TensorId {
    let Paged { size: Size { dk, dv, heads, kv_heads, .. }, given, page_rows, pages, tokens } = paged;
    let numbers = |numbers: Vec<i32>| Fill::Values(numbers.into_iter().map(f64::from).collect());
    let count = tokens.len() as u64;
    let each = pages[0].len() as u64;
    let rows = u64::from(page_rows) * each * pages.len() as u64;
    let [q, k, v] = given.types;
    let fill = Fill::Uniform { low: -1.5, high: 1.5 };
    let operands = [
        d.input(q, &[dk, count, heads], fill.clone()),
        d.input(k, &[dk, rows, kv_heads], fill.clone()),
        d.input(v, &[dv, rows, kv_heads], fill),
    ];
    let kv_len = d.input(DType::I32, &[count], numbers(tokens.iter().map(|token| token.1).collect()));
    let sequences = d.input(DType::I32, &[count], numbers(tokens.iter().map(|token| token.0).collect()));
    let pages = d.input(DType::I32, &[each, pages.len() as u64], numbers(pages.concat()));
    let sinks = given.sinks.then(|| d.input(DType::F32, &[heads], Fill::SIGNED));
    let params = FlashAttention {
        soft_cap: given.soft_cap,
        window: given.window,
        ..FlashAttention::scaled(1.0 / (dk as f32).sqrt())
    };
    d.b.paged_attention(operands, PagedRows { kv_len, pages, sequences, page_rows }, sinks, params)
}
