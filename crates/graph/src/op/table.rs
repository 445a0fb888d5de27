//! The table of ops: which entry and which shape rule belong to which variant of [`Op`].

use super::{
    attention, convolution, custom, elementwise, image, movement, norm, product, reduce, rope, rows,
    soft_max, sort, ssm, views,
};
use crate::{Op, OpError, OpInfo, TensorDesc};

/// Makes the list of entries and both matches out of one line per op, so that a variant without a line does not
/// compile and a line without an entry neither.
macro_rules! table {
    (|$x:ident| $($op:pat => $entry:path, $rule:expr;)*) => {
        /// The entry of every op, in the order of [`Op`]'s variants.
        pub const OPS: &[&OpInfo] = &[$(&$entry),*];

        impl Op {
            /// The entry of its variant.
            #[inline] // planning asks every node several times
            #[allow(unused_variables)] // the patterns name parameters for the shape rules
            pub const fn info(&self) -> &'static OpInfo {
                match self {
                    $($op => &$entry,)*
                }
            }
        }

        fn result(op: &Op, $x: &[TensorDesc]) -> Result<TensorDesc, OpError> {
            match op {
                $($op => $rule,)*
            }
        }
    };
}

table! { |x|
    Op::View { extents, strides, offset } => views::VIEW, views::view(x, *extents, *strides, *offset);
    Op::Reshape { extents } => views::RESHAPE, views::reshape(x, extents);
    Op::Permute { axes } => views::PERMUTE, views::permute(x, axes);
    Op::Transpose => views::TRANSPOSE, views::transpose(x);

    Op::Dup => movement::DUP, movement::same(x);
    Op::Cast { dtype } => movement::CAST, movement::cast(x, *dtype);
    Op::Copy => movement::COPY, movement::copy(x);
    Op::Cont => movement::CONT, movement::same(x);
    Op::GetRows => rows::GET_ROWS, rows::get_rows(x);
    Op::SetRows => rows::SET_ROWS, rows::set_rows(x);
    Op::Set(patch) => movement::SET, movement::set(x, patch);
    Op::Acc(patch) => movement::ACC, movement::acc(x, patch);
    Op::Repeat { extents } => movement::REPEAT, movement::repeat(x, extents);
    Op::Concat { axis } => movement::CONCAT, movement::concat(x, *axis);
    Op::Pad { before, after } => movement::PAD, movement::pad(x, before, after);
    Op::Roll { .. } => movement::ROLL, movement::roll(x);
    Op::Arange { start, stop, step } => movement::ARANGE, movement::arange(*start, *stop, *step);

    Op::Add => elementwise::ADD, elementwise::binary(x);
    Op::Add1 => elementwise::ADD1, elementwise::add1(x);
    Op::Sub => elementwise::SUB, elementwise::binary(x);
    Op::Mul => elementwise::MUL, elementwise::binary(x);
    Op::Div => elementwise::DIV, elementwise::binary(x);
    Op::Scale { .. } => elementwise::SCALE, elementwise::each(x);
    Op::Clamp { .. } => elementwise::CLAMP, elementwise::each(x);
    Op::Unary(_) => elementwise::UNARY, elementwise::each(x);
    Op::LeakyRelu { .. } => elementwise::LEAKY_RELU, elementwise::each(x);
    Op::Gated { .. } => elementwise::GATED, elementwise::gated(x);

    Op::Sum => reduce::SUM, reduce::sum(x);
    Op::SumRows => reduce::SUM_ROWS, reduce::one_per_row(x);
    Op::Mean => reduce::MEAN, reduce::one_per_row(x);
    Op::CumSum => reduce::CUMSUM, elementwise::each(x);
    Op::ArgMax => sort::ARGMAX, sort::argmax(x);
    Op::ArgSort { .. } => sort::ARGSORT, sort::argsort(x);
    Op::TopK { k } => sort::TOP_K, sort::top_k(x, *k);

    Op::Norm { .. } => norm::NORM, elementwise::each(x);
    Op::RmsNorm { .. } => norm::RMS_NORM, elementwise::each(x);
    Op::GroupNorm { groups, .. } => norm::GROUP_NORM, norm::group_norm(x, *groups);
    Op::L2Norm { .. } => norm::L2_NORM, elementwise::each(x);
    Op::SoftMax(params) => soft_max::SOFT_MAX, soft_max::soft_max(x, params);
    Op::DiagMaskInf { .. } => soft_max::DIAG_MASK_INF, elementwise::each(x);
    Op::DiagMaskZero { .. } => soft_max::DIAG_MASK_ZERO, elementwise::each(x);

    Op::MulMat => product::MUL_MAT, product::mul_mat(x);
    Op::MulMatId => product::MUL_MAT_ID, product::mul_mat_id(x);
    Op::MulMatSome => product::MUL_MAT_SOME, product::mul_mat_id(x);
    Op::OutProd => product::OUT_PROD, product::out_prod(x);

    Op::Rope(params) => rope::ROPE, rope::rope(x, params);
    Op::FlashAttention(params) => attention::FLASH_ATTENTION, attention::flash_attention(x, params);

    Op::Im2Col { window, two_d, dtype } => convolution::IM2COL, convolution::im2col(x, window, *two_d, *dtype);
    Op::Conv1d(window) => convolution::CONV_1D, convolution::conv_1d(x, window);
    Op::Conv2d(window) => convolution::CONV_2D, convolution::conv_2d(x, window);
    Op::ConvDepthwise2d(window) => convolution::CONV_DEPTHWISE_2D, convolution::conv_depthwise_2d(x, window);
    Op::ConvTranspose1d { stride } => convolution::CONV_TRANSPOSE_1D, convolution::conv_transpose_1d(x, *stride);
    Op::ConvTranspose2d { stride } => convolution::CONV_TRANSPOSE_2D, convolution::conv_transpose_2d(x, *stride);
    Op::Pool1d(pool) => image::POOL_1D, image::pool_1d(x, pool);
    Op::Pool2d(pool) => image::POOL_2D, image::pool_2d(x, pool);
    Op::Upscale { extents, .. } => image::UPSCALE, image::upscale(x, extents);
    Op::TimestepEmbedding { dim, max_period } => image::TIMESTEP_EMBEDDING,
        image::timestep_embedding(x, *dim, *max_period);

    Op::SsmConv => ssm::SSM_CONV, ssm::ssm_conv(x);
    Op::SsmScan => ssm::SSM_SCAN, ssm::ssm_scan(x);
    Op::DeltaScan => ssm::DELTA_SCAN, ssm::delta_scan(x);

    Op::Custom { dtype, extents, .. } => custom::CUSTOM, custom::custom(*dtype, extents);
}

