//! Generates deterministic problems of any size.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};

/// Bytes of the smallest and of the largest buffer; sizes are log-uniform.
const SIZES: (f64, f64) = (256.0, 67_108_864.0);
/// Half of the buffers live up to this many steps, the other half up to `LONG`. One starts at each step on average, so
/// about 2,000 are live.
const SHORT: u64 = 100;
const LONG: u64 = 8_000;
const SEED: u64 = 7;

/// Writes a problem with this many buffers.
pub(crate) fn write(file: &Path, buffers: usize) -> Result<()> {
    let failed = || format!("writing {}", file.display());
    let mut out = BufWriter::new(File::create(file).with_context(failed)?);
    let mut dice = Dice(SEED);
    writeln!(out, "id,lower,upper,size").with_context(failed)?;
    for id in 0..buffers {
        let (small, large) = SIZES;
        let size = (small * (large / small).powf(dice.share())) as u64;
        let lower = dice.below(buffers as u64);
        let longest = if dice.below(2) == 0 { SHORT } else { LONG };
        let upper = lower + 1 + dice.below(longest);
        writeln!(out, "{id},{lower},{upper},{size}").with_context(failed)?;
    }
    out.flush().with_context(failed)
}

/// The splitmix64 generator with a fixed seed.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    /// From 0 to below 1.
    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}
