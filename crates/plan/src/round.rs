//! Rounding to an alignment, with overflow checks.

/// The smallest multiple of `align` (a power of two) that is at least `value`; `None` on overflow.
pub(crate) fn round_up(value: u64, align: u64) -> Option<u64> {
    let mask = align - 1;
    Some(value.checked_add(mask)? & !mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_to_the_next_multiple_and_keeps_multiples() {
        assert_eq!(round_up(0, 32), Some(0));
        assert_eq!(round_up(1, 32), Some(32));
        assert_eq!(round_up(32, 32), Some(32));
        assert_eq!(round_up(u64::MAX, 1), Some(u64::MAX));
    }

    #[test]
    fn refuses_what_does_not_fit_64_bits() {
        assert_eq!(round_up(u64::MAX, 2), None);
        assert_eq!(round_up(u64::MAX - 30, 32), None);
    }
}
