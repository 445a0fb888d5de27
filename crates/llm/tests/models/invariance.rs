//! A token's logits depend on its sequence alone: not on batches, chunks, threads, other sequences or pages.

use orlop_llm::{Engine, Model, Outputs, Part, RunRows, SequenceId, Settings};
use orlop_sched::Machine;

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
