//! Tensor contents as numbers and as bytes.

use orlop_graph::{DIMS, DType, TensorDesc};

use crate::OpFailure;

/// A tensor's elements as they are stored, one after the other in element order, without gaps.
#[derive(Clone, Debug, PartialEq)]
pub struct Packed {
    desc: TensorDesc,
    bytes: Vec<u8>,
}

impl Packed {
    /// The elements of a tensor of any strides, already gathered.
    ///
    /// # Errors
    /// [`OpFailure::Length`] unless there are exactly the bytes of the described elements.
    pub fn new(desc: TensorDesc, bytes: Vec<u8>) -> Result<Packed, OpFailure> {
        check_length(packed_bytes(&desc), bytes.len())?;
        Ok(Packed { desc, bytes })
    }

    /// The tensor's description, with the strides it has in memory.
    pub fn desc(&self) -> &TensorDesc {
        &self.desc
    }

    /// The elements.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The elements as numbers.
    ///
    /// # Errors
    /// [`OpFailure::NoCodec`] for types that cannot be decoded.
    pub fn decode(&self) -> Result<Elements, OpFailure> {
        Elements::new(self.desc, decode_elements(self.desc.dtype, &self.bytes)?)
    }

    /// Exact integers; `None` for other types.
    pub fn integers(&self) -> Option<Vec<i64>> {
        let bytes = &self.bytes;
        Some(match self.desc.dtype {
            DType::I8 => bytes.iter().map(|raw| i64::from(*raw as i8)).collect(),
            DType::I16 => bytes.as_chunks().0.iter().map(|raw| i16::from_le_bytes(*raw).into()).collect(),
            DType::I32 => bytes.as_chunks().0.iter().map(|raw| i32::from_le_bytes(*raw).into()).collect(),
            DType::I64 => bytes.as_chunks().0.iter().map(|raw| i64::from_le_bytes(*raw)).collect(),
            _ => return None,
        })
    }
}

/// A tensor's elements as numbers, in element order, innermost dimension first.
#[derive(Clone, Debug, PartialEq)]
pub struct Elements {
    desc: TensorDesc,
    values: Vec<f64>,
}

impl Elements {
    /// Numbers for a description; its strides do not matter.
    ///
    /// # Errors
    /// [`OpFailure::Length`] unless there is one value an element.
    pub fn new(desc: TensorDesc, values: Vec<f64>) -> Result<Elements, OpFailure> {
        check_length(desc.elements(), values.len())?;
        Ok(Elements { desc, values })
    }

    /// An operand of which an op uses the description only.
    pub(crate) fn unread(desc: TensorDesc) -> Elements {
        Elements { desc, values: Vec::new() }
    }

    /// The tensor's description.
    pub fn desc(&self) -> &TensorDesc {
        &self.desc
    }

    /// All elements.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    pub(crate) fn extents(&self) -> [usize; DIMS] {
        extents(&self.desc)
    }

    /// The element at these coordinates, innermost first.
    pub(crate) fn at(&self, [i, j, k, l]: [usize; DIMS]) -> f64 {
        let [a, b, c, _] = self.extents();
        self.values[((l * c + k) * b + j) * a + i]
    }

    /// The row at these outer coordinates.
    pub(crate) fn row(&self, [j, k, l]: [usize; DIMS - 1]) -> &[f64] {
        let [a, b, c, _] = self.extents();
        let start = ((l * c + k) * b + j) * a;
        &self.values[start..start + a]
    }

    /// All rows, in order. None if rows are empty.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &[f64]> {
        self.values.chunks_exact(self.extents()[0].max(1))
    }
}

/// Extents as indices: what is in memory can be indexed.
pub(crate) fn extents(desc: &TensorDesc) -> [usize; DIMS] {
    desc.extents.map(|extent| extent as usize)
}

/// Bytes of the elements without gaps.
pub(crate) fn packed_bytes(desc: &TensorDesc) -> u64 {
    desc.row_bytes().saturating_mul(desc.rows())
}

fn check_length(expected: u64, given: usize) -> Result<(), OpFailure> {
    let given = given as u64;
    if expected == given { Ok(()) } else { Err(OpFailure::Length { expected, given }) }
}

