//! Several sequences in one cache.

use orlop_llm::{Engine, Error, Outputs, PAGE_ROWS, SequenceId, Settings};

use crate::made::{MODELS, exact, made, model, read};
use crate::support::{self, last_row, load, nmse, one_cpu, tokens_of};

/// Room for some sequences.
fn several(sequences: u64) -> Settings {
    Settings { sequences, outputs: Outputs::Last, ..exact() }
}

/// The logits behind each part.
fn together(engine: &mut Engine, parts: &[(SequenceId, &[u32])]) -> Vec<Vec<f32>> {
    support::together(engine, parts).unwrap()
}

/// The logits behind a text that an engine for one sequence is fed.
fn alone(model: &orlop_llm::Model, tokens: &[u32]) -> Vec<f32> {
    last_row(&mut load(model, &one_cpu(), &several(1)), tokens)
}

#[test]
fn sequences_fed_together_are_as_each_alone() {
    for name in MODELS {
        let (model, tokens, _) = made(name);
        for batch in [512, 5] {
            let mut engine = load(&model, &one_cpu(), &Settings { batch, ..several(3) });
            let [a, b] = [SequenceId::FIRST, engine.start_sequence().unwrap()];
            let [mut one, mut other] = [tokens[..9].to_vec(), tokens[13..26].to_vec()];
            let mut found = together(&mut engine, &[(a, &one), (b, &other)]);
            // Prompts, then a token each, in both orders.
            for (step, parts) in [[a, b], [b, a], [a, b]].into_iter().enumerate() {
                let expected = [alone(&model, &one), alone(&model, &other)];
                assert!(nmse(&found, &expected) < 1e-9, "{name} in batches of {batch}, step {step}");
                one.push(tokens[step]);
                other.push(tokens[step + 7]);
                let token =
                    |id: SequenceId| if id == a { &one[one.len() - 1..] } else { &other[other.len() - 1..] };
                let mut rows = together(&mut engine, &parts.map(|id| (id, token(id))));
                if parts[0] != a {
                    rows.swap(0, 1);
                }
                found = rows;
            }
            assert_eq!((engine.len(), engine.sequence_len(b).unwrap()), (12, 16));
        }
    }
}

#[test]
fn a_fork_goes_on_as_if_all_had_been_fed_again() {
    for name in MODELS {
        let (model, tokens, _) = made(name);
        let states = model.config().keeps_states();
        let mut engine = load(&model, &one_cpu(), &several(3));
        engine.feed(&tokens[..20]).unwrap();
        let kept = if states { 20 } else { 12 };
        let free = engine.free_pages();
        let fork = engine.fork_sequence(SequenceId::FIRST, kept).unwrap();
        assert_eq!(engine.sequence_len(fork).unwrap(), kept);
        assert_eq!(engine.free_pages(), free, "a fork takes no page");
        let found = together(&mut engine, &[(fork, &tokens[3..8]), (SequenceId::FIRST, &tokens[20..])]);
        let replayed = [&tokens[..kept], &tokens[3..8]].concat();
        let expected = [alone(&model, &replayed), alone(&model, &tokens)];
        assert!(nmse(&found, &expected) < 1e-9, "{name}");
        // The fork does not need the one it came from.
        engine.end_sequence(SequenceId::FIRST).unwrap();
        let found = together(&mut engine, &[(fork, &tokens[..1]), (SequenceId::FIRST, &tokens[4..9])]);
        let expected = [alone(&model, &[&replayed, &tokens[..1]].concat()), alone(&model, &tokens[4..9])];
        assert!(nmse(&found, &expected) < 1e-9, "{name}, after the end of the first");
    }
}

