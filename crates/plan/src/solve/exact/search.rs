//! Depth-first search for a canonical plan of one partition within a height, with conflict-directed backjumping. The
//! README in this folder defines the terms and links the sources.

use super::decision_sets::DecisionSets;
use super::partition::Partition;

/// The branching heuristic: which segment end to decide next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Branching {
    /// Fewest candidates.
    MinDomain,
    /// The lowest floor, after any segment end with at most one candidate.
    LowestFloor,
    /// Fewest candidates divided by the weight of the section: its number of dead ends.
    DomWdeg,
}

/// The result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Found,
    /// Proven: no plan fits the height.
    Exhausted,
    /// The node limit is reached.
    Stopped,
}

const NONE: u32 = u32::MAX;
/// The candidate that leaves a gap.
const GAP: u32 = u32::MAX;
const UNPLACED: u64 = u64::MAX;

/// A decision at one end of a segment, and its candidates.
#[derive(Clone, Copy, Debug)]
struct Level {
    segment: Segment,
    left: bool,
    /// The untried candidates in `Search::candidates`: `next..end`.
    next: u32,
    end: u32,
    /// For [`GAP`]: the sections of the gap, and their new floor.
    gap: (u32, u32),
    gap_to: u64,
    /// Some unplaced item at that end lives within the segment: the height of a gap then depends on the whole segment.
    inside: bool,
    /// Start of the current candidate's changes in `Search::trail`.
    trail: u32,
    candidate: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    low: u32,
    high: u32,
    floor: u64,
}

/// The previous state of a section: the decision that set its floor, and its top item.
#[derive(Clone, Copy, Debug)]
struct Change {
    section: u32,
    raised_by: u32,
    top: u32,
}

/// Items bucketed by section in CSR form, by rank.
#[derive(Debug)]
struct SectionBuckets {
    first: Vec<u32>,
    items: Vec<u32>,
}

impl SectionBuckets {
    fn new(sections: usize, order: &[u32], section: &[u32]) -> Self {
        let mut first = vec![0u32; sections + 2];
        for item in order {
            first[section[*item as usize] as usize + 1] += 1;
        }
        for s in 0..=sections {
            first[s + 1] += first[s];
        }
        let mut end = first.clone();
        let mut items = vec![0u32; order.len()];
        for item in order {
            let end = &mut end[section[*item as usize] as usize];
            items[*end as usize] = *item;
            *end += 1;
        }
        Self { first, items }
    }

    fn of(&self, section: u32) -> &[u32] {
        &self.items[self.first[section as usize] as usize..self.first[section as usize + 1] as usize]
    }
}

#[derive(Debug)]
pub(super) struct Search<'a> {
    partition: &'a Partition,
    height: u64,
    branching: Branching,
    starts: SectionBuckets,
    ends: SectionBuckets,
    rank: Vec<u32>,
    /// Per item, an identical item that must lie below it (symmetry breaking).
    twin: Vec<u32>,
    fixed: Vec<u32>,
    /// Per item, its address.
    address: Vec<u64>,
    /// Per section: its floor, and the bytes still to be placed above it. A section with none left has its floor at
    /// the height limit.
    floor: Vec<u64>,
    remaining: Vec<u64>,
    raised_by: Vec<u32>,
    top: Vec<u32>,
    /// Per section, its number of dead ends plus one.
    weight: Vec<u64>,
    levels: Vec<Level>,
    candidates: Vec<u32>,
    trail: Vec<Change>,
    /// Per section, the decisions that changed it.
    changed_by: DecisionSets,
    /// Per level, its conflict set: the decisions that ruled candidates out.
    conflict_sets: DecisionSets,
    /// Nodes visited so far.
    pub(super) nodes: u64,
}

