//! Attention: heads, caches, masks, sinks, windows.

use orlop_graph::{DType, FlashAttention, TensorId};

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
        kv_len: false,
        mask: false,
        sinks: false,
    };
    d.b.flash_attention(operands, kv_len, mask, sinks, params)
}
