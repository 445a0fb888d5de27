//! The JSON of a page: one array per property, which keeps fifty thousand blocks small.

use std::collections::HashMap;

use serde::Serialize;

use crate::picture::{Block, Kind, Picture, TradeOff};

/// The data of a page.
#[derive(Serialize)]
pub(crate) struct Pages<'a> {
    kinds: [&'static str; 6],
    /// Whether two pictures are initially shown side by side.
    beside: bool,
    pictures: Vec<Columns<'a>>,
}

impl<'a> Pages<'a> {
    pub(crate) fn new(pictures: &'a [Picture], beside: bool) -> Pages<'a> {
        let kinds = Kind::ALL.map(Kind::name);
        Pages { kinds, beside, pictures: pictures.iter().map(Columns::new).collect() }
    }
}

#[derive(Serialize)]
struct Columns<'a> {
    title: &'a str,
    note: &'a str,
    steps: u64,
    step_names: &'a [String],
    regions: Vec<RegionColumns<'a>>,
    name: Vec<&'a str>,
    kind: Vec<usize>,
    region: Vec<usize>,
    chunk: Vec<usize>,
    offset: Vec<u64>,
    bytes: Vec<u64>,
    /// First step.
    start: Vec<u64>,
    /// Number of steps.
    span: Vec<u64>,
    /// The step plus one; 0: none.
    producer: Vec<u64>,
    /// Number of consumers.
    uses: Vec<usize>,
    /// The consumers of all blocks, delta-encoded.
    users: Vec<i64>,
    /// Index into `reasons`.
    reason: Vec<usize>,
    reasons: Vec<&'a str>,
    /// Index plus one; 0: none.
    replaces: Vec<usize>,
    above: Vec<usize>,
    trade_offs: &'a [TradeOff],
}

#[derive(Serialize)]
struct RegionColumns<'a> {
    device: &'a str,
    what: &'static str,
    arena: bool,
    chunks: &'a [u64],
    bound: Option<u64>,
    peak: u64,
    peak_step: u64,
}

impl<'a> Columns<'a> {
    fn new(picture: &'a Picture) -> Columns<'a> {
        let blocks = &picture.blocks;
        let (reason, reasons) = numbered(blocks);
        let region = |(index, region): (usize, &'a crate::Region)| {
            let (peak_step, peak) = picture.peak(index);
            RegionColumns {
                device: &region.device,
                what: region.kind.name(),
                arena: region.kind == crate::RegionKind::Arena,
                chunks: &region.chunks,
                bound: region.bound,
                peak,
                peak_step,
            }
        };
        let above_one = |index: Option<usize>| index.map_or(0, |index| index + 1);
        Columns {
            title: &picture.title,
            note: &picture.note,
            steps: picture.steps,
            step_names: &picture.step_names,
            regions: picture.regions.iter().enumerate().map(region).collect(),
            name: blocks.iter().map(|block| block.name.as_str()).collect(),
            kind: blocks.iter().map(|block| block.kind.index()).collect(),
            region: blocks.iter().map(|block| block.region).collect(),
            chunk: blocks.iter().map(|block| block.chunk).collect(),
            offset: blocks.iter().map(|block| block.offset).collect(),
            bytes: blocks.iter().map(|block| block.bytes).collect(),
            start: blocks.iter().map(|block| block.live.start).collect(),
            span: blocks.iter().map(|block| block.live.end.saturating_sub(block.live.start)).collect(),
            producer: blocks.iter().map(|block| block.producer.map_or(0, |step| step + 1)).collect(),
            uses: blocks.iter().map(|block| block.consumers.len()).collect(),
            users: blocks.iter().flat_map(differences).collect(),
            reason,
            reasons,
            replaces: blocks.iter().map(|block| above_one(block.replaces)).collect(),
            above: blocks.iter().map(|block| above_one(block.above)).collect(),
            trade_offs: &picture.trade_offs,
        }
    }
}

/// The consumers, delta-encoded from the block's first step.
fn differences(block: &Block) -> impl Iterator<Item = i64> {
    let before = std::iter::once(block.live.start).chain(block.consumers.iter().copied());
    block.consumers.iter().zip(before).map(|(step, before)| step.wrapping_sub(before) as i64)
}

/// Deduplicated reasons, and the index of each block's reason.
fn numbered(blocks: &[Block]) -> (Vec<usize>, Vec<&str>) {
    let mut known: HashMap<&str, usize> = HashMap::new();
    let mut texts: Vec<&str> = Vec::new();
    let mut numbers = Vec::with_capacity(blocks.len());
    for block in blocks {
        let fresh = texts.len();
        let index = *known.entry(block.reason.as_str()).or_insert(fresh);
        if index == fresh {
            texts.push(&block.reason);
        }
        numbers.push(index);
    }
    (numbers, texts)
}
