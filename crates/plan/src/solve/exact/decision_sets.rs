//! Sets of decisions as bit sets.

/// Bit sets of equal width, one per row; a decision's bit is its depth.
#[derive(Debug)]
pub(super) struct DecisionSets {
    /// Words of a row.
    words: usize,
    bits: Vec<u64>,
}

impl DecisionSets {
    pub(super) fn new(rows: usize, depth: usize) -> Self {
        let words = depth / 64 + 1;
        Self { words, bits: vec![0; rows * words] }
    }

    /// Number of decisions that a row can hold.
    pub(super) fn room(&self) -> usize {
        64 * self.words
    }

    fn row(&self, row: usize) -> &[u64] {
        &self.bits[row * self.words..(row + 1) * self.words]
    }

    fn row_mut(&mut self, row: usize) -> &mut [u64] {
        &mut self.bits[row * self.words..(row + 1) * self.words]
    }

    /// Doubles the room of every row.
    pub(super) fn widen(&mut self) {
        let mut bits = Vec::with_capacity(2 * self.bits.len());
        for row in self.bits.chunks(self.words) {
            bits.extend_from_slice(row);
            bits.resize(bits.len() + self.words, 0);
        }
        *self = Self { words: 2 * self.words, bits };
    }

    /// Truncates to `row` rows and adds an empty one.
    pub(super) fn open(&mut self, row: usize) {
        self.bits.truncate(row * self.words);
        self.bits.resize((row + 1) * self.words, 0);
    }

    pub(super) fn insert(&mut self, row: usize, depth: u32) {
        self.row_mut(row)[depth as usize / 64] |= 1 << (depth % 64);
    }

    pub(super) fn remove(&mut self, row: usize, depth: u32) {
        self.row_mut(row)[depth as usize / 64] &= !(1 << (depth % 64));
    }

    /// Adds `other`'s row `from` to row `to`. Both have equal width.
    pub(super) fn unite(&mut self, to: usize, other: &DecisionSets, from: usize) {
        for (word, add) in self.row_mut(to).iter_mut().zip(other.row(from)) {
            *word |= add;
        }
    }

    /// Adds row `from` to the earlier row `to`.
    pub(super) fn unite_within(&mut self, to: usize, from: usize) {
        let (head, tail) = self.bits.split_at_mut(from * self.words);
        for (word, add) in head[to * self.words..(to + 1) * self.words].iter_mut().zip(tail) {
            *word |= *add;
        }
    }

    /// The deepest decision of a row.
    pub(super) fn deepest(&self, row: usize) -> Option<u32> {
        let (index, word) = self.row(row).iter().enumerate().rev().find(|(_, word)| **word != 0)?;
        Some(64 * index as u32 + 63 - word.leading_zeros())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_keep_their_sets_when_they_are_widened() {
        let mut rows = DecisionSets::new(3, 10);
        rows.insert(0, 63);
        rows.insert(2, 5);
        rows.widen();
        rows.insert(2, 100);
        assert_eq!([0, 1, 2].map(|row| rows.deepest(row)), [Some(63), None, Some(100)]);
        rows.unite_within(0, 2);
        rows.remove(0, 100);
        rows.remove(0, 63);
        assert_eq!((rows.deepest(0), rows.room()), (Some(5), 128));
    }
}
