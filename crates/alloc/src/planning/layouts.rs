//! Numbers for layouts (element type, extents, strides), so that equal layouts compare by one number.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use orlop_graph::TensorDesc;

/// Numbers descriptions, so that equal ones have equal numbers: the layout keys of a usage.
#[derive(Debug, Default)]
pub struct Layouts {
    keys: HashMap<TensorDesc, u32, BuildHasherDefault<Mixer>>,
}

impl Layouts {
    /// The number of a description.
    pub fn key(&mut self, desc: &TensorDesc) -> u32 {
        let fresh = self.keys.len() as u32;
        *self.keys.entry(*desc).or_insert(fresh)
    }

    /// How many there are; a larger number is the key of none.
    pub fn count(&self) -> u32 {
        self.keys.len() as u32
    }
}

/// Multiplies and rotates: a tenth of the time of the standard hasher, which guards against chosen keys. Keys here
/// are a graph's own, and a clash only costs a comparison.
#[derive(Debug, Default)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.write_u64(u64::from_le_bytes(*word)));
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use orlop_graph::DType;

    #[test]
    fn equal_descriptions_have_equal_keys_and_others_have_others() {
        let mut layouts = Layouts::default();
        let desc = |extent| TensorDesc::contiguous(DType::F32, &[extent, 3]).unwrap();
        let keys: Vec<u32> = [1, 2, 1, 3, 2].map(|extent| layouts.key(&desc(extent))).to_vec();
        assert_eq!(keys, [0, 1, 0, 2, 1]);
        assert_eq!(layouts.count(), 3);
    }
}
