//! The character map of SentencePiece: replacements of the beginnings of texts, in a
//! [double array](https://doi.org/10.1109/32.31365) as [Darts-clone](https://github.com/s-yata/darts-clone) writes it.

use orlop_gguf::{Array, Metadata, MetadataValue};

use super::{TokenizerError, keys};
use crate::Error;

/// Bytes of a beginning that is replaced, at most. Known maps have up to 40; a broken one could go round in circles.
const LONGEST: usize = 256;

/// Which beginnings of texts are replaced, and by what.
#[derive(Debug)]
pub(super) struct CharacterMap {
    units: Vec<u32>,
    /// Texts that end with a zero.
    replacements: Vec<u8>,
}

impl CharacterMap {
    /// The map of a file, if it has one.
    pub(super) fn from_metadata(metadata: &Metadata) -> Result<Option<CharacterMap>, Error> {
        let key = keys::CHARACTER_MAP;
        let bytes: Vec<u8> = match metadata.get(key) {
            None => return Ok(None),
            Some(MetadataValue::Array(Array::U8(bytes))) => bytes.clone(),
            Some(MetadataValue::Array(Array::I8(bytes))) => bytes.iter().map(|byte| *byte as u8).collect(),
            Some(_) => return Err(TokenizerError::CharacterMap { bytes: 0 }.into()),
        };
        if bytes.is_empty() {
            return Ok(None);
        }
        let broken = || Error::from(TokenizerError::CharacterMap { bytes: bytes.len() });
        let (size, rest) = bytes.split_first_chunk().ok_or_else(broken)?;
        let size = u32::from_le_bytes(*size) as usize;
        let (units, replacements) = rest.split_at_checked(size).ok_or_else(broken)?;
        let (units, []) = units.as_chunks() else { return Err(broken()) };
        let units = units.iter().map(|unit| u32::from_le_bytes(*unit)).collect();
        Ok(Some(CharacterMap { units, replacements: replacements.to_vec() }))
    }

    /// What replaces the longest known beginning of a text, and how many bytes that has.
    pub(super) fn replaced(&self, text: &str) -> Option<(&str, usize)> {
        let unit = |place: u32| self.units.get(place as usize).copied();
        let base = |unit: u32| unit >> 10 << ((unit & 1 << 9) >> 6);
        let mut place = base(unit(0)?);
        let mut found = None;
        for (at, byte) in text.bytes().enumerate().take(LONGEST) {
            place ^= u32::from(byte);
            let Some(here) = unit(place).filter(|unit| unit & (1 << 31 | 0xff) == u32::from(byte)) else {
                break;
            };
            place ^= base(here);
            // A leaf's child holds the place of the replacement.
            if here >> 8 & 1 == 1
                && let Some(value) = unit(place)
            {
                found = Some((value & !(1 << 31), at + 1));
            }
        }
        let (start, length) = found?;
        // A beginning that ends within a character cannot be cut off.
        let rest = self.replacements.get(start as usize..).filter(|_| text.is_char_boundary(length))?;
        let end = rest.iter().position(|byte| *byte == 0)?;
        Some((std::str::from_utf8(&rest[..end]).ok()?, length))
    }
}
