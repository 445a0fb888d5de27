//! How tiles of repacked weights are taken apart, written once for all vectors.
//!
//! A tile holds a block of sixteen rows (see `repack`). Taking it apart gives *steps*: vectors of 64 bytes, four
//! neighbouring elements of each row, as codes that count from 0. A row's element is
//! `scale * (code - OFFSET) + min`, with a scale and a minimum for each group of [`GROUP`] elements. Tiles are
//! taken apart in parts, each of which has all steps of some groups, its slots.

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
            |tile, _group| halves(tile, 256);
            |_tile, _group| zero()
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
            |tile, _group| halves(tile, 256);
            |tile, _group| halves(tile, 288)
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
            |tile, _group| halves(tile, 256);
            |_tile, _group| zero()
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
            |tile, _group| exponents(tile, 256);
            |_tile, _group| zero()
        }
        tile_types! { @module q8_0 544 32 32 128 1 1 false $(#[$attr])*
            |tile, _part, each| {
                for j in 0..8 {
                    each(0, 4 * j, flip(load(tile, 64 * j)));
                }
            }
            |_part, _slot| 0;
            |tile, _group| halves(tile, 512);
            |_tile, _group| zero()
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
            |tile, _group| halves(tile, 320);
            |_tile, _group| zero()
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
            |tile, _group| halves(tile, 320);
            |tile, _group| halves(tile, 352)
        }
        tile_types! { @module q4_k 2368 256 32 0 4 2 true $(#[$attr])*
            |tile, part, each| {
                for s in 0..8 {
                    let v = load(tile, 64 * (8 * part + s));
                    each(0, 64 * part + 4 * s, low(v));
                    each(1, 64 * part + 32 + 4 * s, high(v));
                }
            }
            |part, slot| 2 * part + slot;
            |tile, group| product(halves(tile, 2304), unsigned(tile, 2048 + 16 * group));
            |tile, group| negative(product(halves(tile, 2336), unsigned(tile, 2176 + 16 * group)))
        }
        tile_types! { @module q5_k 2880 256 32 0 4 2 true $(#[$attr])*
            |tile, part, each| {
                for s in 0..8 {
                    let (v, bits) = (load(tile, 640 * part + 128 + 64 * s), 640 * part + 8 * s);
                    each(0, 64 * part + 4 * s, with_bit::<16>(low(v), mask(tile, bits)));
                    each(1, 64 * part + 32 + 4 * s, with_bit::<16>(high(v), mask(tile, bits + 64)));
                }
            }
            |part, slot| 2 * part + slot;
            |tile, group| product(halves(tile, 2816), unsigned(tile, 2560 + 16 * group));
            |tile, group| negative(product(halves(tile, 2848), unsigned(tile, 2688 + 16 * group)))
        }
        tile_types! { @module iq4_xs 2208 256 32 127 8 1 false $(#[$attr])*
            |tile, part, each| {
                for j in 0..4 {
                    let v = load(tile, 64 * (4 * part + j));
                    each(0, 32 * part + 4 * j, level(low(v), &LEVELS));
                    each(0, 32 * part + 16 + 4 * j, level(high(v), &LEVELS));
                }
            }
            |part, _slot| part;
            |tile, group| product(halves(tile, 2176), signed(tile, 2048 + 16 * group));
            |_tile, _group| zero()
        }
        tile_types! { @module q6_k 3360 256 16 32 4 4 false $(#[$attr])*
            |tile, part, each| {
                let (c, half) = (part / 2, part % 2);
                for s in 4 * half..4 * half + 4 {
                    let at = 288 + 192 * (8 * c + s);
                    let (a, b, x) = (load(tile, at), load(tile, at + 64), load(tile, at + 128));
                    let k = 128 * c + 4 * s;
                    each(0, k, joined(low(a), pair::<0>(x)));
                    each(1, k + 32, joined(low(b), pair::<1>(x)));
                    each(2, k + 64, joined(high(a), pair::<2>(x)));
                    each(3, k + 96, joined(high(b), pair::<3>(x)));
                }
            }
            |part, slot| 8 * (part / 2) + 2 * slot + part % 2;
            |tile, group| product(halves(tile, 0), signed(tile, 32 + 16 * group));
            |_tile, _group| zero()
        }
        tile_types! { @module q2_k 1344 256 16 0 4 4 true $(#[$attr])*
            |tile, part, each| {
                let (c, half) = (part / 2, part % 2);
                for s in 4 * half..4 * half + 4 {
                    let x = load(tile, 64 * (8 * c + s));
                    let k = 128 * c + 4 * s;
                    each(0, k, pair::<0>(x));
                    each(1, k + 32, pair::<1>(x));
                    each(2, k + 64, pair::<2>(x));
                    each(3, k + 96, pair::<3>(x));
                }
            }
            |part, slot| 8 * (part / 2) + 2 * slot + part % 2;
            |tile, group| product(halves(tile, 1280), nibbles::<0>(tile, 1024 + 16 * group));
            |tile, group| negative(product(halves(tile, 1312), nibbles::<4>(tile, 1024 + 16 * group)))
        }
        tile_types! { @module q3_k 1824 256 16 4 4 4 false $(#[$attr])*
            |tile, part, each| {
                let (c, half) = (part / 2, part % 2);
                for s in 4 * half..4 * half + 4 {
                    let x = load(tile, 768 * c + 256 + 64 * s);
                    let (k, bits) = (128 * c + 4 * s, 768 * c + 8 * s);
                    each(0, k, with_bit::<4>(pair::<0>(x), mask(tile, bits)));
                    each(1, k + 32, with_bit::<4>(pair::<1>(x), mask(tile, bits + 64)));
                    each(2, k + 64, with_bit::<4>(pair::<2>(x), mask(tile, bits + 128)));
                    each(3, k + 96, with_bit::<4>(pair::<3>(x), mask(tile, bits + 192)));
                }
            }
            |part, slot| 8 * (part / 2) + 2 * slot + part % 2;
            |tile, group| product(halves(tile, 1792), signed(tile, 1536 + 16 * group));
            |_tile, _group| zero()
        }
    };
    (@module $name:ident $tile:literal $elements:literal $group:literal $offset:literal
        $parts:literal $slots:literal $min:literal $(#[$attr:meta])*
        |$t:ident, $p:ident, $each:ident| $steps:block
        |$gp:ident, $gs:ident| $group_of:expr;
        |$st:ident, $sg:ident| $scale:expr;
        |$mt:ident, $mg:ident| $min_of:expr
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

            $(#[$attr])*
            fn scale($st: &[u8; TILE], $sg: usize) -> F {
                $scale
            }

            $(#[$attr])*
            #[allow(dead_code)] // types without minima
            fn min($mt: &[u8; TILE], $mg: usize) -> F {
                $min_of
            }
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

pub(super) use {of_type, tile_types};

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
