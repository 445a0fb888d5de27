//! The byte layout of every block type: which field is where, and what its numbers stand for.
//!
//! These constants are the only description of the layouts. The codecs of this crate, the CPU device's tiles, the
//! CUDA device's planes and kernel headers and the wgpu device's shader text take their offsets from here.
//!
//! The types are those of ggml and its [GGUF format](https://github.com/ggml-org/ggml/blob/master/docs/gguf.md);
//! MXFP4 follows the [OCP Microscaling specification](https://www.opencompute.org/documents/ocp-microscaling-formats-mx-v1-0-spec-final-pdf).

use std::ops::Range;

use orlop_graph::DType;

use crate::{grid, iq4, mxfp4};

/// How the bytes of one block are arranged.
///
/// An element is `scale * weight`, plus the minimum if the type has one. `weight` is the integer that the element's
/// code stands for. Types with [group scales](BlockLayout::group_scales) multiply the scale (and the minimum, which
/// they subtract) with an integer for each group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockLayout {
    /// The type.
    pub dtype: DType,
    /// Elements of a block.
    pub elements: usize,
    /// Bytes of a block.
    pub bytes: usize,
    /// Elements of a group: neighbours that share one scale.
    pub group: usize,
    /// What the codes of elements stand for.
    pub codes: Integers,
    /// The stored scale is `2^scale_shift` times the scale.
    pub scale_shift: u32,
    /// What the stored group scales stand for; `None` if the block's scale is the scale of all elements.
    pub group_scales: Option<Integers>,
    /// All fields, in the order of their offsets, without gaps.
    pub fields: &'static [BlockField],
}

/// The integers that stored bits stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Integers {
    /// Unsigned bits minus a bias.
    Biased(u8),
    /// Two's complement.
    Signed,
    /// Indices into a table.
    Table(&'static [i8; 16]),
    /// Odd numbers: `2 * stored + 1`.
    Odd,
}

/// A field of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockField {
    /// What it holds.
    pub role: FieldRole,
    /// Offset of its first byte in the block.
    pub offset: usize,
    /// Its bytes.
    pub bytes: usize,
    /// Bits of each number in it.
    pub bits: u32,
    /// How the numbers are packed.
    pub packing: Packing,
}

/// What a field holds. A block has at most one field of each role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FieldRole {
    /// The block's scale: F16, F32 if it has 32 bits, an exponent of two if it has 8. NVFP4 has a scale of 8 bits for each
    /// group.
    Scale,
    /// The block's minimum, F16.
    Min,
    /// An integer for each group, or its lower bits: the group's scale, and its minimum in types with [`FieldRole::Min`].
    GroupScales,
    /// The upper bits of the same.
    GroupScalesHigh,
    /// The code of each element, or its lower bits; indices into a codebook in types that have one.
    Codes,
    /// The upper bits of the same.
    HighBits,
    /// Sums of elements, for products with types that have a minimum. Decoding does not read them.
    Sums,
    /// The signs of elements, beside indices into a codebook.
    Signs,
}

/// How the numbers of a field are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// Whole little-endian numbers, one after the other.
    Whole,
    /// Bit planes over chunks of `run` bytes, see [`bits`](crate::bits).
    Planes {
        /// Bytes of a chunk.
        run: usize,
    },
    /// An order of the type's own; its codec has a function that unpacks it.
    Special,
}

impl FieldRole {
    /// All roles.
    pub const ALL: [FieldRole; 8] = [
        FieldRole::Scale,
        FieldRole::Min,
        FieldRole::GroupScales,
        FieldRole::GroupScalesHigh,
        FieldRole::Codes,
        FieldRole::HighBits,
        FieldRole::Sums,
        FieldRole::Signs,
    ];

