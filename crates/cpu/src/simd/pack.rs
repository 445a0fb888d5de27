//! Blocks of sixteen rows brought into tiles (`repack`).

use crate::isa::Isa;
use crate::repack::{ROWS, TileSpec, interleave_rows};

/// Packs sixteen rows that lie one after the other, in blocks of `block` bytes, into tiles.
pub(crate) fn pack(isa: Isa, spec: &TileSpec, rows: &[u8], block: usize, tiles: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if matches!(isa, Isa::Avx2 | Isa::Avx512 | Isa::Amx) {
        // SAFETY: `pack` asks for AVX2; devices only have an `Isa` that the machine has.
        return unsafe { x86::pack(spec, rows, block, tiles) };
    }
    let _ = isa;
    interleave_rows(spec, rows.chunks_exact(rows.len() / ROWS), 0, block, tiles);
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use crate::repack::{ROWS, Source, TileField, TileSpec, UNPACKED_BYTES, Unit};

    /// Sixteen rows, one after the other.
    #[derive(Clone, Copy)]
    struct Rows<'a> {
        all: &'a [u8],
        bytes: usize,
    }

    impl<'a> Rows<'a> {
        fn new(all: &'a [u8]) -> Rows<'a> {
            Rows { all, bytes: all.len() / ROWS }
        }

        #[inline(always)]
        fn check(&self, at: usize, bytes: usize) -> *const u8 {
            assert!(at <= self.bytes && bytes <= self.bytes - at, "bytes behind the rows");
            self.all[at..].as_ptr()
        }

        /// Fetches what most probably comes next: sixteen rows behind the last. The processor does not see so many
        /// streams coming.
        #[inline]
        #[target_feature(enable = "avx2")]
        fn prefetch(&self, at: usize) {
            let next = self.all.as_ptr_range().end.wrapping_add(ROWS * at);
            for line in 0..=16 * ROWS / LINE {
                _mm_prefetch::<_MM_HINT_T1>(next.wrapping_add(LINE * line).cast());
            }
        }

        /// A byte of every row.
        #[inline(always)]
        fn single(&self, at: usize) -> [u8; ROWS] {
            std::array::from_fn(|row| self.all[row * self.bytes + at])
        }

        /// Two bytes of rows `half * 8..`.
        #[inline]
        #[target_feature(enable = "avx2")]
        fn pairs(&self, at: usize, half: usize) -> __m128i {
            let start = self.check(at, 2).wrapping_add(8 * half * self.bytes);
            let mut pairs = _mm_setzero_si128();
            macro_rules! insert {
                ($($row:literal)*) => {
                    $(
                        // SAFETY: every row has two bytes from `at` on, checked above.
                        let pair = unsafe { start.wrapping_add($row * self.bytes).cast::<u16>().read_unaligned() };
                        pairs = _mm_insert_epi16::<$row>(pairs, i32::from(pair));
                    )*
                };
            }
            insert!(0 1 2 3 4 5 6 7);
            pairs
        }

        /// Four neighbouring words of 32 bits, as four vectors of the same word of rows `half * 8..`.
        #[inline]
        #[target_feature(enable = "avx2")]
        fn words(&self, at: usize, half: usize) -> [__m256i; 4] {
            let low = self.check(at, 16).wrapping_add(8 * half * self.bytes);
            let high = low.wrapping_add(4 * self.bytes);
            let mut pairs = [_mm256_setzero_si256(); 4];
            for (row, pair) in pairs.iter_mut().enumerate() {
                let [a, b] = [low, high].map(|from| from.wrapping_add(row * self.bytes));
                // SAFETY: `loadu` asks for 16 readable bytes, and every row has that many from `at` on, checked above.
                let a = unsafe { _mm_loadu_si128(a.cast()) };
                // SAFETY: as above.
                let b = unsafe { _mm_loadu_si128(b.cast()) };
                *pair = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(a), b);
            }
            let [a, b, c, d] = pairs;
            let (ab, cd) = (_mm256_unpacklo_epi32(a, b), _mm256_unpacklo_epi32(c, d));
            let (ab_high, cd_high) = (_mm256_unpackhi_epi32(a, b), _mm256_unpackhi_epi32(c, d));
            [
                _mm256_unpacklo_epi64(ab, cd),
                _mm256_unpackhi_epi64(ab, cd),
                _mm256_unpacklo_epi64(ab_high, cd_high),
                _mm256_unpackhi_epi64(ab_high, cd_high),
            ]
        }

        /// Sixteen neighbouring bytes, four at a time, as vectors of the same byte of all rows.
        #[inline]
        #[target_feature(enable = "avx2")]
        fn bytes(&self, at: usize) -> [[__m128i; 4]; 4] {
            let (low, high) = (self.words(at, 0), self.words(at, 1));
            let mut bytes = [[_mm_setzero_si128(); 4]; 4];
            for (word, bytes) in bytes.iter_mut().enumerate() {
                let (low, high) = (apart(low[word]), apart(high[word]));
                let (even, odd) = (_mm256_unpacklo_epi64(low, high), _mm256_unpackhi_epi64(low, high));
                *bytes = [
                    _mm256_castsi256_si128(even),
                    _mm256_castsi256_si128(odd),
                    _mm256_extracti128_si256::<1>(even),
                    _mm256_extracti128_si256::<1>(odd),
                ];
            }
            bytes
        }
    }

    /// Eight words of four bytes: the first bytes of all, then the second ones, and so on.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn apart(words: __m256i) -> __m256i {
        let order = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
        let fours = _mm256_shuffle_epi8(words, _mm256_broadcastsi128_si256(order));
        _mm256_permutevar8x32_epi32(fours, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn store_32(to: &mut [u8], at: usize, value: __m256i) {
        let to: &mut [u8; 32] = to[at..].first_chunk_mut().expect("32 bytes of the tile");
        // SAFETY: `storeu` asks for 32 writable bytes, which the array is.
        unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), value) }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn store_16(to: &mut [u8], at: usize, value: __m128i) {
        let to: &mut [u8; 16] = to[at..].first_chunk_mut().expect("16 bytes of the tile");
        // SAFETY: `storeu` asks for 16 writable bytes, which the array is.
        unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), value) }
    }

    /// Small blocks are packed some at a time, field by field.
    const TILES: usize = 16;

    #[target_feature(enable = "avx2")]
    pub(super) fn pack(spec: &TileSpec, rows: &[u8], block: usize, tiles: &mut [u8]) {
        let stored = Rows::new(rows);
        let mut unpacked = [[0; UNPACKED_BYTES]; ROWS];
        let each = if spec.unpacked.is_some() || spec.bytes > 1024 { 1 } else { TILES };
        for (number, tiles) in tiles.chunks_mut(each * spec.bytes).enumerate() {
            let start = number * each * block;
            if let Some(form) = spec.unpacked {
                for (unpacked, row) in unpacked.iter_mut().zip(rows.chunks_exact(stored.bytes)) {
                    (form.unpack)(&row[start..start + block], unpacked);
                }
            }
            for field in spec.fields {
                let (rows, at) = match field.source {
                    Source::Block => (stored, start + field.at),
                    Source::Unpacked => (Rows::new(unpacked.as_flattened()), field.at),
                };
                put(field, &rows, [at, block], tiles, spec.bytes);
            }
        }
    }

    /// Bytes of a line of the cache.
    const LINE: usize = 64;

    /// Puts a field into tiles. In the rows it begins at `at`, and again every `every` bytes.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn put(field: &TileField, rows: &Rows<'_>, [at, every]: [usize; 2], tiles: &mut [u8], tile: usize) {
        let tiles =
            tiles.chunks_exact_mut(tile).enumerate().map(|(number, tile)| (at + number * every, tile));
        match field.unit {
            Unit::Four => {
                for (at, tile) in tiles {
                    for sixteen in 0..field.bytes / 16 {
                        rows.prefetch(at + 16 * sixteen);
                        for half in 0..2 {
                            let words = rows.words(at + 16 * sixteen, half);
                            for (word, value) in words.into_iter().enumerate() {
                                store_32(tile, field.place(4 * sixteen + word) + 32 * half, value);
                            }
                        }
                    }
                }
            }
            Unit::Two => {
                for (at, tile) in tiles {
                    store_16(tile, field.to, rows.pairs(at, 0));
                    store_16(tile, field.to + 16, rows.pairs(at, 1));
                }
            }
            Unit::One if field.bytes == 1 => {
                for (at, tile) in tiles {
                    tile[field.to..][..ROWS].copy_from_slice(&rows.single(at));
                }
            }
            Unit::One => {
                for (at, tile) in tiles {
                    for (number, bytes) in rows.bytes(at).as_flattened()[..field.bytes].iter().enumerate() {
                        store_16(tile, field.place(number), *bytes);
                    }
                }
            }
            Unit::Nibble => {
                let (mask, places) = (_mm_set1_epi8(15), _mm_set1_epi16(0x1001));
                for (at, tile) in tiles {
                    for sixteen in 0..field.bytes.div_ceil(16) {
                        let count = (field.bytes - 16 * sixteen).min(16);
                        let bytes = rows.bytes(at + 16 * sixteen);
                        for (number, bytes) in bytes.as_flattened()[..count].iter().enumerate() {
                            let low = _mm_and_si128(*bytes, mask);
                            let high = _mm_and_si128(_mm_srli_epi16::<4>(*bytes), mask);
                            // Of two rows, the first's four bits below the second's.
                            let low = _mm_maddubs_epi16(low, places);
                            let high = _mm_maddubs_epi16(high, places);
                            let to = field.place(32 * sixteen + 2 * number);
                            store_16(tile, to, _mm_packus_epi16(low, high));
                        }
                    }
                }
            }
        }
    }
}
