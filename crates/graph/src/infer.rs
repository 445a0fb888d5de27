use crate::{DIMS, DType, DescError, Op, Pool, RopeMode, TensorDesc, Window};

/// Why an op does not accept its operands or parameters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpError {
    /// Too few or too many operands.
    #[error("takes {expected} operands, {given} were given")]
    Operands {
        /// How many it takes.
        expected: &'static str,
        /// How many there were.
        given: usize,
    },
    /// An operand's element type does not fit.
    #[error("operand {operand} is {dtype}, expected {expected}")]
    DType {
        /// Position of the operand.
        operand: usize,
        /// Its element type.
        dtype: DType,
        /// What is accepted.
        expected: &'static str,
    },
    /// An operand's extents do not fit.
    #[error("operand {operand} has extents {extents:?}: {rule}")]
    Extents {
        /// Position of the operand.
        operand: usize,
        /// Its extents.
        extents: [u64; DIMS],
        /// What is asked of them.
        rule: &'static str,
    },
    /// An operand has gaps or permuted dimensions where none are allowed.
    #[error("operand {operand} must be contiguous")]
    NotContiguous {
        /// Position of the operand.
        operand: usize,
    },
    /// A parameter is out of range.
    #[error("parameter {name}: {rule}")]
    Parameter {
        /// Its name.
        name: &'static str,
        /// What is asked of it.
        rule: &'static str,
    },
    /// A view or patch ends outside its storage.
    #[error("ends at byte {end} of a storage of {bytes}")]
    OutsideStorage {
        /// First byte after it.
        end: u64,
        /// Bytes there are.
        bytes: u64,
    },
    /// The result cannot be described.
    #[error(transparent)]
    Desc(#[from] DescError),
}

use OpError::{Extents, NotContiguous, Operands, OutsideStorage, Parameter};

