//! A partition: consecutive sections that share no item with the others.

use std::ops::Range;

use super::super::sections::{AddressSpace, Sections};

/// The items and sections of one partition, both numbered from 0.
#[derive(Clone, Debug)]
pub(super) struct Partition {
    pub(super) low: Vec<u32>,
    pub(super) high: Vec<u32>,
    pub(super) bytes: Vec<u64>,
    pub(super) align: Vec<u64>,
    pub(super) steps: Vec<u64>,
    pub(super) fixed: Vec<Option<u64>>,
    pub(super) load: Vec<u64>,
    pub(super) space: AddressSpace,
    /// Every sum of footprints is a valid address for every item, and no item is fixed.
    pub(super) plain: bool,
}

impl Partition {
    pub(super) fn new(
        all: &Sections,
        space: AddressSpace,
        sections: Range<usize>,
        items: Range<usize>,
    ) -> Self {
        let base = sections.start as u32;
        let fixed = all.fixed[items.clone()].to_vec();
        let largest = all.align[items.clone()].iter().copied().max().unwrap_or(1);
        let plain = space.max_chunk.is_none()
            && fixed.iter().all(Option::is_none)
            && all.bytes[items.clone()].iter().all(|bytes| bytes.is_multiple_of(largest));
        Self {
            low: all.low[items.clone()].iter().map(|low| low - base).collect(),
            high: all.high[items.clone()].iter().map(|high| high - base).collect(),
            bytes: all.bytes[items.clone()].to_vec(),
            align: all.align[items.clone()].to_vec(),
            steps: all.steps[items].to_vec(),
            fixed,
            load: all.load[sections].to_vec(),
            space,
            plain,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn sections(&self) -> usize {
        self.load.len()
    }

    pub(super) fn bound(&self) -> u64 {
        self.load.iter().copied().max().unwrap_or(0)
    }

    /// The partition restricted to some of its items.
    pub(super) fn only(&self, kept: &[u32]) -> Self {
        fn pick<T: Copy>(from: &[T], kept: &[u32]) -> Vec<T> {
            kept.iter().map(|item| from[*item as usize]).collect()
        }
        let mut partition = Self {
            low: pick(&self.low, kept),
            high: pick(&self.high, kept),
            bytes: pick(&self.bytes, kept),
            align: pick(&self.align, kept),
            steps: pick(&self.steps, kept),
            fixed: pick(&self.fixed, kept),
            load: vec![0; self.load.len()],
            space: self.space,
            plain: self.plain,
        };
        for item in 0..partition.len() {
            for section in partition.low[item]..partition.high[item] {
                partition.load[section as usize] += partition.bytes[item];
            }
        }
        partition
    }

    /// The granularity of addresses.
    pub(super) fn unit(&self) -> u64 {
        let numbers = self.bytes.iter().chain(&self.align).copied();
        let numbers = numbers.chain(self.fixed.iter().flatten().copied()).chain(self.space.max_chunk);
        numbers.fold(0, gcd).max(1)
    }
}

pub(super) fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
