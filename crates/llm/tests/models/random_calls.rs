//! An engine for many sequences does what as many engines for one would do, loses no page, and allocates nothing.

use std::collections::HashMap;

use orlop_backend::Cancel;
use orlop_llm::{Engine, Error, Model, Part, RunRows, SequenceId, Settings};
use orlop_testkit::{CountingAllocator, Random};

use crate::made::made;
use crate::support::{load, one_cpu, reference};

/// What follows texts, by an engine for one sequence that is fed each of them again.
struct Naive {
    engine: Engine,
    known: HashMap<Vec<u32>, u32>,
}

impl Naive {
    fn after(&mut self, text: &[u32]) -> u32 {
        if let Some(best) = self.known.get(text) {
            return *best;
        }
        self.engine.truncate(0);
        self.engine.feed(text).unwrap();
        let best = self.engine.last_best().unwrap();
        self.known.insert(text.to_vec(), best);
        best
    }
}

/// What is called at random.
struct Case {
    model: Model,
    settings: Settings,
    /// How many tokens are fed at once to a sequence.
    counts: [u64; 5],
    /// Not every length can be kept of a sequence.
    forgets: bool,
}

/// The engine, and what its sequences should hold.
struct Played {
    engine: Engine,
    texts: Vec<(SequenceId, Vec<u32>)>,
    naive: Naive,
    /// Calls that fed nothing as there was no room, and those that were cancelled.
    refused: usize,
    cancelled: usize,
    /// Allocations in calls that succeeded.
    allocations: u64,
}

impl Played {
    /// The engine has run every graph, and its buffers have their size.
    fn new(case: &Case) -> Played {
        let settings = |sequences| Settings { sequences, ..case.settings.clone() };
        let mut engine = load(&case.model, &one_cpu(), &settings(6));
        let sizes: Vec<usize> = engine.batch_sizes().map(|size| size as usize).collect();
        let ids: Vec<SequenceId> = (1..6).map(|_| engine.start_sequence().unwrap()).collect();
        for size in sizes {
            let tokens = vec![1; size];
            let (one, others) = tokens.split_at(1);
            let two = [Part::last(ids[0], one), Part::last(ids[1], others)];
            let two = if others.is_empty() { &two[..1] } else { &two };
            for parts in [&[Part::silent(ids[0], &tokens)], &[Part::all(ids[0], &tokens)], two] {
                engine.feed_parts(parts, &mut |mut rows| rows.matrix().map(|_| ())).unwrap();
                ids[..2].iter().for_each(|id| assert_eq!(engine.truncate_sequence(*id, 0).unwrap(), 0));
            }
        }
        let tokens = vec![1; case.counts[4] as usize];
        let parts: Vec<Part<'_>> =
            ids.iter().chain([&SequenceId::FIRST]).map(|id| Part::last(*id, &tokens)).collect();
        // As many as there is room for.
        let most = (1..=6).rev().find(|most| {
            let fed = engine.feed_parts(&parts[..*most], &mut |mut rows| rows.best().map(|_| ()));
            fed.is_ok()
        });
        assert!(most.is_some_and(|most| most > 1));
        ids.into_iter().chain([SequenceId::FIRST]).for_each(|id| engine.end_sequence(id).unwrap());
        let naive = Naive { engine: load(&case.model, &one_cpu(), &settings(1)), known: HashMap::new() };
        let texts = vec![(SequenceId::FIRST, Vec::new())];
        Played { engine, texts, naive, refused: 0, cancelled: 0, allocations: 0 }
    }

    /// Counts what a call allocates, unless it fails.
    fn counted<T>(&mut self, call: impl FnOnce(&mut Engine) -> Result<T, Error>) -> Result<T, Error> {
        let before = CountingAllocator::thread_calls();
        let result = call(&mut self.engine);
        self.allocations += if result.is_ok() { CountingAllocator::thread_calls() - before } else { 0 };
        result
    }

    fn start(&mut self) {
        match self.counted(Engine::start_sequence) {
            Ok(id) => self.texts.push((id, Vec::new())),
            Err(error) => assert!(matches!(error, Error::TooManySequences { sequences: 6 }), "{error}"),
        }
    }

    fn fork(&mut self, chosen: usize, random: &mut Random, case: &Case) {
        let (from, text) = self.texts[chosen].clone();
        let len = random.below(text.len() as u64 + 1) as usize;
        let len = if case.forgets && random.below(2) == 0 { text.len() } else { len };
        match self.counted(|engine| engine.fork_sequence(from, len)) {
            Ok(id) => self.texts.push((id, text[..len].to_vec())),
            Err(Error::NoWayBack { .. }) => assert!(case.forgets && len < text.len()),
            Err(error) => assert!(matches!(error, Error::TooManySequences { .. }), "{error}"),
        }
    }

    fn truncate(&mut self, chosen: usize, random: &mut Random, case: &Case) {
        let (id, text) = &self.texts[chosen];
        let (id, len) = (*id, random.below(text.len() as u64 + 1) as usize);
        let kept = self.counted(|engine| engine.truncate_sequence(id, len)).unwrap();
        assert!(kept == len || kept == 0 && case.forgets, "{kept} of {len}");
        self.texts[chosen].1.truncate(kept);
    }

