//! Which nodes a server can compute. It cannot be asked, and what it lacks ends it: these are the rules of ggml's CPU kernels,
//! which take more than those of other backends in some places and less in none that matters here.

use orlop_backend::Reason;
use orlop_graph::{DIMS, DType, Op, TensorDesc};

use crate::codec::{OpNumbers, TensorRecord, can_be_written};

/// Passes if a server takes an op on these operands.
pub(super) fn check(
    numbers: OpNumbers,
    op: &Op,
    inputs: &[TensorDesc],
    output: &TensorDesc,
) -> Result<(), Reason> {
    for (operand, desc) in inputs.iter().chain([output]).enumerate() {
        if TensorRecord::leaf(1, desc).is_none() {
            let value = desc.extents.into_iter().chain(desc.strides).max().unwrap_or(0);
            let limit = if operand == inputs.len() { "a stride of the result" } else { "a stride" };
            return Err(Reason::Limit { limit, value, max: u32::MAX.into() });
        }
    }
    if op.is_view() {
        return Ok(());
    }
    if !matches!(op, Op::TopK { .. }) && numbers.encode(op).is_none() {
        return Err(Reason::Op);
    }
    // Sums over nothing are left out by kernels that go over elements.
    if !output.is_empty() && inputs.iter().any(TensorDesc::is_empty) {
        return Err(Reason::Op);
    }
    let inputs: Vec<TensorDesc> = inputs.iter().map(normal).collect();
    Operands { inputs: &inputs, output: &normal(output) }.check(op)
}

/// The same tensor with strides over single elements as if there were no gaps: kernels look at them all the same.
pub(super) fn normal(desc: &TensorDesc) -> TensorDesc {
    let mut normal = *desc;
    if desc.extents[0] <= desc.dtype.block_elements() {
        normal.strides[0] = desc.dtype.block_bytes();
    }
    for dim in (1..DIMS).filter(|dim| desc.extents[*dim] <= 1) {
        let outer = normal.strides[dim - 1].saturating_mul(normal.extents[dim - 1]);
        normal.strides[dim] = if dim == 1 { normal.row_bytes() } else { outer };
    }
    normal
}

struct Operands<'a> {
    inputs: &'a [TensorDesc],
    output: &'a TensorDesc,
}

