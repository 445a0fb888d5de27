//! The largest setting that fits a budget.

use std::ops::RangeInclusive;

/// The largest value of a knob that fits, if a larger value never fits where a smaller one does not: a context
/// length, a number of layers on a device, a batch. `None` if not even the smallest fits.
///
/// `fits` plans and compares with a budget ([`crate::Planned`] allocates nothing); it is asked about as often as the
/// range has binary digits.
///
/// # Errors
/// What `fits` returns, for reasons other than that a value does not fit.
pub fn largest_fitting<E>(
    knob: RangeInclusive<u64>,
    mut fits: impl FnMut(u64) -> Result<bool, E>,
) -> Result<Option<u64>, E> {
    let (mut low, mut high) = (*knob.start(), *knob.end());
    if low > high || !fits(low)? {
        return Ok(None);
    }
    while low < high {
        // Rounded up, so that the range shrinks.
        let middle = low + (high - low).div_ceil(2);
        if fits(middle)? {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    Ok(Some(low))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_value_below_the_limit_is_found() {
        for limit in [0u64, 1, 2, 6, 7, 8, 1000] {
            let found = largest_fitting(1..=7, |value| Ok::<_, ()>(value <= limit));
            assert_eq!(found, Ok((limit >= 1).then_some(limit.min(7))), "{limit}");
        }
        assert_eq!(largest_fitting(0..=u64::MAX, |value| Ok::<_, ()>(value <= 12_345)), Ok(Some(12_345)));
    }

    #[test]
    fn errors_end_the_search() {
        assert_eq!(
            largest_fitting(1..=7, |value| if value > 4 { Err("broken") } else { Ok(true) }),
            Err("broken")
        );
    }
}
