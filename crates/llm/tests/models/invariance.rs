//! A token's logits depend on its sequence alone: not on batches, chunks, threads, other sequences or pages. And an engine
//! for many sequences does what as many engines for one would do.

use std::collections::HashMap;

use orlop_llm::{Engine, Error, Model, Outputs, Part, RunRows, SequenceId, Settings};
use orlop_sched::Machine;
use orlop_testkit::Random;

use crate::made::{MODELS, made};
use crate::support::{cpu, load, one_cpu, reference, rows};

const QUANTIZED: [&str; 2] = ["llama-dense.Q4_0", "llama-dense.Q4_K_M"];

/// Small models of every architecture, and quantized ones.
fn models() -> Vec<(&'static str, Model, Vec<u32>)> {
    let quantized = QUANTIZED.into_iter().map(|name| (name, reference(name)));
    let all = MODELS.into_iter().map(|name| (name, made(name))).chain(quantized);
    all.map(|(name, (model, tokens, _))| (name, model, tokens)).collect()
}

fn all_rows(sequences: u64, threads: usize, batch: u64) -> Settings {
    Settings { sequences, threads, batch, outputs: Outputs::All, ..Settings::default() }
}

/// Logits of all tokens, fed in chunks.
fn in_chunks(engine: &mut Engine, tokens: &[u32], chunk: usize) -> Vec<Vec<f32>> {
    engine.truncate(0);
    tokens.chunks(chunk).flat_map(|tokens| rows(engine, tokens)).collect()
}

#[test]
fn logits_do_not_depend_on_chunks_batches_or_threads() {
    for (name, model, tokens) in models() {
        let mut engine = load(&model, &one_cpu(), &all_rows(1, 2, 256));
        let expected = in_chunks(&mut engine, &tokens, tokens.len());
        for (threads, batch, chunk) in [(2, 256, 1), (2, 256, 7), (1, 256, 30), (1, 5, 30), (2, 3, 11)] {
            let machine = Machine::new(vec![cpu("cpu", threads)]).unwrap();
            let mut engine = load(&model, &machine, &all_rows(1, threads, batch));
            let found = in_chunks(&mut engine, &tokens, chunk);
            assert!(found == expected, "{name}: {threads} threads, batches of {batch}, chunks of {chunk}");
        }
    }
}

#[test]
fn logits_do_not_depend_on_company_or_pages() {
    for (name, model, tokens) in models() {
        let expected = in_chunks(&mut load(&model, &one_cpu(), &all_rows(1, 2, 256)), &tokens, tokens.len());
        let mut engine = load(&model, &one_cpu(), &all_rows(3, 2, 256));
        // Another sequence's pages come first.
        let other = engine.start_sequence().unwrap();
        engine.feed_parts(&[Part::silent(other, &tokens[..20])], &mut |_| Ok(())).unwrap();
        let id = engine.start_sequence().unwrap();
        let mut found: Vec<Vec<f32>> = Vec::new();
        for chunk in tokens.chunks(9) {
            let [before, own] = [Part::last(other, &tokens[3..5]), Part::all(id, chunk)];
            let parts = [before, own, Part::silent(SequenceId::FIRST, &tokens[..4])];
            let mut see = |mut run: RunRows<'_>| {
                let own = run.logits()?.filter(|row| row.part == 1);
                found.extend(own.map(|row| row.logits.to_vec()));
                Ok(())
            };
            engine.feed_parts(&parts, &mut see).unwrap();
        }
        assert!(found == expected, "{name}");
        // A fork of it gives the same.
        let half = if model.config().keeps_states() { tokens.len() } else { tokens.len() / 2 };
        engine.end_sequence(other).unwrap();
        let fork = engine.fork_sequence(id, half).unwrap();
        let mut found = Vec::new();
        if half < tokens.len() {
            let mut see = |mut run: RunRows<'_>| {
                found.extend(run.logits()?.map(|row| row.logits.to_vec()));
                Ok(())
            };
            engine.feed_parts(&[Part::all(fork, &tokens[half..])], &mut see).unwrap();
        }
        assert!(found == expected[half..], "{name}, a fork");
    }
}

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

