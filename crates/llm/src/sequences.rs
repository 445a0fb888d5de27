//! Which tokens of which sequence lie in which rows of the cache.

use crate::Error;

/// A sequence of tokens in an engine's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SequenceId(u32);

impl SequenceId {
    /// The sequence that always exists, and that calls without a sequence use.
    pub const FIRST: SequenceId = SequenceId(0);
}

/// Capacity that is reserved at first.
const ROOM: usize = 1 << 16;

/// The sequences of a cache. Sequences that begin alike share rows.
#[derive(Debug)]
pub(crate) struct Sequences {
    /// Sequences by slot; a slot is reused after its sequence has ended.
    slots: Vec<Option<Sequence>>,
    /// Maximum of sequences at a time.
    max: usize,
    /// How many sequences each row belongs to, up to the last row that was ever used.
    uses: Vec<u32>,
    /// No row before this one is free.
    free_from: usize,
    /// Rows that belong to a sequence.
    used: usize,
    next: u32,
}

#[derive(Debug)]
struct Sequence {
    id: SequenceId,
    /// The row of each token.
    rows: Vec<u32>,
}

/// The position of a token in its sequence, and its row in the cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowPosition {
    pub(crate) position: u32,
    pub(crate) row: u32,
}

impl Sequences {
    /// For a number of sequences; the first one exists, and is empty.
    pub(crate) fn new(count: u64, context: u64) -> Sequences {
        let room = ROOM.min(usize::try_from(context).unwrap_or(ROOM));
        let first = Sequence { id: SequenceId::FIRST, rows: Vec::with_capacity(room) };
        let max = usize::try_from(count).unwrap_or(usize::MAX).max(1);
        let uses = Vec::with_capacity(room);
        Sequences { slots: vec![Some(first)], max, uses, free_from: 0, used: 0, next: 1 }
    }

    /// The slot of a sequence.
    pub(crate) fn slot(&self, id: SequenceId) -> Result<usize, Error> {
        let here = |slot: &Option<Sequence>| slot.as_ref().is_some_and(|sequence| sequence.id == id);
        self.slots.iter().position(here).ok_or(Error::UnknownSequence(id.0))
    }

    /// An empty sequence.
    pub(crate) fn start(&mut self) -> Result<SequenceId, Error> {
        let id = SequenceId(self.next);
        let sequence = Some(Sequence { id, rows: Vec::new() });
        match self.slots.iter().position(Option::is_none) {
            Some(slot) => self.slots[slot] = sequence,
            None if self.slots.len() < self.max => self.slots.push(sequence),
            None => return Err(Error::TooManySequences { sequences: self.max }),
        }
        self.next += 1;
        Ok(id)
    }

    /// A sequence that begins as another one.
    pub(crate) fn fork(&mut self, from: SequenceId, len: usize) -> Result<SequenceId, Error> {
        let from = self.slot(from)?;
        let id = self.start()?;
        let shared: Vec<u32> = self.rows(from).iter().copied().take(len).collect();
        for row in &shared {
            self.uses[*row as usize] += 1;
        }
        let slot = self.slot(id)?;
        if let Some(sequence) = &mut self.slots[slot] {
            sequence.rows = shared;
        }
        Ok(id)
    }

    /// Ends a sequence; the first one only becomes empty.
    pub(crate) fn end(&mut self, id: SequenceId) -> Result<(), Error> {
        let slot = self.slot(id)?;
        self.truncate(slot, 0);
        if id != SequenceId::FIRST {
            self.slots[slot] = None;
        }
        Ok(())
    }

    /// The rows of a sequence, in the order of its tokens.
    pub(crate) fn rows(&self, slot: usize) -> &[u32] {
        self.slots[slot].as_ref().map_or(&[], |sequence| &sequence.rows)
    }

    /// Forgets all tokens but the first `len`.
    pub(crate) fn truncate(&mut self, slot: usize, len: usize) {
        let Some(sequence) = &mut self.slots[slot] else { return };
        for row in sequence.rows.drain(len.min(sequence.rows.len())..) {
            let row = row as usize;
            self.uses[row] -= 1;
            if self.uses[row] == 0 {
                self.used -= 1;
                self.free_from = self.free_from.min(row);
            }
        }
    }

    /// A row for the next token of a sequence: the first free one, so that a sequence alone has its tokens in order.
    pub(crate) fn push(&mut self, slot: usize) -> RowPosition {
        while self.uses.get(self.free_from).is_some_and(|uses| *uses > 0) {
            self.free_from += 1;
        }
        if self.free_from == self.uses.len() {
            self.uses.push(0);
        }
        self.uses[self.free_from] = 1;
        self.used += 1;
        let row = self.free_from as u32;
        let position = self.rows(slot).len() as u32;
        if let Some(sequence) = &mut self.slots[slot] {
            sequence.rows.push(row);
        }
        RowPosition { position, row }
    }

    /// Rows in use.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// The end of all rows that are or were in use.
    pub(crate) fn end_of_rows(&self) -> u32 {
        self.uses.len() as u32
    }
}
