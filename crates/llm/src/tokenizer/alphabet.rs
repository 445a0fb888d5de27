//! The alphabet of byte-level vocabularies, from
//! [GPT-2](https://github.com/openai/gpt-2/blob/master/src/encoder.py): a printable character for each of the 256 bytes.
//!
//! Printable Latin-1 characters stand for themselves; the 68 other bytes, in order, are U+0100 and up.

/// How many code points there are up to the last character in use.
const CHARACTERS: usize = 0x100 + 68;

/// The byte of each character, with -1 where it stands for none.
const BYTES: [i16; CHARACTERS] = bytes();

const fn stands_for_itself(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff)
}

const fn bytes() -> [i16; CHARACTERS] {
    let mut table = [-1; CHARACTERS];
    let mut others = 0x100;
    let mut byte = 0;
    while byte < 256 {
        if stands_for_itself(byte as u8) {
            table[byte] = byte as i16;
        } else {
            table[others] = byte as i16;
            others += 1;
        }
        byte += 1;
    }
    table
}

/// Writes the bytes that a token's text stands for; false, with some of them written, if a character stands for none.
pub(super) fn decode(text: &[u8], bytes: &mut Vec<u8>) -> bool {
    let Ok(text) = std::str::from_utf8(text) else { return false };
    for character in text.chars() {
        match BYTES.get(character as usize) {
            Some(byte @ 0..) => bytes.push(*byte as u8),
            _ => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_one_character() {
        let mut found: Vec<i16> = BYTES.iter().copied().filter(|byte| *byte >= 0).collect();
        found.sort_unstable();
        assert_eq!(found, (0..256).collect::<Vec<i16>>());
    }

    #[test]
    fn spaces_and_newlines_have_their_known_letters() {
        let mut bytes = Vec::new();
        assert!(decode("ĠaĊÃ©".as_bytes(), &mut bytes));
        assert_eq!(bytes, " a\né".as_bytes());
        assert!(!decode("a b".as_bytes(), &mut bytes));
        assert!(!decode("日".as_bytes(), &mut bytes));
        assert!(!decode(b"\xff", &mut bytes));
    }
}
