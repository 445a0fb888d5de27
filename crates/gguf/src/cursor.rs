//! Bounds-checked reading.

use crate::Error;

/// Reads bytes in order, with bounds checks.
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// A read error without its context.
#[derive(Debug)]
pub(crate) enum Fault {
    Ends { at: u64, needed: u64, left: u64 },
    Count { count: u64, at: u64, left: u64 },
    UnknownValueType(u32),
    Nesting,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { bytes, at: 0 }
    }

    pub(crate) fn at(&self) -> u64 {
        self.at as u64
    }

    fn left(&self) -> u64 {
        (self.bytes.len() - self.at) as u64
    }

    pub(crate) fn take(&mut self, needed: u64) -> Result<&'a [u8], Fault> {
        let ends = Fault::Ends { at: self.at(), needed, left: self.left() };
        let Ok(length) = usize::try_from(needed) else { return Err(ends) };
        let taken = self.bytes[self.at..].get(..length).ok_or(ends)?;
        self.at += length;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let ends = Fault::Ends { at: self.at(), needed: N as u64, left: self.left() };
        let taken = self.bytes[self.at..].first_chunk::<N>().ok_or(ends)?;
        self.at += N;
        Ok(*taken)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Fault> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Fault> {
        self.array().map(u64::from_le_bytes)
    }

    /// A length-prefixed string.
    pub(crate) fn string(&mut self) -> Result<&'a [u8], Fault> {
        let length = self.u64()?;
        self.take(length)
    }

    /// Checks that `count` items of at least `least` bytes each fit the rest of the file.
    pub(crate) fn room(&self, count: u64, least: u64) -> Result<(), Fault> {
        if count.checked_mul(least).is_some_and(|bytes| bytes <= self.left()) {
            return Ok(());
        }
        Err(Fault::Count { count, at: self.at(), left: self.left() })
    }
}

impl Fault {
    /// The error with its context.
    pub(crate) fn within(self, place: impl Into<String>) -> Error {
        let place = place.into();
        match self {
            Fault::Ends { at, needed, left } => Error::Ends { place, at, needed, left },
            Fault::Count { count, at, left } => Error::Count { place, count, at, left },
            Fault::UnknownValueType(id) => Error::UnknownValueType { key: place, id },
            Fault::Nesting => Error::Nesting { key: place },
        }
    }

    /// The error in the value of a key.
    pub(crate) fn in_value_of(self, key: &str) -> Error {
        match self {
            Fault::Ends { .. } | Fault::Count { .. } => self.within(format!("the value of `{key}`")),
            Fault::UnknownValueType(_) | Fault::Nesting => self.within(key),
        }
    }
}