    /// The role in lower case, for generated text.
    pub const fn name(self) -> &'static str {
        match self {
            FieldRole::Scale => "scale",
            FieldRole::Min => "min",
            FieldRole::GroupScales => "group_scales",
            FieldRole::GroupScalesHigh => "group_scales_high",
            FieldRole::Codes => "codes",
            FieldRole::HighBits => "high_bits",
            FieldRole::Sums => "sums",
            FieldRole::Signs => "signs",
        }
    }

    const fn at(self, range: Range<usize>) -> BlockField {
        let (offset, bytes) = (range.start, range.end - range.start);
        BlockField { role: self, offset, bytes, bits: 0, packing: Packing::Whole }
    }
}

impl BlockField {
    const fn whole(self, bits: u32) -> BlockField {
        BlockField { bits, packing: Packing::Whole, ..self }
    }

    const fn planes(self, bits: u32, run: usize) -> BlockField {
        BlockField { bits, packing: Packing::Planes { run }, ..self }
    }

    const fn special(self, bits: u32) -> BlockField {
        BlockField { bits, packing: Packing::Special, ..self }
    }

    const fn is_special(&self) -> bool {
        matches!(self.packing, Packing::Special)
    }

    /// Where its bytes are in the block.
    pub const fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.bytes
    }

    /// Bytes of a chunk of its bit planes.
    ///
    /// # Panics
    /// If the field is packed in another way. In constants, which is where layouts are used, that is a compile error.
    pub const fn run(&self) -> usize {
        match self.packing {
            Packing::Planes { run } => run,
            _ => panic!("the field has no bit planes"),
        }
    }
}

impl Integers {
    /// The smallest and the largest integer that `bits` bits stand for.
    pub const fn range(self, bits: u32) -> (i32, i32) {
        match self {
            Integers::Biased(bias) => (-(bias as i32), (1 << bits) - 1 - bias as i32),
            Integers::Odd => (1, (2 << bits) - 1),
            Integers::Signed => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
            Integers::Table(table) => {
                let (mut low, mut high, mut code) = (table[0] as i32, table[0] as i32, 1);
                while code < table.len() {
                    let value = table[code] as i32;
                    low = if value < low { value } else { low };
                    high = if value > high { value } else { high };
                    code += 1;
                }
                (low, high)
            }
        }
    }

    /// Bias of the stored integers: 0 unless they are [`Integers::Biased`].
    pub const fn bias(self) -> i32 {
        match self {
            Integers::Biased(bias) => bias as i32,
            _ => 0,
        }
    }
}

impl BlockLayout {
    const fn of(dtype: DType) -> BlockLayout {
        let elements = dtype.block_elements() as usize;
        BlockLayout {
            dtype,
            elements,
            bytes: dtype.block_bytes() as usize,
            group: elements,
            codes: Integers::Biased(0),
            scale_shift: 0,
            group_scales: None,
            fields: &[],
        }
    }

    /// The same layout, whose fields were found to follow one another without gaps, each role at most once, and to have
    /// room for the code of every element. Codes in an order of their own may be indices, with group scales among them.
    const fn checked(self) -> BlockLayout {
        let (mut end, mut index, mut seen, mut code_bits) = (0, 0, 0u32, 0);
        while index < self.fields.len() {
            let field = &self.fields[index];
            assert!(field.offset == end, "fields follow one another");
            assert!(seen & (1 << field.role as u32) == 0, "a role has one field");
            seen |= 1 << field.role as u32;
            if matches!(field.role, FieldRole::Codes | FieldRole::HighBits) && !field.is_special() {
                assert!(field.bytes * 8 == self.elements * field.bits as usize, "every element has a code");
                code_bits += field.bits;
            }
            end += field.bytes;
            index += 1;
        }
        assert!(end == self.bytes, "fields fill the block");
        assert!(self.elements.is_multiple_of(self.group), "groups fill the block");
        assert!(code_bits <= 8, "a code fits a byte");
        assert!(
            self.group_scales.is_some() == self.has(FieldRole::GroupScales)
                || self.field(FieldRole::Codes).is_special(),
            "group scales are stored"
        );
        self
    }

    /// Whether a block has a field of this role.
    pub const fn has(&self, role: FieldRole) -> bool {
        self.find(role).is_some()
    }

