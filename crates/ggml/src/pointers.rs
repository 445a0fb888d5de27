//! Tables of tensors by address and by layout.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::raw::TensorRef;

/// A value for each tensor.
pub(crate) type TensorMap<T> = WordMap<TensorRef, T>;

/// A table with keys of a few words.
pub(crate) type WordMap<K, T> = HashMap<K, T, BuildHasherDefault<WordHasher>>;

/// Fibonacci hashing: the host's addresses and layouts are not chosen by an adversary.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WordHasher(u64);

impl Hasher for WordHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        words.iter().for_each(|word| self.write_u64(u64::from_ne_bytes(*word)));
        rest.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, word: u64) {
        // The table takes its slots from the low bits, which the multiplication mixes least.
        self.0 = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn write_i32(&mut self, word: i32) {
        self.write_u64(u64::from(word.cast_unsigned()));
    }
}
