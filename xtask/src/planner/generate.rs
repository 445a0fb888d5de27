//! Generates deterministic problems of any size.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result};

use super::random::Random;

/// Bytes of the smallest and of the largest buffer; sizes are log-uniform.
const SIZES: (f64, f64) = (256.0, 67_108_864.0);
/// Most steps of a short and of a long lifetime. One buffer starts at each step on average.
const SHORT: u64 = 100;
const LONG: u64 = 8_000;
/// Most lifetimes that are nested in each other.
const DEPTH: usize = 2_000;
/// Layers of a network in training: each keeps a result from its forward step to its backward step.
const LAYERS: u64 = 1_000;
const SEED: u64 = 7;

/// A kind of lifetimes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mix {
    /// Up to [`SHORT`] steps.
    ShortLived,
    /// As calls of functions: what starts later ends sooner.
    Nested,
    /// Up to [`LONG`] steps.
    LongLived,
    /// Forward and backward steps, one batch after the other; half of the buffers live for a few steps.
    Training,
}

impl Mix {
    pub(super) const ALL: [Mix; 4] = [Mix::ShortLived, Mix::Nested, Mix::LongLived, Mix::Training];

    pub(super) fn name(self) -> &'static str {
        match self {
            Mix::ShortLived => "short-lived",
            Mix::Nested => "nested",
            Mix::LongLived => "long-lived",
            Mix::Training => "training",
        }
    }

    fn lifetimes(self, buffers: usize, random: &mut Random) -> Vec<Range<u64>> {
        let up_to = |longest: u64, random: &mut Random| {
            let start = random.below(buffers as u64);
            start..start + 1 + random.below(longest)
        };
        match self {
            Mix::ShortLived => (0..buffers).map(|_| up_to(SHORT, random)).collect(),
            Mix::LongLived => (0..buffers).map(|_| up_to(LONG, random)).collect(),
            Mix::Nested => nested(buffers, random),
            Mix::Training => (0..buffers as u64).map(|id| training(id, random)).collect(),
        }
    }
}

/// A random walk of calls and returns, each of which takes a step.
fn nested(buffers: usize, random: &mut Random) -> Vec<Range<u64>> {
    let (mut open, mut lives): (Vec<u64>, Vec<Range<u64>>) = (Vec::new(), Vec::with_capacity(buffers));
    let mut step = 0;
    while lives.len() < buffers {
        let is_full = open.len() >= DEPTH || open.len() + lives.len() >= buffers;
        match open.pop() {
            Some(start) if is_full || random.below(2) == 0 => lives.push(start..step),
            kept => open.extend(kept.into_iter().chain([step])),
        }
        step += 1;
    }
    lives
}

/// Even ids are results of layers, odd ones temporaries beside them.
fn training(id: u64, random: &mut Random) -> Range<u64> {
    let (batch, layer) = (id / (2 * LAYERS), id / 2 % LAYERS);
    let begin = batch * 2 * LAYERS;
    if id.is_multiple_of(2) {
        return begin + layer..begin + 2 * LAYERS - layer;
    }
    let start = begin + random.below(2 * LAYERS);
    start..start + 1 + random.below(4)
}

/// Writes a problem with this many buffers.
pub(super) fn write(file: &Path, mix: Mix, buffers: usize) -> Result<()> {
    let failed = || format!("writing {}", file.display());
    let mut out = BufWriter::new(File::create(file).with_context(failed)?);
    let mut random = Random::new(SEED);
    let (small, large) = SIZES;
    writeln!(out, "id,lower,upper,size").with_context(failed)?;
    for (id, live) in mix.lifetimes(buffers, &mut random).into_iter().enumerate() {
        let size = (small * (large / small).powf(random.unit())) as u64;
        writeln!(out, "{id},{},{},{size}", live.start, live.end).with_context(failed)?;
    }
    out.flush().with_context(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mix_has_as_many_lifetimes_as_were_asked_for() {
        for mix in Mix::ALL {
            let lives = mix.lifetimes(5_000, &mut Random::new(SEED));
            assert_eq!(lives.len(), 5_000, "{mix:?}");
            assert!(lives.iter().all(|live| !live.is_empty()), "{mix:?}");
        }
    }

    #[test]
    fn nested_lifetimes_contain_each_other_or_are_apart() {
        let lives = Mix::Nested.lifetimes(300, &mut Random::new(SEED));
        let inside = |a: &Range<u64>, b: &Range<u64>| b.start < a.start && a.end < b.end;
        let apart = |a: &Range<u64>, b: &Range<u64>| a.end <= b.start || b.end <= a.start;
        for (index, a) in lives.iter().enumerate() {
            assert!(lives[..index].iter().all(|b| inside(a, b) || inside(b, a) || apart(a, b)), "{a:?}");
        }
    }
}
