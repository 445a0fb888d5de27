//! Attention in one pass over keys and values ([FlashAttention](https://arxiv.org/abs/2205.14135)).

use super::checks::{count, divides, dtype, extents_of, floats, left_hand, sinks, slopes_have_a_mask};
use super::info::{Arity, Cost};
use crate::{DType, GraphBuilder, Op, OpError, OpInfo, TensorDesc, TensorId};

/// Parameters of [`Op::FlashAttention`].
///
/// Optional operands follow `q, k, v` in the order of the fields. `kv_len` is I32 with one entry a token:
/// query `i` sees KV rows `0..kv_len[i]`, so causal attention needs no mask; with a window, the last of them. With
/// `kv_first`, of the same form, it sees `kv_first[i]..kv_len[i]`: texts that lie one behind the other do not see each other,
/// and windows may reach forward.
///
/// With `page_rows`, K and V hold the rows of several sequences in pages, as in
/// [PagedAttention](https://arxiv.org/abs/2309.06180). Two more operands of I32 say where: `pages`,
/// `[pages of a sequence, sequences]`, and `sequences`, one entry a token. Row `r` of query `i` is then row
/// `pages[r / page_rows, sequences[i]] * page_rows + r % page_rows` of K and V. Pages that hold no row that a query sees are
/// not looked at.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct FlashAttention {
    /// Factor of `q · k`.
    #[cfg_attr(feature = "serde", serde(with = "crate::float"))]
    pub scale: f32,
    /// [ALiBi](https://arxiv.org/abs/2108.12409): 0, or the bias from which the heads' slopes follow; needs a
    /// mask.
    #[cfg_attr(feature = "serde", serde(with = "crate::float"))]
    pub max_bias: f32,
    /// 0, or the limit of `limit * tanh(x / limit)`.
    #[cfg_attr(feature = "serde", serde(with = "crate::float"))]
    pub soft_cap: f32,
    /// Sliding window: 0, or how many rows a query sees, the last of those it would see without a window.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "is_zero"))]
    pub window: u32,
    /// Rows of K and V that each query sees are an operand.
    pub kv_len: bool,
    /// The first row that each query sees is an operand. Needs `kv_len`, and no pages.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "is_false"))]
    pub kv_first: bool,
    /// A mask (F16 or F32) is an operand.
    pub mask: bool,
    /// Sinks (F32, one per head) are an operand.
    pub sinks: bool,
    /// 0, or the rows of a page: `pages` and `sequences` are operands. Needs `kv_len`, and no mask.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "is_zero"))]
    pub page_rows: u32,
}

/// Where the KV rows of each query lie, for [`GraphBuilder::paged_attention`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagedRows {
    /// Rows that each query sees: I32, one a token.
    pub kv_len: TensorId,
    /// Pages of each sequence, in the order of its rows: I32, `[pages, sequences]`.
    pub pages: TensorId,
    /// The sequence of each token: I32.
    pub sequences: TensorId,
    /// Rows of a page.
    pub page_rows: u32,
}

#[cfg(feature = "serde")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[cfg(feature = "serde")]
fn is_false(flag: &bool) -> bool {
    !flag
}

impl FlashAttention {
    /// Attention with this factor and no option.
    pub const fn scaled(scale: f32) -> FlashAttention {
        let [max_bias, soft_cap] = [0.0; 2];
        FlashAttention {
            scale,
            max_bias,
            soft_cap,
            window: 0,
            kv_len: false,
            kv_first: false,
            mask: false,
            sinks: false,
            page_rows: 0,
        }
    }

    /// The first row that a query sees of those before `end`.
    pub fn first_row(&self, end: u64) -> u64 {
        if self.window == 0 { 0 } else { end.saturating_sub(self.window.into()) }
    }

    /// How many operands it takes.
    pub fn operands(&self) -> usize {
        self.before_pages() + if self.page_rows == 0 { 0 } else { 2 }
    }

    fn before_pages(&self) -> usize {
        3 + [self.kv_len, self.kv_first, self.mask, self.sinks].map(usize::from).iter().sum::<usize>()
    }

    /// Position of `kv_len` among the operands.
    pub fn kv_len_slot(&self) -> Option<usize> {
        self.kv_len.then_some(3)
    }

    /// Position of `kv_first` among the operands.
    pub fn kv_first_slot(&self) -> Option<usize> {
        self.kv_first.then_some(3 + usize::from(self.kv_len))
    }

    /// Position of the mask among the operands.
    pub fn mask_slot(&self) -> Option<usize> {
        self.mask.then_some(self.before_mask())
    }

    fn before_mask(&self) -> usize {
        3 + usize::from(self.kv_len) + usize::from(self.kv_first)
    }

    /// Position of the sinks among the operands.
    pub fn sinks_slot(&self) -> Option<usize> {
        self.sinks.then_some(self.before_mask() + usize::from(self.mask))
    }

    /// Positions of `pages` and `sequences` among the operands.
    pub fn page_slots(&self) -> Option<[usize; 2]> {
        let first = self.before_pages();
        (self.page_rows != 0).then_some([first, first + 1])
    }
}

pub(super) const FLASH_ATTENTION: OpInfo = OpInfo {
    name: "flash_attention",
    operands: Arity::by_parameters(3, 9),
    cost: Cost { per_element: 4.0, times: &[(1, 1)] },
    sample: |source| {
        Op::FlashAttention(FlashAttention {
            scale: source.float(),
            max_bias: source.float(),
            soft_cap: source.float(),
            window: source.small(),
            kv_len: source.flag(),
            kv_first: source.flag(),
            mask: source.flag(),
            sinks: source.flag(),
            page_rows: source.small(),
        })
    },
    ..OpInfo::of_family("attention")
};