impl<'a> Search<'a> {
    /// A search of `partition` within `height`, which is at least every section's load. Candidates are tried in `order`.
    pub(super) fn new(partition: &'a Partition, height: u64, order: &[u32], branching: Branching) -> Self {
        let (items, sections) = (partition.len(), partition.sections());
        let mut rank = vec![0; items];
        for (position, item) in (0u32..).zip(order) {
            rank[*item as usize] = position;
        }
        let starts = SectionBuckets::new(sections, order, &partition.low);
        let mut twin = vec![NONE; items];
        let kind = |item: u32| {
            let i = item as usize;
            (partition.high[i], partition.bytes[i], partition.align[i], partition.fixed[i])
        };
        for section in 0..sections as u32 {
            let mut list = starts.of(section).to_vec();
            list.sort_by_key(|item| kind(*item));
            for pair in list.windows(2).filter(|pair| kind(pair[0]) == kind(pair[1])) {
                twin[pair[1] as usize] = pair[0];
            }
        }
        let fixed = (0..items as u32).filter(|item| partition.fixed[*item as usize].is_some()).collect();
        let depth = 2 * items;
        Self {
            partition,
            height,
            branching,
            ends: SectionBuckets::new(sections, order, &partition.high),
            starts,
            rank,
            twin,
            fixed,
            address: vec![UNPLACED; items],
            floor: partition.load.iter().map(|load| if *load == 0 { height } else { 0 }).collect(),
            remaining: partition.load.clone(),
            raised_by: vec![NONE; sections],
            top: vec![NONE; sections],
            weight: vec![1; sections],
            levels: vec![],
            candidates: vec![],
            trail: vec![],
            changed_by: DecisionSets::new(sections, depth),
            conflict_sets: DecisionSets::new(0, depth),
            nodes: 0,
        }
    }

    /// Continues until there is a result, or for `nodes` nodes. A plan found is in [`Self::addresses`].
    pub(super) fn run(&mut self, nodes: u64) -> Outcome {
        let last = self.nodes.saturating_add(nodes);
        loop {
            let Some((segment, left)) = self.select_branch() else { return Outcome::Found };
            if self.nodes >= last {
                return Outcome::Stopped;
            }
            self.nodes += 1;
            self.open(segment, left);
            while !self.try_next() {
                if !self.backjump() {
                    return Outcome::Exhausted;
                }
            }
        }
    }

    /// Undoes every decision and keeps the weights.
    pub(super) fn restart(&mut self) {
        while !self.levels.is_empty() {
            self.pop_level();
        }
    }

    pub(super) fn addresses(&self) -> &[u64] {
        &self.address
    }

    /// Whether an item within a segment may be placed on its floor, by symmetry, dominance and validity.
    fn is_candidate(&self, item: u32, floor: u64) -> bool {
        let (i, partition) = (item as usize, self.partition);
        let twin = self.twin[i];
        if self.address[i] != UNPLACED || (twin != NONE && self.address[twin as usize] == UNPLACED) {
            return false;
        }
        if partition.plain || partition.space.max_chunk.is_none() {
            let below = self.top[partition.low[i] as usize] as usize;
            if below != NONE as usize
                && partition.low[below] == partition.low[i]
                && partition.high[below] == partition.high[i]
                && self.rank[below] > self.rank[i]
                && partition.align[below] == partition.align[i]
                && partition.fixed[below].is_none()
                && partition.fixed[i].is_none()
                && self.address[below] + partition.bytes[below] == floor
            {
                return false;
            }
        }
        partition.plain || self.is_legal(i, floor)
    }

    fn is_legal(&self, i: usize, floor: u64) -> bool {
        let partition = self.partition;
        match partition.fixed[i] {
            Some(address) => address == floor,
            None => {
                let meets =
                    |x: usize| partition.low[x] < partition.high[i] && partition.low[i] < partition.high[x];
                let blocks = |x: &u32| {
                    let x = *x as usize;
                    let above = partition.fixed[x].unwrap_or(0);
                    self.address[x] == UNPLACED && meets(x) && floor + partition.bytes[i] > above
                };
                partition.space.earliest(floor, partition.bytes[i], partition.align[i]) == Some(floor)
                    && !self.fixed.iter().any(blocks)
            }
        }
    }

    /// The items at one end of a segment that live within it.
    fn inside(&self, segment: Segment, left: bool) -> impl Iterator<Item = u32> {
        let list = if left { self.starts.of(segment.low) } else { self.ends.of(segment.high) };
        let fits = move |item: &u32| {
            let i = *item as usize;
            self.partition.low[i] >= segment.low && self.partition.high[i] <= segment.high
        };
        list.iter().copied().filter(fits)
    }

