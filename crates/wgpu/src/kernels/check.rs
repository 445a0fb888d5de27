//! Range checks of indices in tensors, run before the kernels that use them.

use orlop_graph::{FlashAttention, Op};

use super::attention::listed;
use super::{Task, coordinates};
use crate::wgsl::{Kernel, Place, Writer};

/// An index check.
#[derive(Clone, Debug)]
pub(crate) struct Check {
    /// Number of rows, for the error.
    pub(crate) rows: u64,
    /// Inclusive.
    range: [i64; 2],
    numbers: Numbers,
}

/// Which numbers are checked.
#[derive(Clone, Debug)]
enum Numbers {
    /// All of an operand.
    All(Place),
    /// The sequences of queries that see anything.
    Sequences(Paged),
    /// The pages that queries see rows of.
    Pages(Paged),
}

/// Operands of attention with rows in pages.
#[derive(Clone, Debug)]
struct Paged {
    kv_len: Place,
    pages: Place,
    sequences: Place,
    page_rows: u32,
    window: u32,
}

pub(super) fn of(task: &Task<'_>) -> Vec<Check> {
    let extent = |operand: usize, dim: usize| task.inputs[operand].desc.extents[dim];
    let below = |operand: usize, rows: u64, lowest: i64| {
        vec![Check { rows, range: [lowest, rows as i64 - 1], numbers: Numbers::All(task.inputs[operand]) }]
    };
    match task.op {
        Op::GetRows => below(1, extent(0, 1), 0),
        Op::SetRows => below(2, extent(0, 1), -1),
        Op::MulMatId => below(2, extent(0, 2), 0),
        Op::MulMatSome => below(2, extent(0, 2), -1),
        Op::SsmScan => below(6, extent(0, 3), 0),
        Op::DeltaScan => below(7, extent(0, 3), 0),
        Op::FlashAttention(params) => of_attention(task, params),
        _ => Vec::new(),
    }
}

fn of_attention(task: &Task<'_>, params: &FlashAttention) -> Vec<Check> {
    let Some(kv_len) = params.kv_len_slot().map(|slot| task.inputs[slot]) else { return Vec::new() };
    let kv = task.inputs[1].desc.extents[1];
    let up_to = |rows: u64, numbers| Check { rows, range: [0, rows as i64], numbers: Numbers::All(numbers) };
    let lengths = |rows: u64| up_to(rows, kv_len);
    let Some([pages, sequences]) = params.page_slots().map(|slots| slots.map(|slot| task.inputs[slot]))
    else {
        let first = params.kv_first_slot().map(|slot| up_to(kv, task.inputs[slot]));
        return [lengths(kv)].into_iter().chain(first).collect();
    };
    let FlashAttention { page_rows, window, .. } = *params;
    let paged = Paged { kv_len, pages, sequences, page_rows, window };
    let below = |rows: u64, numbers: Numbers| Check { rows, range: [0, rows as i64 - 1], numbers };
    let [each, count, ..] = pages.desc.extents;
    vec![
        lengths(each * u64::from(page_rows)),
        below(count, Numbers::Sequences(paged.clone())),
        below(kv / u64::from(page_rows), Numbers::Pages(paged)),
    ]
}

impl Check {
    /// Stores the first index out of range and `code`, which is not 0.
    pub(crate) fn kernel(&self, status: &Place, code: u32) -> Option<Kernel> {
        let mut writer = Writer::new();
        let (count, number) = match &self.numbers {
            Numbers::All(numbers) => {
                writer.read("x", numbers);
                let number = format!("{}  let v = x_int(x_row(j, k, l), i);\n", coordinates("x"));
                (numbers.desc.elements(), number)
            }
            Numbers::Sequences(paged) => {
                writer.read("n", &paged.kv_len).read("t", &paged.sequences);
                let [seen, sequence] = ["n", "t"].map(|name| listed(name, "index"));
                let number = format!("  if ({seen} <= 0) {{ return; }}\n  let v = {sequence};\n");
                (paged.sequences.desc.elements(), number)
            }
            Numbers::Pages(paged) => {
                writer.read("n", &paged.kv_len).read("t", &paged.sequences).read("g", &paged.pages);
                (paged.sequences.desc.elements() * paged.pages.desc.extents[0], paged.number())
            }
        };
        if count == 0 {
            return None;
        }
        let [lowest, highest] = self.range;
        writer.write("s", status).atomic(true);
        writer.number("code", code.into()).signed("lowest", lowest).signed("highest", highest);
        let noted = format!("b{}", writer.bindings() - 1);
        let body = format!(
            "{number}  if (v < p.lowest || v > p.highest) {{
    let w = p.s_o >> 2u;
    loop {{
      let noted = atomicCompareExchangeWeak(&{noted}[w], 0u, p.code);
      if (noted.exchanged) {{ atomicStore(&{noted}[w + 1u], bitcast<u32>(v)); }}
      if (noted.exchanged || noted.old_value != 0u) {{ break; }}
    }}
  }}
"
        );
        Some(writer.each(count, &body))
    }
}

impl Paged {
    /// WGSL of `v`, a page that a token sees rows of; of a sequence that there is.
    fn number(&self) -> String {
        let Paged { page_rows, window, .. } = self;
        let begin = match window {
            0 => "0".to_owned(),
            window => format!("max(seen - {window}, 0)"),
        };
        let [seen, sequence] = ["n", "t"].map(|name| listed(name, "token"));
        format!(
            "  let token = index / p.g_n0;
  let page = index % p.g_n0;
  let seen = {seen};
  let sequence = {sequence};
  if (sequence < 0 || u32(sequence) >= p.g_n1) {{ return; }}
  if (i32(page * {page_rows}u) >= seen || i32((page + 1u) * {page_rows}u) <= {begin}) {{ return; }}
  let v = g_int(g_row(u32(sequence), 0u, 0u), page);
"
        )
    }
}