    /// Feeds some sequences, and perhaps cancels that: before, or behind the first run.
    fn feed(&mut self, chosen: usize, random: &mut Random, case: &Case) {
        let vocabulary = self.engine.config().vocabulary;
        let mut added: Vec<(usize, Vec<u32>)> = Vec::new();
        for index in 0..self.texts.len() {
            if index == chosen || random.below(2) == 0 {
                let count = case.counts[random.below(5) as usize];
                added.push((index, (0..count).map(|_| random.below(vocabulary) as u32).collect()));
            }
        }
        let cancel = Cancel::new();
        let when = random.below(16);
        if when == 0 {
            cancel.cancel();
        }
        self.engine.cancel_with(Some(cancel.clone()));
        let parts: Vec<Part<'_>> =
            added.iter().map(|(index, tokens)| Part::last(self.texts[*index].0, tokens)).collect();
        let counts: Vec<(SequenceId, usize)> =
            parts.iter().map(|part| (part.sequence, part.tokens.len())).collect();
        let needed = self.engine.pages_needed(&counts);
        let (mut best, free, mut own) = (vec![None; parts.len()], whole_pages(&self.engine), 0);
        let fed = self.counted(|engine| {
            engine.feed_parts(&parts, &mut |mut run: RunRows<'_>| {
                run.best()?.for_each(|(row, token)| best[row.part] = Some(token));
                let before = CountingAllocator::thread_calls();
                for number in 0..run.rows().len() {
                    let token = best[run.rows()[number].part];
                    assert_eq!(Some(run.top_of(number, 1)?[0].0), token);
                }
                own += CountingAllocator::thread_calls() - before;
                if when == 1 {
                    cancel.cancel();
                }
                Ok(())
            })
        });
        match fed {
            Ok(()) => {
                self.allocations -= own;
                assert_eq!(free - whole_pages(&self.engine), needed.unwrap());
            }
            Err(Error::RunFailed(failure)) => {
                assert!(when < 2, "{failure:?}");
                for left in &failure.sequences {
                    assert_eq!(left.tokens, self.engine.sequence_len(left.sequence).unwrap());
                }
                self.cancelled += 1;
            }
            Err(error) => {
                assert!(matches!(error, Error::NoPages { .. } | Error::ContextFull { .. }), "{error}");
                self.refused += 1;
                return;
            }
        }
        for ((index, tokens), best) in added.iter().zip(best) {
            let (id, text) = &mut self.texts[*index];
            text.extend(tokens);
            let whole = text.len();
            text.truncate(self.engine.sequence_len(*id).unwrap());
            // A cancelled run keeps what was fed before, or nothing of a state.
            assert!(text.len() + tokens.len() >= whole || case.forgets && text.is_empty());
            if let Some(best) = best.filter(|_| text.len() == whole) {
                assert_eq!(self.naive.after(text), best);
            }
        }
    }
}

/// Free pages of the whole context.
fn whole_pages(engine: &Engine) -> u64 {
    engine.page_pools().find(|pool| pool.window.is_none()).map_or(0, |pool| pool.free)
}

/// Random starts, forks, ends, rewinds, feeds and cancels, against naive engines.
fn random_calls(case: &Case) {
    let mut played = Played::new(case);
    let mut random = Random::new(7);
    for call in 0..CALLS {
        let chosen = random.below(played.texts.len() as u64) as usize;
        let kind = random.below(8);
        match kind {
            0 => played.start(),
            1 => played.fork(chosen, &mut random, case),
            2 if chosen > 0 => {
                let (id, _) = played.texts.remove(chosen);
                played.counted(|engine| engine.end_sequence(id)).unwrap();
            }
            3 => played.truncate(chosen, &mut random, case),
            _ => played.feed(chosen, &mut random, case),
        }
        for (id, text) in &played.texts {
            assert_eq!(played.engine.sequence_len(*id).unwrap(), text.len(), "call {call}");
        }
        assert_eq!(played.allocations, 0, "call {call} of kind {kind}");
    }
    let Played { mut engine, texts, refused, cancelled, .. } = played;
    assert!(refused < CALLS / 4, "most calls must succeed: {refused} were refused");
    assert!(cancelled > CALLS / 50, "{cancelled} were cancelled");
    texts.into_iter().for_each(|(id, _)| engine.end_sequence(id).unwrap());
    assert!(engine.page_pools().all(|pool| pool.free == pool.pages), "no page is lost");
}

const CALLS: usize = 1000;

fn settings(context: u64, batch: u64) -> Settings {
    Settings { context: Some(context), batch, ..Settings::default() }
}

#[test]
fn a_thousand_random_calls_give_what_naive_engines_give() {
    let (model, ..) = reference("llama-dense.Q4_0");
    let counts = [1, 1, 2, 9, 50];
    random_calls(&Case { model, settings: settings(640, 32), counts, forgets: false });
}

#[test]
fn a_thousand_random_calls_of_a_model_with_windows_and_long_batches() {
    let (model, ..) = made("gemma3");
    let counts = [1, 1, 2, 30, 150];
    random_calls(&Case { model, settings: settings(1280, 256), counts, forgets: true });
}

#[test]
fn a_thousand_random_calls_of_models_with_states() {
    for name in ["mamba2", "falcon-h1"] {
        let (model, ..) = made(name);
        let counts = [1, 1, 2, 9, 50];
        random_calls(&Case { model, settings: settings(640, 32), counts, forgets: true });
    }
}
