//! Several sequences in one cache.

use orlop_llm::{Engine, Error, Outputs, SequenceId, Settings};

use crate::arches::{MODELS, exact, made};
use crate::support::{last_row, load, nmse, one_cpu};

/// Room for some sequences.
fn several(sequences: u64) -> Settings {
    Settings { sequences, outputs: Outputs::Last, ..exact() }
}

/// The logits behind each part.
fn together(engine: &mut Engine, parts: &[(SequenceId, &[u32])]) -> Vec<Vec<f32>> {
    let mut rows = vec![Vec::new(); parts.len()];
    engine.feed_parts(parts, &mut |row| rows[row.part] = row.logits.to_vec()).unwrap();
    rows
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
        let states = name.starts_with("mamba2");
        let mut engine = load(&model, &one_cpu(), &several(3));
        engine.feed(&tokens[..20]).unwrap();
        let kept = if states { 20 } else { 12 };
        let fork = engine.fork_sequence(SequenceId::FIRST, kept).unwrap();
        assert_eq!(engine.sequence_len(fork).unwrap(), kept);
        assert_eq!(engine.free_rows(), engine.blueprint().context() - 20, "a fork takes no rows");
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
fn rows_of_ended_sequences_are_free_again() {
    let (model, tokens, _) = made("llama");
    let mut engine = load(&model, &one_cpu(), &Settings { context: Some(40), ..several(2) });
    for _ in 0..5 {
        let id = engine.start_sequence().unwrap();
        engine.feed_parts(&[(id, &tokens)], &mut |_| ()).unwrap();
        let full = engine.feed(&tokens);
        assert!(matches!(full, Err(Error::ContextFull { tokens: 30, context: 40, used: 30 })), "{full:?}");
        assert!(matches!(engine.start_sequence(), Err(Error::TooManySequences { sequences: 2 })));
        assert_eq!(engine.truncate_sequence(id, 25).unwrap(), 25);
        assert_eq!(engine.free_rows(), 15);
        engine.end_sequence(id).unwrap();
        assert_eq!(engine.free_rows(), 40);
        assert!(matches!(engine.sequence_len(id), Err(Error::UnknownSequence(_))));
        let unknown = engine.feed_parts(&[(id, &tokens[..1])], &mut |_| ());
        assert!(matches!(unknown, Err(Error::UnknownSequence(_))));
    }
    let nothing = engine.feed_parts(&[(SequenceId::FIRST, &[])], &mut |_| ());
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
fn one_sequence_needs_no_mask() {
    let (model, ..) = made("gemma3");
    let inputs = |settings: &Settings| {
        let engine = load(&model, &one_cpu(), settings);
        let (graph, _) = engine.blueprint().planned_batch();
        graph.tensors().iter().filter(|tensor| tensor.name.as_str().starts_with("mask")).count()
    };
    assert_eq!(inputs(&several(1)), 0);
    // One for layers that see everything, one for those with a window.
    assert_eq!(inputs(&several(2)), 2);
}

#[test]
fn sequences_take_memory_when_there_are_any() {
    let (model, tokens, _) = made("llama");
    let mut engine =
        load(&model, &one_cpu(), &Settings { context: Some(16), batch: 4, ..several((1 << 31) - 1) });
    let ids: Vec<SequenceId> = (0..40).map(|_| engine.start_sequence().unwrap()).collect();
    engine.end_sequence(ids[3]).unwrap();
    let again = engine.start_sequence().unwrap();
    assert!(!ids.contains(&again));
    let found = together(&mut engine, &[(ids[39], &tokens[..3])]);
    assert!(nmse(&found, &[alone(&model, &tokens[..3])]) < 1e-9);
}
