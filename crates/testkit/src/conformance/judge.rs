//! How far a result is from the reference, and how far it may be.

use orlop_backend::{DeviceClass, Precision};
use orlop_graph::{DType, Graph, Node, Op, Origin, TensorId};

use super::tolerance::{encoding, paired};
use super::{Case, CaseFailure, Tolerance, Way};
use crate::{Elements, Interpreter, OpFailure, compute, decode_elements, encode_elements};

/// What the reference computed, and what follows from it for a device.
pub(super) struct Judge<'a> {
    pub(super) case: &'a Case,
    pub(super) reference: &'a Interpreter,
    pub(super) class: DeviceClass,
    pub(super) precision: Precision,
}

impl Judge<'_> {
    /// The error of a result, if it is small enough.
    pub(super) fn check(&self, way: Way, tensor: TensorId, found: &[u8]) -> Result<f64, CaseFailure> {
        let expected = self.reference.bytes(tensor).map_err(CaseFailure::Reference)?;
        let described = self.case.graph().tensor(tensor);
        let dtype = described.desc.dtype;
        let name = || described.name.clone();
        if found == expected {
            return Ok(0.0);
        }
        let numbers = |bytes: &[u8]| decode_elements(dtype, bytes).map_err(CaseFailure::Feeds);
        let (found_numbers, numbers) = (numbers(found)?, numbers(&expected)?);
        let error = error(&found_numbers, &numbers);
        let Some(limit) = self.limit(tensor) else {
            let element = first_difference(found, &expected) / dtype.block_bytes() as usize;
            let element = element * dtype.block_elements() as usize;
            let at = |numbers: &[f64]| numbers.get(element).copied().unwrap_or(f64::NAN);
            let (found, expected) = (at(&found_numbers), at(&numbers));
            // A NaN is a NaN, whatever its bits.
            if error == 0.0 && dtype.is_float() {
                return Ok(0.0);
            }
            return Err(CaseFailure::Unequal { way, tensor: name(), element, found, expected });
        };
        if error <= limit {
            return Ok(error);
        }
        Err(CaseFailure::Inexact { way, tensor: name(), error, limit })
    }

    fn limit(&self, tensor: TensorId) -> Option<f64> {
        let graph = self.case.graph();
        let dtype = graph.tensor(tensor).desc.dtype;
        let operands: Vec<DType> = graph.tensors().iter().map(|tensor| tensor.desc.dtype).collect();
        let tolerance = self.case.tolerance();
        // Whatever else is kept of the case, such as a state, is only moved or converted.
        let limit = tolerance.limit(self.class, dtype, &operands)?;
        if dtype.is_quantized() {
            return Some(limit.max(encoding(dtype)));
        }
        let factor = match tolerance {
            Tolerance::Product => 3.0,
            Tolerance::Attention => 2.0,
            _ => return Some(limit),
        };
        if self.precision == Precision::F32 {
            return Some(limit);
        }
        let rounded = self.eight_bit_error(graph, tensor).ok().flatten().unwrap_or(0.0);
        Some(limit.max(factor * rounded))
    }

    /// The error of a product with quantised weights if its activations are rounded to 8 bits and everything
    /// else is exact; `None` for other nodes.
    fn eight_bit_error(&self, graph: &Graph, tensor: TensorId) -> Result<Option<f64>, OpFailure> {
        let Origin::Node(id) = graph.tensor(tensor).origin else { return Ok(None) };
        let node = graph.node(id);
        let Some((weights, activations)) = rounded_operand(node) else { return Ok(None) };
        let dtype = |slot: usize| graph.tensor(node.inputs[slot]).desc.dtype;
        let codec = paired(dtype(weights));
        let row = graph.tensor(node.inputs[activations]).desc.extents[0];
        if !dtype(weights).is_quantized() || !row.is_multiple_of(codec.block_elements()) {
            return Ok(None);
        }
        let mut operands = Vec::with_capacity(node.inputs.len());
        for input in &node.inputs {
            let values = self.reference.f64s(*input).map_err(|_| OpFailure::NotComputed)?;
            operands.push(Elements::new(graph.tensor(*input).desc, values)?);
        }
        let output = graph.tensor(tensor).desc;
        let exact = compute(&node.op, &operands, &output)?;
        let bytes = encode_elements(codec, operands[activations].values())?;
        operands[activations] =
            Elements::new(*operands[activations].desc(), decode_elements(codec, &bytes)?)?;
        Ok(Some(error(&compute(&node.op, &operands, &output)?, &exact)))
    }
}

/// Positions of the weights and of the operand that kernels round to the weights' liking.
fn rounded_operand(node: &Node) -> Option<(usize, usize)> {
    match node.op {
        Op::MulMat | Op::MulMatId | Op::MulMatSome => Some((0, 1)),
        Op::FlashAttention(_) => Some((1, 0)),
        _ => None,
    }
}

/// The normalised mean squared error. Infinities and NaNs must be where the reference has them.
pub(super) fn error(found: &[f64], expected: &[f64]) -> f64 {
    if found.len() != expected.len() {
        return f64::INFINITY;
    }
    let (mut squares, mut scale, mut count) = (0.0, 0.0, 0.0);
    for (found, expected) in found.iter().zip(expected) {
        if !expected.is_finite() || !found.is_finite() {
            if found != expected && !(found.is_nan() && expected.is_nan()) {
                return f64::INFINITY;
            }
            continue;
        }
        squares += (found - expected) * (found - expected);
        scale += expected * expected;
        count += 1.0;
    }
    match (squares, scale) {
        (0.0, _) => 0.0,
        // Where the reference is nothing but zeros there is no other scale than 1.
        (squares, 0.0) => squares / count,
        (squares, scale) => squares / scale,
    }
}

pub(super) fn first_difference(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).position(|(a, b)| a != b).unwrap_or(a.len().min(b.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_relative_to_the_reference() {
        assert_eq!(error(&[1.0, 2.0], &[1.0, 2.0]), 0.0);
        assert!((error(&[1.1, 0.0], &[1.0, 0.0]) - 0.01).abs() < 1e-12);
        assert_eq!(error(&[0.5, 0.0], &[0.0, 0.0]), 0.125);
    }

    #[test]
    fn infinities_and_nans_must_be_the_same() {
        assert_eq!(error(&[f64::INFINITY, f64::NAN], &[f64::INFINITY, f64::NAN]), 0.0);
        assert_eq!(error(&[f64::NEG_INFINITY], &[f64::INFINITY]), f64::INFINITY);
        assert_eq!(error(&[0.0], &[f64::NAN]), f64::INFINITY);
        assert_eq!(error(&[f64::NAN], &[0.0]), f64::INFINITY);
    }
}
