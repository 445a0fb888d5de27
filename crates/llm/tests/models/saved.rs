//! Sequences on disk.

#[path = "../../fuzz/checks/state.rs"]
mod check;

use std::ops::ControlFlow;
use std::sync::Arc;

use orlop_backend::Precision;
use orlop_graph::DType;
use orlop_llm::{CacheTypes, Engine, Error, Sampler, SamplingOptions, SequenceId, Settings, StateError};
use orlop_testkit::Random;

use crate::made::{MODELS, made};
use crate::spoiled::spoiled;
use crate::support::{last_row, load, one_cpu, reference, together};

const FIRST: SequenceId = SequenceId::FIRST;

fn load_bytes(engine: &mut Engine, bytes: &[u8]) -> Result<Vec<u32>, Error> {
    engine.load_sequence_bytes(FIRST, Arc::new(bytes.to_vec()))
}

fn state_error<T: std::fmt::Debug>(result: Result<T, Error>) -> StateError {
    match result {
        Err(Error::State(error)) => *error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_sequence_from_a_file_goes_on_as_the_one_that_was_saved() {
    for name in MODELS {
        let (model, tokens, _) = made(name);
        let context = model.config().context.min(512);
        let settings =
            |sequences| Settings { sequences, batch: 64, context: Some(context), ..Settings::default() };
        let len = (context as usize).saturating_sub(70).clamp(20, 150);
        let text: Vec<u32> = tokens.iter().copied().cycle().take(len).collect();
        let mut engine = load(&model, &one_cpu(), &settings(3));
        // In pages that do not begin with the first.
        together(&mut engine, &[(FIRST, &tokens[..5])]).unwrap();
        let id = engine.start_sequence().unwrap();
        together(&mut engine, &[(id, &text)]).unwrap();
        let path = std::env::temp_dir().join(format!("orlop-state-{}-{name}", std::process::id()));
        engine.save_sequence(id, &text, &path).unwrap();
        let expected = together(&mut engine, &[(id, &tokens[..3])]).unwrap();
        // An engine for another number of sequences, whose sequence had something else.
        let mut other = load(&model, &one_cpu(), &settings(1));
        other.feed(&tokens[..9]).unwrap();
        assert_eq!(other.load_sequence(FIRST, &path).unwrap(), text, "{name}");
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(other.last_logits(), Err(Error::NoLogits)));
        assert_eq!(together(&mut other, &[(FIRST, &tokens[..3])]).unwrap(), expected, "{name}");
    }
}

#[test]
fn an_empty_sequence_and_other_tokens() {
    let (model, tokens, _) = made("llama");
    let mut engine = load(&model, &one_cpu(), &Settings::default());
    let empty = engine.sequence_bytes(FIRST, &[]).unwrap();
    engine.feed(&tokens).unwrap();
    let error = state_error(engine.sequence_bytes(FIRST, &tokens[1..]));
    assert!(matches!(error, StateError::OtherTokens { given: 29, cached: 30 }), "{error}");
    assert!(load_bytes(&mut engine, &empty).unwrap().is_empty());
    assert!(engine.is_empty());
}

#[test]
fn foreign_files_are_errors_and_change_nothing() {
    let (model, tokens, _) = reference("llama-dense.Q4_0");
    let mut engine = load(&model, &one_cpu(), &Settings { context: Some(64), ..Settings::default() });
    engine.feed(&tokens).unwrap();
    let saved = engine.sequence_bytes(FIRST, &tokens).unwrap();

    let (other, other_tokens, _) = reference("llama-dense.Q4_K_M");
    let mut foreign = load(&other, &one_cpu(), &Settings::default());
    foreign.feed(&other_tokens).unwrap();
    let error = state_error(load_bytes(&mut foreign, &saved));
    assert!(matches!(error, StateError::OtherModel { .. }), "{error}");
    assert_eq!(foreign.len(), other_tokens.len());

    let q8 = CacheTypes { k: DType::Q8_0, v: DType::F16 };
    for settings in [
        Settings { cache: q8, ..Settings::default() },
        Settings { precision: Precision::F32, ..Settings::default() },
    ] {
        let error = state_error(load_bytes(&mut load(&model, &one_cpu(), &settings), &saved));
        assert!(matches!(error, StateError::OtherSettings { .. }), "{error}");
    }
    let model_file = std::fs::read(crate::support::fixture("llama-dense.Q4_0.gguf")).unwrap();
    let error = state_error(load_bytes(&mut engine, &model_file));
    assert!(matches!(&error, StateError::OtherKind { found } if found == "llama"), "{error}");

    let mut small = load(&model, &one_cpu(), &Settings { context: Some(16), ..Settings::default() });
    let full = load_bytes(&mut small, &saved);
    assert!(matches!(full, Err(Error::ContextFull { tokens: 24, context: 16, used: 0 })), "{full:?}");
    let missing = engine.load_sequence(FIRST, std::path::Path::new("/nowhere/at/all"));
    assert!(matches!(state_error(missing), StateError::File(_)));
    assert_eq!(engine.len(), tokens.len());
}

#[test]
fn two_thousand_spoiled_files_are_refused_or_whole_and_change_nothing() {
    let (model, tokens, _) = reference("llama-dense.Q4_0");
    let settings = Settings { context: Some(64), ..Settings::default() };
    let mut engine = load(&model, &one_cpu(), &settings);
    let expected = last_row(&mut engine, &tokens);
    let saved = engine.sequence_bytes(FIRST, &tokens).unwrap();
    engine.truncate(tokens.len() - 1);
    let (mut random, mut refused) = (Random::new(3), 0);
    for _ in 0..2000 {
        let bytes = spoiled(&saved, &mut random);
        match load_bytes(&mut engine, &bytes) {
            // Padding does not count.
            Ok(loaded) => {
                assert_eq!(loaded, tokens);
                engine.truncate(tokens.len() - 1);
            }
            Err(error) => {
                refused += 1;
                assert!(!error.to_string().is_empty());
                assert_eq!(engine.len(), tokens.len() - 1, "{error}");
            }
        }
    }
    assert!(refused > 1000, "{refused}");
    assert_eq!(last_row(&mut engine, &tokens[tokens.len() - 1..]), expected);
}

/// States of the fuzzer's model: those of its corpus.
fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let (mut engine, tokenizer, mut chat) = check::talk();
    let empty = engine.sequence_bytes(FIRST, &[]).unwrap();
    let tokens: Vec<u32> = (1..40).collect();
    engine.feed(&tokens).unwrap();
    let sequence = engine.sequence_bytes(FIRST, &tokens).unwrap();
    engine.truncate(0);
    chat.say("Hi");
    let mut sampler = Sampler::new(SamplingOptions::greedy(), 0);
    let mut each = |_: orlop_llm::ChatEvent<'_>| ControlFlow::Continue(());
    chat.answer(&mut engine, &tokenizer, &mut sampler, Some(4), &mut each).unwrap();
    vec![("chat", chat.state_bytes(&engine).unwrap()), ("empty", empty), ("sequence", sequence)]
}

/// The fuzz target's check, on its corpus and on a fixed count of spoiled copies of it.
#[test]
fn what_the_fuzzer_checks_holds_for_three_thousand_spoiled_states() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/state");
    let (mut engine, _, mut chat) = check::talk();
    let (mut random, mut good) = (Random::new(1), 0);
    for (name, state) in seeds() {
        let path = format!("{folder}/{name}");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, &state).unwrap();
        }
        let seed = std::fs::read(&path).unwrap();
        check::load(&mut engine, &mut chat, &seed).expect("UPDATE_GOLDEN=1 renews the corpus");
        for _ in 0..1000 {
            good += usize::from(check::load(&mut engine, &mut chat, &spoiled(&seed, &mut random)).is_ok());
        }
    }
    // Padding does not count.
    assert!((1..2000).contains(&good), "{good} spoiled ones are loaded");
}