pub(super) fn flash_attention(x: &[TensorDesc], params: &FlashAttention) -> Result<TensorDesc, OpError> {
    count(x, params.operands(), FLASH_ATTENTION.operands)?;
    floats(x, 0)?;
    left_hand(x, 1)?;
    left_hand(x, 2)?;
    slopes_have_a_mask(params.max_bias, params.mask)?;
    let [dk, tokens, heads, seqs] = x[0].extents;
    let [kd, kv, kv_heads, kv_seqs] = x[1].extents;
    if dk != kd || !divides(kv_heads, heads) || !divides(kv_seqs, seqs) {
        return Err(extents_of(x, 1, "rows must be as long as the queries', heads must divide theirs"));
    }
    let [dv, v_rows, v_heads, v_seqs] = x[2].extents;
    if [v_rows, v_heads, v_seqs] != [kv, kv_heads, kv_seqs] {
        return Err(extents_of(x, 2, "must have as many rows, heads and sequences as K"));
    }
    if params.kv_first && (!params.kv_len || params.page_rows != 0) {
        return Err(OpError::Parameter { name: "kv_first", rule: "needs kv_len, and no pages" });
    }
    for slot in [params.kv_len_slot(), params.kv_first_slot()].into_iter().flatten() {
        dtype(x, slot, x[slot].dtype == DType::I32, "i32")?;
        if x[slot].elements() != tokens {
            return Err(extents_of(x, slot, "must be one number a token"));
        }
    }
    if let Some(slot) = params.mask_slot() {
        dtype(x, slot, matches!(x[slot].dtype, DType::F16 | DType::F32), "f16 or f32")?;
        let mask = x[slot].extents;
        if mask[0] != kv || mask[1] < tokens || !divides(mask[2], heads) || !divides(mask[3], seqs) {
            return Err(extents_of(x, slot, "a mask must cover tokens × KV rows and divide outer extents"));
        }
    }
    if let Some(slot) = params.sinks_slot() {
        sinks(x, slot, heads)?;
    }
    if let Some(slots) = params.page_slots() {
        paged(x, params, slots)?;
    }
    Ok(TensorDesc::contiguous(DType::F32, &[dv, heads, tokens, seqs])?)
}

/// Pages and sequences of each token are operands.
fn paged(x: &[TensorDesc], params: &FlashAttention, [pages, sequences]: [usize; 2]) -> Result<(), OpError> {
    if !params.kv_len || params.mask {
        return Err(OpError::Parameter { name: "page_rows", rule: "needs kv_len, and no mask" });
    }
    for slot in [pages, sequences] {
        dtype(x, slot, x[slot].dtype == DType::I32, "i32")?;
    }
    if x[0].extents[3] != 1 || !x[1].extents[1].is_multiple_of(params.page_rows.into()) {
        return Err(extents_of(x, 1, "must be whole pages, and one sequence of tensors"));
    }
    if x[pages].extents[2..] != [1, 1] {
        return Err(extents_of(x, pages, "must be pages × sequences"));
    }
    if x[sequences].elements() != x[0].extents[1] {
        return Err(extents_of(x, sequences, "must be one sequence a token"));
    }
    Ok(())
}

/// Attention.
impl GraphBuilder {
    /// [`Op::FlashAttention`]; the flags for optional operands are set from what is given.
    pub fn flash_attention(
        &mut self,
        [q, k, v]: [TensorId; 3],
        kv_len: Option<TensorId>,
        mask: Option<TensorId>,
        sinks: Option<TensorId>,
        params: FlashAttention,
    ) -> TensorId {
        let params = FlashAttention {
            kv_len: kv_len.is_some(),
            kv_first: false,
            mask: mask.is_some(),
            sinks: sinks.is_some(),
            ..params
        };
        let operands: Vec<TensorId> =
            [Some(q), Some(k), Some(v), kv_len, mask, sinks].into_iter().flatten().collect();
        self.node(Op::FlashAttention(params), &operands)
    }

    /// [`Op::FlashAttention`] over the rows from `first` to before `end` of each query, with a mask if one is given.
    pub fn ranged_attention(
        &mut self,
        [q, k, v]: [TensorId; 3],
        [first, end]: [TensorId; 2],
        mask: Option<TensorId>,
        params: FlashAttention,
    ) -> TensorId {
        let params =
            FlashAttention { kv_len: true, kv_first: true, mask: mask.is_some(), sinks: false, ..params };
        let operands: Vec<TensorId> = [q, k, v, end, first].into_iter().chain(mask).collect();
        self.node(Op::FlashAttention(params), &operands)
    }

    /// [`Op::FlashAttention`] over rows in pages.
    pub fn paged_attention(
        &mut self,
        [q, k, v]: [TensorId; 3],
        rows: PagedRows,
        sinks: Option<TensorId>,
        params: FlashAttention,
    ) -> TensorId {
        let PagedRows { kv_len, pages, sequences, page_rows } = rows;
        let params = FlashAttention {
            kv_len: true,
            kv_first: false,
            mask: false,
            sinks: sinks.is_some(),
            page_rows,
            ..params
        };
        let operands: Vec<TensorId> =
            [q, k, v, kv_len].into_iter().chain(sinks).chain([pages, sequences]).collect();
        self.node(Op::FlashAttention(params), &operands)
    }
}