/// The result's description, from the op and its operands' descriptions.
///
/// # Errors
/// [`OpError`] if the op does not accept them.
pub fn infer(op: &Op, operands: &[TensorDesc]) -> Result<TensorDesc, OpError> {
    let x = operands;
    match op {
        Op::View { extents, strides, offset } => {
            count(x, 1, "1")?;
            let desc = TensorDesc::strided(x[0].dtype, *extents, *strides)?;
            let end = offset.checked_add(desc.bytes()).unwrap_or(u64::MAX);
            if end > x[0].bytes() {
                return Err(OutsideStorage { end, bytes: x[0].bytes() });
            }
            Ok(desc)
        }
        Op::Reshape { extents } => {
            count(x, 1, "1")?;
            contiguous(x, 0)?;
            let desc = TensorDesc::contiguous(x[0].dtype, extents)?;
            if desc.elements() != x[0].elements() {
                return Err(extents_of(x, 0, "a reshape keeps the number of elements"));
            }
            Ok(desc)
        }
        Op::Permute { axes } => {
            count(x, 1, "1")?;
            let mut seen = [false; DIMS];
            for axis in axes {
                match seen.get_mut(usize::from(*axis)) {
                    Some(seen @ false) => *seen = true,
                    _ => return Err(Parameter { name: "axes", rule: "must be a permutation of 0..4" }),
                }
            }
            permuted(&x[0], axes.map(usize::from))
        }
        Op::Transpose => {
            count(x, 1, "1")?;
            permuted(&x[0], [1, 0, 2, 3])
        }
        Op::Dup | Op::Cont => {
            count(x, 1, "1")?;
            Ok(TensorDesc::contiguous(x[0].dtype, &x[0].extents)?)
        }
        Op::Cast { dtype } => {
            count(x, 1, "1")?;
            Ok(TensorDesc::contiguous(*dtype, &x[0].extents)?)
        }
        Op::Copy => {
            count(x, 2, "2")?;
            if x[0].elements() != x[1].elements() {
                return Err(extents_of(x, 0, "must have as many elements as the destination"));
            }
            Ok(x[1])
        }
        Op::GetRows => {
            count(x, 2, "2")?;
            dtype(x, 1, x[1].dtype == DType::I32, "i32")?;
            let [k, outer2, outer3, last] = x[1].extents;
            if x[0].extents[2] != outer2 || x[0].extents[3] != outer3 || last != 1 {
                return Err(extents_of(x, 1, "outer extents must be the table's, one dimension down"));
            }
            let result = if x[0].dtype == DType::I32 { DType::I32 } else { DType::F32 };
            Ok(TensorDesc::contiguous(result, &[x[0].extents[0], k, outer2, outer3])?)
        }
        Op::SetRows => {
            count(x, 3, "3")?;
            dtype(x, 1, x[1].dtype.is_float(), "a floating-point type")?;
            dtype(x, 2, matches!(x[2].dtype, DType::I32 | DType::I64), "i32 or i64")?;
            let (into, rows, at) = (x[0].extents, x[1].extents, x[2].extents);
            if into[0] != rows[0] || into[2] != rows[2] || into[3] != rows[3] {
                return Err(extents_of(x, 1, "must be the destination's but for the number of rows"));
            }
            if at[0] != rows[1] || !divides(at[1], rows[2]) || !divides(at[2], rows[3]) || at[3] != 1 {
                return Err(extents_of(x, 2, "must be one index a row, repeated over outer dimensions"));
            }
            Ok(x[0])
        }
        Op::Set(patch) | Op::Acc(patch) => {
            count(x, 2, "2")?;
            contiguous(x, 0)?;
            dtype(x, 1, x[1].dtype == x[0].dtype, "the base's type")?;
            let [s1, s2, s3] = patch.strides;
            let region = TensorDesc::strided(x[0].dtype, x[1].extents, [x[0].strides[0], s1, s2, s3])?;
            let end = patch.offset.saturating_add(region.bytes());
            if end > x[0].bytes() {
                return Err(OutsideStorage { end, bytes: x[0].bytes() });
            }
            Ok(x[0])
        }
        Op::Repeat { extents } => {
            count(x, 1, "1")?;
            if !repeats(&x[0].extents, extents) {
                return Err(extents_of(x, 0, "must divide the result's"));
            }
            Ok(TensorDesc::contiguous(x[0].dtype, extents)?)
        }
        Op::Concat { axis } => {
            let Some(first) = x.first() else { return Err(Operands { expected: "at least 1", given: 0 }) };
            let axis = usize::from(*axis);
            if axis >= DIMS {
                return Err(Parameter { name: "axis", rule: "must be below 4" });
            }
            let mut extents = first.extents;
            for (slot, other) in x.iter().enumerate().skip(1) {
                dtype(x, slot, other.dtype == first.dtype, "the first operand's type")?;
                if (0..DIMS).any(|dim| dim != axis && other.extents[dim] != first.extents[dim]) {
                    return Err(extents_of(x, slot, "must be the first operand's but along the axis"));
                }
                extents[axis] =
                    extents[axis].checked_add(other.extents[axis]).ok_or(too_large(first.dtype, extents))?;
            }
            Ok(TensorDesc::contiguous(first.dtype, &extents)?)
        }
        Op::Pad { before, after } => {
            count(x, 1, "1")?;
            let mut extents = x[0].extents;
            for dim in 0..DIMS {
                extents[dim] = extents[dim]
                    .checked_add(before[dim])
                    .and_then(|sum| sum.checked_add(after[dim]))
                    .ok_or(too_large(x[0].dtype, extents))?;
            }
            Ok(TensorDesc::contiguous(x[0].dtype, &extents)?)
        }
        Op::Roll { .. } => {
            count(x, 1, "1")?;
            Ok(TensorDesc::contiguous(x[0].dtype, &x[0].extents)?)
        }
        Op::Arange { start, stop, step } => {
            count(x, 0, "no")?;
            let steps = ((f64::from(*stop) - f64::from(*start)) / f64::from(*step)).ceil();
            if !(0.0..9.0e15).contains(&steps) {
                return Err(Parameter { name: "step", rule: "must lead from start to stop" });
            }
            Ok(TensorDesc::contiguous(DType::F32, &[steps as u64])?)
        }
        Op::Add | Op::Sub | Op::Mul | Op::Div => {
            count(x, 2, "2")?;
            floats(x, 0)?;
            floats(x, 1)?;
            if !repeats(&x[1].extents, &x[0].extents) {
                return Err(extents_of(x, 1, "must divide the first operand's"));
            }
            Ok(TensorDesc::contiguous(x[0].dtype, &x[0].extents)?)
        }
        Op::Add1 => {
            count(x, 2, "2")?;
            floats(x, 0)?;
            floats(x, 1)?;
            if !x[1].is_scalar() {
                return Err(extents_of(x, 1, "must be one element"));
            }
            Ok(TensorDesc::contiguous(x[0].dtype, &x[0].extents)?)
        }
        Op::Scale { .. }
        | Op::Clamp { .. }
        | Op::Unary(_)
        | Op::LeakyRelu { .. }
        | Op::CumSum
        | Op::Norm { .. }
        | Op::RmsNorm { .. }
        | Op::L2Norm { .. }
        | Op::DiagMaskInf { .. }
        | Op::DiagMaskZero { .. } => {
            count(x, 1, "1")?;
            floats(x, 0)?;
            Ok(TensorDesc::contiguous(x[0].dtype, &x[0].extents)?)
        }
        Op::GroupNorm { groups, .. } => {
            count(x, 1, "1")?;
            floats(x, 0)?;
            if *groups == 0 || u64::from(*groups) > x[0].extents[2].max(1) {
                return Err(Parameter { name: "groups", rule: "must be from 1 to the number of channels" });
            }
            Ok(TensorDesc::contiguous(x[0].dtype, &x[0].extents)?)
        }
        Op::Gated { .. } => {
            if x.is_empty() || x.len() > 2 {
                return Err(Operands { expected: "1 or 2", given: x.len() });
            }
            floats(x, 0)?;
            let mut extents = x[0].extents;
            if let Some(other) = x.get(1) {
                dtype(x, 1, other.dtype == x[0].dtype, "the first operand's type")?;
                if other.extents != extents {
                    return Err(extents_of(x, 1, "must be the first operand's"));
                }
            } else if !extents[0].is_multiple_of(2) {
                return Err(extents_of(x, 0, "rows must have two halves"));
            } else {
                extents[0] /= 2;
            }
            Ok(TensorDesc::contiguous(x[0].dtype, &extents)?)
        }
        Op::Sum => {
            count(x, 1, "1")?;
            floats(x, 0)?;
            Ok(TensorDesc::contiguous(x[0].dtype, &[1])?)
        }
        Op::SumRows | Op::Mean => {
            count(x, 1, "1")?;
            floats(x, 0)?;
            let [_, a, b, c] = x[0].extents;
            Ok(TensorDesc::contiguous(x[0].dtype, &[1, a, b, c])?)
        }
        Op::ArgMax => {
            count(x, 1, "1")?;
            floats(x, 0)?;
            let [n, a, b, c] = x[0].extents;
            if n == 0 && a * b * c != 0 {
                return Err(extents_of(x, 0, "rows must not be empty"));
            }
            Ok(TensorDesc::contiguous(DType::I32, &[a, b, c])?)
        }
        Op::ArgSort { .. } => {
            count(x, 1, "1")?;
            floats(x, 0)?;
            Ok(TensorDesc::contiguous(DType::I32, &x[0].extents)?)
        }
        Op::TopK { k } => {
            count(x, 1, "1")?;
            floats(x, 0)?;
            let [n, a, b, c] = x[0].extents;
            if *k > n {
                return Err(Parameter { name: "k", rule: "must not exceed the row length" });
            }
            Ok(TensorDesc::contiguous(DType::I32, &[*k, a, b, c])?)
        }
        Op::SoftMax(params) => {
            count(
                x,
                1 + usize::from(params.mask) + usize::from(params.sinks),
                "as many as its parameters say",
            )?;
            floats(x, 0)?;
            let [n, rows, heads, outer] = x[0].extents;
            if params.mask {
                dtype(x, 1, matches!(x[1].dtype, DType::F16 | DType::F32), "f16 or f32")?;
                let mask = x[1].extents;
                if mask[0] != n || mask[1] < rows || !divides(mask[2], heads) || !divides(mask[3], outer) {
                    return Err(extents_of(x, 1, "a mask must cover the rows and divide outer extents"));
                }
            }
            if params.sinks {
                sinks(x, 1 + usize::from(params.mask), heads)?;
            }
            Ok(TensorDesc::contiguous(x[0].dtype, &x[0].extents)?)
        }
        Op::MulMat => {
            count(x, 2, "2")?;
            right_hand(x, 1)?;
            let [k, m, a2, a3] = x[0].extents;
            let [kb, n, b2, b3] = x[1].extents;
            if k != kb || !divides(a2, b2) || !divides(a3, b3) {
                return Err(extents_of(
                    x,
                    1,
                    "rows must be as long as the first operand's, outer extents multiples",
                ));
            }
            Ok(TensorDesc::contiguous(DType::F32, &[m, n, b2, b3])?)
        }
        Op::MulMatId => {
            count(x, 3, "3")?;
            right_hand(x, 1)?;
            dtype(x, 2, x[2].dtype == DType::I32, "i32")?;
            let [k, m, _, one] = x[0].extents;
            let [kb, each, tokens, last] = x[1].extents;
            let [used, ids_tokens, i2, i3] = x[2].extents;
            if one != 1 || k != kb || last != 1 {
                return Err(extents_of(x, 1, "rows must be as long as the matrices'"));
            }
            if ids_tokens != tokens || i2 != 1 || i3 != 1 || !divides(each, used) {
                return Err(extents_of(x, 2, "must be the experts used by each token"));
            }
            Ok(TensorDesc::contiguous(DType::F32, &[m, used, tokens])?)
        }
        Op::OutProd => {
            count(x, 2, "2")?;
            right_hand(x, 1)?;
            let [m, k, a2, a3] = x[0].extents;
            let [n, kb, b2, b3] = x[1].extents;
            if k != kb || !divides(a2, b2) || !divides(a3, b3) {
                return Err(extents_of(x, 1, "must have the first operand's rows, outer extents multiples"));
            }
            Ok(TensorDesc::contiguous(DType::F32, &[m, n, b2, b3])?)
        }
        Op::Rope(params) => {
            if x.len() != 2 && x.len() != 3 {
                return Err(Operands { expected: "2 or 3", given: x.len() });
            }
            floats(x, 0)?;
            dtype(x, 1, x[1].dtype == DType::I32, "i32")?;
            let dims = u64::from(params.dims);
            if dims == 0 || dims % 2 != 0 || dims > x[0].extents[0] {
                return Err(Parameter { name: "dims", rule: "must be even and at most the row length" });
            }
            let streams = if matches!(params.mode, RopeMode::Sections(_)) { 4 } else { 1 };
            if x[0].extents[2].checked_mul(streams) != Some(x[1].elements()) {
                return Err(extents_of(x, 1, "must be one position a token (and stream)"));
            }
            if let Some(factors) = x.get(2) {
                dtype(x, 2, factors.dtype == DType::F32, "f32")?;
                if factors.elements() < dims / 2 {
                    return Err(extents_of(x, 2, "must be one factor a pair"));
                }
            }
            Ok(TensorDesc::contiguous(x[0].dtype, &x[0].extents)?)
        }
        Op::FlashAttention(params) => {
            let optional = [params.kv_len, params.mask, params.sinks].map(usize::from).iter().sum::<usize>();
            count(x, 3 + optional, "as many as its parameters say")?;
            floats(x, 0)?;
            let [dk, tokens, heads, seqs] = x[0].extents;
            let [kd, kv, kv_heads, kv_seqs] = x[1].extents;
            if dk != kd || !divides(kv_heads, heads) || !divides(kv_seqs, seqs) {
                return Err(extents_of(
                    x,
                    1,
                    "rows must be as long as the queries', heads must divide theirs",
                ));
            }
            let [dv, v_rows, v_heads, v_seqs] = x[2].extents;
            if [v_rows, v_heads, v_seqs] != [kv, kv_heads, kv_seqs] {
                return Err(extents_of(x, 2, "must have as many rows, heads and sequences as K"));
            }
            if let Some(slot) = params.kv_len_slot() {
                dtype(x, slot, x[slot].dtype == DType::I32, "i32")?;
                if x[slot].elements() != tokens {
                    return Err(extents_of(x, slot, "must be one length a token"));
                }
            }
            if let Some(slot) = params.mask_slot() {
                dtype(x, slot, matches!(x[slot].dtype, DType::F16 | DType::F32), "f16 or f32")?;
                let mask = x[slot].extents;
                if mask[0] != kv || mask[1] < tokens || !divides(mask[2], heads) || !divides(mask[3], seqs) {
                    return Err(extents_of(
                        x,
                        slot,
                        "a mask must cover tokens × KV rows and divide outer extents",
                    ));
                }
            }
            if let Some(slot) = params.sinks_slot() {
                sinks(x, slot, heads)?;
            }
            Ok(TensorDesc::contiguous(DType::F32, &[dv, heads, tokens, seqs])?)
        }
        Op::Im2Col { window, two_d, dtype: result } => {
            count(x, 2, "2")?;
            floats(x, 1)?;
            let (kernel, data) = (x[0].extents, x[1].extents);
            if *two_d {
                if kernel[2] != data[2] {
                    return Err(extents_of(x, 1, "must have the kernel's channels"));
                }
                let w = windows(data[0], kernel[0], window, 0)?;
                let h = windows(data[1], kernel[1], window, 1)?;
                let row = product(&[kernel[0], kernel[1], kernel[2]], *result)?;
                Ok(TensorDesc::contiguous(*result, &[row, w, h, data[3]])?)
            } else {
                if kernel[1] != data[1] {
                    return Err(extents_of(x, 1, "must have the kernel's channels"));
                }
                let w = windows(data[0], kernel[0], window, 0)?;
                let row = product(&[kernel[0], kernel[1]], *result)?;
                Ok(TensorDesc::contiguous(*result, &[row, w, data[2]])?)
            }
        }
        Op::Conv1d(window) => {
            count(x, 2, "2")?;
            floats(x, 1)?;
            let ([k, input, output, one], [length, channels, batch, last]) = (x[0].extents, x[1].extents);
            if one != 1 || last != 1 || channels != input {
                return Err(extents_of(x, 1, "must have the kernel's input channels"));
            }
            Ok(TensorDesc::contiguous(DType::F32, &[windows(length, k, window, 0)?, output, batch])?)
        }
        Op::Conv2d(window) => {
            count(x, 2, "2")?;
            floats(x, 1)?;
            let ([kw, kh, input, output], [w, h, channels, batch]) = (x[0].extents, x[1].extents);
            if channels != input {
                return Err(extents_of(x, 1, "must have the kernel's input channels"));
            }
            let (w, h) = (windows(w, kw, window, 0)?, windows(h, kh, window, 1)?);
            Ok(TensorDesc::contiguous(DType::F32, &[w, h, output, batch])?)
        }
        Op::ConvDepthwise2d(window) => {
            count(x, 2, "2")?;
            floats(x, 1)?;
            let ([kw, kh, one, kernels], [w, h, channels, batch]) = (x[0].extents, x[1].extents);
            if one != 1 || channels != kernels {
                return Err(extents_of(x, 1, "must have one channel a kernel"));
            }
            let (w, h) = (windows(w, kw, window, 0)?, windows(h, kh, window, 1)?);
            Ok(TensorDesc::contiguous(DType::F32, &[w, h, channels, batch])?)
        }
        Op::ConvTranspose1d { stride } => {
            count(x, 2, "2")?;
            floats(x, 1)?;
            let ([k, output, input, one], [length, channels, d2, d3]) = (x[0].extents, x[1].extents);
            if one != 1 || channels != input || d2 != 1 || d3 != 1 {
                return Err(extents_of(x, 1, "must have the kernel's input channels"));
            }
            Ok(TensorDesc::contiguous(DType::F32, &[spread(length, k, *stride)?, output])?)
        }
        Op::ConvTranspose2d { stride } => {
            count(x, 2, "2")?;
            floats(x, 1)?;
            let ([kw, kh, output, input], [w, h, channels, batch]) = (x[0].extents, x[1].extents);
            if channels != input {
                return Err(extents_of(x, 1, "must have the kernel's input channels"));
            }
            let (w, h) = (spread(w, kw, *stride)?, spread(h, kh, *stride)?);
            Ok(TensorDesc::contiguous(DType::F32, &[w, h, output, batch])?)
        }
        Op::Pool1d(pool) => {
            count(x, 1, "1")?;
            floats(x, 0)?;
            let [n, a, b, c] = x[0].extents;
            Ok(TensorDesc::contiguous(DType::F32, &[pooled(n, pool, 0)?, a, b, c])?)
        }
        Op::Pool2d(pool) => {
            count(x, 1, "1")?;
            floats(x, 0)?;
            let [w, h, b, c] = x[0].extents;
            Ok(TensorDesc::contiguous(DType::F32, &[pooled(w, pool, 0)?, pooled(h, pool, 1)?, b, c])?)
        }
        Op::Upscale { extents, .. } => {
            count(x, 1, "1")?;
            floats(x, 0)?;
            if x[0].is_empty() && !extents.contains(&0) {
                return Err(extents_of(x, 0, "nothing can be scaled up"));
            }
            Ok(TensorDesc::contiguous(x[0].dtype, extents)?)
        }
        Op::TimestepEmbedding { dim, max_period } => {
            count(x, 1, "1")?;
            floats(x, 0)?;
            if *dim == 0 || *max_period == 0 {
                return Err(Parameter { name: "dim", rule: "and max_period must not be 0" });
            }
            Ok(TensorDesc::contiguous(DType::F32, &[u64::from(*dim), x[0].extents[0]])?)
        }
        Op::SsmConv => {
            count(x, 2, "2")?;
            floats(x, 0)?;
            floats(x, 1)?;
            let ([padded, inner, seqs, one], [k, channels, ..]) = (x[0].extents, x[1].extents);
            if one != 1 || k == 0 || padded + 1 < k {
                return Err(extents_of(x, 0, "rows must be the tokens and one kernel less one"));
            }
            if channels != inner {
                return Err(extents_of(x, 1, "must have one row a channel"));
            }
            Ok(TensorDesc::contiguous(DType::F32, &[inner, padded + 1 - k, seqs])?)
        }
        Op::SsmScan => {
            count(x, 7, "7")?;
            for slot in 0..6 {
                dtype(x, slot, x[slot].dtype == DType::F32, "f32")?;
            }
            dtype(x, 6, x[6].dtype == DType::I32, "i32")?;
            let [state, head, heads, _] = x[0].extents;
            let [x_head, x_heads, tokens, seqs] = x[1].extents;
            if [x_head, x_heads] != [head, heads] {
                return Err(extents_of(x, 1, "heads must be the state's"));
            }
            if x[2].extents != [heads, tokens, seqs, 1] {
                return Err(extents_of(x, 2, "must be one step a head, token and sequence"));
            }
            if x[3].extents[1] != heads || !(x[3].extents[0] == state || x[3].extents[0] == 1) {
                return Err(extents_of(x, 3, "must be one row a head"));
            }
            for slot in [4, 5] {
                let [rows, groups, t, s] = x[slot].extents;
                if [rows, t, s] != [state, tokens, seqs] || !divides(groups, heads) {
                    return Err(extents_of(x, slot, "must be one row a group, token and sequence"));
                }
            }
            if x[6].elements() != seqs {
                return Err(extents_of(x, 6, "must be one state a sequence"));
            }
            let states = product(&[state, head, heads, seqs], DType::F32)?;
            let total = states.checked_add(x[1].elements()).ok_or(too_large(DType::F32, x[0].extents))?;
            Ok(TensorDesc::contiguous(DType::F32, &[total])?)
        }
        Op::Custom { dtype, extents, .. } => Ok(TensorDesc::contiguous(*dtype, extents)?),
    }
}