    /// The field of a role.
    pub const fn find(&self, role: FieldRole) -> Option<BlockField> {
        let mut index = 0;
        while index < self.fields.len() {
            if self.fields[index].role as u32 == role as u32 {
                return Some(self.fields[index]);
            }
            index += 1;
        }
        None
    }

    /// The field of a role that the type has.
    ///
    /// # Panics
    /// If it has none. In constants, which is where layouts are used, that is a compile error.
    pub const fn field(&self, role: FieldRole) -> BlockField {
        self.find(role).expect("a field of the type")
    }

    /// The offset of the field of a role that the type has.
    ///
    /// # Panics
    /// As [`BlockLayout::field`].
    pub const fn offset(&self, role: FieldRole) -> usize {
        self.field(role).offset
    }

    /// Bits of an element's code.
    pub const fn code_bits(&self) -> u32 {
        let high = match self.find(FieldRole::HighBits) {
            Some(field) => field.bits,
            None => 0,
        };
        self.field(FieldRole::Codes).bits + high
    }

    /// The smallest and the largest weight, before scales.
    pub const fn weights(&self) -> (i32, i32) {
        self.codes.range(self.code_bits())
    }
}

use FieldRole::{Codes, GroupScales, GroupScalesHigh, HighBits, Min, Scale, Signs, Sums};
use Integers::{Biased, Odd, Signed, Table};

/// `scale * (code - 8)`.
pub const Q4_0: BlockLayout = BlockLayout {
    codes: Biased(8),
    fields: &[Scale.at(0..2).whole(16), Codes.at(2..18).planes(4, 16)],
    ..BlockLayout::of(DType::Q4_0)
}
.checked();

/// `scale * code + min`.
pub const Q4_1: BlockLayout = BlockLayout {
    fields: &[Scale.at(0..2).whole(16), Min.at(2..4).whole(16), Codes.at(4..20).planes(4, 16)],
    ..BlockLayout::of(DType::Q4_1)
}
.checked();

/// `scale * (code - 16)`.
pub const Q5_0: BlockLayout = BlockLayout {
    codes: Biased(16),
    fields: &[Scale.at(0..2).whole(16), HighBits.at(2..6).planes(1, 1), Codes.at(6..22).planes(4, 16)],
    ..BlockLayout::of(DType::Q5_0)
}
.checked();

/// `scale * code + min`.
pub const Q5_1: BlockLayout = BlockLayout {
    fields: &[
        Scale.at(0..2).whole(16),
        Min.at(2..4).whole(16),
        HighBits.at(4..8).planes(1, 1),
        Codes.at(8..24).planes(4, 16),
    ],
    ..BlockLayout::of(DType::Q5_1)
}
.checked();

/// `scale * code`.
pub const Q8_0: BlockLayout = BlockLayout {
    codes: Signed,
    fields: &[Scale.at(0..2).whole(16), Codes.at(2..34).whole(8)],
    ..BlockLayout::of(DType::Q8_0)
}
.checked();

/// `scale * code`; the sum is that of the elements.
pub const Q8_1: BlockLayout = BlockLayout {
    codes: Signed,
    fields: &[Scale.at(0..2).whole(16), Sums.at(2..4).whole(16), Codes.at(4..36).whole(8)],
    ..BlockLayout::of(DType::Q8_1)
}
.checked();

/// `scale * group_scale * code - min * group_min`; each byte of the group scales holds a scale (low nibble) and a minimum.
pub const Q2_K: BlockLayout = BlockLayout {
    group: 16,
    group_scales: Some(Biased(0)),
    fields: &[
        GroupScales.at(0..16).special(4),
        Codes.at(16..80).planes(2, 32),
        Scale.at(80..82).whole(16),
        Min.at(82..84).whole(16),
    ],
    ..BlockLayout::of(DType::Q2_K)
}
.checked();

