//! Depth-first search for a plan of one part within a height.
//!
//! What is placed forms a skyline over the sections. A decision answers one question: what lies on the ground of a
//! valley at one of its ends? Either an item that begins (or ends) just there and fits between the walls, or
//! nothing, and then the ground there is lost up to the next height at which something could lie. These answers
//! exclude each other and there is no further one, so a question may be asked wherever it is most pressing:
//! where fewest answers are left.
//!
//! Only plans are looked for in which everything has slid down as far as it can, of equal items the first is the
//! lowest, and of two that live equally long, one directly on the other, the one of lower rank is below. Every plan
//! can be brought into this form without growing.
//!
//! When no answer is left, the decisions that ruled them out are known, and the search goes back to the latest of
//! them at once; those in between, about other times, have no part in it.

use super::levels::Rows;
use super::part::Part;

/// Which question is the most pressing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// The one with fewest answers.
    Fewest,
    /// The lowest ground, unless there is a question with one answer or none.
    Lowest,
    /// Fewest answers in proportion to how often a question about that section led nowhere.
    Troubled,
}

/// How a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Found,
    /// There is no plan within the height.
    Exhausted,
    /// The turns allowed are over.
    Stopped,
}

const NONE: u32 = u32::MAX;
/// The answer that nothing lies there.
const GAP: u32 = u32::MAX;
const UNPLACED: u64 = u64::MAX;

/// A question, and where its answers are.
#[derive(Clone, Copy, Debug)]
struct Level {
    valley: Valley,
    left: bool,
    /// Answers in `Search::answers`: those from `next` on were not tried.
    next: u32,
    end: u32,
    /// For the answer that nothing lies there: the sections concerned, and the new ground.
    gap: (u32, u32),
    gap_to: u64,
    /// Some item at that end is inside the valley: how high it comes to lie then depends on the whole valley.
    inside: bool,
    /// The current answer's changes begin here in `Search::trail`.
    trail: u32,
    answer: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Valley {
    low: u32,
    high: u32,
    ground: u64,
}

/// A section as it was: the decision that made its ground, and the item there.
#[derive(Clone, Copy, Debug)]
struct Change {
    section: u32,
    made_by: u32,
    top: u32,
}

/// Items in lists, one for each section, by rank.
#[derive(Debug)]
struct Lists {
    first: Vec<u32>,
    items: Vec<u32>,
}

impl Lists {
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
    part: &'a Part,
    height: u64,
    ask: Ask,
    starts: Lists,
    ends: Lists,
    rank: Vec<u32>,
    /// Per item, the equal one that must lie below it.
    twin: Vec<u32>,
    fixed: Vec<u32>,
    /// Per item, its address.
    address: Vec<u64>,
    /// Per section: its ground, and the bytes that must still come to lie above it. Sections where nothing is left
    /// have their ground at the very top.
    ground: Vec<u64>,
    rest: Vec<u64>,
    made_by: Vec<u32>,
    top: Vec<u32>,
    /// Per section, how often a question about it led nowhere.
    trouble: Vec<u64>,
    levels: Vec<Level>,
    answers: Vec<u32>,
    trail: Vec<Change>,
    /// Per section, the decisions that changed it.
    touched: Rows,
    /// Per level, the decisions that ruled answers out.
    blamed: Rows,
    /// Questions asked so far.
    pub(super) turns: u64,
}

impl<'a> Search<'a> {
    /// A search of `part` within `height`, which no section's load exceeds. Answers are tried in the order of `rank`.
    pub(super) fn new(part: &'a Part, height: u64, order: &[u32], ask: Ask) -> Self {
        let (items, sections) = (part.len(), part.sections());
        let mut rank = vec![0; items];
        for (position, item) in (0u32..).zip(order) {
            rank[*item as usize] = position;
        }
        let starts = Lists::new(sections, order, &part.low);
        let mut twin = vec![NONE; items];
        let kind = |item: u32| {
            let i = item as usize;
            (part.high[i], part.bytes[i], part.align[i], part.fixed[i])
        };
        for section in 0..sections as u32 {
            let mut list = starts.of(section).to_vec();
            list.sort_by_key(|item| kind(*item));
            for pair in list.windows(2).filter(|pair| kind(pair[0]) == kind(pair[1])) {
                twin[pair[1] as usize] = pair[0];
            }
        }
        let fixed = (0..items as u32).filter(|item| part.fixed[*item as usize].is_some()).collect();
        let depth = 2 * items;
        Self {
            part,
            height,
            ask,
            ends: Lists::new(sections, order, &part.high),
            starts,
            rank,
            twin,
            fixed,
            address: vec![UNPLACED; items],
            ground: part.load.iter().map(|load| if *load == 0 { height } else { 0 }).collect(),
            rest: part.load.clone(),
            made_by: vec![NONE; sections],
            top: vec![NONE; sections],
            trouble: vec![1; sections],
            levels: vec![],
            answers: vec![],
            trail: vec![],
            touched: Rows::new(sections, depth),
            blamed: Rows::new(0, depth),
            turns: 0,
        }
    }

