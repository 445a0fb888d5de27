mod checks;

use self::checks::{
    contiguous, count, divides, dtype, extents_of, floats, indexable, left_hand, no_blocks, permuted, pooled,
    product, repeats, right_hand, sinks, slopes_have_a_mask, spread, too_large, windows,
};
use crate::{DIMS, DType, DescError, Op, RopeMode, TensorDesc};

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

use OpError::{Operands, OutsideStorage, Parameter};

/// The result's description, from the op and its operands' descriptions.
///
/// # Errors
/// [`OpError`] if the op does not accept them.
pub fn infer(op: &Op, operands: &[TensorDesc]) -> Result<TensorDesc, OpError> {
    let x = operands;
    for operand in x {
        // The fields are public, so one made by hand is checked like any other.
        TensorDesc::strided(operand.dtype, operand.extents, operand.strides)?;
    }
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
            if matches!(op, Op::Acc(_)) {
                floats(x, 0)?;
            }
            dtype(x, 1, x[1].dtype == x[0].dtype, "the base's type")?;
            let [s1, s2, s3] = patch.strides;
            let strides = [x[0].dtype.block_bytes(), s1, s2, s3];
            let region = TensorDesc::strided(x[0].dtype, x[1].extents, strides)?;
            if x[1].elements() > x[0].elements() {
                return Err(extents_of(x, 1, "must not have more elements than the base"));
            }
            let end = patch.offset.saturating_add(region.bytes());
            if end > x[0].bytes() {
                return Err(OutsideStorage { end, bytes: x[0].bytes() });
            }
            Ok(TensorDesc::contiguous(x[0].dtype, &x[0].extents)?)
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
            no_blocks(x, 0)?;
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
            no_blocks(x, 0)?;
            Ok(TensorDesc::contiguous(x[0].dtype, &x[0].extents)?)
        }
        Op::Arange { start, stop, step } => {
            count(x, 0, "no")?;
            // In f32 like the values: 0 to 0.3 by 0.1 is three steps, which f64 would count as four.
            let steps = ((stop - start) / step).ceil();
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
            indexable(x, 0)?;
            let [n, a, b, c] = x[0].extents;
            if n == 0 && x[0].rows() != 0 {
                return Err(extents_of(x, 0, "rows must not be empty"));
            }
            Ok(TensorDesc::contiguous(DType::I32, &[a, b, c])?)
        }
        Op::ArgSort { .. } => {
            count(x, 1, "1")?;
            floats(x, 0)?;
            indexable(x, 0)?;
            Ok(TensorDesc::contiguous(DType::I32, &x[0].extents)?)
        }
        Op::TopK { k } => {
            count(x, 1, "1")?;
            floats(x, 0)?;
            indexable(x, 0)?;
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
            slopes_have_a_mask(params.max_bias, params.mask)?;
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
            left_hand(x, 0)?;
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
            left_hand(x, 0)?;
            right_hand(x, 1)?;
            dtype(x, 2, x[2].dtype == DType::I32, "i32")?;
            let [k, m, _, one] = x[0].extents;
            let [kb, each, tokens, last] = x[1].extents;
            let [used, ids_tokens, i2, i3] = x[2].extents;
            if one != 1 {
                return Err(extents_of(x, 0, "must be one matrix an expert"));
            }
            if k != kb || last != 1 {
                return Err(extents_of(x, 1, "rows must be as long as the matrices', three dimensions"));
            }
            if ids_tokens != tokens || i2 != 1 || i3 != 1 || !divides(each, used) {
                return Err(extents_of(x, 2, "must be the experts used by each token"));
            }
            Ok(TensorDesc::contiguous(DType::F32, &[m, used, tokens])?)
        }
        Op::OutProd => {
            count(x, 2, "2")?;
            left_hand(x, 0)?;
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
            let streams = match params.mode {
                RopeMode::Sections([0, 0, 0, 0]) => {
                    return Err(Parameter { name: "mode", rule: "sections must not all be 0" });
                }
                RopeMode::Sections(_) => 4,
                RopeMode::Normal | RopeMode::Neox => 1,
            };
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
            left_hand(x, 1)?;
            left_hand(x, 2)?;
            slopes_have_a_mask(params.max_bias, params.mask)?;
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
            if !result.is_float() {
                return Err(Parameter { name: "dtype", rule: "must be a floating-point type" });
            }
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
                if kernel[1] != data[1] || data[3] != 1 {
                    return Err(extents_of(x, 1, "must have the kernel's channels, three dimensions"));
                }
                let w = windows(data[0], kernel[0], window, 0)?;
                let row = product(&[kernel[0], kernel[1]], *result)?;
                Ok(TensorDesc::contiguous(*result, &[row, w, data[2]])?)
            }
        }
        Op::Conv1d(window) => {
            count(x, 2, "2")?;
            left_hand(x, 0)?;
            floats(x, 1)?;
            let ([k, input, output, one], [length, channels, batch, last]) = (x[0].extents, x[1].extents);
            if one != 1 || last != 1 || channels != input {
                return Err(extents_of(x, 1, "must have the kernel's input channels"));
            }
            Ok(TensorDesc::contiguous(DType::F32, &[windows(length, k, window, 0)?, output, batch])?)
        }
        Op::Conv2d(window) => {
            count(x, 2, "2")?;
            left_hand(x, 0)?;
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
            left_hand(x, 0)?;
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
            left_hand(x, 0)?;
            floats(x, 1)?;
            let ([k, output, input, one], [length, channels, d2, d3]) = (x[0].extents, x[1].extents);
            if one != 1 || channels != input || d2 != 1 || d3 != 1 {
                return Err(extents_of(x, 1, "must have the kernel's input channels"));
            }
            Ok(TensorDesc::contiguous(DType::F32, &[spread(length, k, *stride)?, output])?)
        }
        Op::ConvTranspose2d { stride } => {
            count(x, 2, "2")?;
            left_hand(x, 0)?;
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
            if *dim == 0 {
                return Err(Parameter { name: "dim", rule: "must not be 0" });
            }
            if *max_period == 0 {
                return Err(Parameter { name: "max_period", rule: "must not be 0" });
            }
            if x[0].rows() != 1 {
                return Err(extents_of(x, 0, "must be one row"));
            }
            Ok(TensorDesc::contiguous(DType::F32, &[u64::from(*dim), x[0].extents[0]])?)
        }
        Op::SsmConv => {
            count(x, 2, "2")?;
            floats(x, 0)?;
            floats(x, 1)?;
            let [padded, inner, seqs, one] = x[0].extents;
            let [k, channels, 1, 1] = x[1].extents else {
                return Err(extents_of(x, 1, "must have two dimensions"));
            };
            if k == 0 || channels != inner {
                return Err(extents_of(x, 1, "must have one row a channel"));
            }
            let tokens = padded.checked_sub(k - 1).filter(|_| one == 1);
            let tokens = tokens.ok_or(extents_of(x, 0, "rows must be the tokens and one kernel less one"))?;
            Ok(TensorDesc::contiguous(DType::F32, &[inner, tokens, seqs])?)
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
            let [decays, a_heads, a2, a3] = x[3].extents;
            if [a_heads, a2, a3] != [heads, 1, 1] || !(decays == state || decays == 1) {
                return Err(extents_of(x, 3, "must be one row a head"));
            }
            for slot in [4, 5] {
                let [rows, groups, t, s] = x[slot].extents;
                if [rows, t, s] != [state, tokens, seqs] || !divides(groups, heads) {
                    return Err(extents_of(x, slot, "must be one row a group, token and sequence"));
                }
            }
            if x[5].extents != x[4].extents {
                return Err(extents_of(x, 5, "must have as many groups as the operand before it"));
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
