//! Range checks of indices in tensors, run before the kernels that use them.

use orlop_graph::Op;

use super::Task;
use crate::wgsl::{Kernel, Place, Writer};

/// An index check.
#[derive(Clone, Debug)]
pub(crate) struct Check {
    /// The operand with the indices.
    pub(crate) operand: usize,
    /// Number of rows, for the error.
    pub(crate) rows: u64,
    lowest: i64,
    highest: i64,
}

pub(super) fn of(task: &Task<'_>) -> Option<Check> {
    let extent = |operand: usize, dim: usize| task.inputs[operand].desc.extents[dim];
    let below = |operand: usize, rows: u64, lowest: i64| {
        Some(Check { operand, rows, lowest, highest: rows as i64 - 1 })
    };
    match task.op {
        Op::GetRows => below(1, extent(0, 1), 0),
        Op::SetRows => below(2, extent(0, 1), -1),
        Op::MulMatId => below(2, extent(0, 2), 0),
        Op::SsmScan => below(6, extent(0, 3), 0),
        Op::FlashAttention(params) => {
            let operand = params.kv_len_slot()?;
            Some(Check { operand, rows: extent(1, 1), lowest: 0, highest: extent(1, 1) as i64 })
        }
        _ => None,
    }
}

impl Check {
    /// Stores the first index out of range and `code`, which is not 0.
    pub(crate) fn kernel(&self, numbers: &Place, status: &Place, code: u32) -> Option<Kernel> {
        if numbers.desc.is_empty() {
            return None;
        }
        let mut writer = Writer::new();
        writer.read("x", numbers).write("s", status).atomic(true);
        writer.number("code", code.into()).signed("lowest", self.lowest).signed("highest", self.highest);
        let body = format!(
            "{}  let v = x_int(x_row(j, k, l), i);
  if (v < p.lowest || v > p.highest) {{
    let w = p.s_o >> 2u;
    loop {{
      let noted = atomicCompareExchangeWeak(&b1[w], 0u, p.code);
      if (noted.exchanged) {{ atomicStore(&b1[w + 1u], bitcast<u32>(v)); }}
      if (noted.exchanged || noted.old_value != 0u) {{ break; }}
    }}
  }}
",
            super::coordinates("x")
        );
        Some(writer.each(numbers.desc.elements(), &body))
    }
}