#[test]
fn pages_of_ended_sequences_are_free_again() {
    let (model, tokens, _) = made("llama");
    let mut engine = load(&model, &one_cpu(), &Settings { context: Some(128), ..several(3) });
    assert_eq!(engine.free_pages(), 3, "as many pages as sequences");
    for _ in 0..5 {
        let [id, other] = [(); 2].map(|()| engine.start_sequence().unwrap());
        together(&mut engine, &[(id, &tokens), (other, &tokens), (SequenceId::FIRST, &tokens)]);
        assert!(matches!(engine.start_sequence(), Err(Error::TooManySequences { sequences: 3 })));
        let long = tokens.repeat(2);
        let full = support::together(&mut engine, &[(id, &long)]);
        assert!(matches!(full, Err(Error::NoPages { needed: 1, free: 0 })), "{full:?}");
        let full = support::together(&mut engine, &[(id, &tokens.repeat(4))]);
        assert!(matches!(full, Err(Error::ContextFull { tokens: 120, context: 128, used: 30 })), "{full:?}");
        assert_eq!(engine.sequence_len(id).unwrap(), 30, "nothing has changed");
        assert_eq!(engine.truncate_sequence(id, 25).unwrap(), 25);
        engine.end_sequence(other).unwrap();
        assert_eq!(engine.free_pages(), 1);
        together(&mut engine, &[(id, &long)]);
        engine.end_sequence(id).unwrap();
        engine.end_sequence(SequenceId::FIRST).unwrap();
        assert_eq!(engine.free_pages(), 3);
        assert!(matches!(engine.sequence_len(id), Err(Error::UnknownSequence(_))));
        assert!(matches!(engine.fork_sequence(id, 3), Err(Error::UnknownSequence(_))));
        let unknown = support::together(&mut engine, &[(id, &tokens[..1])]);
        assert!(matches!(unknown, Err(Error::UnknownSequence(_))));
    }
    let nothing = support::together(&mut engine, &[(SequenceId::FIRST, &[])]);
    assert!(matches!(nothing, Err(Error::EmptyPrompt)), "{nothing:?}");
}

#[test]
fn a_state_has_no_way_back() {
    let (model, tokens, _) = made("mamba2");
    let mut engine = load(&model, &one_cpu(), &several(2));
    engine.feed(&tokens[..8]).unwrap();
    let fork = engine.fork_sequence(SequenceId::FIRST, 3);
    assert!(matches!(fork, Err(Error::NoWayBack { len: 3, tokens: 8 })), "{fork:?}");
    assert_eq!(engine.truncate(9), 8);
    assert_eq!(engine.truncate(5), 0);
    let again = last_row(&mut engine, &tokens);
    assert!(nmse(&[again], &[alone(&model, &tokens)]) < 1e-9);
}

#[test]
fn layers_with_a_window_keep_the_window_and_a_batch() {
    let (model, ..) = made("gemma3");
    let windows: Vec<Option<u32>> = model.config().layers.iter().map(|layer| layer.window).collect();
    let window = windows.iter().flatten().copied().next().unwrap();
    for (sequences, batch) in [(1, 64), (1, 512), (4, 64)] {
        let settings = Settings { context: Some(4096), batch, ..several(sequences) };
        let engine = load(&model, &one_cpu(), &settings);
        let (graph, _) = engine.blueprint().planned_batch();
        for (layer, layer_window) in windows.iter().enumerate() {
            let name = format!("cache.k.{layer}");
            let cache = graph.tensors().iter().find(|tensor| tensor.name.as_str() == name).unwrap();
            let rows = cache.desc.extents[1];
            match layer_window {
                // Rows begin anywhere in a page.
                Some(_) => {
                    let needed = (u64::from(window) + 61) * sequences + batch;
                    assert_eq!(rows, (needed / PAGE_ROWS + sequences) * PAGE_ROWS);
                }
                None => assert_eq!(rows, 4096),
            }
        }
        assert_eq!(engine.memory(), engine.blueprint().forecast().unwrap());
    }
}

#[test]
fn a_window_goes_on_beyond_the_rows_that_it_keeps() {
    let (model, tokens, _) = made("gemma3");
    let long: Vec<u32> = tokens.iter().copied().cycle().take(700).collect();
    let settings = Settings { context: Some(1024), batch: 64, ..several(2) };
    let mut engine = load(&model, &one_cpu(), &settings);
    let found = last_row(&mut engine, &long);
    let whole = Settings { context: Some(1024), batch: 1024, ..several(1) };
    let expected = last_row(&mut load(&model, &one_cpu(), &whole), &long);
    assert!(nmse(&[found], std::slice::from_ref(&expected)) < 1e-9);
    let fork = engine.fork_sequence(SequenceId::FIRST, 100);
    assert!(matches!(fork, Err(Error::NoWayBack { len: 100, tokens: 700 })), "{fork:?}");
    // The last token again, from a fork.
    let fork = engine.fork_sequence(SequenceId::FIRST, 699).unwrap();
    let found = together(&mut engine, &[(fork, &long[699..])]);
    assert!(nmse(&found, &[expected]) < 1e-9);
    assert_eq!(engine.truncate(100), 0, "rows that tokens would see are gone");
}

