//! Random weights at the speed of copying: a pool of encoded values for each type and distribution, from which tensors
//! are filled in runs that begin at random.

use std::collections::HashMap;
use std::io::{self, Write};

use orlop_graph::DType;
use orlop_quant::encode;

use super::tensors::SynthTensor;
use crate::Error;
use crate::sampling::Random;

/// Maximum of elements of a pool: whole blocks of every type.
const LEAST: u64 = 1 << 16;
const MAX_ELEMENTS: u64 = 1 << 19;
/// Elements of a run: whole blocks of every type.
const RUN: u64 = 1 << 11;

/// Type, mean and deviation; floats by their bits.
type Key = (DType, u32, u32);

fn key(tensor: &SynthTensor, dtype: DType) -> Key {
    (dtype, tensor.mean.to_bits(), tensor.deviation.to_bits())
}

pub(super) struct Pools {
    seed: u64,
    pools: HashMap<Key, Vec<u8>>,
}

impl Pools {
    /// Pools for all these tensors.
    pub(super) fn fill(seed: u64, tensors: &[(SynthTensor, DType)]) -> Result<Pools, Error> {
        let mut sizes: HashMap<Key, u64> = HashMap::new();
        for (tensor, dtype) in tensors {
            let wanted = tensor.elements().unwrap_or(MAX_ELEMENTS).saturating_mul(4).next_multiple_of(RUN);
            let size = sizes.entry(key(tensor, *dtype)).or_insert(LEAST);
            *size = (*size).max(wanted).min(MAX_ELEMENTS);
        }
        let pools = sizes.into_iter().map(|(key, size)| Ok((key, pool(seed, key, size)?)));
        Ok(Pools { seed, pools: pools.collect::<Result<_, Error>>()? })
    }

    /// Writes a tensor's values.
    pub(super) fn pour(&self, tensor: &SynthTensor, dtype: DType, out: &mut dyn Write) -> io::Result<()> {
        let missing = || io::Error::other("no pool was filled for the tensor");
        let pool = self.pools.get(&key(tensor, dtype)).ok_or_else(missing)?;
        let mut left = tensor.bytes(dtype).ok_or_else(|| io::Error::other("no whole blocks"))?;
        let block = dtype.block_bytes();
        let run = RUN / dtype.block_elements() * block;
        let starts = (pool.len() as u64 - run) / block + 1;
        let mut random = Random::new(self.seed ^ hash(tensor.name.as_bytes()));
        while left > 0 {
            let start = (random.next() % starts * block) as usize;
            let length = left.min(run);
            out.write_all(&pool[start..start + length as usize])?;
            left -= length;
        }
        Ok(())
    }
}

/// Encoded values of one distribution.
fn pool(seed: u64, (dtype, mean, deviation): Key, elements: u64) -> Result<Vec<u8>, Error> {
    let (mean, deviation) = (f32::from_bits(mean), f32::from_bits(deviation));
    let distribution = [dtype.gguf_id().to_le_bytes(), mean.to_le_bytes(), deviation.to_le_bytes()].concat();
    let mut random = Random::new(seed ^ hash(&distribution));
    let values: Vec<f32> = (0..elements).map(|_| mean + deviation * normal(random.next())).collect();
    let bytes = dtype.row_bytes(elements).unwrap_or(0);
    let mut encoded = vec![0; bytes as usize];
    let no_codec = |_| Error::NoCodec { tensor: "of a pool".to_owned(), dtype };
    encode(dtype, &values, &mut encoded).map_err(no_codec)?;
    Ok(encoded)
}

/// Approximates a normal distribution of deviation 1, up to 3.4, by the sum of four uniform values. Only sums and a
/// product, so it is the same on every machine.
fn normal(bits: u64) -> f32 {
    let sum: u64 = (0..4).map(|lane| bits >> (16 * lane) & 0xffff).sum();
    let (mean, deviation) = (131_070.0, 37_837.227);
    (sum as f32 - mean) / deviation
}

/// FNV-1a, 64 bits.
fn hash(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