/// `scale * group_scale * (code - 4)`.
pub const Q3_K: BlockLayout = BlockLayout {
    group: 16,
    codes: Biased(4),
    group_scales: Some(Biased(32)),
    fields: &[
        HighBits.at(0..32).planes(1, 32),
        Codes.at(32..96).planes(2, 32),
        GroupScales.at(96..108).special(6),
        Scale.at(108..110).whole(16),
    ],
    ..BlockLayout::of(DType::Q3_K)
}
.checked();

/// `scale * group_scale * code - min * group_min`.
pub const Q4_K: BlockLayout = BlockLayout {
    group: 32,
    group_scales: Some(Biased(0)),
    fields: &[
        Scale.at(0..2).whole(16),
        Min.at(2..4).whole(16),
        GroupScales.at(4..16).special(6),
        Codes.at(16..144).planes(4, 32),
    ],
    ..BlockLayout::of(DType::Q4_K)
}
.checked();

/// `scale * group_scale * code - min * group_min`.
pub const Q5_K: BlockLayout = BlockLayout {
    group: 32,
    group_scales: Some(Biased(0)),
    fields: &[
        Scale.at(0..2).whole(16),
        Min.at(2..4).whole(16),
        GroupScales.at(4..16).special(6),
        HighBits.at(16..48).planes(1, 32),
        Codes.at(48..176).planes(4, 32),
    ],
    ..BlockLayout::of(DType::Q5_K)
}
.checked();

/// `scale * group_scale * (code - 32)`.
pub const Q6_K: BlockLayout = BlockLayout {
    group: 16,
    codes: Biased(32),
    group_scales: Some(Signed),
    fields: &[
        Codes.at(0..128).planes(4, 64),
        HighBits.at(128..192).planes(2, 32),
        GroupScales.at(192..208).whole(8),
        Scale.at(208..210).whole(16),
    ],
    ..BlockLayout::of(DType::Q6_K)
}
.checked();

/// `scale * code`; the sums are those of every 16 codes.
pub const Q8_K: BlockLayout = BlockLayout {
    codes: Signed,
    fields: &[Scale.at(0..4).whole(32), Codes.at(4..260).whole(8), Sums.at(260..292).whole(16)],
    ..BlockLayout::of(DType::Q8_K)
}
.checked();

/// `scale * table[code]`.
pub const IQ4_NL: BlockLayout = BlockLayout {
    codes: Table(&iq4::VALUES),
    fields: &[Scale.at(0..2).whole(16), Codes.at(2..18).planes(4, 16)],
    ..BlockLayout::of(DType::IQ4_NL)
}
.checked();

/// `scale * group_scale * table[code]`. The group scales have two upper bits in a 16-bit word, group 0 lowest, and four
/// lower bits, even groups in the low nibbles.
pub const IQ4_XS: BlockLayout = BlockLayout {
    group: 32,
    codes: Table(&iq4::VALUES),
    group_scales: Some(Biased(32)),
    fields: &[
        Scale.at(0..2).whole(16),
        GroupScalesHigh.at(2..4).special(2),
        GroupScales.at(4..8).special(4),
        Codes.at(8..136).planes(4, 16),
    ],
    ..BlockLayout::of(DType::IQ4_XS)
}
.checked();

/// `half_scale * table[code]`; the scale is an exponent, see [`mxfp4::half_scale`].
pub const MXFP4: BlockLayout = BlockLayout {
    codes: Table(&mxfp4::VALUES),
    fields: &[Scale.at(0..1).whole(8), Codes.at(1..17).planes(4, 16)],
    ..BlockLayout::of(DType::MXFP4)
}
.checked();

/// `scale * (code - 1)`. All groups share the block's scale.
pub const TQ2_0: BlockLayout = BlockLayout {
    group: 32,
    codes: Biased(1),
    fields: &[Codes.at(0..64).planes(2, 32), Scale.at(64..66).whole(16)],
    ..BlockLayout::of(DType::TQ2_0)
}
.checked();