/// The result's description, from the op and its operands' descriptions.
///
/// # Errors
/// [`OpError`] if the op does not accept them.
pub fn infer(op: &Op, operands: &[TensorDesc]) -> Result<TensorDesc, OpError> {
    for operand in operands {
        // The fields are public, so a description made by hand is checked like any other.
        TensorDesc::strided(operand.dtype, operand.extents, operand.strides)?;
    }
    op.info().operands.check(operands)?;
    result(op, operands)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CostOf;

    #[test]
    fn entries_have_names_of_their_own_and_samples_of_their_variant() {
        let mut names = Vec::new();
        for info in OPS {
            assert_eq!(info.example().info().name, info.name, "the sample of `{}`", info.name);
            assert!(!names.contains(&info.name), "`{}` has two entries", info.name);
            names.push(info.name);
        }
        let mut names: Vec<&str> = OPS.iter().flat_map(|info| info.names()).copied().collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn entries_speak_of_operands_that_there_are() {
        for info in OPS {
            let slots = info.overwrites.iter().copied().chain(info.storage);
            let slots = slots.chain(info.cost.times.iter().map(|(operand, _)| *operand));
            let slots = slots.chain(match info.cost_of {
                CostOf::Operand(operand) => Some(operand),
                CostOf::Result => None,
            });
            assert!(slots.into_iter().all(|slot| slot < info.operands.max), "{}", info.name);
            assert!(!info.view || info.storage.is_some(), "{}", info.name);
        }
    }
}
