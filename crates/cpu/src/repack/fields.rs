//! How blocks are cut into fields, and where these lie in tiles.

use orlop_graph::DType;
use orlop_quant::{iq4_xs, q2_k, q3_k, q4_k, q5_0, q5_1, q5_k, q6_k, q8_0};

use super::ROWS;
use super::open::{IQ4_XS_SCALES, K_SCALES, K_SCALES_AND_BITS, Opened, Q3_K_SCALES_AND_BITS};

/// A part of a block whose units are put side by side with those of other rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub(crate) source: Source,
    /// Offset and bytes in the block.
    pub(crate) at: usize,
    pub(crate) bytes: usize,
    pub(crate) unit: Unit,
    /// Where the first unit of all rows begins in the tile, and how far from one unit to the next.
    pub(crate) to: usize,
    pub(crate) step: usize,
    /// Units of a part of the tile, as a power of two, and how far from one part to the next.
    pub(crate) units: u32,
    pub(crate) part: usize,
}

impl Field {
    /// Where a unit of all rows begins in the tile.
    #[inline(always)]
    pub(crate) fn place(&self, unit: usize) -> usize {
        let within = unit & ((1 << self.units) - 1);
        self.to + (unit >> self.units) * self.part + within * self.step
    }

    /// The same field, with so many units in each part of the tile.
    const fn parted(self, units: usize, part: usize) -> Field {
        assert!(units.is_power_of_two());
        Field { units: units.trailing_zeros(), part, ..self }
    }

    /// The same field, as every third vector.
    const fn third(self) -> Field {
        Field { step: 3 * self.step, ..self }
    }
}

/// Where a field is read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The block as it is stored.
    Block,
    /// What [`Opened`] makes of it.
    Opened,
}

/// What stays together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    One,
    Two,
    Four,
    /// Four bits, lower ones first.
    Nibble,
}

/// The way between stored blocks and tiles.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    pub(crate) fields: &'static [Field],
    /// For blocks whose scales or single bits are packed in an order of their own.
    pub(crate) opened: Option<Opened>,
    /// Bytes of a tile.
    pub(crate) tile: usize,
}

const fn field(at: usize, bytes: usize, unit: Unit, to: usize) -> Field {
    let step = match unit {
        Unit::Nibble => ROWS / 2,
        Unit::One => ROWS,
        Unit::Two => 2 * ROWS,
        Unit::Four => 4 * ROWS,
    };
    Field { source: Source::Block, at, bytes, unit, to, step, units: usize::BITS - 1, part: 0 }
}

const fn opened(at: usize, bytes: usize, unit: Unit, to: usize) -> Field {
    Field { source: Source::Opened, ..field(at, bytes, unit, to) }
}

/// How a type's blocks are cut; `None` for types that are not repacked. Fields lie in the order in which kernels read
/// them.
pub(super) fn cut(dtype: DType) -> Option<Cut> {
    use Unit::{Four, Nibble, One, Two};
    let plain = |tile, fields| Some(Cut { fields, opened: None, tile });
    let opens = |tile, how, fields| Some(Cut { fields, opened: Some(how), tile });
    match dtype {
        DType::Q4_0 | DType::IQ4_NL => plain(288, const { &[field(2, 16, Four, 0), field(0, 2, Two, 256)] }),
        DType::Q4_1 => {
            plain(320, const { &[field(4, 16, Four, 0), field(0, 2, Two, 256), field(2, 2, Two, 288)] })
        }
        DType::MXFP4 => plain(272, const { &[field(1, 16, Four, 0), field(0, 1, One, 256)] }),
        DType::Q8_0 => {
            plain(544, const { &[field(q8_0::QUANTS_AT, 32, Four, 0), field(q8_0::SCALE_AT, 2, Two, 512)] })
        }
        DType::Q5_0 => plain(
            352,
            const {
                &[
                    field(q5_0::QUANTS_AT, 16, Four, 0),
                    field(q5_0::HIGH_BITS_AT, 4, Nibble, 256),
                    field(q5_0::SCALE_AT, 2, Two, 320),
                ]
            },
        ),
        DType::Q5_1 => plain(
            384,
            const {
                &[
                    field(q5_1::QUANTS_AT, 16, Four, 0),
                    field(q5_1::HIGH_BITS_AT, 4, Nibble, 256),
                    field(q5_1::SCALE_AT, 2, Two, 320),
                    field(q5_1::MIN_AT, 2, Two, 352),
                ]
            },
        ),
        // Twice the low bits, then the high bits that go with both.
        DType::Q6_K => plain(
            3360,
            const {
                &[
                    field(q6_k::SCALE_AT, 2, Two, 0),
                    field(q6_k::SCALES_AT, 16, One, 32).parted(8, 1664),
                    field(q6_k::LOW_BITS_AT, 32, Four, 160).third(),
                    field(q6_k::LOW_BITS_AT + 32, 32, Four, 224).third(),
                    field(q6_k::HIGH_BITS_AT, 64, Four, 288).third().parted(8, 1664),
                    field(q6_k::LOW_BITS_AT + 64, 32, Four, 1824).third(),
                    field(q6_k::LOW_BITS_AT + 96, 32, Four, 1888).third(),
                ]
            },
        ),
        DType::Q2_K => plain(
            1344,
            const {
                &[
                    field(q2_k::SCALE_AT, 2, Two, 0),
                    field(q2_k::MIN_AT, 2, Two, 32),
                    field(q2_k::SCALES_AT, 16, One, 64).parted(8, 640),
                    field(q2_k::QUANTS_AT, 64, Four, 192).parted(8, 640),
                ]
            },
        ),
        DType::Q4_K => opens(
            2368,
            K_SCALES,
            const {
                &[
                    field(q4_k::SCALE_AT, 2, Two, 0),
                    field(q4_k::MIN_AT, 2, Two, 32),
                    opened(0, 8, One, 64).parted(2, 576),
                    opened(8, 8, One, 96).parted(2, 576),
                    field(q4_k::QUANTS_AT, 128, Four, 128).parted(8, 576),
                ]
            },
        ),
        DType::Q5_K => opens(
            2880,
            K_SCALES_AND_BITS,
            const {
                &[
                    field(q5_k::SCALE_AT, 2, Two, 0),
                    field(q5_k::MIN_AT, 2, Two, 32),
                    opened(0, 8, One, 64).parted(2, 704),
                    opened(8, 8, One, 96).parted(2, 704),
                    opened(16, 16, Nibble, 128).parted(16, 704),
                    opened(32, 16, Nibble, 1536).parted(16, 704),
                    field(q5_k::QUANTS_AT, 128, Four, 256).parted(8, 704),
                ]
            },
        ),
        DType::Q3_K => opens(
            1824,
            Q3_K_SCALES_AND_BITS,
            const {
                &[
                    field(q3_k::SCALE_AT, 2, Two, 0),
                    opened(0, 16, One, 32).parted(8, 896),
                    opened(16, 16, Nibble, 160),
                    opened(32, 16, Nibble, 1056),
                    field(q3_k::QUANTS_AT, 64, Four, 416).parted(8, 896),
                ]
            },
        ),
        DType::IQ4_XS => opens(
            2208,
            IQ4_XS_SCALES,
            const {
                &[
                    field(iq4_xs::SCALE_AT, 2, Two, 0),
                    opened(0, 8, One, 32).parted(1, 272),
                    field(iq4_xs::QUANTS_AT, 128, Four, 48).parted(4, 272),
                ]
            },
        ),
        _ => None,
    }
}
