//! The data of a picture.

use std::ops::Range;

use serde::Serialize;

use crate::Error;

/// A memory plan as rectangles: bytes times steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Picture {
    /// What is planned.
    pub title: String,
    /// A line of description.
    pub note: String,
    /// Number of steps on the time axis.
    pub steps: u64,
    /// The name of each step; may be shorter than `steps`.
    pub step_names: Vec<String>,
    /// Separately planned memory, each in one or several chunks.
    pub regions: Vec<Region>,
    /// The rectangles.
    pub blocks: Vec<Block>,
    /// Plans of other sizes with added steps, from the largest on; the page draws them as a curve.
    pub trade_offs: Vec<TradeOff>,
}

/// A plan of less memory that takes more time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TradeOff {
    /// Its size.
    pub bytes: u64,
    /// Estimated time of the added steps, as a share of the time of the given ones.
    pub added_time: f64,
}

/// Separately planned memory: a device's arena, its weights, its caches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// The device, or the plan's name for the memory.
    pub device: String,
    /// Its purpose.
    pub kind: RegionKind,
    /// Bytes of each chunk.
    pub chunks: Vec<u64>,
    /// A lower bound on the bytes of every plan, if known.
    pub bound: Option<u64>,
}

/// The purpose of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RegionKind {
    /// Intermediate results of runs.
    Arena,
    /// Weights in the file's layout.
    Weights,
    /// Weights in the device's layout.
    Repacked,
    /// The KV cache.
    Cache,
}

/// A rectangle: bytes times steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The tensor's name.
    pub name: String,
    /// The tensor's kind.
    pub kind: Kind,
    /// Index into [`Picture::regions`].
    pub region: usize,
    /// The region's chunk.
    pub chunk: usize,
    /// Bytes from the chunk's start.
    pub offset: u64,
    /// Its size.
    pub bytes: u64,
    /// Steps at which it is live.
    pub live: Range<u64>,
    /// The step that computes it; `None` if it exists before the first step.
    pub producer: Option<u64>,
    /// The steps that read it.
    pub consumers: Vec<u64>,
    /// The reason for its placement.
    pub reason: String,
    /// The block that it overwrites in place.
    pub replaces: Option<usize>,
    /// The block directly below it: it ends where this one starts, and both are live at some step.
    pub above: Option<usize>,
}

/// The kind of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A parameter of the model.
    Weight,
    /// Part of the KV cache.
    Cache,
    /// Set before the run.
    Input,
    /// An intermediate result.
    Activation,
    /// Scratch memory of a step.
    Scratch,
    /// Copied from another device.
    Copy,
}

impl Kind {
    /// All kinds, in the order of legends.
    pub const ALL: [Kind; 6] =
        [Kind::Weight, Kind::Cache, Kind::Input, Kind::Activation, Kind::Scratch, Kind::Copy];

    /// The name in legends.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Weight => "weights",
            Kind::Cache => "KV cache",
            Kind::Input => "inputs",
            Kind::Activation => "activations",
            Kind::Scratch => "scratch",
            Kind::Copy => "copies",
        }
    }

    /// Index into [`Kind::ALL`].
    pub(crate) fn index(self) -> usize {
        self as usize
    }
}

impl RegionKind {
    /// The name in headings.
    pub fn name(self) -> &'static str {
        match self {
            RegionKind::Arena => "arena",
            RegionKind::Weights => "weights",
            RegionKind::Repacked => "repacked weights",
            RegionKind::Cache => "KV cache",
        }
    }
}

impl Region {
    /// Bytes of all chunks, saturating.
    pub fn bytes(&self) -> u64 {
        self.chunks.iter().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }
}

impl Picture {
    /// Bytes of all regions, saturating.
    pub fn total(&self) -> u64 {
        self.regions.iter().fold(0, |sum, region| sum.saturating_add(region.bytes()))
    }

    /// The bytes in use of a region over time; each entry is valid until the next one's step.
    pub fn in_use(&self, region: usize) -> Vec<(u64, u64)> {
        let mut changes: Vec<(u64, i128)> = Vec::new();
        for block in self.blocks.iter().filter(|block| block.region == region) {
            changes.push((block.live.start, i128::from(block.bytes)));
            changes.push((block.live.end, -i128::from(block.bytes)));
        }
        changes.sort_unstable();
        let mut now = 0;
        let mut curve: Vec<(u64, u64)> = Vec::new();
        for (step, change) in changes {
            now += change;
            let bytes = u64::try_from(now).unwrap_or(0);
            match curve.last_mut().filter(|(last, _)| *last == step) {
                Some(last) => last.1 = bytes,
                None => curve.push((step, bytes)),
            }
        }
        curve
    }

    /// The first step with the most bytes of a region in use, and these bytes.
    pub fn peak(&self, region: usize) -> (u64, u64) {
        let most =
            |best: (u64, u64), (step, bytes): (u64, u64)| if bytes > best.1 { (step, bytes) } else { best };
        self.in_use(region).into_iter().fold((0, 0), most)
    }

    /// The name of a step, if it has one.
    pub fn step_name(&self, step: u64) -> Option<&str> {
        let name = self.step_names.get(usize::try_from(step).ok()?)?;
        Some(name.as_str()).filter(|name| !name.is_empty())
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.blocks.is_empty() {
            true => Err(Error::Empty { title: self.title.clone() }),
            false => Ok(()),
        }
    }

    /// Computes [`Block::above`] of all blocks.
    pub fn stack(&mut self) {
        use std::collections::HashMap;
        let mut tops: HashMap<(usize, usize, u64), Vec<usize>> = HashMap::new();
        for (index, block) in self.blocks.iter().enumerate() {
            let end = block.offset.saturating_add(block.bytes);
            tops.entry((block.region, block.chunk, end)).or_default().push(index);
        }
        for list in tops.values_mut() {
            list.sort_by_key(|index| self.blocks[*index].live.start);
        }
        let under = |block: &Block| {
            let list = tops.get(&(block.region, block.chunk, block.offset))?;
            // Blocks on the same bytes are disjoint in time, so ends are in the order of starts.
            let first = list.partition_point(|index| self.blocks[*index].live.end <= block.live.start);
            list.get(first).copied().filter(|index| self.blocks[*index].live.start < block.live.end)
        };
        let found: Vec<Option<usize>> = self.blocks.iter().map(under).collect();
        for (block, above) in self.blocks.iter_mut().zip(found) {
            block.above = above;
        }
    }
}
