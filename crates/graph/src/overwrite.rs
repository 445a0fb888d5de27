use crate::Op;

/// Whether the result of `op` may be written over operand number `operand` when both have the same
/// layout: each element of the operand is read for the last time before, or while, the result's element
/// at the same place is written.
///
/// This is the upper limit. A device may narrow it when it lowers a graph, an allocator chooses within
/// it, and nobody goes beyond it.
pub fn may_overwrite(op: &Op, operand: usize) -> bool {
    match op {
        Op::Add | Op::Sub | Op::Mul | Op::Div => operand < 2,
        // With one operand the rows are twice as long as the result's, so layouts never agree.
        Op::Gated { .. } => operand < 2,
        Op::Dup
        | Op::Cont
        | Op::Add1
        | Op::Scale { .. }
        | Op::Clamp { .. }
        | Op::Unary(_)
        | Op::LeakyRelu { .. }
        | Op::CumSum
        | Op::Norm { .. }
        | Op::RmsNorm { .. }
        | Op::GroupNorm { .. }
        | Op::L2Norm { .. }
        | Op::SoftMax(_)
        | Op::DiagMaskInf { .. }
        | Op::DiagMaskZero { .. }
        | Op::Rope(_)
        | Op::Set(_)
        | Op::Acc(_) => operand == 0,
        Op::Custom { overwrites, .. } => overwrites.iter().any(|slot| usize::from(*slot) == operand),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SoftMax;

    #[test]
    fn masks_and_matrices_are_never_overwritten() {
        let soft_max = Op::SoftMax(SoftMax { scale: 1.0, max_bias: 0.0, mask: true, sinks: false });
        assert!(may_overwrite(&soft_max, 0));
        assert!(!may_overwrite(&soft_max, 1));
        assert!(!may_overwrite(&Op::MulMat, 1));
        assert!(!may_overwrite(&Op::GetRows, 0));
        assert!(may_overwrite(&Op::Sub, 1));
        assert!(!may_overwrite(&Op::Add1, 1));
    }
}
