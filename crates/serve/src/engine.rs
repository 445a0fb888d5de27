//! What the scheduler asks of an engine.

use std::fmt::{Debug, Display};
use std::ops::ControlFlow;

/// An engine whose KV cache consists of pages that sequences share.
pub trait PagedEngine {
    /// Names a sequence in the cache.
    type Sequence: Copy + Eq + Debug;
    /// What can go wrong in it.
    type Error: Display;

    /// Its sizes.
    fn limits(&self) -> Limits;

    /// Pages that no sequence uses.
    fn free_pages(&self) -> usize;

    /// Starts an empty sequence.
    ///
    /// # Errors
    /// The maximum of sequences exists.
    fn start(&mut self) -> Result<Self::Sequence, Self::Error>;

    /// Starts a sequence with the first `len` tokens of another one. They share pages; the last one is copied before it is
    /// written.
    ///
    /// # Errors
    /// The maximum of sequences exists; the engine cannot go back to that length.
    fn fork(&mut self, from: Self::Sequence, len: usize) -> Result<Self::Sequence, Self::Error>;

    /// Forgets all tokens of a sequence but the first `len`, and gives how many are left: fewer if the engine cannot go back
    /// to that length.
    fn truncate(&mut self, sequence: Self::Sequence, len: usize) -> usize;

    /// Ends a sequence.
    fn end(&mut self, sequence: Self::Sequence);

    /// Tokens of a sequence. A step that fails may have lost some, also of sequences that were not fed.
    fn len(&self, sequence: Self::Sequence) -> usize;

    /// Whether all steps fail from now on, because a device is lost.
    fn is_lost(&self) -> bool;

    /// Feeds tokens to several sequences. `each` gets the rows of each part that wants some, in order, with the part's index: the
    /// row behind its last token, or behind the token before its draft and behind each of the draft. After a break, the part
    /// wants no more.
    ///
    /// # Errors
    /// What a device meets. [`PagedEngine::len`] then says what is left of each sequence.
    fn step(
        &mut self,
        parts: &[StepPart<'_, Self::Sequence>],
        each: &mut dyn FnMut(usize, StepRow<'_>) -> ControlFlow<()>,
    ) -> Result<(), Self::Error>;

    /// Drafts what may follow the texts of all sequences of the next step: some tokens of each, or none where drafts do not pay.
    /// Drafts change the speed, never the result, so what fails drafts nothing.
    fn draft(&mut self, texts: &[DraftText<'_, Self::Sequence>], drafts: &mut [Vec<u32>]) {
        let _ = (texts, drafts);
    }

    /// A sequence needs no drafts any more.
    fn end_drafts(&mut self, sequence: Self::Sequence) {
        let _ = sequence;
    }
}

/// The sizes of an engine.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Rows of a page.
    pub page_rows: usize,
    /// Pages of the cache.
    pub pages: usize,
    /// Maximum number of tokens of a sequence.
    pub context: usize,
    /// Maximum number of sequences that exist.
    pub sequences: usize,
    /// Maximum number of requests that run at the same time.
    pub parallel: usize,
    /// Batch sizes that the engine computes without padding, ascending.
    pub batches: Vec<usize>,
    /// Whether a sequence can begin with a part of another one. A state cannot go back.
    pub shares: bool,
    /// Part of a token's cost that each token before it adds: the price of attention.
    pub attention: f64,
}

impl Limits {
    /// The largest batch.
    pub fn batch(&self) -> usize {
        self.batches.last().copied().unwrap_or(1)
    }

    /// Pages that hold some rows of one sequence.
    pub fn pages_of(&self, rows: usize) -> usize {
        rows.div_ceil(self.page_rows)
    }
}

/// Tokens for a sequence.
#[derive(Clone, Copy, Debug)]
pub struct StepPart<'a, S> {
    /// The sequence.
    pub sequence: S,
    /// At least one token.
    pub tokens: &'a [u32],
    /// How many of the last ones are a draft; the first is none.
    pub drafted: usize,
    /// What is wanted behind the last of them.
    pub rows: crate::Rows,
}

/// A text that is to be continued.
#[derive(Clone, Copy, Debug)]
pub struct DraftText<'a, S> {
    /// Its sequence, which holds all of it but the last token.
    pub sequence: S,
    /// All its tokens.
    pub tokens: &'a [u32],
    /// Maximum number of tokens to draft.
    pub most: usize,
}

/// What follows a token.
#[derive(Clone, Copy, Debug)]
pub enum StepRow<'a> {
    /// The likeliest token.
    Best(u32),
    /// The logits of all tokens.
    Logits(&'a [f32]),
}
