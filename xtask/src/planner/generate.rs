//! Generates deterministic problems of any size.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};

use super::random::Random;

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
    let mut random = Random::new(SEED);
    writeln!(out, "id,lower,upper,size").with_context(failed)?;
    for id in 0..buffers {
        let (small, large) = SIZES;
        let size = (small * (large / small).powf(random.unit())) as u64;
        let lower = random.below(buffers as u64);
        let longest = if random.below(2) == 0 { SHORT } else { LONG };
        let upper = lower + 1 + random.below(longest);
        writeln!(out, "{id},{lower},{upper},{size}").with_context(failed)?;
    }
    out.flush().with_context(failed)
}