    /// The segment end to decide next; `None` when every item is placed.
    fn select_branch(&self) -> Option<(Segment, bool)> {
        let sections = self.floor.len();
        let mut best: Option<((u64, u64, u64), Segment, bool)> = None;
        let (mut low, mut wall) = (0, u64::MAX);
        while low < sections {
            let floor = self.floor[low];
            let same = self.floor[low..].iter().take_while(|other| **other == floor).count();
            let high = low + same;
            let right_wall = self.floor.get(high).copied().unwrap_or(u64::MAX);
            if floor < self.height && wall > floor && right_wall > floor {
                let segment = Segment { low: low as u32, high: high as u32, floor };
                for left in [true, false] {
                    let end = if left { low } else { high - 1 };
                    let slack = self.height - self.remaining[end] - floor;
                    let items = self.inside(segment, left).filter(|item| self.is_candidate(*item, floor));
                    let candidates = items.count() as u64 + u64::from(slack > 0);
                    let key = match self.branching {
                        Branching::MinDomain => (candidates, floor, slack),
                        Branching::LowestFloor => (u64::from(candidates > 1), floor, candidates),
                        Branching::DomWdeg => ((candidates << 20) / self.weight[end], floor, slack),
                    };
                    if best.as_ref().is_none_or(|(least, ..)| key < *least) {
                        best = Some((key, segment, left));
                        if candidates == 0 {
                            return Some((segment, left));
                        }
                    }
                }
            }
            (low, wall) = (high, floor);
        }
        best.map(|(_, segment, left)| (segment, left))
    }

    /// Opens a level with its candidates, and starts its conflict set with the decisions that rule others out.
    fn open(&mut self, segment: Segment, left: bool) {
        let depth = self.levels.len();
        while depth + 1 >= self.changed_by.room() {
            self.changed_by.widen();
            self.conflict_sets.widen();
        }
        self.conflict_sets.open(depth);
        let end = if left { segment.low } else { segment.high - 1 };
        let next = self.candidates.len() as u32;
        let mut inside = false;
        let list = if left { &self.starts } else { &self.ends };
        for item in list.of(if left { segment.low } else { segment.high }) {
            let i = *item as usize;
            let fits = self.partition.low[i] >= segment.low && self.partition.high[i] <= segment.high;
            if fits && self.address[i] == UNPLACED {
                inside = true;
                if self.is_candidate(*item, segment.floor) {
                    self.candidates.push(*item);
                }
            }
        }
        // The items placed there, and those that the walls exclude.
        self.conflict_sets.unite(depth, &self.changed_by, end as usize);
        let walls = [segment.low.checked_sub(1), Some(segment.high)];
        for wall in walls.into_iter().flatten() {
            match self.raised_by.get(wall as usize) {
                Some(decision) if *decision != NONE => self.conflict_sets.insert(depth, *decision),
                _ => {}
            }
        }
        let mut level = Level {
            segment,
            left,
            next,
            end: next,
            gap: (end, end + 1),
            gap_to: 0,
            inside,
            trail: self.trail.len() as u32,
            candidate: None,
        };
        let slack = self.height - self.remaining[end as usize] - segment.floor;
        if slack > 0 {
            (level.gap, level.gap_to) = self.gap(segment, left, inside);
            if self.gap_fits(&level) {
                self.candidates.push(GAP);
            } else {
                self.explain_gap(depth, &level);
            }
        }
        level.end = self.candidates.len() as u32;
        self.levels.push(level);
    }

    /// The gap at one end of a segment: its sections, and the lowest height at which an item can lie above it.
    fn gap(&self, segment: Segment, left: bool, inside: bool) -> ((u32, u32), u64) {
        let partition = self.partition;
        let (mut from, mut to) = (segment.low, segment.high);
        let wall = |section: Option<u32>| section.and_then(|s| self.floor.get(s as usize)).copied();
        let walls = [wall(segment.low.checked_sub(1)), wall(Some(segment.high))];
        let mut lowest = walls.into_iter().flatten().min().unwrap_or(u64::MAX);
        // An item further inside can support one from this end.
        let mut support = u64::MAX;
        let open = |item: &&u32| {
            let i = **item as usize;
            self.address[i] == UNPLACED
                && partition.low[i] >= segment.low
                && partition.high[i] <= segment.high
        };
        for step in 1..segment.high - segment.low {
            let section = if left { segment.low + step } else { segment.high - step };
            let list = if left { self.starts.of(section) } else { self.ends.of(section) };
            for item in list.iter().filter(open) {
                if left {
                    to = to.min(section);
                } else {
                    from = from.max(section);
                }
                support = support.min(partition.bytes[*item as usize]);
            }
        }
        if inside && support != u64::MAX {
            lowest = lowest.min(segment.floor + support);
        }
        if !partition.plain {
            for item in self.inside(segment, left).filter(|item| self.address[*item as usize] == UNPLACED) {
                let i = item as usize;
                let at = partition.space.earliest(segment.floor, partition.bytes[i], partition.align[i]);
                lowest = lowest.min(at.filter(|at| *at > segment.floor).unwrap_or(u64::MAX));
            }
            for x in self.fixed.iter().map(|x| *x as usize).filter(|x| self.address[*x] == UNPLACED) {
                if partition.low[x] < to && from < partition.high[x] {
                    lowest = lowest.min(partition.fixed[x].unwrap_or(u64::MAX));
                }
            }
        }
        ((from, to), lowest)
    }

