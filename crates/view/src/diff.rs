//! Differences between two pictures.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

use serde::Serialize;

use crate::bytes::signed_bytes;
use crate::picture::Block;
use crate::{Picture, short_bytes};

/// The differences between two pictures, per tensor and in total.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Title of the first picture.
    pub before: String,
    /// Title of the second picture.
    pub after: String,
    /// Bytes of all regions, before and after.
    pub total: (u64, u64),
    /// The regions of both.
    pub regions: Vec<RegionChange>,
    /// Number of unchanged tensors.
    pub unchanged: usize,
    /// Changed tensors, the largest change in bytes first.
    pub changes: Vec<Change>,
}

/// A region's bytes; `None` where it does not exist.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RegionChange {
    /// Device and purpose.
    pub region: String,
    /// Bytes of its chunks, before.
    pub before: Option<u64>,
    /// Bytes of its chunks, after.
    pub after: Option<u64>,
}

/// A changed tensor; `None` where it does not exist.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The tensor.
    pub name: String,
    /// Its placement before.
    pub before: Option<BlockPlacement>,
    /// Its placement after.
    pub after: Option<BlockPlacement>,
}

/// Memory and lifetime of a tensor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BlockPlacement {
    /// Device and purpose of the region.
    pub region: String,
    /// The region's chunk.
    pub chunk: usize,
    /// Bytes from the chunk's start.
    pub offset: u64,
    /// Its size.
    pub bytes: u64,
    /// The steps at which it is live.
    pub live: Range<u64>,
}

impl Difference {
    /// Compares two pictures. Tensors are matched by name, and those of equal names by order.
    pub fn between(before: &Picture, after: &Picture) -> Difference {
        let (old, new) = (by_name(before), by_name(after));
        let mut changes = Vec::new();
        let mut unchanged = 0;
        for ((name, nth), index) in ordered(&old) {
            let was = placement(before, &before.blocks[index]);
            match new.get(&(name, nth)).map(|index| placement(after, &after.blocks[*index])) {
                Some(is) if is == was => unchanged += 1,
                is => changes.push(Change { name: name.to_owned(), before: Some(was), after: is }),
            }
        }
        for ((name, _), index) in ordered(&new).into_iter().filter(|(key, _)| !old.contains_key(key)) {
            let is = placement(after, &after.blocks[index]);
            changes.push(Change { name: name.to_owned(), before: None, after: Some(is) });
        }
        changes.sort_by_key(|change| std::cmp::Reverse(change.weight()));
        Difference {
            before: before.title.clone(),
            after: after.title.clone(),
            total: (before.total(), after.total()),
            regions: region_changes(before, after),
            unchanged,
            changes,
        }
    }

    /// Whether the plans are equal.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.regions.iter().all(|region| region.before == region.after)
    }

    /// Number of tensors per kind of change.
    pub fn counts(&self) -> [(&'static str, usize); 5] {
        let count = |what: &str| self.changes.iter().filter(|change| change.what() == what).count();
        ["added", "removed", "resized", "moved", "retimed"].map(|what| (what, count(what)))
    }
}

impl Change {
    /// The kind of change.
    pub fn what(&self) -> &'static str {
        match (&self.before, &self.after) {
            (None, _) => "added",
            (_, None) => "removed",
            (Some(before), Some(after)) if before.bytes != after.bytes => "resized",
            (Some(BlockPlacement { live: before, .. }), Some(BlockPlacement { live: after, .. }))
                if self.stays() && before != after =>
            {
                "retimed"
            }
            _ => "moved",
        }
    }

    fn stays(&self) -> bool {
        let place = |placement: &Option<BlockPlacement>| {
            placement.as_ref().map(|placement| (placement.region.clone(), placement.chunk, placement.offset))
        };
        place(&self.before) == place(&self.after)
    }

    /// The sort key: bytes added or removed, then bytes moved.
    fn weight(&self) -> (u64, u64) {
        let bytes =
            |placement: &Option<BlockPlacement>| placement.as_ref().map_or(0, |placement| placement.bytes);
        let (before, after) = (bytes(&self.before), bytes(&self.after));
        (before.abs_diff(after), if self.what() == "retimed" { 0 } else { after })
    }
}

/// One line: change, bytes, placements, steps. Names are escaped as in Rust strings.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = |placement: &BlockPlacement| {
            format!("{} {}:{}", placement.region.escape_debug(), placement.chunk, placement.offset)
        };
        let steps = |placement: &BlockPlacement| {
            format!("steps {} to {}", placement.live.start, placement.live.end.saturating_sub(1))
        };
        let (what, name) = (self.what(), self.name.escape_debug());
        match (&self.before, &self.after) {
            (Some(before), Some(after)) => {
                let bytes = match before.bytes == after.bytes {
                    true => short_bytes(after.bytes),
                    false => format!("{} → {}", short_bytes(before.bytes), short_bytes(after.bytes)),
                };
                write!(f, "{what:<8} {bytes:>12}  {name}  ")?;
                match self.stays() {
                    true => write!(f, "at {}", place(after))?,
                    false => write!(f, "from {} to {}", place(before), place(after))?,
                }
                match before.live == after.live {
                    true => write!(f, ", {}", steps(after)),
                    false => write!(
                        f,
                        ", {} instead of {} to {}",
                        steps(after),
                        before.live.start,
                        before.live.end.saturating_sub(1)
                    ),
                }
            }
            (Some(placement), None) | (None, Some(placement)) => {
                let bytes = short_bytes(placement.bytes);
                write!(f, "{what:<8} {bytes:>12}  {name}  at {}, {}", place(placement), steps(placement))
            }
            (None, None) => write!(f, "{what:<8} {name}"),
        }
    }
}