impl Operands<'_> {
    fn check(&self, op: &Op) -> Result<(), Reason> {
        let f32 = |operand: usize| self.dtype(operand, |dtype| dtype == DType::F32);
        match op {
            Op::Dup | Op::Cont => self.dtype(0, |dtype| !dtype.is_quantized()),
            Op::Cast { .. } => self.converts(0, self.output),
            Op::Copy => self.converts(0, &self.inputs[1]),
            Op::GetRows => {
                self.dtype(0, |dtype| dtype == DType::I32 || is_weight(dtype))?;
                self.rows(0)
            }
            Op::SetRows => {
                self.dtype(0, can_be_written)?;
                f32(1)?;
                self.rows(0)?;
                self.rows(1)?;
                // Rows that are skipped are left out by the client, for one list of rows.
                let ids = self.inputs[2].extents;
                if ids[1..] == [1; 3] && self.inputs[2].is_contiguous() {
                    Ok(())
                } else {
                    Err(Reason::Strides { operand: 2 })
                }
            }
            Op::Set(_) | Op::Acc(_) => {
                f32(0)?;
                self.whole(0)?;
                self.rows(1)
            }
            Op::Repeat { .. } | Op::Roll { .. } | Op::Pad { .. } => self.f32_rows(0),
            Op::Concat { .. } => {
                if self.inputs.len() != 2 {
                    let value = self.inputs.len() as u64;
                    return Err(Reason::Limit { limit: "the number of operands", value, max: 2 });
                }
                self.f32_rows(0)?;
                self.f32_rows(1)
            }
            Op::Arange { .. } => Ok(()),
            Op::Add | Op::Sub | Op::Mul | Op::Div | Op::Add1 => {
                self.f32_rows(0)?;
                self.f32_rows(1)
            }
            Op::Scale { .. } | Op::Clamp { .. } | Op::LeakyRelu { .. } | Op::GroupNorm { .. } => {
                f32(0)?;
                self.whole(0)
            }
            Op::Unary(_) => {
                f32(0)?;
                self.even_rows(0)
            }
            Op::Gated { .. } => {
                for operand in 0..self.inputs.len() {
                    f32(operand)?;
                    self.even_rows(operand)?;
                }
                Ok(())
            }
            Op::Sum
            | Op::SumRows
            | Op::Mean
            | Op::CumSum
            | Op::Norm { .. }
            | Op::RmsNorm { .. }
            | Op::L2Norm { .. } => self.f32_rows(0),
            Op::ArgMax => {
                f32(0)?;
                self.whole(0)?;
                if self.inputs[0].extents[2..] == [1, 1] {
                    Ok(())
                } else {
                    Err(Reason::Strides { operand: 0 })
                }
            }
            Op::ArgSort { .. } | Op::TopK { .. } | Op::DiagMaskInf { .. } | Op::DiagMaskZero { .. } => {
                f32(0)?;
                self.whole(0)
            }
            Op::SoftMax(soft_max) => {
                f32(0)?;
                self.whole(0)?;
                if soft_max.mask { self.whole(1) } else { Ok(()) }
            }
            Op::MulMat | Op::MulMatId => {
                self.dtype(0, is_weight)?;
                self.rows(0)?;
                self.f32_rows(1)
            }
            Op::Rope(_) => {
                self.f32_rows(0)?;
                self.whole(1)
            }
            Op::FlashAttention(attention) => {
                self.f32_rows(0)?;
                for operand in [1, 2] {
                    self.dtype(operand, can_be_written)?;
                    self.rows(operand)?;
                    if self.inputs[operand].extents[3] != self.inputs[0].extents[3] {
                        return Err(Reason::Strides { operand });
                    }
                }
                for operand in 3..self.inputs.len() {
                    self.whole(operand)?;
                }
                // Lengths and windows become a mask, and there can be one.
                let limited = attention.kv_len || attention.window > 0;
                if limited && (attention.mask || !attention.kv_len) { Err(Reason::Op) } else { Ok(()) }
            }
            Op::SsmConv | Op::SsmScan => {
                let last = self.inputs.len() - usize::from(*op == Op::SsmScan);
                (0..last).try_for_each(f32)?;
                (0..self.inputs.len()).try_for_each(|operand| self.whole(operand))
            }
            // Views are no work, and were let pass.
            Op::View { .. } | Op::Reshape { .. } | Op::Permute { .. } | Op::Transpose => Ok(()),
            Op::MulMatSome
            | Op::OutProd
            | Op::Im2Col { .. }
            | Op::Conv1d(_)
            | Op::Conv2d(_)
            | Op::ConvDepthwise2d(_)
            | Op::ConvTranspose1d { .. }
            | Op::ConvTranspose2d { .. }
            | Op::Pool1d(_)
            | Op::Pool2d(_)
            | Op::Upscale { .. }
            | Op::TimestepEmbedding { .. }
            | Op::DeltaScan
            | Op::Custom { .. } => Err(Reason::Op),
        }
    }

    fn dtype(&self, operand: usize, fits: impl Fn(DType) -> bool) -> Result<(), Reason> {
        let dtype = self.inputs[operand].dtype;
        if fits(dtype) { Ok(()) } else { Err(Reason::DType { operand, dtype }) }
    }

    /// Elements of a row lie side by side.
    fn rows(&self, operand: usize) -> Result<(), Reason> {
        let desc = &self.inputs[operand];
        self.strides(operand, desc.strides[0] == desc.dtype.block_bytes())
    }

    fn f32_rows(&self, operand: usize) -> Result<(), Reason> {
        self.dtype(operand, |dtype| dtype == DType::F32)?;
        self.rows(operand)
    }

    /// Rows at equal distances.
    fn even_rows(&self, operand: usize) -> Result<(), Reason> {
        let desc = &self.inputs[operand];
        self.rows(operand)?;
        let even = (2..DIMS).all(|dim| desc.strides[dim] == desc.strides[dim - 1] * desc.extents[dim - 1]);
        self.strides(operand, even)
    }

    fn whole(&self, operand: usize) -> Result<(), Reason> {
        self.strides(operand, self.inputs[operand].is_contiguous())
    }

    fn strides(&self, operand: usize, fits: bool) -> Result<(), Reason> {
        if fits { Ok(()) } else { Err(Reason::Strides { operand }) }
    }

    /// A conversion that every server has.
    fn converts(&self, operand: usize, to: &TensorDesc) -> Result<(), Reason> {
        let from = &self.inputs[operand];
        let plain = |dtype| matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
        let (into, refused) = (to.dtype, Reason::DType { operand, dtype: from.dtype });
        match from.dtype {
            dtype if dtype == into && !dtype.is_quantized() => Ok(()),
            dtype if plain(dtype) && plain(into) => Ok(()),
            DType::F32 if can_be_written(into) => {
                self.strides(operand, from.is_contiguous() && to.is_contiguous())
            }
            dtype if can_be_written(dtype) && into == DType::F32 => {
                self.strides(operand, from.is_contiguous() && to.is_contiguous())
            }
            DType::I32 if into == DType::F32 => Ok(()),
            _ => Err(refused),
        }
    }
}

/// Types that tables and matrices may have.
fn is_weight(dtype: DType) -> bool {
    !dtype.is_integer() && !matches!(dtype, DType::F64 | DType::Q8_1 | DType::Q8_K)
}

#[cfg(test)]
mod tests {
    use orlop_backend::{NodeQuery, Support};
    use orlop_testkit::conformance;

    use super::*;
    use crate::codec::RpcVersion;

    #[test]
    fn the_ops_page_has_what_is_accepted() {
        let numbers = RpcVersion::V5_1.dialect().unwrap().ops;
        let supports = |node: &NodeQuery<'_>| {
            let inputs: Vec<TensorDesc> = node.inputs.iter().map(|operand| *operand.desc).collect();
            check(numbers, node.op, &inputs, node.output.desc).map_or_else(Support::No, |()| Support::YES)
        };
        conformance::check_ops_page("rpc", &conformance::acceptance("rpc", supports));
    }
}
