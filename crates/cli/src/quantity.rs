//! Byte counts with units.

pub(crate) use orlop::view::short_bytes;

/// Suffixes of byte counts and their factors.
const UNITS: [(&str, u64); 10] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("B", 1),
];

/// Parses a number of bytes with an optional suffix: `4096`, `64k`, `2GiB`.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let (digits, unit) = UNITS
        .into_iter()
        .find_map(|(suffix, unit)| Some((text.strip_suffix(suffix)?, unit)))
        .unwrap_or((text, 1));
    let digits = digits.trim_end();
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("expected a number of bytes, such as 4096, 64k, 512MiB or 2GiB".to_owned());
    }
    let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    number.ok_or_else(|| format!("the maximum is {} bytes", u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_multiply() {
        let read = ["0", "4096", "12B", "64k", "64kB", "3M", "2G", "64KiB", "3MiB", "2 GiB"].map(parse_bytes);
        let bytes = [0, 4096, 12, 64_000, 64_000, 3_000_000, 2_000_000_000, 65_536, 3_145_728, 2_147_483_648];
        assert_eq!(read, bytes.map(Ok));
    }

    #[test]
    fn what_is_no_byte_count_is_refused() {
        for text in
            ["", "k", "-1", "+1", "1.5G", "1e9", "0x10", "1 000", "18446744073709551616", "20000000000G"]
        {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }
}
