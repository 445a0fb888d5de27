//! Tables of tensors by address.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::raw::TensorRef;

/// A value for each tensor.
pub(crate) type TensorMap<T> = HashMap<TensorRef, T, BuildHasherDefault<AddressHasher>>;

/// Fibonacci hashing: addresses are distinct, and not chosen by an adversary.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_usize(usize::from(*byte)));
    }

    fn write_usize(&mut self, address: usize) {
        // The table takes its slots from the low bits, which the multiplication mixes least.
        self.0 = (self.0 ^ address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }
}
