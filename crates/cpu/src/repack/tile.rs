//! Where the fields of blocks lie in tiles: the types of the specifications in `simd::tile_codecs`.

use std::ops::Range;

use orlop_quant::{BlockLayout, FieldRole};

use super::ROWS;
use super::unpacked::Unpacked;

/// The layout of a tile: one block of each of [`ROWS`] rows, field by field.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TileSpec {
    /// The layout of the blocks.
    pub(crate) block: BlockLayout,
    /// Bytes of a tile.
    pub(crate) bytes: usize,
    /// Elements of each row in it.
    pub(crate) elements: usize,
    /// Parts that kernels read one after the other.
    pub(crate) parts: usize,
    /// Slots of a part: groups whose codes it holds.
    pub(crate) slots: usize,
    /// For blocks whose scales or high bits are packed in an order of their own.
    pub(crate) unpacked: Option<Unpacked>,
    /// All fields.
    pub(crate) fields: &'static [TileField],
}

/// A field of a block whose units are put side by side with those of other rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TileField {
    pub(crate) source: Source,
    /// Offset and bytes in the source.
    pub(crate) at: usize,
    pub(crate) bytes: usize,
    pub(crate) unit: Unit,
    /// Offset in the tile of the first unit of all rows.
    pub(crate) to: usize,
    /// Bytes in the tile from one unit to the next.
    step: usize,
    /// Units of a run, as a power of two, and bytes from one run to the next.
    run_units: u32,
    run: usize,
    /// Units of a chunk, as a power of two, and bytes from one chunk to the next.
    chunk_units: u32,
    chunk: usize,
}

/// Where a field is read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The block as it is stored.
    Block,
    /// What [`Unpacked`] makes of it.
    Unpacked,
}

/// What stays together: each row's unit lies beside the next row's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    One,
    Two,
    Four,
    /// Four bits, lower ones first.
    Nibble,
}

impl Unit {
    /// Bytes of a unit of all rows.
    const fn bytes_of_rows(self) -> usize {
        match self {
            Unit::Nibble => ROWS / 2,
            Unit::One => ROWS,
            Unit::Two => 2 * ROWS,
            Unit::Four => 4 * ROWS,
        }
    }
}

impl TileField {
    /// A field of a block, in the tile from offset `to` on, unit by unit.
    pub(crate) const fn of(block: &BlockLayout, role: FieldRole, unit: Unit, to: usize) -> TileField {
        let field = block.field(role);
        TileField::new(Source::Block, field.range(), unit, to)
    }

    /// Bytes of the unpacked form, in the tile from offset `to` on, unit by unit.
    pub(crate) const fn unpacked(range: Range<usize>, unit: Unit, to: usize) -> TileField {
        TileField::new(Source::Unpacked, range, unit, to)
    }

    const fn new(source: Source, range: Range<usize>, unit: Unit, to: usize) -> TileField {
        TileField {
            source,
            at: range.start,
            bytes: range.end - range.start,
            unit,
            to,
            step: unit.bytes_of_rows(),
            run_units: usize::BITS - 1,
            run: 0,
            chunk_units: usize::BITS - 1,
            chunk: 0,
        }
    }

    /// The same field, with a number of units in each chunk of the tile.
    pub(crate) const fn chunked(self, units: usize, chunk: usize) -> TileField {
        assert!(units.is_power_of_two());
        TileField { chunk_units: units.trailing_zeros(), chunk, ..self }
    }

    /// The same field, whose units are `step` bytes apart; after each run of units, the next begins `run` bytes behind
    /// the start of the last.
    pub(crate) const fn interleaved(self, step: usize, units: usize, run: usize) -> TileField {
        assert!(units.is_power_of_two());
        TileField { step, run_units: units.trailing_zeros(), run, ..self }
    }

    /// Offset in the tile of a unit of all rows.
    #[inline(always)]
    pub(crate) const fn place(&self, unit: usize) -> usize {
        let (chunk, unit) = (unit >> self.chunk_units, unit & ((1 << self.chunk_units) - 1));
        let (run, unit) = (unit >> self.run_units, unit & ((1 << self.run_units) - 1));
        self.to + chunk * self.chunk + run * self.run + unit * self.step
    }

    /// Units of a row, and bytes of a unit of all rows.
    pub(crate) const fn units_and_bytes(&self) -> (usize, usize) {
        let bytes = self.unit.bytes_of_rows();
        (self.bytes * ROWS / bytes, bytes)
    }
}

impl TileSpec {
    /// Tiles of one part with one slot, which have no fields yet.
    pub(crate) const fn of(block: BlockLayout) -> TileSpec {
        let elements = block.elements;
        TileSpec { block, bytes: 0, elements, parts: 1, slots: 1, unpacked: None, fields: &[] }
    }

    /// The same specification, after checks that it fits its blocks and that every byte of a tile belongs to one field.
    pub(crate) const fn checked(self) -> TileSpec {
        assert!(self.elements == self.block.elements, "a tile holds whole blocks");
        assert!(self.parts * self.slots * self.block.group == self.elements, "parts hold all groups");
        assert!(self.has_min() == (self.bias() == 0), "weights without a sign have minima, and others none");
        assert!(
            self.slots <= MAX_SLOTS && matches!(self.parts, 1 | 4 | 8),
            "loops over tiles have these parts"
        );
        let (mut index, mut bytes) = (0, 0);
        while index < self.fields.len() {
            let field = &self.fields[index];
            let ((units, each), mut unit) = (field.units_and_bytes(), 0);
            while unit < units {
                assert!(field.place(unit) + each <= self.bytes, "fields lie in the tile");
                unit += 1;
            }
            bytes += field.bytes * ROWS;
            index += 1;
        }
        assert!(bytes == self.bytes, "fields fill the tile");
        self
    }

    /// Elements of a group.
    pub(crate) const fn group(&self) -> usize {
        self.block.group
    }

    /// Groups of 32 elements.
    pub(crate) const fn groups_of_32(&self) -> usize {
        32 / self.block.group
    }

    /// Blocks of 32 elements of which the first groups are added, then the second ones: tiles with groups of 16 elements are
    /// taken apart in this order.
    pub(crate) const fn run_of_blocks(&self) -> usize {
        match (self.groups_of_32(), self.elements / 32) {
            (1, _) => 1,
            (_, blocks) if blocks < 4 => blocks,
            _ => 4,
        }
    }

    /// Bias of the codes in steps: a weight is `code - bias`.
    pub(crate) const fn bias(&self) -> i32 {
        -self.block.weights().0
    }

    /// The largest code in steps.
    pub(crate) const fn largest_code(&self) -> i32 {
        let (low, high) = self.block.weights();
        high - low
    }

    /// Whether groups have minima.
    pub(crate) const fn has_min(&self) -> bool {
        self.block.has(FieldRole::Min)
    }

    /// Whether the scale of a group is the tile's scale times an integer.
    pub(crate) const fn has_group_scales(&self) -> bool {
        self.block.group_scales.is_some()
    }
}

/// Most slots of a part.
pub(crate) const MAX_SLOTS: usize = 4;
