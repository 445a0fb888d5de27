//! An index of the items live in a range of sections.

use std::ops::Range;

use super::super::sections::Sections;

/// For every [`EVERY`]th section, the items that started earlier and are still live.
#[derive(Debug)]
pub(in super::super) struct Alive {
    first: Vec<usize>,
    items: Vec<u32>,
}

const EVERY: usize = 64;

impl Alive {
    pub(in super::super) fn new(all: &Sections) -> Self {
        let sections = all.load.len();
        let (mut first, mut items, mut alive) = (vec![0], vec![], vec![]);
        for from in (0..sections).step_by(EVERY) {
            alive.retain(|item: &u32| all.high[*item as usize] as usize > from);
            items.extend_from_slice(&alive);
            first.push(items.len());
            let starting = all.starting(from..sections.min(from + EVERY));
            alive.extend(starting.start as u32..starting.end as u32);
        }
        Self { first, items }
    }

    /// Number of stored items.
    pub(in super::super) fn len(&self) -> usize {
        self.items.len()
    }

    /// Calls `see` for every item that is live in one of `sections`.
    pub(super) fn each(&self, all: &Sections, sections: Range<u32>, mut see: impl FnMut(u32)) {
        let stop = sections.start as usize / EVERY;
        let earlier = &self.items[self.first[stop]..self.first[stop + 1]];
        let later = all.starting(stop * EVERY..sections.end as usize);
        for item in earlier.iter().copied().chain(later.start as u32..later.end as u32) {
            if all.high[item as usize] > sections.start {
                see(item);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BufferSpec, Problem};

    #[test]
    fn everything_alive_is_seen_once() {
        let live = |i: u64| i * 7 % 300..i * 7 % 300 + 1 + i * 31 % 90;
        let buffers = (0..500).map(|i| BufferSpec::new(1 + i % 9, 1, live(i))).collect();
        let all = Sections::new(&Problem { buffers, ..Problem::default() }).unwrap();
        let alive = Alive::new(&all);
        let end = all.load.len() as u32;
        for (from, to) in [(0, 1), (63, 65), (64, 94), (65, end), (end - 1, end)] {
            let mut seen = vec![];
            alive.each(&all, from..to, |item| seen.push(item));
            seen.sort_unstable();
            let meets = |i: &u32| all.low[*i as usize] < to && all.high[*i as usize] > from;
            assert_eq!(seen, (0..all.len() as u32).filter(meets).collect::<Vec<_>>());
        }
    }
}