/// `scale * (code - 1)`, five codes to a byte in base 3, four to each of the last four bytes; see [`tq1_0`](crate::tq1_0).
pub const TQ1_0: BlockLayout = BlockLayout {
    group: 32,
    codes: Table(&[-1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
    fields: &[Codes.at(0..52).special(2), Scale.at(52..54).whole(16)],
    ..BlockLayout::of(DType::TQ1_0)
}
.checked();

/// `half_scale * table[code]`; each group has an unsigned 8-bit float as its scale, see [`nvfp4::half_scale`](crate::nvfp4::half_scale).
pub const NVFP4: BlockLayout = BlockLayout {
    group: 16,
    codes: Table(&mxfp4::VALUES),
    fields: &[Scale.at(0..4).whole(8), Codes.at(4..36).planes(4, 8)],
    ..BlockLayout::of(DType::NVFP4)
}
.checked();

/// `scale` or `-scale`. All groups share the block's scale.
pub const Q1_0: BlockLayout = BlockLayout {
    group: 32,
    codes: Table(&[-1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
    fields: &[Scale.at(0..2).whole(16), Codes.at(2..18).planes(1, 1)],
    ..BlockLayout::of(DType::Q1_0)
}
.checked();

/// `scale * (code - 1)`. Both groups share the block's scale.
pub const Q2_0: BlockLayout = BlockLayout {
    group: 32,
    codes: Biased(1),
    fields: &[Scale.at(0..2).whole(16), Codes.at(2..18).planes(2, 1)],
    ..BlockLayout::of(DType::Q2_0)
}
.checked();

/// `scale / 8 * group_scale * table[code]`, see [`grid`]. Indices, signs and group scales are in one field.
pub const IQ2_XXS: BlockLayout = BlockLayout {
    group: 32,
    codes: Table(&grid::IQ2_VALUES),
    scale_shift: 3,
    group_scales: Some(Odd),
    fields: &[Scale.at(0..2).whole(16), Codes.at(2..66).special(3)],
    ..BlockLayout::of(DType::IQ2_XXS)
}
.checked();

/// `scale / 8 * group_scale * table[code]`, see [`grid`]. Indices and signs are in one field.
pub const IQ2_XS: BlockLayout = BlockLayout {
    group: 16,
    codes: Table(&grid::IQ2_VALUES),
    scale_shift: 3,
    group_scales: Some(Odd),
    fields: &[Scale.at(0..2).whole(16), Codes.at(2..66).special(3), GroupScales.at(66..74).planes(4, 1)],
    ..BlockLayout::of(DType::IQ2_XS)
}
.checked();

/// `scale / 8 * group_scale * table[code]`, see [`grid`].
pub const IQ2_S: BlockLayout = BlockLayout {
    group: 16,
    codes: Table(&grid::IQ2_VALUES),
    scale_shift: 3,
    group_scales: Some(Odd),
    fields: &[
        Scale.at(0..2).whole(16),
        Codes.at(2..34).special(2),
        Signs.at(34..66).planes(1, 1),
        HighBits.at(66..74).special(2),
        GroupScales.at(74..82).planes(4, 1),
    ],
    ..BlockLayout::of(DType::IQ2_S)
}
.checked();

/// `scale / 4 * group_scale * table[code]`, see [`grid`]. The signs have the group scales among them.
pub const IQ3_XXS: BlockLayout = BlockLayout {
    group: 32,
    codes: Table(&grid::IQ3_XXS_VALUES),
    scale_shift: 2,
    group_scales: Some(Odd),
    fields: &[Scale.at(0..2).whole(16), Codes.at(2..66).special(3), Signs.at(66..98).special(1)],
    ..BlockLayout::of(DType::IQ3_XXS)
}
.checked();

/// `scale * group_scale * table[code]`, see [`grid`].
pub const IQ3_S: BlockLayout = BlockLayout {
    group: 32,
    codes: Table(&grid::IQ3_S_VALUES),
    group_scales: Some(Odd),
    fields: &[
        Scale.at(0..2).whole(16),
        Codes.at(2..66).special(3),
        HighBits.at(66..74).special(1),
        Signs.at(74..106).planes(1, 1),
        GroupScales.at(106..110).planes(4, 1),
    ],
    ..BlockLayout::of(DType::IQ3_S)
}
.checked();

/// `scale / 8 * group_scale * table[code]`, see [`grid`]. The high bits have group scales and shifts among them.
pub const IQ1_S: BlockLayout = BlockLayout {
    group: 32,
    codes: Table(&grid::IQ1_VALUES),
    scale_shift: 3,
    group_scales: Some(Odd),
    fields: &[Scale.at(0..2).whole(16), Codes.at(2..34).special(2), HighBits.at(34..50).special(1)],
    ..BlockLayout::of(DType::IQ1_S)
}
.checked();

/// `scale / 8 * group_scale * table[code]`, see [`grid`]. The high bits have shifts among them, the group scales
/// the block's scale.
pub const IQ1_M: BlockLayout = BlockLayout {
    group: 16,
    codes: Table(&grid::IQ1_VALUES),
    scale_shift: 3,
    group_scales: Some(Odd),
    fields: &[Codes.at(0..32).special(2), HighBits.at(32..48).special(1), GroupScales.at(48..56).special(3)],
    ..BlockLayout::of(DType::IQ1_M)
}
.checked();

/// The layouts of all block types that have a codec.
pub const BLOCK_LAYOUTS: [BlockLayout; 27] = [
    Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q8_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, Q8_K, IQ4_NL, IQ4_XS, MXFP4, TQ2_0,
    TQ1_0, NVFP4, Q1_0, Q2_0, IQ1_S, IQ1_M, IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S,
];

/// The layout of a block type; `None` for plain types and types without a codec.
pub fn block_layout(dtype: DType) -> Option<&'static BlockLayout> {
    BLOCK_LAYOUTS.iter().find(|layout| layout.dtype == dtype)
}

/// All block types that have a codec.
pub fn block_types() -> impl Iterator<Item = DType> {
    BLOCK_LAYOUTS.iter().map(|layout| layout.dtype)
}

/// The block types that weights are stored in: those without sums, which are for activations.
pub fn weight_types() -> impl Iterator<Item = DType> {
    BLOCK_LAYOUTS.iter().filter(|layout| !layout.has(Sums)).map(|layout| layout.dtype)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_type_with_a_codec_has_a_layout() {
        for dtype in DType::all().filter(|dtype| dtype.is_quantized()) {
            assert_eq!(crate::supports_decode(dtype), block_layout(dtype).is_some(), "{dtype}");
        }
    }

    #[test]
    fn weights_are_between_those_of_the_smallest_and_the_largest_code() {
        assert_eq!(Q4_0.weights(), (-8, 7));
        assert_eq!(Q5_1.weights(), (0, 31));
        assert_eq!(Q3_K.weights(), (-4, 3));
        assert_eq!(Q6_K.weights(), (-32, 31));
        assert_eq!(Q8_0.weights(), (-128, 127));
        assert_eq!(IQ4_XS.weights(), (-127, 113));
        assert_eq!(MXFP4.weights(), (-12, 12));
    }

    /// A change of one byte of a field changes what decodes to it, and of no other group.
    #[test]
    fn codes_and_group_scales_change_only_their_own_elements() {
        for layout in BLOCK_LAYOUTS.iter().filter(|layout| !layout.field(Codes).is_special()) {
            let bytes: Vec<u8> = (0..layout.bytes).map(|at| (at * 37 % 60) as u8).collect();
            let decode = |bytes: &[u8]| {
                let mut out = vec![0.0; layout.elements];
                crate::decode(layout.dtype, bytes, &mut out).unwrap();
                out
            };
            let before = decode(&bytes);
            let codes = layout.field(Codes);
            for at in codes.range() {
                let mut changed = bytes.clone();
                changed[at] ^= 0xff;
                let after = decode(&changed);
                let differing = before.iter().zip(&after).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
                assert!(differing <= 8 / codes.bits as usize, "{} byte {at}: {differing}", layout.dtype);
            }
        }
    }
}