    /// Goes on until there is a result, or for so many turns. What was found is in [`Self::addresses`].
    pub(super) fn run(&mut self, turns: u64) -> Outcome {
        let last = self.turns.saturating_add(turns);
        loop {
            let Some((valley, left)) = self.most_pressing() else { return Outcome::Found };
            if self.turns >= last {
                return Outcome::Stopped;
            }
            self.turns += 1;
            self.open(valley, left);
            while !self.answer_next() {
                if !self.go_back() {
                    return Outcome::Exhausted;
                }
            }
        }
    }

    /// Forgets every decision, but not which sections were troublesome.
    pub(super) fn restart(&mut self) {
        while !self.levels.is_empty() {
            self.drop_last();
        }
    }

    pub(super) fn addresses(&self) -> &[u64] {
        &self.address
    }

    /// Whether an item may lie on the ground of a valley that it lives inside.
    fn may_lie(&self, item: u32, ground: u64) -> bool {
        let (i, part) = (item as usize, self.part);
        let twin = self.twin[i];
        if self.address[i] != UNPLACED || (twin != NONE && self.address[twin as usize] == UNPLACED) {
            return false;
        }
        if part.plain || part.line.max_chunk.is_none() {
            let below = self.top[part.low[i] as usize] as usize;
            if below != NONE as usize
                && part.low[below] == part.low[i]
                && part.high[below] == part.high[i]
                && self.rank[below] > self.rank[i]
                && part.align[below] == part.align[i]
                && part.fixed[below].is_none()
                && part.fixed[i].is_none()
                && self.address[below] + part.bytes[below] == ground
            {
                return false;
            }
        }
        part.plain || self.is_legal(i, ground)
    }

    fn is_legal(&self, i: usize, ground: u64) -> bool {
        let part = self.part;
        match part.fixed[i] {
            Some(address) => address == ground,
            None => {
                let meets = |x: usize| part.low[x] < part.high[i] && part.low[i] < part.high[x];
                let blocks = |x: &u32| {
                    let x = *x as usize;
                    let above = part.fixed[x].unwrap_or(0);
                    self.address[x] == UNPLACED && meets(x) && ground + part.bytes[i] > above
                };
                part.line.earliest(ground, part.bytes[i], part.align[i]) == Some(ground)
                    && !self.fixed.iter().any(blocks)
            }
        }
    }

    /// The items at an end of a valley that live inside it.
    fn inside(&self, valley: Valley, left: bool) -> impl Iterator<Item = u32> {
        let list = if left { self.starts.of(valley.low) } else { self.ends.of(valley.high) };
        let fits = move |item: &u32| {
            let i = *item as usize;
            self.part.low[i] >= valley.low && self.part.high[i] <= valley.high
        };
        list.iter().copied().filter(fits)
    }