/// Numbers from stored elements. I64 beyond 53 bits is rounded; everything else is exact.
///
/// # Errors
/// [`OpFailure::NoCodec`] for types that cannot be decoded, [`OpFailure::Length`] for a partial block.
pub fn decode_elements(dtype: DType, bytes: &[u8]) -> Result<Vec<f64>, OpFailure> {
    let block = dtype.block_bytes() as usize;
    let elements = bytes.len() / block * dtype.block_elements() as usize;
    check_length((bytes.len() / block * block) as u64, bytes.len())?;
    let mut values = vec![0.0; elements];
    orlop_quant::decode_f64(dtype, bytes, &mut values).map_err(|_| OpFailure::NoCodec(dtype))?;
    Ok(values)
}

/// Numbers as stored elements.
///
/// Floating-point and quantised types other than F64 round to the nearest `f32` first. Integer types drop the
/// fraction, keep to the type's range, and store NaN as 0.
///
/// # Errors
/// [`OpFailure::NoCodec`] for types that cannot be encoded, [`OpFailure::Length`] for a partial block.
pub fn encode_elements(dtype: DType, values: &[f64]) -> Result<Vec<u8>, OpFailure> {
    Ok(match dtype {
        DType::F64 => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        DType::F32 => values.iter().flat_map(|value| (*value as f32).to_le_bytes()).collect(),
        DType::I8 => values.iter().flat_map(|value| (*value as i8).to_le_bytes()).collect(),
        DType::I16 => values.iter().flat_map(|value| (*value as i16).to_le_bytes()).collect(),
        DType::I32 => values.iter().flat_map(|value| (*value as i32).to_le_bytes()).collect(),
        DType::I64 => values.iter().flat_map(|value| (*value as i64).to_le_bytes()).collect(),
        _ => {
            let elements = values.len() as u64;
            let whole = elements / dtype.block_elements() * dtype.block_elements();
            check_length(whole, values.len())?;
            let narrow: Vec<f32> = values.iter().map(|value| *value as f32).collect();
            let mut bytes = vec![0; (whole / dtype.block_elements() * dtype.block_bytes()) as usize];
            orlop_quant::encode(dtype, &narrow, &mut bytes).map_err(|_| OpFailure::NoCodec(dtype))?;
            bytes
        }
    })
}

/// Whether [`encode_elements`] knows the type.
pub(crate) fn can_encode(dtype: DType) -> bool {
    dtype.is_integer() || orlop_quant::supports_encode(dtype)
}

/// The bytes of an F32 tensor.
pub fn f32_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// The elements of an F32 tensor; a rest of fewer than four bytes is left out.
pub fn f32s(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|four| f32::from_le_bytes(*four)).collect()
}

/// The bytes of an I32 tensor.
pub fn i32_bytes(values: &[i32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// The bytes of an I64 tensor.
pub fn i64_bytes(values: &[i64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_drop_fractions_and_keep_to_their_range() {
        let values = [1.9, -1.9, 300.0, -300.0, f64::NAN];
        assert_eq!(encode_elements(DType::I8, &values).unwrap(), [1, 255, 127, 128, 0]);
        assert_eq!(encode_elements(DType::I32, &[2.5e9]).unwrap(), i32::MAX.to_le_bytes());
    }

    #[test]
    fn halves_round_to_even() {
        // 2049 and 2051 lie between two halves each.
        let bytes = encode_elements(DType::F16, &[2049.0, 2051.0]).unwrap();
        assert_eq!(decode_elements(DType::F16, &bytes).unwrap(), [2048.0, 2052.0]);
        let bytes = encode_elements(DType::BF16, &[257.0, 259.0]).unwrap();
        assert_eq!(decode_elements(DType::BF16, &bytes).unwrap(), [256.0, 260.0]);
    }

    #[test]
    fn lengths_are_checked() {
        let desc = TensorDesc::contiguous(DType::F32, &[3]).unwrap();
        assert_eq!(Elements::new(desc, vec![0.0; 2]), Err(OpFailure::Length { expected: 3, given: 2 }));
        assert_eq!(Packed::new(desc, vec![0; 13]), Err(OpFailure::Length { expected: 12, given: 13 }));
        let partial = OpFailure::Length { expected: 0, given: 31 };
        assert_eq!(encode_elements(DType::Q8_0, &[0.0; 31]), Err(partial));
    }

    #[test]
    fn large_integers_are_exact() {
        let desc = TensorDesc::contiguous(DType::I64, &[1]).unwrap();
        let packed = Packed::new(desc, i64_bytes(&[i64::MAX - 1])).unwrap();
        assert_eq!(packed.integers(), Some(vec![i64::MAX - 1]));
    }
}
