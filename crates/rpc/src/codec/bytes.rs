//! Packed little-endian numbers.

/// Reads numbers one after the other. The caller has checked the length of what it reads.
pub(super) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Fields<'a> {
        Fields(bytes)
    }

    /// The next bytes; zeros stand for what is missing.
    pub(super) fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut taken = [0; N];
        let bytes = self.take(N);
        taken[..bytes.len()].copy_from_slice(bytes);
        taken
    }

    pub(super) fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    pub(super) fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    pub(super) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    pub(super) fn i32(&mut self) -> i32 {
        i32::from_le_bytes(self.array())
    }

    pub(super) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// All that is left.
    pub(super) fn rest(self) -> &'a [u8] {
        self.0
    }
}
