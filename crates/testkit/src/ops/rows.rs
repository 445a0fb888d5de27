//! Rows of tables, read and written by index.

use orlop_graph::{DType, Op, TensorDesc};

use super::check;
use super::coordinates::outer;
use crate::elements::extents;
use crate::{Elements, OpFailure, Packed, encode_elements};

pub(super) fn get_rows(table: &Elements, indices: &Elements) -> Result<Vec<f64>, OpFailure> {
    let [count, outer2, outer3, _] = indices.extents();
    let mut result = Vec::new();
    for [i, j, k] in outer([count, outer2, outer3]) {
        let row = in_range(indices.at([i, j, k, 0]) as i64, table.desc().extents[1])?;
        result.extend(table.row([row, j, k]));
    }
    Ok(result)
}

/// One row to be written by [`Op::SetRows`].
#[derive(Clone, Debug, PartialEq)]
pub struct RowWrite {
    /// Bytes from the destination's first element to the row's.
    pub offset: u64,
    /// The row's elements, packed, in the destination's type.
    pub bytes: Vec<u8>,
}

/// What [`Op::SetRows`] writes into a destination, in the order in which it does; where two rows have the same
/// place, the later one stays. Index -1 skips a row.
///
/// # Errors
/// [`OpFailure::Operands`] if the descriptions do not fit, [`OpFailure::BadIndex`] for an index that is out of
/// range, [`OpFailure::NoCodec`] for a destination whose type cannot be encoded.
pub fn set_rows(
    destination: &TensorDesc,
    rows: &Elements,
    indices: &Packed,
) -> Result<Vec<RowWrite>, OpFailure> {
    check(&Op::SetRows, &[*destination, *rows.desc(), *indices.desc()], destination)?;
    let numbers = indices.integers().ok_or(OpFailure::NoCodec(DType::I64))?;
    let [_, count, outer2, outer3] = rows.extents();
    let [_, repeat2, repeat3, _] = extents(indices.desc());
    let mut writes = Vec::new();
    for [i, j, k] in outer([count, outer2, outer3]) {
        let index = numbers[((k % repeat3) * repeat2 + j % repeat2) * count + i];
        if index == -1 {
            continue;
        }
        let row = in_range(index, destination.extents[1])? as u64;
        let [_, s1, s2, s3] = destination.strides;
        let offset = row * s1 + j as u64 * s2 + k as u64 * s3;
        let bytes = encode_elements(destination.dtype, rows.row([i, j, k]))?;
        writes.push(RowWrite { offset, bytes });
    }
    Ok(writes)
}

/// A number in the data as an index.
pub(super) fn in_range(index: i64, rows: u64) -> Result<usize, OpFailure> {
    match u64::try_from(index) {
        Ok(row) if row < rows => Ok(row as usize),
        _ => Err(OpFailure::BadIndex { index, rows }),
    }
}