    /// Whether the remaining bytes still fit above a level's gap.
    fn gap_fits(&self, level: &Level) -> bool {
        let (from, to) = level.gap;
        let fits = |remaining: &u64| level.gap_to <= self.height && *remaining <= self.height - level.gap_to;
        level.gap_to > level.segment.floor && self.remaining[from as usize..to as usize].iter().all(fits)
    }

    /// Adds the decisions that determine a gap's height to the conflict set.
    fn explain_gap(&mut self, depth: usize, level: &Level) {
        let (from, to) = if level.inside { (level.segment.low, level.segment.high) } else { level.gap };
        for section in from..to {
            self.conflict_sets.unite(depth, &self.changed_by, section as usize);
        }
    }

    /// Applies the next candidate of the last level; `false` if there is none.
    fn try_next(&mut self) -> bool {
        let depth = self.levels.len() - 1;
        let level = &mut self.levels[depth];
        if level.next == level.end {
            return false;
        }
        let candidate = self.candidates[level.next as usize];
        level.next += 1;
        level.candidate = Some(candidate);
        let (floor, partition) = (level.segment.floor, self.partition);
        let (from, to, height, bytes) = match candidate {
            GAP => (level.gap.0, level.gap.1, level.gap_to, 0),
            item => {
                let i = item as usize;
                self.address[i] = floor;
                (partition.low[i], partition.high[i], floor + partition.bytes[i], partition.bytes[i])
            }
        };
        for section in from..to {
            let s = section as usize;
            self.trail.push(Change { section, raised_by: self.raised_by[s], top: self.top[s] });
            self.remaining[s] -= bytes;
            self.floor[s] = if self.remaining[s] == 0 { self.height } else { height };
            self.raised_by[s] = depth as u32;
            if candidate != GAP {
                self.top[s] = candidate;
            }
            self.changed_by.insert(s, depth as u32);
        }
        true
    }

    /// Undoes the last level's candidate.
    fn undo(&mut self) {
        let depth = self.levels.len() - 1;
        let level = &mut self.levels[depth];
        let Some(candidate) = level.candidate.take() else { return };
        let bytes = match candidate {
            GAP => 0,
            item => {
                self.address[item as usize] = UNPLACED;
                self.partition.bytes[item as usize]
            }
        };
        for change in self.trail.drain(level.trail as usize..) {
            let s = change.section as usize;
            self.remaining[s] += bytes;
            self.floor[s] = level.segment.floor;
            self.raised_by[s] = change.raised_by;
            self.top[s] = change.top;
            self.changed_by.remove(s, depth as u32);
        }
    }

    fn pop_level(&mut self) {
        self.undo();
        if self.levels.pop().is_some() {
            // Each level's candidates start where those of the previous level end.
            let kept = self.levels.last().map_or(0, |level| level.end as usize);
            self.candidates.truncate(kept);
        }
    }

    /// Backjumps from a dead end to the deepest decision of its conflict set and undoes it; `false` if the set is
    /// empty.
    fn backjump(&mut self) -> bool {
        let depth = self.levels.len() - 1;
        let level = self.levels[depth];
        let end = if level.left { level.segment.low } else { level.segment.high - 1 };
        self.weight[end as usize] += 1;
        let Some(to) = self.conflict_sets.deepest(depth).map(|to| to as usize) else {
            self.restart();
            return false;
        };
        while self.levels.len() > to + 1 {
            self.pop_level();
        }
        self.conflict_sets.unite_within(to, depth);
        self.conflict_sets.remove(to, to as u32);
        let level = self.levels[to];
        self.undo();
        if level.candidate == Some(GAP) {
            self.explain_gap(to, &level);
        }
        true
    }
}
