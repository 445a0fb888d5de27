//! Element types of tensors and the sizes of their blocks.

use std::fmt;

/// Element type of a tensor: every type a GGUF file can name.
///
/// Quantized types store elements in blocks; [`DType::block_elements`] elements take
/// [`DType::block_bytes`] bytes. Plain types are blocks of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(into = "&'static str", try_from = "String"))]
#[non_exhaustive]
#[allow(missing_docs, non_camel_case_types)] // the names are the format's own
pub enum DType {
    F32,
    F16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q8_1,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    Q8_K,
    IQ2_XXS,
    IQ2_XS,
    IQ3_XXS,
    IQ1_S,
    IQ4_NL,
    IQ3_S,
    IQ2_S,
    IQ4_XS,
    I8,
    I16,
    I32,
    I64,
    F64,
    IQ1_M,
    BF16,
    TQ1_0,
    TQ2_0,
    MXFP4,
    NVFP4,
    Q1_0,
    Q2_0,
}

/// What is known about one type.
struct Row {
    dtype: DType,
    gguf_id: u32,
    name: &'static str,
    block_elements: u64,
    block_bytes: u64,
}

const fn row(dtype: DType, gguf_id: u32, name: &'static str, block_elements: u64, block_bytes: u64) -> Row {
    Row { dtype, gguf_id, name, block_elements, block_bytes }
}

/// One row per type, in the order of the enum: type, number in GGUF files, name, elements and bytes per block.
static TABLE: [Row; 35] = [
    row(DType::F32, 0, "f32", 1, 4),
    row(DType::F16, 1, "f16", 1, 2),
    row(DType::Q4_0, 2, "q4_0", 32, 18),
    row(DType::Q4_1, 3, "q4_1", 32, 20),
    row(DType::Q5_0, 6, "q5_0", 32, 22),
    row(DType::Q5_1, 7, "q5_1", 32, 24),
    row(DType::Q8_0, 8, "q8_0", 32, 34),
    row(DType::Q8_1, 9, "q8_1", 32, 36),
    row(DType::Q2_K, 10, "q2_K", 256, 84),
    row(DType::Q3_K, 11, "q3_K", 256, 110),
    row(DType::Q4_K, 12, "q4_K", 256, 144),
    row(DType::Q5_K, 13, "q5_K", 256, 176),
    row(DType::Q6_K, 14, "q6_K", 256, 210),
    row(DType::Q8_K, 15, "q8_K", 256, 292),
    row(DType::IQ2_XXS, 16, "iq2_xxs", 256, 66),
    row(DType::IQ2_XS, 17, "iq2_xs", 256, 74),
    row(DType::IQ3_XXS, 18, "iq3_xxs", 256, 98),
    row(DType::IQ1_S, 19, "iq1_s", 256, 50),
    row(DType::IQ4_NL, 20, "iq4_nl", 32, 18),
    row(DType::IQ3_S, 21, "iq3_s", 256, 110),
    row(DType::IQ2_S, 22, "iq2_s", 256, 82),
    row(DType::IQ4_XS, 23, "iq4_xs", 256, 136),
    row(DType::I8, 24, "i8", 1, 1),
    row(DType::I16, 25, "i16", 1, 2),
    row(DType::I32, 26, "i32", 1, 4),
    row(DType::I64, 27, "i64", 1, 8),
    row(DType::F64, 28, "f64", 1, 8),
    row(DType::IQ1_M, 29, "iq1_m", 256, 56),
    row(DType::BF16, 30, "bf16", 1, 2),
    row(DType::TQ1_0, 34, "tq1_0", 256, 54),
    row(DType::TQ2_0, 35, "tq2_0", 256, 66),
    row(DType::MXFP4, 39, "mxfp4", 32, 17),
    row(DType::NVFP4, 40, "nvfp4", 64, 36),
    row(DType::Q1_0, 41, "q1_0", 128, 18),
    row(DType::Q2_0, 42, "q2_0", 64, 18),
];

impl DType {
    /// Every type, in the order of their GGUF numbers.
    pub fn all() -> impl Iterator<Item = DType> {
        TABLE.iter().map(|row| row.dtype)
    }

    const fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    /// The number that GGUF files use.
    pub const fn gguf_id(self) -> u32 {
        self.row().gguf_id
    }

    /// The type with this number in GGUF files.
    pub fn from_gguf_id(id: u32) -> Option<DType> {
        TABLE.iter().find(|row| row.gguf_id == id).map(|row| row.dtype)
    }

    /// The usual lower-case name, such as `f32` or `q4_K`.
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// The type with this name, in any case.
    pub fn from_name(name: &str) -> Option<DType> {
        TABLE.iter().find(|row| row.name.eq_ignore_ascii_case(name)).map(|row| row.dtype)
    }

    /// Elements in one block: 1 for plain types.
    pub const fn block_elements(self) -> u64 {
        self.row().block_elements
    }

    /// Bytes of one block: the element size for plain types.
    pub const fn block_bytes(self) -> u64 {
        self.row().block_bytes
    }

    /// Bytes of a row of `elements` elements, or `None` if they are not a whole number of blocks or the
    /// product does not fit 64 bits.
    pub fn row_bytes(self, elements: u64) -> Option<u64> {
        let block = self.block_elements();
        if !elements.is_multiple_of(block) {
            return None;
        }
        (elements / block).checked_mul(self.block_bytes())
    }

    /// Whether elements are stored in blocks of more than one.
    pub fn is_quantized(self) -> bool {
        self.block_elements() > 1
    }

    /// Whether this is a plain floating-point type.
    pub fn is_float(self) -> bool {
        matches!(self, DType::F16 | DType::BF16 | DType::F32 | DType::F64)
    }

    /// Whether this is a plain integer type.
    pub fn is_integer(self) -> bool {
        matches!(self, DType::I8 | DType::I16 | DType::I32 | DType::I64)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl From<DType> for &'static str {
    fn from(dtype: DType) -> &'static str {
        dtype.name()
    }
}

impl TryFrom<String> for DType {
    type Error = UnknownDType;

    fn try_from(name: String) -> Result<DType, UnknownDType> {
        DType::from_name(&name).ok_or(UnknownDType(name))
    }
}

/// A name that does not name an element type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown element type `{0}`")]
pub struct UnknownDType(pub String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_enum() {
        for (index, row) in TABLE.iter().enumerate() {
            assert_eq!(row.dtype as usize, index);
            assert_eq!(DType::from_gguf_id(row.gguf_id), Some(row.dtype));
            assert_eq!(DType::from_name(&row.name.to_uppercase()), Some(row.dtype));
        }
    }

    #[test]
    fn rows_are_whole_blocks() {
        assert_eq!(DType::Q4_0.row_bytes(64), Some(36));
        assert_eq!(DType::Q4_0.row_bytes(33), None);
        assert_eq!(DType::F32.row_bytes(u64::MAX / 2), None);
        assert_eq!(DType::F32.row_bytes(0), Some(0));
    }
}
