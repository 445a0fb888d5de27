//! A 64-bit hash of a problem, stored with its plan.

use std::fmt;

use crate::Problem;

/// A 64-bit hash, stable across machines and versions. Prints as sixteen hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Signature(u64);

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Hashes a sequence of numbers into a [`Signature`].
///
/// ```
/// use orlop_plan::Signer;
/// let sign = |numbers: &[u64]| numbers.iter().fold(Signer::default(), |signer, n| signer.number(*n)).finish();
/// assert_eq!(sign(&[1, 2]), sign(&[1, 2]));
/// assert_ne!(sign(&[1, 2]), sign(&[2, 1]));
/// assert_ne!(sign(&[0]), sign(&[0, 0]));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Signer(u64);

impl Default for Signer {
    fn default() -> Self {
        Self(0x6a09_e667_f3bc_c908)
    }
}

impl Signer {
    /// Adds a number.
    #[must_use]
    pub fn number(self, number: u64) -> Self {
        // Each step is invertible, so every number affects the result.
        let mixed = (self.0.rotate_left(23) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self(mixed ^ (mixed >> 29)).scramble()
    }

    fn scramble(self) -> Self {
        let mixed = self.0.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        Self((mixed ^ (mixed >> 32)).wrapping_add(1))
    }

    /// Adds the count of `numbers`, then each of them.
    #[must_use]
    pub fn numbers(self, numbers: impl ExactSizeIterator<Item = u64>) -> Self {
        let signer = self.number(numbers.len() as u64);
        numbers.fold(signer, Signer::number)
    }

    /// The signature of all numbers added.
    pub fn finish(self) -> Signature {
        Signature(self.scramble().0)
    }
}

impl Problem {
    /// A signature of what makes a plan valid: the buffers and the chunk limit, without the capacity.
    pub fn signature(&self) -> Signature {
        let mut signer = Signer::default().number(self.buffers.len() as u64);
        signer = signer.numbers(self.max_chunk.into_iter().collect::<Vec<_>>().into_iter());
        for buffer in &self.buffers {
            signer = signer
                .number(buffer.size)
                .number(buffer.align)
                .number(buffer.live.start)
                .number(buffer.live.end);
            signer = match buffer.fixed {
                Some(place) => signer.number(1).number(u64::from(place.chunk)).number(place.offset),
                None => signer.number(0),
            };
        }
        signer.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BufferSpec, ChunkOffset};

    #[test]
    fn the_signature_covers_buffers_and_chunk_limit() {
        let base = Problem {
            buffers: vec![BufferSpec::new(8, 4, 0..2), BufferSpec::new(4, 4, 1..3)],
            ..Problem::default()
        };
        let changed = |change: &dyn Fn(&mut Problem)| {
            let mut problem = base.clone();
            change(&mut problem);
            problem.signature()
        };
        let differ: [&dyn Fn(&mut Problem); 8] = [
            &|p| p.buffers[0].size = 9,
            &|p| p.buffers[0].align = 8,
            &|p| p.buffers[0].live = 1..2,
            &|p| p.buffers[0].live = 0..3,
            &|p| p.buffers[1].fixed = Some(ChunkOffset::default()),
            &|p| p.max_chunk = Some(0),
            &|p| p.buffers.swap(0, 1),
            &|p| p.buffers.truncate(1),
        ];
        for change in differ {
            assert_ne!(changed(change), base.signature());
        }
        assert_eq!(changed(&|p| p.capacity = Some(100)), base.signature());
    }

    #[test]
    fn signatures_stay_the_same_from_version_to_version() {
        assert_eq!(Signer::default().number(1).number(2).finish().to_string(), "447fc6b2a504cbb4");
    }
}
