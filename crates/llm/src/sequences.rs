//! Which tokens of which sequence lie in which pages of the cache.

use crate::Error;
use crate::cache::{CacheGroup, CacheSizes};
use crate::pages::{PAGE_ROWS, PagePool, pages_of};

/// A sequence of tokens in an engine's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SequenceId(u32);

impl SequenceId {
    /// The sequence that always exists, and that calls without a sequence use.
    pub const FIRST: SequenceId = SequenceId(0);
}

/// The sequences of a cache. Sequences that begin alike share pages.
#[derive(Debug)]
pub(crate) struct Sequences {
    /// Sequences by slot; a slot is reused after its sequence has ended.
    slots: Vec<Slot>,
    groups: Vec<Group>,
    context: u64,
    next: u32,
    /// Pages that must be copied before the next run.
    copies: Vec<PageCopy>,
}

#[derive(Debug)]
struct Slot {
    id: Option<SequenceId>,
    /// Tokens.
    len: usize,
    /// Its pages in each group.
    tables: Vec<PageTable>,
}

/// Pages of a sequence in one group, in the order of its rows.
#[derive(Debug)]
struct PageTable {
    /// Pages before these, which no token sees any more.
    gone: usize,
    pages: Vec<u32>,
}

impl Slot {
    /// The page that its next token is written to, if others share it.
    fn shared_page(&self, index: usize, group: &Group) -> Option<u32> {
        let table = &self.tables[index];
        let page = table.pages.get((self.len / PAGE_ROWS as usize).wrapping_sub(table.gone)).copied();
        page.filter(|page| group.pool.is_shared(*page))
    }
}

#[derive(Debug)]
struct Group {
    window: Option<u32>,
    pool: PagePool,
}

impl Group {
    /// The first row that a token at a position sees.
    fn first_row(&self, position: usize) -> usize {
        self.window.map_or(0, |window| (position + 1).saturating_sub(window as usize))
    }
}

/// A page whose first rows another one takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageCopy {
    pub(crate) slot: usize,
    pub(crate) group: usize,
    pub(crate) from: u32,
    pub(crate) into: u32,
    pub(crate) rows: u64,
}

impl Sequences {
    /// For some sequences; the first one exists, and is empty.
    pub(crate) fn new(sizes: &CacheSizes, groups: &[CacheGroup]) -> Sequences {
        let pages = sizes.pages_of_sequence() as usize;
        let slot = |_| Slot {
            id: None,
            len: 0,
            tables: groups.iter().map(|_| PageTable { gone: 0, pages: Vec::with_capacity(pages) }).collect(),
        };
        let mut slots: Vec<Slot> = (0..sizes.sequences).map(slot).collect();
        if let Some(first) = slots.first_mut() {
            first.id = Some(SequenceId::FIRST);
        }
        let group = |group: &CacheGroup| Group { window: group.window, pool: PagePool::new(group.pages) };
        let copies = Vec::with_capacity(groups.len() * slots.len());
        Sequences {
            slots,
            groups: groups.iter().map(group).collect(),
            context: sizes.context,
            next: 1,
            copies,
        }
    }

    /// The slot of a sequence.
    pub(crate) fn slot(&self, id: SequenceId) -> Result<usize, Error> {
        self.slots.iter().position(|slot| slot.id == Some(id)).ok_or(Error::UnknownSequence(id.0))
    }

    /// Tokens of a sequence.
    pub(crate) fn len(&self, slot: usize) -> usize {
        self.slots[slot].len
    }

    /// Tokens of the sequence in each slot.
    pub(crate) fn lens(&self) -> impl Iterator<Item = usize> {
        self.slots.iter().map(|slot| slot.len)
    }