fn count(x: &[TensorDesc], wanted: usize, expected: &'static str) -> Result<(), OpError> {
    if x.len() == wanted { Ok(()) } else { Err(Operands { expected, given: x.len() }) }
}

fn dtype(x: &[TensorDesc], operand: usize, fits: bool, expected: &'static str) -> Result<(), OpError> {
    if fits { Ok(()) } else { Err(OpError::DType { operand, dtype: x[operand].dtype, expected }) }
}

fn floats(x: &[TensorDesc], operand: usize) -> Result<(), OpError> {
    dtype(x, operand, x[operand].dtype.is_float(), "a floating-point type")
}

fn right_hand(x: &[TensorDesc], operand: usize) -> Result<(), OpError> {
    let fits = matches!(x[operand].dtype, DType::F32 | DType::F16 | DType::BF16);
    dtype(x, operand, fits, "f32, f16 or bf16")
}

fn sinks(x: &[TensorDesc], operand: usize, heads: u64) -> Result<(), OpError> {
    dtype(x, operand, x[operand].dtype == DType::F32, "f32")?;
    if x[operand].elements() == heads {
        Ok(())
    } else {
        Err(extents_of(x, operand, "must be one sink a head"))
    }
}

fn contiguous(x: &[TensorDesc], operand: usize) -> Result<(), OpError> {
    if x[operand].is_contiguous() { Ok(()) } else { Err(NotContiguous { operand }) }
}

