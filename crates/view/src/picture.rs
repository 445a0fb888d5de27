use std::ops::Range;

use crate::Error;

/// One plan, as it is seen: who lies where, from when to when.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Picture {
    /// What is planned.
    pub title: String,
    /// How: a line for people.
    pub note: String,
    /// How many steps the time axis has.
    pub steps: u64,
    /// What each step does; may be shorter than `steps`, or empty.
    pub step_names: Vec<String>,
    /// Pieces of memory that are planned by themselves, each in one or several chunks.
    pub regions: Vec<Region>,
    /// The rectangles.
    pub blocks: Vec<Block>,
}

/// Memory that is planned by itself: a device's arena, its weights, its caches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// The device, or what the plan calls the memory.
    pub device: String,
    /// What it is for.
    pub kind: RegionKind,
    /// Bytes of each chunk.
    pub chunks: Vec<u64>,
    /// Bytes that no plan can be below, if that is known.
    pub bound: Option<u64>,
}

/// What memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RegionKind {
    /// What runs compute.
    Arena,
    /// Weights as they are in the file.
    Weights,
    /// Weights in a layout of the device's own.
    Repacked,
    /// Keys and values of all tokens.
    Cache,
}

/// A rectangle: bytes times steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The tensor.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// By position in [`Picture::regions`].
    pub region: usize,
    /// Which of the region's chunks.
    pub chunk: usize,
    /// Bytes from the chunk's beginning.
    pub offset: u64,
    /// Bytes that it takes.
    pub bytes: u64,
    /// Steps at which it is there.
    pub live: Range<u64>,
    /// The step that computes it; `None` for what is there before the first.
    pub producer: Option<u64>,
    /// The steps that read it.
    pub consumers: Vec<u64>,
    /// Why it is where it is.
    pub reason: String,
    /// The block whose place it took.
    pub replaces: Option<usize>,
    /// The block that it lies on: the one whose end is its beginning, alive at one of the same steps.
    pub above: Option<usize>,
}

/// What a tensor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A parameter of the model.
    Weight,
    /// Keys and values.
    Cache,
    /// Set before the run.
    Input,
    /// Computed.
    Activation,
    /// A step's own.
    Scratch,
    /// Brought over from another device.
    Copy,
}

impl Kind {
    /// All kinds, in the order of legends.
    pub const ALL: [Kind; 6] =
        [Kind::Weight, Kind::Cache, Kind::Input, Kind::Activation, Kind::Scratch, Kind::Copy];

    /// For legends.
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

    /// Position in [`Kind::ALL`].
    pub(crate) fn index(self) -> usize {
        self as usize
    }
}

impl RegionKind {
    /// For headings.
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
    /// Bytes of all chunks; `u64::MAX` if that is more than 64 bits hold.
    pub fn bytes(&self) -> u64 {
        self.chunks.iter().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }
}

impl Picture {
    /// Bytes of all regions; `u64::MAX` if that is more than 64 bits hold.
    pub fn total(&self) -> u64 {
        self.regions.iter().fold(0, |sum, region| sum.saturating_add(region.bytes()))
    }

    /// The bytes in use of a region over time: each entry holds from its step to the next entry's.
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

    /// The first step at which most of a region is in use, and how much that is.
    pub fn peak(&self, region: usize) -> (u64, u64) {
        let most =
            |best: (u64, u64), (step, bytes): (u64, u64)| if bytes > best.1 { (step, bytes) } else { best };
        self.in_use(region).into_iter().fold((0, 0), most)
    }

    /// What a step does, if anybody said.
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

    /// Fills in [`Block::above`] from where blocks lie.
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
            // What lies on the same bytes comes one after the other, so ends are in the order of beginnings.
            let first = list.partition_point(|index| self.blocks[*index].live.end <= block.live.start);
            list.get(first).copied().filter(|index| self.blocks[*index].live.start < block.live.end)
        };
        let found: Vec<Option<usize>> = self.blocks.iter().map(under).collect();
        for (block, above) in self.blocks.iter_mut().zip(found) {
            block.above = above;
        }
    }
}