    /// The sequences that exist, and their slots.
    pub(crate) fn ids(&self) -> impl Iterator<Item = (usize, SequenceId)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| Some((index, slot.id?)))
    }

    /// The pools of pages, and the window of each.
    pub(crate) fn pools(&self) -> impl Iterator<Item = (Option<u32>, &PagePool)> {
        self.groups.iter().map(|group| (group.window, &group.pool))
    }

    /// Tokens of all sequences.
    pub(crate) fn tokens(&self) -> usize {
        self.slots.iter().map(|slot| slot.len).sum()
    }

    /// Pages of the whole context that are free; `None` if layers keep no rows.
    pub(crate) fn free_pages(&self) -> Option<usize> {
        self.groups.iter().map(|group| group.pool.free()).min()
    }

    /// An empty sequence.
    pub(crate) fn start(&mut self) -> Result<SequenceId, Error> {
        let sequences = self.slots.len();
        let free = self.slots.iter_mut().find(|slot| slot.id.is_none());
        let slot = free.ok_or(Error::TooManySequences { sequences })?;
        let id = SequenceId(self.next);
        slot.id = Some(id);
        self.next += 1;
        Ok(id)
    }

    /// A sequence that begins as another one. No page is copied before it is written.
    pub(crate) fn fork(&mut self, from: SequenceId, len: usize) -> Result<SequenceId, Error> {
        let from = self.slot(from)?;
        let tokens = self.len(from);
        let len = len.min(tokens);
        if !self.can_keep(from, len) {
            return Err(Error::NoWayBack { len, tokens });
        }
        let id = self.start()?;
        let into = self.slot(id)?;
        let [from, slot] = match self.slots.get_disjoint_mut([from, into]) {
            Ok(slots) => slots,
            Err(_) => return Err(Error::UnknownSequence(id.0)),
        };
        slot.len = len;
        for ((from, into), group) in from.tables.iter().zip(&mut slot.tables).zip(&mut self.groups) {
            let kept = (pages_of(len as u64) as usize).saturating_sub(from.gone);
            into.gone = if len == 0 { 0 } else { from.gone };
            into.pages.extend_from_slice(&from.pages[..kept]);
            into.pages.iter().for_each(|page| group.pool.share(*page));
        }
        Ok(id)
    }

    /// Ends a sequence; the first one only becomes empty.
    pub(crate) fn end(&mut self, id: SequenceId) -> Result<(), Error> {
        let slot = self.slot(id)?;
        self.truncate(slot, 0);
        if id != SequenceId::FIRST {
            self.slots[slot].id = None;
        }
        Ok(())
    }

    /// Whether the rows are there that a token after the first `len` sees.
    fn can_keep(&self, slot: usize, len: usize) -> bool {
        let tables = self.slots[slot].tables.iter().zip(&self.groups);
        len == 0
            || tables.clone().all(|(table, group)| table.gone * PAGE_ROWS as usize <= group.first_row(len))
    }

    /// Forgets all tokens but the first `len`, or all if rows that later tokens need are gone; gives how many are left.
    pub(crate) fn truncate(&mut self, slot: usize, len: usize) -> usize {
        let len = len.min(self.len(slot));
        let len = if self.can_keep(slot, len) { len } else { 0 };
        let slot = &mut self.slots[slot];
        slot.len = len;
        for (table, group) in slot.tables.iter_mut().zip(&mut self.groups) {
            let kept = (pages_of(len as u64) as usize).saturating_sub(table.gone);
            table.pages.drain(kept..).for_each(|page| group.pool.release(page));
            if len == 0 {
                table.gone = 0;
            }
        }
        len
    }

    /// The first row of a page that tokens after the first `len` see, for each group.
    pub(crate) fn first_rows(&self, len: usize) -> impl Iterator<Item = u64> {
        self.groups.iter().map(move |group| {
            let first = group.first_row(len) as u64;
            (first - first % PAGE_ROWS).min(len as u64)
        })
    }

    /// Whether a sequence could hold `len` tokens in place of its own, once all are trimmed.
    pub(crate) fn check_restore(&self, slot: usize, len: usize) -> Result<(), Error> {
        if len as u64 > self.context {
            return Err(Error::ContextFull { tokens: len, context: self.context, used: 0 });
        }
        for ((table, group), first) in
            self.slots[slot].tables.iter().zip(&self.groups).zip(self.first_rows(len))
        {
            let own = table.pages.iter().filter(|page| !group.pool.is_shared(**page)).count();
            let (free, needed) = (group.pool.free() + own, pages_of(len as u64) - first / PAGE_ROWS);
            if (free as u64) < needed {
                return Err(Error::NoPages { needed, free });
            }
        }
        Ok(())
    }

    /// Makes room for `len` tokens of a sequence, in place of its own, as if they had been pushed and trimmed.
    pub(crate) fn restore(&mut self, slot: usize, len: usize) -> Result<(), Error> {
        self.check_restore(slot, len)?;
        self.truncate(slot, 0);
        let firsts: Vec<u64> = self.first_rows(len).collect();
        let slot = &mut self.slots[slot];
        for ((table, group), first) in slot.tables.iter_mut().zip(&mut self.groups).zip(firsts) {
            table.gone = (first / PAGE_ROWS) as usize;
            let pages = pages_of(len as u64) as usize - table.gone;
            table.pages.extend((0..pages).map_while(|_| group.pool.take()));
        }
        slot.len = len;
        Ok(())
    }

    /// Whether tokens can be added to sequences; `added` gives their number for each slot.
    pub(crate) fn check_room(&self, added: impl Fn(usize) -> usize) -> Result<(), Error> {
        let needed = self.needed_pages(added)?;
        // Windows have pages for every sequence.
        let whole = self.groups.iter().find(|group| group.window.is_none());
        match whole.map(|group| group.pool.free()).filter(|free| (*free as u64) < needed) {
            Some(free) => Err(Error::NoPages { needed, free }),
            None => Ok(()),
        }
    }

    /// Pages of the whole context that adding tokens to sequences takes: new ones, and copies of shared ones.
    pub(crate) fn needed_pages(&self, added: impl Fn(usize) -> usize) -> Result<u64, Error> {
        for (index, slot) in self.slots.iter().enumerate() {
            let tokens = added(index);
            if (slot.len + tokens) as u64 > self.context {
                return Err(Error::ContextFull { tokens, context: self.context, used: slot.len });
            }
        }
        let Some(whole) = self.groups.iter().position(|group| group.window.is_none()) else { return Ok(0) };
        let writers = || (0..self.slots.len()).filter(|index| added(*index) > 0);
        let written = |index: usize| self.slots[index].shared_page(whole, &self.groups[whole]);
        let pages = writers().map(|index| {
            let len = self.slots[index].len;
            let new = pages_of((len + added(index)) as u64) - pages_of(len as u64);
            // The last sequence that uses a page writes it in place.
            let copied = written(index).is_some_and(|page| {
                let before = writers().take_while(|other| *other < index);
                let before = before.filter(|other| written(*other) == Some(page)).count();
                before + 1 < self.groups[whole].pool.uses(page)
            });
            new + u64::from(copied)
        });
        Ok(pages.sum())
    }

    /// Tokens that can be added to a sequence.
    pub(crate) fn room(&self, slot: usize) -> u64 {
        let slot = &self.slots[slot];
        let rest = self.context.saturating_sub(slot.len as u64);
        let groups = self.groups.iter().enumerate().filter(|(_, group)| group.window.is_none());
        let rows = groups.map(|(index, group)| {
            let copied = slot.shared_page(index, group).is_some();
            let free = (group.pool.free() as u64).saturating_sub(u64::from(copied));
            let begun = pages_of(slot.len as u64) * PAGE_ROWS - slot.len as u64;
            let blocked = copied && group.pool.free() == 0;
            if blocked { 0 } else { free * PAGE_ROWS + begun }
        });
        rows.fold(rest, u64::min)
    }

    /// Releases the pages that no later token of any sequence sees: pools for windows are as large as what is left, and a
    /// batch.
    pub(crate) fn trim(&mut self) {
        for Slot { len, tables, .. } in &mut self.slots {
            for (table, group) in tables.iter_mut().zip(&mut self.groups) {
                let gone = (group.first_row(*len) / PAGE_ROWS as usize).saturating_sub(table.gone);
                let gone = gone.min(table.pages.len());
                table.pages.drain(..gone).for_each(|page| group.pool.release(page));
                table.gone += gone;
            }
        }
    }

    /// Makes room for the next token of a sequence, and gives its position. If another sequence shares its page, the rows before
    /// it must be copied ([`Sequences::next_copy`]).
    pub(crate) fn push(&mut self, number: usize) -> Result<u32, Error> {
        let slot = &mut self.slots[number];
        let (page, row) = (slot.len / PAGE_ROWS as usize, slot.len as u64 % PAGE_ROWS);
        for (index, (table, group)) in slot.tables.iter_mut().zip(&mut self.groups).enumerate() {
            let known = table.pages.get(page - table.gone).copied();
            if known.is_some_and(|page| !group.pool.is_shared(page)) {
                continue;
            }
            let into = group.pool.take().ok_or(Error::NoPages { needed: 1, free: 0 })?;
            match known {
                None => table.pages.push(into),
                Some(from) => {
                    group.pool.release(from);
                    table.pages[page - table.gone] = into;
                    self.copies.push(PageCopy { slot: number, group: index, from, into, rows: row });
                }
            }
        }
        slot.len += 1;
        Ok(slot.len as u32 - 1)
    }

    /// Takes a page that is to be copied.
    pub(crate) fn next_copy(&mut self) -> Option<PageCopy> {
        self.copies.pop()
    }

    /// A page could not be copied: its sequence shares the original again.
    pub(crate) fn undo_copy(&mut self, copy: PageCopy) {
        let PageCopy { slot, group, from, into, .. } = copy;
        let pool = &mut self.groups[group].pool;
        if let Some(page) = self.slots[slot].tables[group].pages.iter_mut().find(|page| **page == into) {
            *page = from;
            pool.share(from);
            pool.release(into);
        }
    }

    /// The row of a token of a sequence in a group's caches.
    pub(crate) fn row(&self, slot: usize, group: usize, position: u32) -> u32 {
        let table = &self.slots[slot].tables[group];
        let page = table.pages[(u64::from(position) / PAGE_ROWS) as usize - table.gone];
        page * PAGE_ROWS as u32 + position % PAGE_ROWS as u32
    }

    /// Lists the pages of some slots in a group, `each` for each slot; what no token sees is 0.
    pub(crate) fn list_pages(&self, group: usize, slots: &[usize], each: usize, into: &mut Vec<u32>) {
        into.clear();
        for (index, slot) in slots.iter().enumerate() {
            let PageTable { gone, pages } = &self.slots[*slot].tables[group];
            into.resize(index * each + gone, 0);
            into.extend_from_slice(pages);
        }
        into.resize(slots.len() * each, 0);
    }
}

#[cfg(test)]
mod tests;