fn extents_of(x: &[TensorDesc], operand: usize, rule: &'static str) -> OpError {
    Extents { operand, extents: x[operand].extents, rule }
}

fn too_large(dtype: DType, extents: [u64; DIMS]) -> OpError {
    OpError::Desc(DescError::TooLarge { dtype, extents })
}

/// Whether `part` times something is `whole`; nothing but nothing divides into nothing.
fn divides(part: u64, whole: u64) -> bool {
    if part == 0 { whole == 0 } else { whole.is_multiple_of(part) }
}

fn repeats(part: &[u64; DIMS], whole: &[u64; DIMS]) -> bool {
    part.iter().zip(whole).all(|(part, whole)| divides(*part, *whole))
}

fn permuted(x: &TensorDesc, axes: [usize; DIMS]) -> Result<TensorDesc, OpError> {
    if x.dtype.is_quantized() && axes[0] != 0 {
        return Err(OpError::DType { operand: 0, dtype: x.dtype, expected: "a type without blocks" });
    }
    let mut desc = *x;
    for (from, to) in axes.into_iter().enumerate() {
        desc.extents[to] = x.extents[from];
        desc.strides[to] = x.strides[from];
    }
    Ok(desc)
}

fn product(extents: &[u64], dtype: DType) -> Result<u64, OpError> {
    let mut full = [1; DIMS];
    full[..extents.len()].copy_from_slice(extents);
    extents
        .iter()
        .try_fold(1u64, |product, extent| product.checked_mul(*extent))
        .ok_or(too_large(dtype, full))
}

