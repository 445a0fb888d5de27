//! Vertical layout of a drawing: one lane per chunk of each region.

use crate::{Picture, RegionKind};

/// Heights in pixels.
const HEADING: f64 = 26.0;
const CURVE: f64 = 40.0;
const GAP: f64 = 14.0;
const STATIC: f64 = 46.0;
const ARENA: f64 = 300.0;
const MIN_LANE: f64 = 18.0;

/// The lane of a chunk.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Lane {
    pub(crate) region: usize,
    pub(crate) chunk: usize,
    pub(crate) bytes: u64,
    pub(crate) top: f64,
    pub(crate) height: f64,
}

impl Lane {
    /// The y coordinate of an address; the lowest address is at the bottom.
    pub(crate) fn y(&self, bytes: u64) -> f64 {
        self.top + self.height * (1.0 - bytes as f64 / self.bytes.max(1) as f64)
    }
}

/// The heading of a region: its name, and for arenas the curve of bytes in use.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Head {
    pub(crate) region: usize,
    pub(crate) top: f64,
    /// Top and height of the curve.
    pub(crate) curve: Option<(f64, f64)>,
}

/// The complete layout.
pub(crate) struct Lanes {
    pub(crate) heads: Vec<Head>,
    pub(crate) lanes: Vec<Lane>,
    pub(crate) bottom: f64,
}

/// Lays out the lanes of a picture from `top`, arenas first.
pub(crate) fn lanes(picture: &Picture, top: f64) -> Lanes {
    let mut found = Lanes { heads: Vec::new(), lanes: Vec::new(), bottom: top };
    let is_arena = |index: &usize| picture.regions[*index].kind == RegionKind::Arena;
    let used = |index: &usize| picture.regions[*index].bytes() > 0;
    let largest =
        (0..picture.regions.len()).filter(is_arena).map(|index| picture.regions[index].bytes()).max();
    let order = (0..picture.regions.len()).filter(is_arena);
    let order = order.chain((0..picture.regions.len()).filter(|index| !is_arena(index))).filter(used);
    for region in order {
        let arena = is_arena(&region);
        let top = found.bottom;
        let curve = arena.then_some((top + HEADING, CURVE));
        found.heads.push(Head { region, top, curve });
        found.bottom += HEADING + if arena { CURVE + 6.0 } else { 0.0 };
        let all = if arena { ARENA } else { STATIC };
        let whole = largest.filter(|_| arena).unwrap_or(picture.regions[region].bytes()).max(1);
        for (chunk, bytes) in
            picture.regions[region].chunks.iter().enumerate().filter(|(_, bytes)| **bytes > 0)
        {
            let height = (all * (*bytes as f64 / whole as f64)).max(MIN_LANE);
            found.lanes.push(Lane { region, chunk, bytes: *bytes, top: found.bottom, height });
            found.bottom += height + 4.0;
        }
        found.bottom += GAP;
    }
    found
}
