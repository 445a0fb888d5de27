//! Copies and rearrangements of whole blocks.

use std::array::from_fn;

use orlop_graph::{DIMS, Op, TensorDesc};

use super::coordinates::coordinates;
use super::{check, patch};
use crate::elements::{extents, packed_bytes};
use crate::{OpFailure, Packed};

/// Whether an op on these operands takes whole blocks from one place to another, so that [`rearrange`] gives
/// its result exactly, whatever the element type.
pub fn rearranges(op: &Op, operands: &[TensorDesc], output: &TensorDesc) -> bool {
    match op {
        Op::Dup
        | Op::Cont
        | Op::Set(_)
        | Op::Acc(_)
        | Op::Repeat { .. }
        | Op::Concat { .. }
        | Op::Pad { .. }
        | Op::Roll { .. } => true,
        Op::Cast { .. } | Op::Copy => operands.first().is_some_and(|from| from.dtype == output.dtype),
        _ => false,
    }
}

/// The packed bytes of the result of an op that [`rearranges`]. ([`Op::Acc`] also adds, as it writes to a place
/// given in bytes.)
///
/// # Errors
/// As [`crate::compute`], and [`OpFailure::NoCodec`] from [`Op::Acc`].
pub fn rearrange(op: &Op, operands: &[&Packed], output: &TensorDesc) -> Result<Vec<u8>, OpFailure> {
    let descs: Vec<TensorDesc> = operands.iter().map(|operand| *operand.desc()).collect();
    check(op, &descs, output)?;
    if !rearranges(op, &descs, output) {
        return Err(OpFailure::NotComputed);
    }
    let target = blocks(output);
    let mut result = Vec::with_capacity(packed_bytes(output) as usize);
    match op {
        Op::Set(at) => return Ok(patch::set(operands[0], operands[1], at)),
        Op::Acc(at) => return patch::accumulate(operands[0], operands[1], at),
        Op::Repeat { .. } => {
            let source = blocks(&descs[0]);
            for at in coordinates(target) {
                result.extend(block(operands[0], from_fn(|dim| at[dim] % source[dim])));
            }
        }
        Op::Concat { axis } => {
            let axis = usize::from(*axis);
            for mut at in coordinates(target) {
                let mut parts = operands.iter();
                let mut part = parts.next();
                while let Some(operand) = part
                    && at[axis] >= blocks(operand.desc())[axis]
                {
                    at[axis] -= blocks(operand.desc())[axis];
                    part = parts.next();
                }
                if let Some(operand) = part {
                    result.extend(block(operand, at));
                }
            }
        }
        Op::Pad { before, .. } => {
            let source = blocks(&descs[0]);
            let zero = vec![0; output.dtype.block_bytes() as usize];
            for at in coordinates(target) {
                let inside: [Option<usize>; DIMS] = from_fn(|dim| {
                    at[dim].checked_sub(before[dim] as usize).filter(|place| *place < source[dim])
                });
                match inside {
                    [Some(i), Some(j), Some(k), Some(l)] => result.extend(block(operands[0], [i, j, k, l])),
                    _ => result.extend(&zero),
                }
            }
        }
        Op::Roll { shifts } => {
            for at in coordinates(target) {
                let rolled = from_fn(|dim| {
                    let place = at[dim] as i128 - i128::from(shifts[dim]);
                    place.rem_euclid(target[dim] as i128) as usize
                });
                result.extend(block(operands[0], rolled));
            }
        }
        _ => result.extend(operands[0].bytes()),
    }
    Ok(result)
}

/// Extents counted in blocks.
fn blocks(desc: &TensorDesc) -> [usize; DIMS] {
    let mut blocks = extents(desc);
    blocks[0] /= desc.dtype.block_elements() as usize;
    blocks
}

fn block(x: &Packed, [i, j, k, l]: [usize; DIMS]) -> &[u8] {
    let [a, b, c, _] = blocks(x.desc());
    let bytes = x.desc().dtype.block_bytes() as usize;
    let start = (((l * c + k) * b + j) * a + i) * bytes;
    &x.bytes()[start..start + bytes]
}
