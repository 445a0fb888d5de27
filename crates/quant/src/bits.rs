//! The one packing that almost all block types share.
//!
//! A chunk of `WIDTH` bytes holds `8 / BITS` planes. Plane `p` is bits `p * BITS..` of every byte, so element
//! `p * WIDTH + j` of the chunk sits in byte `j`. The nibbles of Q4_0 are `<4, 16>`, those of Q4_K `<4, 32>`,
//! the bit pairs of Q2_K `<2, 32>`, the high bits of Q5_K `<1, 32>`.

/// Unpacks whole chunks: `packed` bytes become `8 / BITS` times as many values below `1 << BITS`.
///
/// Stops at the shorter side where the lengths disagree. `BITS` is 1, 2 or 4; others do not compile.
pub fn unpack_planes<const BITS: u32, const WIDTH: usize>(packed: &[u8], out: &mut [u8]) {
    const { assert!(matches!(BITS, 1 | 2 | 4) && WIDTH > 0) };
    let planes = (8 / BITS) as usize;
    for (chunk, values) in packed.chunks_exact(WIDTH).zip(out.chunks_exact_mut(WIDTH * planes)) {
        for (plane, values) in values.chunks_exact_mut(WIDTH).enumerate() {
            let shift = plane as u32 * BITS;
            for (value, byte) in values.iter_mut().zip(chunk) {
                *value = (byte >> shift) & mask(BITS);
            }
        }
    }
}

/// The inverse of [`unpack_planes`]: only the low `BITS` bits of each value are kept.
pub fn pack_planes<const BITS: u32, const WIDTH: usize>(values: &[u8], packed: &mut [u8]) {
    const { assert!(matches!(BITS, 1 | 2 | 4) && WIDTH > 0) };
    let planes = (8 / BITS) as usize;
    for (chunk, values) in packed.chunks_exact_mut(WIDTH).zip(values.chunks_exact(WIDTH * planes)) {
        chunk.fill(0);
        for (plane, values) in values.chunks_exact(WIDTH).enumerate() {
            let shift = plane as u32 * BITS;
            for (byte, value) in chunk.iter_mut().zip(values) {
                *byte |= (value & mask(BITS)) << shift;
            }
        }
    }
}

const fn mask(bits: u32) -> u8 {
    (0xffu16 >> (8 - bits)) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_nibbles_come_before_high_nibbles() {
        let packed: Vec<u8> = (0..16).map(|j| j | (15 - j) << 4).collect();
        let mut out = [0; 32];
        unpack_planes::<4, 16>(&packed, &mut out);
        assert_eq!(out[..16], (0..16).collect::<Vec<u8>>());
        assert_eq!(out[16..], (0..16).rev().collect::<Vec<u8>>());
    }

    #[test]
    fn packing_undoes_unpacking() {
        fn check<const BITS: u32, const WIDTH: usize>() {
            let packed: Vec<u8> = (0..128u32).map(|i| (i * 167 + 13) as u8).collect();
            let mut values = vec![0; 128 * 8 / BITS as usize];
            unpack_planes::<BITS, WIDTH>(&packed, &mut values);
            assert!(values.iter().all(|v| *v <= mask(BITS)));
            let mut again = vec![0xff; 128];
            pack_planes::<BITS, WIDTH>(&values, &mut again);
            assert_eq!(packed, again);
        }
        check::<4, 16>();
        check::<4, 32>();
        check::<4, 64>();
        check::<2, 32>();
        check::<1, 32>();
    }
}