/// The totals: one line per region, the sum, and the number of tensors per kind of change.
impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "from {}\nto   {}", self.before.escape_debug(), self.after.escape_debug())?;
        let row = |f: &mut fmt::Formatter<'_>, name: &str, before: Option<u64>, after: Option<u64>| {
            let cell = |bytes: Option<u64>| bytes.map_or_else(|| "–".to_owned(), short_bytes);
            let change = signed_bytes(before.unwrap_or(0), after.unwrap_or(0));
            writeln!(f, "{name:<28} {:>12} → {:>12}  {change:>13}", cell(before), cell(after))
        };
        for region in &self.regions {
            row(f, &region.region.escape_debug().to_string(), region.before, region.after)?;
        }
        if self.regions.len() != 1 {
            row(f, "total", Some(self.total.0), Some(self.total.1))?;
        }
        let counts = self.counts().into_iter().filter(|(_, count)| *count > 0);
        let counts: Vec<String> = counts.map(|(what, count)| format!("{count} {what}")).collect();
        match counts.is_empty() {
            true => write!(f, "tensors: all {} unchanged", self.unchanged),
            false => write!(f, "tensors: {}, {} unchanged", counts.join(", "), self.unchanged),
        }
    }
}

type ByName<'a> = HashMap<(&'a str, usize), usize>;

fn by_name(picture: &Picture) -> ByName<'_> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    let mut found = HashMap::with_capacity(picture.blocks.len());
    for (index, block) in picture.blocks.iter().enumerate() {
        let nth = counts.entry(&block.name).or_insert(0);
        found.insert((block.name.as_str(), *nth), index);
        *nth += 1;
    }
    found
}

fn ordered<'a>(found: &ByName<'a>) -> Vec<((&'a str, usize), usize)> {
    let mut list: Vec<_> = found.iter().map(|(key, index)| (*key, *index)).collect();
    list.sort_by_key(|(_, index)| *index);
    list
}

fn region_name(picture: &Picture, region: usize) -> String {
    let region = &picture.regions[region];
    format!("{} {}", region.device, region.kind.name())
}

fn placement(picture: &Picture, block: &Block) -> BlockPlacement {
    let Block { chunk, offset, bytes, ref live, .. } = *block;
    BlockPlacement { region: region_name(picture, block.region), chunk, offset, bytes, live: live.clone() }
}

fn region_changes(before: &Picture, after: &Picture) -> Vec<RegionChange> {
    let list = |picture: &Picture| -> Vec<(String, u64)> {
        let regions = picture.regions.iter().enumerate();
        regions.map(|(index, region)| (region_name(picture, index), region.bytes())).collect()
    };
    let (old, mut new) = (list(before), list(after));
    let mut changes = Vec::new();
    for (region, bytes) in old {
        let same = new.iter().position(|(name, _)| *name == region).map(|index| new.remove(index).1);
        changes.push(RegionChange { region, before: Some(bytes), after: same });
    }
    changes.extend(new.into_iter().map(|(region, bytes)| RegionChange {
        region,
        before: None,
        after: Some(bytes),
    }));
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_steer_a_terminal() {
        let placement =
            BlockPlacement { region: "\u{1b}[1mgpu".to_owned(), chunk: 0, offset: 0, bytes: 4, live: 0..2 };
        let change = |before: Option<&BlockPlacement>, after: Option<&BlockPlacement>| Change {
            name: "\u{1b}[2J\u{9b}one\nline".to_owned(),
            before: before.cloned(),
            after: after.cloned(),
        };
        let moved = BlockPlacement { offset: 64, ..placement.clone() };
        let changes =
            vec![change(Some(&placement), Some(&moved)), change(None, Some(&placement)), change(None, None)];
        let region = |name: &str| RegionChange { region: name.to_owned(), before: Some(4), after: Some(4) };
        let difference = Difference {
            before: "\u{7}a".to_owned(),
            after: "b\u{8}".to_owned(),
            total: (4, 4),
            regions: vec![region("\u{1b}[1mgpu")],
            unchanged: 0,
            changes,
        };
        for line in difference.changes.iter().map(Change::to_string) {
            assert!(!line.contains(char::is_control), "{line:?}");
            assert!(line.contains("\\u{1b}[2J\\u{9b}one\\nline"), "{line:?}");
        }
        let totals = difference.to_string();
        assert!(!totals.replace('\n', "").contains(char::is_control), "{totals:?}");
    }
}
