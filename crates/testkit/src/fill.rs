//! Contents of leaves from a seeded generator: uniform numbers, indices, given values.

use orlop_graph::TensorDesc;

use crate::elements::packed_bytes;
use crate::execute::scatter;
use crate::random::Random;
use crate::{Feeds, OpFailure, encode_elements};
use orlop_graph::{Graph, TensorId};

/// What a leaf is filled with. Deterministic: the numbers follow from a generator that is seeded by a name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fill {
    /// Numbers between two limits, spread evenly.
    Uniform {
        /// Smallest.
        low: f64,
        /// Largest.
        high: f64,
    },
    /// Whole numbers from `low` up to, not including, `high`; `low` if there are none.
    Whole {
        /// Smallest.
        low: i64,
        /// First that is too large.
        high: i64,
    },
    /// In each run of elements, different whole numbers below a limit, in random order: row indices. Where the run is
    /// longer than the limit, the rest is -1.
    Distinct {
        /// Elements of a run.
        run: u64,
        /// First number that is too large.
        below: u64,
    },
    /// These, repeated from the beginning.
    Values(Vec<f64>),
    /// One of these, at random.
    OneOf(Vec<f64>),
}

impl Fill {
    /// Numbers of both signs, of the size that activations and weights have.
    pub(crate) const SIGNED: Fill = Fill::Uniform { low: -1.0, high: 1.0 };

    /// A tensor's elements.
    fn values(&self, elements: u64, random: &mut Random) -> Vec<f64> {
        let count = elements as usize;
        match self {
            Fill::Uniform { low, high } => (0..count).map(|_| random.between(*low, *high)).collect(),
            Fill::Whole { low, high } => {
                let span = u64::try_from(high.saturating_sub(*low)).unwrap_or(0);
                (0..count).map(|_| (*low + random.below(span) as i64) as f64).collect()
            }
            Fill::Distinct { run, below } => {
                let mut values = Vec::with_capacity(count);
                while values.len() < count {
                    let numbers = random.shuffled(*below).into_iter().map(|number| number as f64);
                    values.extend(numbers.chain(std::iter::repeat(-1.0)).take((*run).max(1) as usize));
                }
                values.truncate(count);
                values
            }
            Fill::Values(given) => given.iter().copied().cycle().take(count).collect(),
            Fill::OneOf(given) => (0..count).map(|_| random.pick(given)).collect(),
        }
    }

    /// A tensor's bytes, gaps included. Gaps hold ones, which is NaN in every floating-point type.
    ///
    /// # Errors
    /// [`OpFailure::NoCodec`] for types that cannot be encoded.
    pub(crate) fn bytes(&self, desc: &TensorDesc, random: &mut Random) -> Result<Vec<u8>, OpFailure> {
        let values = self.values(desc.elements(), random);
        let short = OpFailure::Length { expected: desc.elements(), given: values.len() as u64 };
        if values.len() as u64 != desc.elements() {
            return Err(short);
        }
        let packed = encode_elements(desc.dtype, &values)?;
        debug_assert_eq!(packed.len() as u64, packed_bytes(desc));
        let mut bytes = vec![0xff; desc.bytes() as usize];
        let place = |at: u64, run: &[u8]| {
            bytes[at as usize..at as usize + run.len()].copy_from_slice(run);
            Ok(())
        };
        scatter(desc, &packed, place).map_err(|_| short)?;
        Ok(bytes)
    }
}

/// The contents of leaves: for each its fill, from a generator that is seeded by `name` and the leaf's position.
///
/// # Errors
/// [`OpFailure::NoCodec`] for leaves whose type cannot be encoded.
pub(crate) fn feeds(graph: &Graph, name: &str, fills: &[(TensorId, Fill)]) -> Result<Feeds, OpFailure> {
    let feed = |(leaf, fill): &(TensorId, Fill)| {
        let mut random = Random::named(&format!("{name} {leaf}"));
        Ok((*leaf, fill.bytes(&graph.tensor(*leaf).desc, &mut random)?))
    };
    fills.iter().map(feed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode_elements;
    use orlop_graph::DType;

    fn filled(fill: &Fill, dtype: DType, extents: &[u64]) -> Vec<f64> {
        let desc = TensorDesc::contiguous(dtype, extents).unwrap();
        let bytes = fill.bytes(&desc, &mut Random::new(1)).unwrap();
        decode_elements(dtype, &bytes).unwrap()
    }

    #[test]
    fn distinct_numbers_do_not_repeat_within_a_run() {
        let values = filled(&Fill::Distinct { run: 3, below: 5 }, DType::I32, &[3, 20]);
        for run in values.chunks(3) {
            assert!(run.iter().all(|value| (0.0..5.0).contains(value)));
            assert!(run[0] != run[1] && run[0] != run[2] && run[1] != run[2], "{run:?}");
        }
        assert_eq!(filled(&Fill::Distinct { run: 3, below: 1 }, DType::I64, &[3]), [0.0, -1.0, -1.0]);
    }

    #[test]
    fn gaps_are_not_numbers() {
        let desc = TensorDesc::strided(DType::F32, [1, 2, 1, 1], [4, 8, 16, 16]).unwrap();
        let bytes = Fill::Values(vec![1.0, 2.0]).bytes(&desc, &mut Random::new(1)).unwrap();
        let values = decode_elements(DType::F32, &bytes).unwrap();
        assert_eq!([values[0], values[2]], [1.0, 2.0]);
        assert!(values[1].is_nan());
    }

    #[test]
    fn uniform_numbers_keep_to_their_limits_in_blocks_too() {
        let values = filled(&Fill::SIGNED, DType::Q8_0, &[64, 2]);
        assert!(values.iter().all(|value| value.abs() <= 1.01));
        assert!(values.iter().any(|value| *value < -0.5) && values.iter().any(|value| *value > 0.5));
    }
}
