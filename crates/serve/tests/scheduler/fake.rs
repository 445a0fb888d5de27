//! An engine without a model: the next token is a function of all tokens before it. Its pages are counted as a real engine's.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::Duration;

use orlop_serve::{
    DraftText, Flow, Limits, PagedEngine, Request, RequestEnd, RequestId, RequestUsage, Rows, Scheduler,
    StepPart, StepRow, Submission,
};

pub(crate) const PAGE: usize = 4;

/// The token that ends a text.
pub(crate) const END: u32 = 0;

#[derive(Debug)]
pub(crate) struct FakeEngine {
    limits: Limits,
    /// How many sequences use each page.
    pages: Vec<u32>,
    sequences: Vec<Option<Sequence>>,
    /// Fails at this step.
    pub(crate) fails_at: Option<u64>,
    /// What a failed step does.
    pub(crate) damage: Damage,
    /// Steps with this token fail.
    pub(crate) poison: Option<u32>,
    /// A sequence cannot go back by more tokens.
    window: usize,
    lost: bool,
    pub(crate) steps: u64,
    /// Tokens of each step.
    pub(crate) sizes: Vec<usize>,
    /// Drafts this many tokens, and of them this many that are right.
    drafts: Option<(usize, usize)>,
    /// Sequences that were given drafts.
    pub(crate) drafting: BTreeSet<usize>,
}

/// What a step that fails does to the sequences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Damage {
    /// They stay what they were.
    #[default]
    Nothing,
    /// That of the first part becomes empty.
    First,
    /// The first part is fed before the failure.
    FirstIsFed,
    /// All become empty.
    All,
    /// All become empty, and all later steps fail.
    Lost,
}

#[derive(Clone, Debug, Default)]
struct Sequence {
    tokens: Vec<u32>,
    pages: Vec<usize>,
}

/// The token behind some tokens.
pub(crate) fn next_token(tokens: &[u32]) -> u32 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for token in tokens {
        hash = (hash ^ u64::from(*token)).wrapping_mul(0x0100_0000_01b3);
        hash ^= hash >> 29;
    }
    (hash % 50) as u32
}

impl FakeEngine {
    pub(crate) fn new(pages: usize, parallel: usize, sequences: usize) -> FakeEngine {
        let limits = Limits {
            page_rows: PAGE,
            pages,
            context: pages * PAGE,
            sequences,
            parallel,
            batches: vec![1, 2, 4, 8, 16, 32],
            shares: true,
            attention: 0.001,
        };
        let (pages, slots) = (vec![0; pages], vec![None; sequences]);
        FakeEngine {
            limits,
            pages,
            sequences: slots,
            fails_at: None,
            damage: Damage::Nothing,
            poison: None,
            window: usize::MAX,
            lost: false,
            steps: 0,
            sizes: Vec::new(),
            drafts: None,
            drafting: BTreeSet::new(),
        }
    }

    pub(crate) fn with_context(mut self, context: usize) -> FakeEngine {
        self.limits.context = context;
        self
    }

    pub(crate) fn with_window(mut self, window: usize) -> FakeEngine {
        self.window = window;
        self
    }

    pub(crate) fn with_drafts(mut self, drafts: Option<(usize, usize)>) -> FakeEngine {
        self.drafts = drafts;
        self
    }

    pub(crate) fn without_sharing(mut self) -> FakeEngine {
        self.limits.shares = false;
        self
    }

    pub(crate) fn live(&self) -> usize {
        self.sequences.iter().flatten().count()
    }

    fn take(&mut self) -> Option<usize> {
        let page = self.pages.iter().position(|uses| *uses == 0)?;
        self.pages[page] = 1;
        Some(page)
    }

    fn push(&mut self, slot: usize, token: u32) {
        let mut sequence = self.sequences[slot].take().expect("a sequence");
        let page = sequence.tokens.len() / PAGE;
        match sequence.pages.get(page).copied() {
            None => sequence.pages.push(self.take().expect("a free page")),
            Some(shared) if self.pages[shared] > 1 => {
                sequence.pages[page] = self.take().expect("a free page for a copy");
                self.pages[shared] -= 1;
            }
            Some(_) => {}
        }
        sequence.tokens.push(token);
        assert!(sequence.tokens.len() <= self.limits.context, "beyond the context");
        self.sequences[slot] = Some(sequence);
    }
}