/// Random starts, forks, ends, rewinds and feeds, against naive engines.
fn random_calls(name: &str, calls: usize) {
    let (model, ..) = reference(name);
    let vocabulary = model.config().vocabulary;
    let settings = |sequences| Settings { sequences, batch: 32, context: Some(640), ..Settings::default() };
    let mut naive = Naive { engine: load(&model, &one_cpu(), &settings(1)), known: HashMap::new() };
    let mut engine = load(&model, &one_cpu(), &settings(6));
    let pages = engine.free_pages();
    let mut random = Random::new(7);
    let mut texts: Vec<(SequenceId, Vec<u32>)> = vec![(SequenceId::FIRST, Vec::new())];
    let mut refused = 0;
    for call in 0..calls {
        let chosen = random.below(texts.len() as u64) as usize;
        match random.below(8) {
            0 => match engine.start_sequence() {
                Ok(id) => texts.push((id, Vec::new())),
                Err(error) => assert!(matches!(error, Error::TooManySequences { sequences: 6 }), "{error}"),
            },
            1 => {
                let (from, text) = texts[chosen].clone();
                let len = random.below(text.len() as u64 + 1) as usize;
                match engine.fork_sequence(from, len) {
                    Ok(id) => texts.push((id, text[..len].to_vec())),
                    Err(error) => assert!(matches!(error, Error::TooManySequences { .. }), "{error}"),
                }
            }
            2 if chosen > 0 => engine.end_sequence(texts.remove(chosen).0).unwrap(),
            3 => {
                let (id, text) = &mut texts[chosen];
                text.truncate(random.below(text.len() as u64 + 1) as usize);
                assert_eq!(engine.truncate_sequence(*id, text.len()).unwrap(), text.len());
            }
            _ => {
                let mut added: Vec<(usize, Vec<u32>)> = Vec::new();
                for index in 0..texts.len() {
                    if index == chosen || random.below(2) == 0 {
                        let count = [1, 1, 2, 9, 50][random.below(5) as usize];
                        added.push((index, (0..count).map(|_| random.below(vocabulary) as u32).collect()));
                    }
                }
                let parts: Vec<Part<'_>> =
                    added.iter().map(|(index, tokens)| Part::last(texts[*index].0, tokens)).collect();
                let counts: Vec<(SequenceId, usize)> =
                    parts.iter().map(|part| (part.sequence, part.tokens.len())).collect();
                let needed = engine.pages_needed(&counts);
                let (mut best, free) = (vec![0; parts.len()], engine.free_pages());
                let mut see = |mut run: RunRows<'_>| {
                    let found: Vec<_> = run.best()?.collect();
                    for (number, (row, token)) in found.into_iter().enumerate() {
                        assert_eq!(run.top_of(number, 1)?[0].0, token);
                        best[row.part] = token;
                    }
                    Ok(())
                };
                match engine.feed_parts(&parts, &mut see) {
                    Ok(()) => {
                        // Of two sequences that both write a shared page, the second need not copy it.
                        assert!(free - engine.free_pages() <= needed.unwrap(), "{name}, call {call}");
                        for ((index, tokens), best) in added.iter().zip(best) {
                            texts[*index].1.extend(tokens);
                            assert_eq!(naive.after(&texts[*index].1), best, "{name}, call {call}");
                        }
                    }
                    Err(error) => {
                        assert!(
                            matches!(error, Error::NoPages { .. } | Error::ContextFull { .. }),
                            "{error}"
                        );
                        refused += 1;
                    }
                }
            }
        }
        for (id, text) in &texts {
            assert_eq!(engine.sequence_len(*id).unwrap(), text.len());
        }
    }
    assert!(refused < calls / 4, "most calls must succeed: {refused} of {calls} were refused");
    texts.into_iter().for_each(|(id, _)| engine.end_sequence(id).unwrap());
    assert_eq!(engine.free_pages(), pages, "no page is lost");
}

#[test]
fn a_thousand_random_calls_give_what_naive_engines_give() {
    random_calls("llama-dense.Q4_0", 1000);
}