/// How many positions a kernel has along a padded extent.
fn positions(extent: u64, kernel: u64, stride: u32, padding: u32, dilation: u32) -> Result<u64, OpError> {
    if stride == 0 || dilation == 0 || kernel == 0 {
        return Err(Parameter { name: "window", rule: "kernel, stride and dilation must not be 0" });
    }
    let reach = (kernel - 1).checked_mul(u64::from(dilation)).and_then(|reach| reach.checked_add(1));
    let room = extent.checked_add(2 * u64::from(padding));
    match (reach, room) {
        (Some(reach), Some(room)) if reach <= room => Ok((room - reach) / u64::from(stride) + 1),
        _ => Err(Parameter { name: "window", rule: "the kernel must fit the padded data" }),
    }
}

fn windows(extent: u64, kernel: u64, window: &Window, dim: usize) -> Result<u64, OpError> {
    positions(extent, kernel, window.stride[dim], window.padding[dim], window.dilation[dim])
}

fn pooled(extent: u64, pool: &Pool, dim: usize) -> Result<u64, OpError> {
    positions(extent, u64::from(pool.kernel[dim]), pool.stride[dim], pool.padding[dim], 1)
}

fn spread(extent: u64, kernel: u64, stride: u32) -> Result<u64, OpError> {
    if extent == 0 || kernel == 0 || stride == 0 {
        return Err(Parameter { name: "stride", rule: "stride, kernel and data must not be 0" });
    }
    (extent - 1)
        .checked_mul(u64::from(stride))
        .and_then(|sum| sum.checked_add(kernel))
        .ok_or(Parameter { name: "stride", rule: "the result must fit 64-bit sizes" })
}
