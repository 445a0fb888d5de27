//! What is fed together, and the rows of logits that a run gives for it.

use super::Engine;
use crate::{Error, SequenceId};

/// Tokens that are fed to a sequence, together with those of others ([`Engine::feed_parts`]): a chunk of a prompt, one
/// generated token, or a draft.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// The sequence that they continue.
    pub sequence: SequenceId,
    /// At least one.
    pub tokens: &'a [u32],
    /// The tokens whose logits are wanted.
    pub wanted: Wanted,
}

/// The tokens of a part whose logits are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wanted {
    /// None: more of the prompt follows.
    Nothing,
    /// The last one.
    Last,
    /// All of them.
    All,
}

impl<'a> Part<'a> {
    /// Tokens whose logits are not wanted.
    pub fn silent(sequence: SequenceId, tokens: &'a [u32]) -> Part<'a> {
        Part { sequence, tokens, wanted: Wanted::Nothing }
    }

    /// Tokens, and the logits behind the last one.
    pub fn last(sequence: SequenceId, tokens: &'a [u32]) -> Part<'a> {
        Part { sequence, tokens, wanted: Wanted::Last }
    }

    /// Tokens, and the logits behind each.
    pub fn all(sequence: SequenceId, tokens: &'a [u32]) -> Part<'a> {
        Part { sequence, tokens, wanted: Wanted::All }
    }
}

/// A row of logits of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Which of the parts that were fed together its token belongs to.
    pub part: usize,
    /// The token's position in its part.
    pub index: usize,
    /// Its row in the run's results.
    pub(super) place: usize,
}

/// The logits behind a token that was fed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogitsRow<'a> {
    /// Which of the parts that were fed together the token belongs to.
    pub part: usize,
    /// The token's position in its part.
    pub index: usize,
    /// One for each token of the vocabulary.
    pub logits: &'a [f32],
}

/// The rows of logits of one run that are wanted. They stay in device memory; only what is asked for is read.
#[derive(Debug)]
pub struct RunRows<'a> {
    pub(super) engine: &'a mut Engine,
    pub(super) rows: &'a [Row],
}

impl RunRows<'_> {
    /// Which tokens the rows are behind.
    pub fn rows(&self) -> &[Row] {
        self.rows
    }

    /// The likeliest token of each row, which the device computes.
    ///
    /// # Errors
    /// What a device meets.
    pub fn best(&mut self) -> Result<impl Iterator<Item = (Row, u32)>, Error> {
        self.engine.read_best()?;
        let best = self.engine.numbers.as_chunks().0;
        Ok(self.rows.iter().map(move |row| (*row, u32::from_le_bytes(best[row.place]))))
    }

    /// All rows. Their logits lie one behind the other ([`RunRows::matrix`]).
    ///
    /// # Errors
    /// What a device meets.
    pub fn logits(&mut self) -> Result<impl Iterator<Item = LogitsRow<'_>>, Error> {
        let (rows, width) = (self.rows, self.engine.config().vocabulary as usize);
        let logits = self.matrix()?.chunks_exact(width);
        Ok(rows.iter().zip(logits).map(|(Row { part, index, .. }, logits)| LogitsRow {
            part: *part,
            index: *index,
            logits,
        }))
    }

    /// The logits of all rows, in the order of [`RunRows::rows`].
    ///
    /// # Errors
    /// What a device meets.
    pub fn matrix(&mut self) -> Result<&[f32], Error> {
        self.engine.read_rows(self.rows)
    }

    /// As [`RunRows::matrix`], into memory of the caller, and without a copy between.
    ///
    /// # Errors
    /// [`Error::NoLogits`] if `into` is not as large as the rows; what a device meets.
    pub fn read_into(&mut self, into: &mut [f32]) -> Result<(), Error> {
        self.engine.read_rows_into(self.rows, into)
    }

    /// The logits of one row, by its number in [`RunRows::rows`].
    ///
    /// # Errors
    /// [`Error::NoLogits`] if there is no such row; what a device meets.
    pub fn logits_of(&mut self, number: usize) -> Result<&[f32], Error> {
        let row = self.rows.get(number..=number).ok_or(Error::NoLogits)?;
        self.engine.read_rows(row)
    }

    /// The `count` likeliest tokens of a row and their logits, likeliest first; of equal ones the first.
    ///
    /// # Errors
    /// As [`RunRows::logits_of`].
    pub fn top_of(&mut self, number: usize, count: usize) -> Result<Vec<(u32, f32)>, Error> {
        Ok(top(self.logits_of(number)?, count))
    }
}

/// The largest logits, largest first; of equal ones the first.
fn top(logits: &[f32], count: usize) -> Vec<(u32, f32)> {
    let order = |a: &(u32, f32), b: &(u32, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
    let mut all: Vec<(u32, f32)> = (0..).zip(logits.iter().copied()).collect();
    if count > 0 && count < all.len() {
        all.select_nth_unstable_by(count - 1, order);
    }
    all.truncate(count);
    all.sort_unstable_by(order);
    all
}

#[cfg(test)]
mod tests {
    use super::top;

    #[test]
    fn the_likeliest_come_first_and_of_equal_ones_the_first() {
        let logits = [1.0, 3.0, -2.0, 3.0, 2.0];
        assert_eq!(top(&logits, 3), [(1, 3.0), (3, 3.0), (4, 2.0)]);
        assert_eq!(top(&logits, 0), []);
        assert_eq!(top(&logits, 9).len(), 5);
    }
}