    /// Where to ask next; `None` when everything is placed.
    fn most_pressing(&self) -> Option<(Valley, bool)> {
        let sections = self.ground.len();
        let mut best: Option<((u64, u64, u64), Valley, bool)> = None;
        let (mut low, mut wall) = (0, u64::MAX);
        while low < sections {
            let ground = self.ground[low];
            let same = self.ground[low..].iter().take_while(|other| **other == ground).count();
            let high = low + same;
            let right_wall = self.ground.get(high).copied().unwrap_or(u64::MAX);
            if ground < self.height && wall > ground && right_wall > ground {
                let valley = Valley { low: low as u32, high: high as u32, ground };
                for left in [true, false] {
                    let end = if left { low } else { high - 1 };
                    let slack = self.height - self.rest[end] - ground;
                    let items = self.inside(valley, left).filter(|item| self.may_lie(*item, ground));
                    let answers = items.count() as u64 + u64::from(slack > 0);
                    let key = match self.ask {
                        Ask::Fewest => (answers, ground, slack),
                        Ask::Lowest => (u64::from(answers > 1), ground, answers),
                        Ask::Troubled => ((answers << 20) / self.trouble[end], ground, slack),
                    };
                    if best.as_ref().is_none_or(|(least, ..)| key < *least) {
                        best = Some((key, valley, left));
                        if answers == 0 {
                            return Some((valley, left));
                        }
                    }
                }
            }
            (low, wall) = (high, ground);
        }
        best.map(|(_, valley, left)| (valley, left))
    }

    /// Opens a level for a question, with its answers, and blames whatever rules others out.
    fn open(&mut self, valley: Valley, left: bool) {
        let depth = self.levels.len();
        while depth + 1 >= self.touched.room() {
            self.touched.widen();
            self.blamed.widen();
        }
        self.blamed.open(depth);
        let end = if left { valley.low } else { valley.high - 1 };
        let next = self.answers.len() as u32;
        let mut inside = false;
        let list = if left { &self.starts } else { &self.ends };
        for item in list.of(if left { valley.low } else { valley.high }) {
            let i = *item as usize;
            let fits = self.part.low[i] >= valley.low && self.part.high[i] <= valley.high;
            if fits && self.address[i] == UNPLACED {
                inside = true;
                if self.may_lie(*item, valley.ground) {
                    self.answers.push(*item);
                }
            }
        }
        // What is placed there already, and what the walls keep out.
        self.blamed.unite(depth, &self.touched, end as usize);
        let walls = [valley.low.checked_sub(1), Some(valley.high)];
        for wall in walls.into_iter().flatten() {
            match self.made_by.get(wall as usize) {
                Some(decision) if *decision != NONE => self.blamed.insert(depth, *decision),
                _ => {}
            }
        }
        let mut level = Level {
            valley,
            left,
            next,
            end: next,
            gap: (end, end + 1),
            gap_to: 0,
            inside,
            trail: self.trail.len() as u32,
            answer: None,
        };
        let slack = self.height - self.rest[end as usize] - valley.ground;
        if slack > 0 {
            (level.gap, level.gap_to) = self.gap(valley, left, inside);
            if self.may_lose(&level) {
                self.answers.push(GAP);
            } else {
                self.blame_gap(depth, &level);
            }
        }
        level.end = self.answers.len() as u32;
        self.levels.push(level);
    }

    /// If nothing lies at an end of a valley: which sections are concerned, and the lowest height at which something
    /// can lie there.
    fn gap(&self, valley: Valley, left: bool, inside: bool) -> ((u32, u32), u64) {
        let part = self.part;
        let (mut from, mut to) = (valley.low, valley.high);
        let wall = |section: Option<u32>| section.and_then(|s| self.ground.get(s as usize)).copied();
        let walls = [wall(valley.low.checked_sub(1)), wall(Some(valley.high))];
        let mut lowest = walls.into_iter().flatten().min().unwrap_or(u64::MAX);
        // What lies further inside can hold something up.
        let mut support = u64::MAX;
        let open = |item: &&u32| {
            let i = **item as usize;
            self.address[i] == UNPLACED && part.low[i] >= valley.low && part.high[i] <= valley.high
        };
        for step in 1..valley.high - valley.low {
            let section = if left { valley.low + step } else { valley.high - step };
            let list = if left { self.starts.of(section) } else { self.ends.of(section) };
            for item in list.iter().filter(open) {
                if left {
                    to = to.min(section);
                } else {
                    from = from.max(section);
                }
                support = support.min(part.bytes[*item as usize]);
            }
        }
        if inside && support != u64::MAX {
            lowest = lowest.min(valley.ground + support);
        }
        if !part.plain {
            for item in self.inside(valley, left).filter(|item| self.address[*item as usize] == UNPLACED) {
                let i = item as usize;
                let at = part.line.earliest(valley.ground, part.bytes[i], part.align[i]);
                lowest = lowest.min(at.filter(|at| *at > valley.ground).unwrap_or(u64::MAX));
            }
            for x in self.fixed.iter().map(|x| *x as usize).filter(|x| self.address[*x] == UNPLACED) {
                if part.low[x] < to && from < part.high[x] {
                    lowest = lowest.min(part.fixed[x].unwrap_or(u64::MAX));
                }
            }
        }
        ((from, to), lowest)
    }