#[test]
fn windows_have_pages_for_every_sequence_wherever_batches_went() {
    let (model, tokens, _) = made("gemma3");
    let chunk: Vec<u32> = tokens.iter().copied().cycle().take(256).collect();
    let settings = Settings { context: Some(4096), batch: 256, ..several(4) };
    let mut engine = load(&model, &one_cpu(), &settings);
    let [a, b, c] = [(); 3].map(|()| engine.start_sequence().unwrap());
    for round in 1..=3 {
        for id in [a, b, c] {
            together(&mut engine, &[(id, &chunk)]);
            assert_eq!(engine.sequence_len(id).unwrap(), 256 * round);
        }
        // A batch of each holds more pages than there are, but what later tokens see of them is little.
        let saved = engine.sequence_bytes(a, &chunk.repeat(round)).unwrap();
        let loaded = engine.load_sequence_bytes(SequenceId::FIRST, std::sync::Arc::new(saved)).unwrap();
        let next = together(&mut engine, &[(a, &tokens[..3]), (SequenceId::FIRST, &tokens[..3])]);
        assert_eq!((loaded.len(), &next[0]), (256 * round, &next[1]));
        engine.end_sequence(SequenceId::FIRST).unwrap();
        assert_eq!(engine.truncate_sequence(a, 256 * round).unwrap(), 256 * round);
    }
}

#[test]
fn sequences_of_a_model_of_windows_alone_may_all_be_as_long_as_the_context() {
    let mut json = read("gemma3");
    json["keys"]["gemma3.attention.sliding_window_pattern"] = serde_json::json!(vec![true; 8]);
    let model = model(&json);
    assert!(model.config().layers.iter().all(|layer| layer.window.is_some()));
    let chunk: Vec<u32> = tokens_of(&json).into_iter().cycle().take(64).collect();
    let mut engine = load(&model, &one_cpu(), &Settings { context: Some(128), batch: 64, ..several(3) });
    let ids = [SequenceId::FIRST, engine.start_sequence().unwrap(), engine.start_sequence().unwrap()];
    for id in ids.repeat(2) {
        together(&mut engine, &[(id, &chunk)]);
    }
    assert_eq!(ids.map(|id| engine.sequence_len(id).unwrap()), [128; 3]);
}

#[test]
fn many_sequences_come_and_go() {
    let (model, tokens, _) = made("llama");
    let mut engine = load(&model, &one_cpu(), &Settings { context: Some(16), batch: 4, ..several(64) });
    let ids: Vec<SequenceId> = (0..40).map(|_| engine.start_sequence().unwrap()).collect();
    engine.end_sequence(ids[3]).unwrap();
    let again = engine.start_sequence().unwrap();
    assert!(!ids.contains(&again));
    let found = together(&mut engine, &[(ids[39], &tokens[..3])]);
    assert!(nmse(&found, &[alone(&model, &tokens[..3])]) < 1e-9);
}

#[test]
fn parts_of_one_state_follow_each_other() {
    let (model, tokens, _) = made("mamba2");
    let text: Vec<u32> = tokens.iter().copied().cycle().take(32).collect();
    let mut engine = load(&model, &one_cpu(), &several(1));
    engine.repack(&mut |_, _| ()).unwrap();
    let parts = [&text[..10], &text[10..20], &text[20..]].map(|part| (SequenceId::FIRST, part));
    let found = together(&mut engine, &parts);
    let expected = [10, 20, 32].map(|len| alone(&model, &text[..len]));
    assert!(nmse(&found, &expected) < 1e-9);
    // Logits of all tokens, although runs of 32 are planned for one row.
    engine.truncate(0);
    let found = support::rows(&mut engine, &text);
    let expected: Vec<_> = (1..=32).map(|len| alone(&model, &text[..len])).collect();
    assert!(nmse(&found, &expected) < 1e-9);
}
