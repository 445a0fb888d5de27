//! How tiles of repacked weights are taken apart, written once for all vectors.
//!
//! A tile holds a block of sixteen rows (see `repack`). Taking it apart gives *steps*: vectors of 64 bytes, four
//! neighbouring elements of each row, as codes that count from 0. A row's element is
//! `scale * (code - OFFSET) + min`, with a scale and a minimum for each group of [`GROUP`] elements, which in large
//! tiles are multiples of those of the tile. Tiles are taken apart in parts, each of which has all steps of some
//! groups, its slots. Everything lies in the order in which it is read: memory is only quick for those who do not
//! jump about in it.

/// The modules of all types, for one kind of vector. `V` is 64 bytes, `F` 16 floats.
macro_rules! tile_types {
    ($(#[$attr:meta])*) => {
        tile_types! { @module q4_0 288 32 32 8 1 1 false $(#[$attr])*
            |tile, _part, each| {
                for j in 0..4 {
                    let v = load(tile, 64 * j);
                    each(0, 4 * j, low(v));
                    each(0, 16 + 4 * j, high(v));
                }
            }
            |_part, _slot| 0;
            |tile| halves(tile, 256);
            |_tile| zero()
        }
        tile_types! { @module q4_1 320 32 32 0 1 1 true $(#[$attr])*
            |tile, _part, each| {
                for j in 0..4 {
                    let v = load(tile, 64 * j);
                    each(0, 4 * j, low(v));
                    each(0, 16 + 4 * j, high(v));
                }
            }
            |_part, _slot| 0;
            |tile| halves(tile, 256);
            |tile| halves(tile, 288)
        }
        tile_types! { @module iq4_nl 288 32 32 127 1 1 false $(#[$attr])*
            |tile, _part, each| {
                for j in 0..4 {
                    let v = load(tile, 64 * j);
                    each(0, 4 * j, level(low(v), &LEVELS));
                    each(0, 16 + 4 * j, level(high(v), &LEVELS));
                }
            }
            |_part, _slot| 0;
            |tile| halves(tile, 256);
            |_tile| zero()
        }
        tile_types! { @module mxfp4 272 32 32 12 1 1 false $(#[$attr])*
            |tile, _part, each| {
                for j in 0..4 {
                    let v = load(tile, 64 * j);
                    each(0, 4 * j, level(low(v), &MX_LEVELS));
                    each(0, 16 + 4 * j, level(high(v), &MX_LEVELS));
                }
            }
            |_part, _slot| 0;
            |tile| exponents(tile, 256);
            |_tile| zero()
        }
        tile_types! { @module q8_0 544 32 32 128 1 1 false $(#[$attr])*
            |tile, _part, each| {
                for j in 0..8 {
                    each(0, 4 * j, flip(load(tile, 64 * j)));
                }
            }
            |_part, _slot| 0;
            |tile| halves(tile, 512);
            |_tile| zero()
        }
        tile_types! { @module q5_0 352 32 32 16 1 1 false $(#[$attr])*
            |tile, _part, each| {
                for j in 0..4 {
                    let v = load(tile, 64 * j);
                    each(0, 4 * j, with_bit::<16>(low(v), mask(tile, 256 + 8 * j)));
                    each(0, 16 + 4 * j, with_bit::<16>(high(v), mask(tile, 288 + 8 * j)));
                }
            }
            |_part, _slot| 0;
            |tile| halves(tile, 320);
            |_tile| zero()
        }
        tile_types! { @module q5_1 384 32 32 0 1 1 true $(#[$attr])*
            |tile, _part, each| {
                for j in 0..4 {
                    let v = load(tile, 64 * j);
                    each(0, 4 * j, with_bit::<16>(low(v), mask(tile, 256 + 8 * j)));
                    each(0, 16 + 4 * j, with_bit::<16>(high(v), mask(tile, 288 + 8 * j)));
                }
            }
            |_part, _slot| 0;
            |tile| halves(tile, 320);
            |tile| halves(tile, 352)
        }
        tile_types! { @module q4_k 2368 256 32 0 4 2 true $(#[$attr])*
            |tile, part, each| {
                for s in 0..8 {
                    let v = load(tile, 576 * part + 128 + 64 * s);
                    each(0, 64 * part + 4 * s, low(v));
                    each(1, 64 * part + 32 + 4 * s, high(v));
                }
            }
            |part, slot| 2 * part + slot;
            |tile| halves(tile, 0);
            |tile| negative(halves(tile, 32));
            |tile, group| unsigned(tile, 576 * (group / 2) + 64 + 16 * (group % 2));
            |tile, group| unsigned(tile, 576 * (group / 2) + 96 + 16 * (group % 2))
        }
        tile_types! { @module q5_k 2880 256 32 0 4 2 true $(#[$attr])*
            |tile, part, each| {
                for s in 0..8 {
                    let (v, bits) = (load(tile, 704 * part + 256 + 64 * s), 704 * part + 128 + 8 * s);
                    each(0, 64 * part + 4 * s, with_bit::<16>(low(v), mask(tile, bits)));
                    each(1, 64 * part + 32 + 4 * s, with_bit::<16>(high(v), mask(tile, bits + 64)));
                }
            }
            |part, slot| 2 * part + slot;
            |tile| halves(tile, 0);
            |tile| negative(halves(tile, 32));
            |tile, group| unsigned(tile, 704 * (group / 2) + 64 + 16 * (group % 2));
            |tile, group| unsigned(tile, 704 * (group / 2) + 96 + 16 * (group % 2))
        }
        tile_types! { @module iq4_xs 2208 256 32 127 8 1 false $(#[$attr])*
            |tile, part, each| {
                for j in 0..4 {
                    let v = load(tile, 272 * part + 48 + 64 * j);
                    each(0, 32 * part + 4 * j, level(low(v), &LEVELS));
                    each(0, 32 * part + 16 + 4 * j, level(high(v), &LEVELS));
                }
            }
            |part, _slot| part;
            |tile| halves(tile, 0);
            |_tile| zero();
            |tile, group| signed(tile, 272 * group + 32)
        }
        tile_types! { @module q6_k 3360 256 16 32 4 4 false $(#[$attr])*
            |tile, part, each| {
                let (c, half) = (part / 2, part % 2);
                for s in 4 * half..4 * half + 4 {
                    let at = 1664 * c + 160 + 192 * s;
                    let (a, b, x) = (load(tile, at), load(tile, at + 64), load(tile, at + 128));
                    let k = 128 * c + 4 * s;
                    each(0, k, joined(low(a), pair::<0>(x)));
                    each(1, k + 32, joined(low(b), pair::<1>(x)));
                    each(2, k + 64, joined(high(a), pair::<2>(x)));
                    each(3, k + 96, joined(high(b), pair::<3>(x)));
                }
            }
            |part, slot| 8 * (part / 2) + 2 * slot + part % 2;
            |tile| halves(tile, 0);
            |_tile| zero();
            |tile, group| signed(tile, 1664 * (group / 8) + 32 + 16 * (group % 8))
        }
        tile_types! { @module q2_k 1344 256 16 0 4 4 true $(#[$attr])*
            |tile, part, each| {
                let (c, half) = (part / 2, part % 2);
                for s in 4 * half..4 * half + 4 {
                    let x = load(tile, 640 * c + 192 + 64 * s);
                    let k = 128 * c + 4 * s;
                    each(0, k, pair::<0>(x));
                    each(1, k + 32, pair::<1>(x));
                    each(2, k + 64, pair::<2>(x));
                    each(3, k + 96, pair::<3>(x));
                }
            }
            |part, slot| 8 * (part / 2) + 2 * slot + part % 2;
            |tile| halves(tile, 0);
            |tile| negative(halves(tile, 32));
            |tile, group| nibbles::<0>(tile, 640 * (group / 8) + 64 + 16 * (group % 8));
            |tile, group| nibbles::<4>(tile, 640 * (group / 8) + 64 + 16 * (group % 8))
        }
        tile_types! { @module q3_k 1824 256 16 4 4 4 false $(#[$attr])*
            |tile, part, each| {
                let (c, half) = (part / 2, part % 2);
                for s in 4 * half..4 * half + 4 {
                    let x = load(tile, 896 * c + 416 + 64 * s);
                    let (k, bits) = (128 * c + 4 * s, 896 * c + 160 + 8 * s);
                    each(0, k, with_bit::<4>(pair::<0>(x), mask(tile, bits)));
                    each(1, k + 32, with_bit::<4>(pair::<1>(x), mask(tile, bits + 64)));
                    each(2, k + 64, with_bit::<4>(pair::<2>(x), mask(tile, bits + 128)));
                    each(3, k + 96, with_bit::<4>(pair::<3>(x), mask(tile, bits + 192)));
                }
            }
            |part, slot| 8 * (part / 2) + 2 * slot + part % 2;
            |tile| halves(tile, 0);
            |_tile| zero();
            |tile, group| signed(tile, 896 * (group / 8) + 32 + 16 * (group % 8))
        }
    };
    (@module $name:ident $tile:literal $elements:literal $group:literal $offset:literal
        $parts:literal $slots:literal $min:literal $(#[$attr:meta])*
        |$t:ident, $p:ident, $each:ident| $steps:block
        |$gp:ident, $gs:ident| $group_of:expr;
        |$st:ident| $scale:expr;
        |$mt:ident| $min_of:expr
        $(; |$nt:ident, $ng:ident| $number:expr $(; |$lt:ident, $lg:ident| $min_number:expr)?)?
    ) => {
        mod $name {
            use super::*;
            kernels! { $(#[$attr])* }

            /// Bytes of a tile.
            pub(super) const TILE: usize = $tile;
            /// Elements of a row in it.
            pub(super) const ELEMENTS: usize = $elements;
            /// Elements of a group.
            pub(super) const GROUP: usize = $group;
            /// What codes are too large by.
            pub(super) const OFFSET: i32 = $offset;
            const PARTS: usize = $parts;
            const SLOTS: usize = $slots;
            /// Whether groups have minima.
            pub(super) const MIN: bool = $min;
            /// Whether codes need all of 8 bits; the others are below 64.
            #[allow(dead_code)] // not everywhere
            pub(super) const WIDE: bool = $offset > 32;

            $(#[$attr])*
            fn steps($t: &[u8; TILE], $p: usize, mut $each: impl FnMut(usize, usize, V)) $steps

            fn group_of($gp: usize, $gs: usize) -> usize {
                $group_of
            }

            /// The scale of all groups, or what their numbers are to be multiplied with.
            $(#[$attr])*
            fn scale($st: &[u8; TILE]) -> F {
                $scale
            }

            /// The same for minima.
            $(#[$attr])*
            fn min($mt: &[u8; TILE]) -> F {
                $min_of
            }

            tile_types! { @numbers $(#[$attr])* $(|$nt, $ng| $number $(; |$lt, $lg| $min_number)?)? }

            $(#[$attr])*
            fn group_scale(tile: &[u8; TILE], group: usize) -> F {
                if NUMBERS { product(scale(tile), converted(scale_number(tile, group))) } else { scale(tile) }
            }

            $(#[$attr])*
            fn group_min(tile: &[u8; TILE], group: usize) -> F {
                if NUMBERS { product(min(tile), converted(min_number(tile, group))) } else { min(tile) }
            }
        }
    };
    (@numbers $(#[$attr:meta])* |$nt:ident, $ng:ident| $number:expr; |$lt:ident, $lg:ident| $min_number:expr) => {
        /// Whether groups have numbers that their scales and minima are multiples of.
        const NUMBERS: bool = true;

        $(#[$attr])*
        fn scale_number($nt: &[u8; TILE], $ng: usize) -> I {
            $number
        }

        $(#[$attr])*
        fn min_number($lt: &[u8; TILE], $lg: usize) -> I {
            $min_number
        }
    };
    (@numbers $(#[$attr:meta])* |$nt:ident, $ng:ident| $number:expr) => {
        tile_types! { @numbers $(#[$attr])* |$nt, $ng| $number; |$nt, $ng| $number }
    };
    (@numbers $(#[$attr:meta])*) => {
        const NUMBERS: bool = false;

        $(#[$attr])*
        fn scale_number(_tile: &[u8; TILE], _group: usize) -> I {
            one()
        }

        $(#[$attr])*
        fn min_number(_tile: &[u8; TILE], _group: usize) -> I {
            one()
        }
    };
}

/// The function of a type's module, by element type.
macro_rules! of_type {
    ($dtype:expr, $function:ident $(::<$n:ident>)? ($($argument:expr),*), $otherwise:expr) => {
        match $dtype {
            DType::Q4_0 => q4_0::$function $(::<$n>)? ($($argument),*),
            DType::Q4_1 => q4_1::$function $(::<$n>)? ($($argument),*),
            DType::Q5_0 => q5_0::$function $(::<$n>)? ($($argument),*),
            DType::Q5_1 => q5_1::$function $(::<$n>)? ($($argument),*),
            DType::Q8_0 => q8_0::$function $(::<$n>)? ($($argument),*),
            DType::Q2_K => q2_k::$function $(::<$n>)? ($($argument),*),
            DType::Q3_K => q3_k::$function $(::<$n>)? ($($argument),*),
            DType::Q4_K => q4_k::$function $(::<$n>)? ($($argument),*),
            DType::Q5_K => q5_k::$function $(::<$n>)? ($($argument),*),
            DType::Q6_K => q6_k::$function $(::<$n>)? ($($argument),*),
            DType::IQ4_NL => iq4_nl::$function $(::<$n>)? ($($argument),*),
            DType::IQ4_XS => iq4_xs::$function $(::<$n>)? ($($argument),*),
            DType::MXFP4 => mxfp4::$function $(::<$n>)? ($($argument),*),
            _ => $otherwise,
        }
    };
}

/// What vectors that multiply tiles do with those of any type.
macro_rules! tile_functions {
    ($(#[$attr:meta])*) => {
        /// The products of groups of rows, still packed, with rows of signed activations; panics for types that are not
        /// repacked.
        $(#[$attr])*
        pub(in crate::simd) fn dot<const N: usize>(
            dtype: DType,
            tiles: &[u8],
            acts: &[&[Block]],
            out: &mut [[f32; N]],
        ) {
            match *acts {
                [a] => of_type!(dtype, dot(tiles, [a], out), unreachable!("{dtype} is not repacked")),
                [a, b] => of_type!(dtype, dot(tiles, [a, b], out), unreachable!("{dtype} is not repacked")),
                [a, b, c] => {
                    of_type!(dtype, dot(tiles, [a, b, c], out), unreachable!("{dtype} is not repacked"))
                }
                [a, b, c, d] => {
                    of_type!(dtype, dot(tiles, [a, b, c, d], out), unreachable!("{dtype} is not repacked"))
                }
                _ => debug_assert!(acts.is_empty(), "too many rows"),
            }
        }

        /// Takes tiles apart into a panel.
        $(#[$attr])*
        pub(in crate::simd) fn expand(dtype: DType, tiles: &[u8], panel: &mut [f32]) {
            of_type!(dtype, expand(tiles, panel), unreachable!("{dtype} is not repacked"))
        }
    };
}

pub(super) use {of_type, tile_functions, tile_types};

/// `N` bytes of a tile.
#[inline(always)]
pub(super) fn part<const N: usize>(tile: &[u8], at: usize) -> &[u8; N] {
    tile[at..].first_chunk().expect("a part of the tile")
}

/// A bit for each of 64 bytes.
#[inline(always)]
pub(super) fn mask(tile: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*part(tile, at))
}

/// The levels of IQ4, moved up to begin at 0.
pub(super) const LEVELS: [u8; 16] = moved_up(&orlop_quant::iq4::VALUES, 127);
/// The levels of MXFP4, moved up to begin at 0.
pub(super) const MX_LEVELS: [u8; 16] = moved_up(&orlop_quant::mxfp4::VALUES, 12);

const fn moved_up(levels: &[i8; 16], by: i16) -> [u8; 16] {
    let mut moved = [0; 16];
    let mut code = 0;
    while code < 16 {
        moved[code] = (levels[code] as i16 + by) as u8;
        code += 1;
    }
    moved
}

/// Which group of its 32 elements a group of a tile is, if there are `groups` in 32 elements.
#[inline(always)]
pub(super) fn within(group: usize, groups: usize) -> usize {
    group % groups
}