impl FakeEngine {
    fn suffer(&mut self, first: &StepPart<'_, usize>) {
        let slots = match self.damage {
            Damage::Nothing => Vec::new(),
            Damage::First => vec![first.sequence],
            Damage::FirstIsFed => {
                first.tokens.iter().for_each(|token| self.push(first.sequence, *token));
                Vec::new()
            }
            Damage::All | Damage::Lost => {
                (0..self.sequences.len()).filter(|slot| self.sequences[*slot].is_some()).collect()
            }
        };
        self.window = usize::MAX;
        slots.into_iter().for_each(|slot| {
            self.truncate(slot, 0);
        });
        self.lost = self.damage == Damage::Lost;
    }
}

impl PagedEngine for FakeEngine {
    type Sequence = usize;
    type Error = String;

    fn limits(&self) -> Limits {
        self.limits.clone()
    }

    fn free_pages(&self) -> usize {
        self.pages.iter().filter(|uses| **uses == 0).count()
    }

    fn start(&mut self) -> Result<usize, String> {
        let slot = self.sequences.iter().position(Option::is_none).ok_or("too many sequences")?;
        self.sequences[slot] = Some(Sequence::default());
        Ok(slot)
    }

    fn fork(&mut self, from: usize, len: usize) -> Result<usize, String> {
        let source = self.sequences[from].clone().expect("a sequence to fork");
        if source.tokens.len() - len > self.window {
            return Err("no way back".to_owned());
        }
        let slot = self.start()?;
        assert!(len <= source.tokens.len(), "{len} of {}", source.tokens.len());
        let pages: Vec<usize> = source.pages[..len.div_ceil(PAGE)].to_vec();
        pages.iter().for_each(|page| self.pages[*page] += 1);
        self.sequences[slot] = Some(Sequence { tokens: source.tokens[..len].to_vec(), pages });
        Ok(slot)
    }

    fn truncate(&mut self, sequence: usize, len: usize) -> usize {
        let mut kept = self.sequences[sequence].take().expect("a sequence to truncate");
        let len = len.min(kept.tokens.len());
        let len = if kept.tokens.len() - len > self.window { 0 } else { len };
        kept.tokens.truncate(len);
        kept.pages.drain(len.div_ceil(PAGE)..).for_each(|page| self.pages[page] -= 1);
        self.sequences[sequence] = Some(kept);
        len
    }

    fn end(&mut self, sequence: usize) {
        let ended = self.sequences[sequence].take().expect("a sequence to end");
        ended.pages.iter().for_each(|page| self.pages[*page] -= 1);
    }

    fn len(&self, sequence: usize) -> usize {
        self.sequences[sequence].as_ref().map_or(0, |sequence| sequence.tokens.len())
    }

    fn is_lost(&self) -> bool {
        self.lost
    }

