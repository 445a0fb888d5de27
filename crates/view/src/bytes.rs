//! Formatting of byte counts and axis ticks.

/// A byte count in its largest binary unit, with two decimals.
///
/// ```
/// let shown = [0, 1023, 1024, 88_217_632].map(orlop_view::short_bytes);
/// assert_eq!(shown, ["0 B", "1023 B", "1.00 KiB", "84.13 MiB"]);
/// ```
pub fn short_bytes(bytes: u64) -> String {
    let named = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut shown = None;
    let mut value = bytes as f64;
    for unit in named {
        // Larger values would print as 1024.00.
        if value < 1023.995 {
            break;
        }
        value /= 1024.0;
        shown = Some(unit);
    }
    match shown {
        Some(unit) => format!("{value:.2} {unit}"),
        None => format!("{bytes} B"),
    }
}

/// [`short_bytes`] without trailing zeros: `8 MiB`, `2.5 KiB`.
pub(crate) fn tick_bytes(bytes: u64) -> String {
    let text = short_bytes(bytes);
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text,
    }
}

/// A signed difference of byte counts.
pub(crate) fn signed_bytes(before: u64, after: u64) -> String {
    match after.cmp(&before) {
        std::cmp::Ordering::Less => format!("−{}", short_bytes(before - after)),
        std::cmp::Ordering::Equal => "0 B".to_owned(),
        std::cmp::Ordering::Greater => format!("+{}", short_bytes(after - before)),
    }
}

/// About `count` round ticks on an axis that ends at `end`: multiples of a power of two (`binary`), or of 1, 2 or 5 times
/// a power of ten.
pub(crate) fn ticks(end: u64, count: u64, binary: bool) -> Vec<u64> {
    let least = (end / count.max(1)).max(1);
    let step = if binary {
        let step = least.checked_next_power_of_two().unwrap_or(1 << 63);
        if step > end && step > 1 { step / 2 } else { step }
    } else {
        let ten = 10u64.pow(least.ilog10());
        [1, 2, 5, 10].into_iter().filter_map(|m| ten.checked_mul(m)).find(|s| *s >= least).unwrap_or(ten)
    };
    (0..=end / step).map(|index| index * step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        assert_eq!(ticks(100, 4, false), [0, 50, 100]);
        assert_eq!(ticks(1000, 4, true), [0, 256, 512, 768]);
        assert_eq!(ticks(100, 1, true), [0, 64]);
        assert_eq!(ticks(0, 4, false), [0]);
        assert_eq!(tick_bytes(8 << 20), "8 MiB");
        assert_eq!(tick_bytes(2560), "2.5 KiB");
    }

    #[test]
    fn short_forms_keep_two_decimals() {
        assert_eq!([1_048_575, u64::MAX].map(short_bytes), ["1.00 MiB", "16.00 EiB"]);
        assert_eq!(signed_bytes(2048, 1024), "−1.00 KiB");
        assert_eq!(signed_bytes(1024, 2048), "+1.00 KiB");
    }
}