    /// Whether there is room to lose the ground of a level's gap.
    fn may_lose(&self, level: &Level) -> bool {
        let (from, to) = level.gap;
        let fits = |rest: &u64| level.gap_to <= self.height && *rest <= self.height - level.gap_to;
        level.gap_to > level.valley.ground && self.rest[from as usize..to as usize].iter().all(fits)
    }

    /// Blames what makes a gap as high as it is.
    fn blame_gap(&mut self, depth: usize, level: &Level) {
        let (from, to) = if level.inside { (level.valley.low, level.valley.high) } else { level.gap };
        for section in from..to {
            self.blamed.unite(depth, &self.touched, section as usize);
        }
    }

    /// Tries the next answer of the last level; `false` if there is none.
    fn answer_next(&mut self) -> bool {
        let depth = self.levels.len() - 1;
        let level = &mut self.levels[depth];
        if level.next == level.end {
            return false;
        }
        let answer = self.answers[level.next as usize];
        level.next += 1;
        level.answer = Some(answer);
        let (ground, part) = (level.valley.ground, self.part);
        let (from, to, height, bytes) = match answer {
            GAP => (level.gap.0, level.gap.1, level.gap_to, 0),
            item => {
                let i = item as usize;
                self.address[i] = ground;
                (part.low[i], part.high[i], ground + part.bytes[i], part.bytes[i])
            }
        };
        for section in from..to {
            let s = section as usize;
            self.trail.push(Change { section, made_by: self.made_by[s], top: self.top[s] });
            self.rest[s] -= bytes;
            self.ground[s] = if self.rest[s] == 0 { self.height } else { height };
            self.made_by[s] = depth as u32;
            if answer != GAP {
                self.top[s] = answer;
            }
            self.touched.insert(s, depth as u32);
        }
        true
    }

    /// Takes the last level's answer back.
    fn take_back(&mut self) {
        let depth = self.levels.len() - 1;
        let level = &mut self.levels[depth];
        let Some(answer) = level.answer.take() else { return };
        let bytes = match answer {
            GAP => 0,
            item => {
                self.address[item as usize] = UNPLACED;
                self.part.bytes[item as usize]
            }
        };
        for change in self.trail.drain(level.trail as usize..) {
            let s = change.section as usize;
            self.rest[s] += bytes;
            self.ground[s] = level.valley.ground;
            self.made_by[s] = change.made_by;
            self.top[s] = change.top;
            self.touched.remove(s, depth as u32);
        }
    }

    fn drop_last(&mut self) {
        self.take_back();
        if self.levels.pop().is_some() {
            // Each level's answers begin where those of the one before end.
            let kept = self.levels.last().map_or(0, |level| level.end as usize);
            self.answers.truncate(kept);
        }
    }

    /// From a level without answers to the latest decision that is to blame, which is taken back; `false` if none
    /// is.
    fn go_back(&mut self) -> bool {
        let depth = self.levels.len() - 1;
        let level = self.levels[depth];
        let end = if level.left { level.valley.low } else { level.valley.high - 1 };
        self.trouble[end as usize] += 1;
        let Some(to) = self.blamed.deepest(depth).map(|to| to as usize) else {
            self.restart();
            return false;
        };
        while self.levels.len() > to + 1 {
            self.drop_last();
        }
        self.blamed.unite_within(to, depth);
        self.blamed.remove(to, to as u32);
        let level = self.levels[to];
        self.take_back();
        if level.answer == Some(GAP) {
            self.blame_gap(to, &level);
        }
        true
    }
}