    fn step(
        &mut self,
        parts: &[StepPart<'_, usize>],
        each: &mut dyn FnMut(usize, StepRow<'_>) -> ControlFlow<()>,
    ) -> Result<(), String> {
        self.steps += 1;
        assert!(!self.lost, "the engine is lost");
        let poisoned =
            |part: &StepPart<'_, usize>| part.tokens.iter().any(|token| Some(*token) == self.poison);
        if self.fails_at == Some(self.steps) || parts.iter().any(poisoned) {
            self.suffer(&parts[0]);
            return Err("the device is lost".to_owned());
        }
        self.sizes.push(parts.iter().map(|part| part.tokens.len()).sum());
        assert!(self.sizes.last() <= Some(&self.limits.batch()), "a batch that is too large");
        for (index, part) in parts.iter().enumerate() {
            assert!(!part.tokens.is_empty(), "an empty part");
            let before = self.len(part.sequence);
            part.tokens.iter().for_each(|token| self.push(part.sequence, *token));
            if part.rows == Rows::Nothing {
                continue;
            }
            let tokens = &self.sequences[part.sequence].as_ref().expect("a sequence").tokens;
            assert!(part.drafted < part.tokens.len(), "a draft behind nothing");
            let mut ends = before + part.tokens.len() - part.drafted..=tokens.len();
            let _ = ends.try_for_each(|end| each(index, StepRow::Best(next_token(&tokens[..end]))));
        }
        Ok(())
    }

    fn draft(&mut self, texts: &[DraftText<'_, usize>], drafts: &mut [Vec<u32>]) {
        let Some((count, right)) = self.drafts else { return };
        for (text, draft) in texts.iter().zip(drafts).filter(|(text, _)| text.most > 0) {
            assert_eq!(self.len(text.sequence) + 1, text.tokens.len(), "the last token is not fed");
            let mut tokens = text.tokens.to_vec();
            for index in 0..count.min(text.most) {
                let wrong = u32::from(index >= right);
                tokens.push(next_token(&tokens) + wrong);
            }
            draft.extend_from_slice(&tokens[text.tokens.len()..]);
            self.drafting.insert(text.sequence);
        }
    }

    fn end_drafts(&mut self, sequence: usize) {
        self.drafting.remove(&sequence);
    }
}

/// What became of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) tokens: Vec<u32>,
    pub(crate) end: Option<RequestEnd>,
    pub(crate) usage: RequestUsage,
    pub(crate) paused: bool,
    pub(crate) stuck: bool,
}

#[derive(Debug, Default)]
pub(crate) struct FakeRequest(Rc<RefCell<Outcome>>);

impl FakeRequest {
    pub(crate) fn outcome(&self) -> Rc<RefCell<Outcome>> {
        Rc::clone(&self.0)
    }
}

impl Request for FakeRequest {
    fn rows(&self) -> Rows {
        Rows::Best
    }

    fn is_ready(&self) -> bool {
        !self.0.borrow().paused
    }

    fn choose(&mut self, row: StepRow<'_>, tokens: &mut Vec<u32>, room: usize) -> Flow {
        let StepRow::Best(token) = row else { panic!("logits were not asked for") };
        assert!(room > 0, "more tokens than were asked for");
        tokens.push(token);
        self.0.borrow_mut().tokens.push(token);
        if self.0.borrow().stuck {
            return Flow::Refused("no token fits".to_owned());
        }
        if token == END { Flow::Done } else { Flow::More }
    }

    fn end(self, end: RequestEnd, usage: RequestUsage) {
        let mut outcome = self.0.borrow_mut();
        assert_eq!(outcome.end, None, "a request ends once");
        (outcome.end, outcome.usage) = (Some(end), usage);
    }
}

pub(crate) type Fake = Scheduler<FakeEngine, FakeRequest>;

/// Submits a request that can run.
pub(crate) fn submit(
    scheduler: &mut Fake,
    prompt: &[u32],
    max_tokens: usize,
) -> (RequestId, Rc<RefCell<Outcome>>) {
    let outcome = Rc::new(RefCell::new(Outcome::default()));
    let submission = Submission { prompt: prompt.to_vec(), max_tokens, salt: 0 };
    let id = scheduler.submit(submission, FakeRequest(Rc::clone(&outcome)));
    (id.expect("a request that can run"), outcome)
}

/// A step on a machine where a token takes a millisecond.
pub(crate) fn step(scheduler: &mut Fake) -> orlop_serve::StepReport {
    let mut time = 0;
    scheduler.step(&mut || {
        time += 1;
        Duration::from_millis(time)
    })
}

/// Several steps.
pub(crate) fn steps(scheduler: &mut Fake, count: usize) {
    for _ in 0..count {
        step(scheduler);
    }
}

/// Steps until all requests have ended.
pub(crate) fn finish(scheduler: &mut Fake) {
    let mut idle = 0;
    for _ in 0..100_000 {
        if scheduler.is_idle() {
            return;
        }
        idle = if step(scheduler).is_idle() { idle + 1 } else { 0 };
        assert!(idle < 3, "requests wait for nothing: {:?}", scheduler.snapshot());
    }
    panic!("requests do not end: {:?}", scheduler.snapshot());
}

/// What a request gives if nothing else runs.
pub(crate) fn alone(prompt: &[u32], max_tokens: usize, context: usize) -> Vec<u32> {
    let mut tokens = prompt.to_vec();
    let most = max_tokens.min(context - prompt.len() + 1);
    while tokens.len() < prompt.len() + most {
        tokens.push(next_token(&tokens));
        if tokens.last() == Some(&END) {
            break;
        }
    }
    tokens.split_off(prompt.len())
}
