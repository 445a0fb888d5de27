//! Devices that fail: which sequences survive, and that there are no logits of a failed run.

use std::sync::Arc;

use orlop_backend::{Cancel, Device, DeviceError};
use orlop_llm::{Engine, Error, Model, RunFailure, SequenceId, SequenceLeft, Settings, Synth};
use orlop_sched::Machine;
use orlop_testkit::devices::{FaultKind, FaultPoint, TestDevice};

use crate::made::made;
use crate::support::{cpu, last_row, load, one_cpu, together};

/// An engine for some sequences on a device that can fail, with two sequences of some tokens.
fn with_two(name: &str) -> (Arc<TestDevice>, Engine, [SequenceId; 2], Vec<u32>) {
    let (model, tokens, _) = made(name);
    let device = TestDevice::builder(cpu("inner", 2)).name("faulty").build();
    let machine = Machine::new(vec![Arc::clone(&device) as Arc<dyn Device>]).unwrap();
    let mut engine = load(&model, &machine, &Settings { sequences: 4, batch: 16, ..Settings::default() });
    engine.repack(&mut |_, _| ()).unwrap();
    let ids = [(); 2].map(|()| engine.start_sequence().unwrap());
    together(&mut engine, &[(ids[0], &tokens[..9]), (ids[1], &tokens[3..8])]).unwrap();
    (device, engine, ids, tokens)
}

fn failure<T: std::fmt::Debug>(result: Result<T, Error>) -> RunFailure {
    match result {
        Err(Error::RunFailed(failure)) => *failure,
        other => panic!("{other:?}"),
    }
}

/// Sequences are continued together as each is alone.
fn assert_continues(name: &str, engine: &mut Engine, texts: &[(SequenceId, &[u32])]) {
    let (model, tokens, _) = made(name);
    for (id, text) in texts {
        assert_eq!(engine.sequence_len(*id).unwrap(), text.len());
        let found = together(engine, &[(*id, &tokens[20..22])]).unwrap();
        let mut alone = load(&model, &one_cpu(), &Settings::default());
        assert_eq!(found, [last_row(&mut alone, &[text, &tokens[20..22]].concat())], "{name}");
    }
}

#[test]
fn after_a_failed_run_every_sequence_has_what_it_had() {
    for kind in [FaultKind::OutOfMemory, FaultKind::Error(DeviceError::Cancelled { step: 1, steps: 2 })] {
        let (device, mut engine, [a, b], tokens) = with_two("llama");
        let before = engine.free_pages();
        device.faults().fail(FaultPoint::Submit, 1, kind);
        let failed = failure(together(&mut engine, &[(a, &tokens[9..12]), (b, &tokens[8..9])]));
        let left = |sequence, tokens| SequenceLeft { sequence, before: tokens, tokens };
        assert_eq!(failed.sequences, [left(a, 9), left(b, 5)]);
        assert!(failed.sequences.iter().all(SequenceLeft::survives));
        assert!(matches!(engine.last_logits(), Err(Error::NoLogits)));
        assert!(matches!(engine.last_best(), Err(Error::NoLogits)));
        assert!(matches!(engine.logits_at(0), Err(Error::NoLogits)));
        assert_eq!(engine.free_pages(), before);
        assert_continues("llama", &mut engine, &[(a, &tokens[..9]), (b, &tokens[3..8])]);
    }
}

#[test]
fn runs_before_the_one_that_failed_are_kept() {
    let (device, mut engine, [a, b], tokens) = with_two("llama");
    // Batches of 16: the second run has the rest of the first part, and the other one.
    device.faults().fail(FaultPoint::Submit, 2, FaultKind::OutOfMemory);
    let failed = failure(together(&mut engine, &[(a, &tokens[..20]), (b, &tokens[8..9])]));
    let expected = [(a, 9, 25), (b, 5, 5)];
    let expected = expected.map(|(sequence, before, tokens)| SequenceLeft { sequence, before, tokens });
    assert_eq!(failed.sequences, expected);
    let text = [&tokens[..9], &tokens[..16]].concat();
    assert_continues("llama", &mut engine, &[(a, &text), (b, &tokens[3..8])]);
}

#[test]
fn a_state_that_a_failed_run_has_changed_is_empty_and_others_are_whole() {
    let (device, mut engine, [a, b], tokens) = with_two("mamba2");
    device.faults().fail(FaultPoint::Submit, 1, FaultKind::OutOfMemory);
    let failed = failure(together(&mut engine, &[(a, &tokens[9..12])]));
    assert_eq!(failed.sequences, [SequenceLeft { sequence: a, before: 9, tokens: 0 }]);
    assert!(!failed.sequences[0].survives());
    assert_continues("mamba2", &mut engine, &[(a, &[]), (b, &tokens[3..8])]);
}

#[test]
fn a_lost_device_leaves_no_sequence() {
    let (device, mut engine, [a, b], tokens) = with_two("llama");
    device.faults().lose();
    let failed = failure(together(&mut engine, &[(b, &tokens[8..9])]));
    let expected = [(a, 9), (b, 5)];
    assert_eq!(
        failed.sequences,
        expected.map(|(sequence, before)| SequenceLeft { sequence, before, tokens: 0 })
    );
    assert!(failed.cause.to_string().contains("faulty"), "{}", failed.cause);
    // And it stays lost.
    failure(together(&mut engine, &[(a, &tokens[..1])]));
    assert!(matches!(engine.last_logits(), Err(Error::NoLogits)));
}

#[test]
fn a_cancelled_run_leaves_every_sequence_as_it_was() {
    let (_, mut engine, [a, b], tokens) = with_two("llama");
    let cancel = Cancel::new();
    cancel.cancel();
    engine.cancel_with(Some(cancel));
    let failed = failure(together(&mut engine, &[(a, &tokens[9..12]), (b, &tokens[8..9])]));
    assert!(failed.sequences.iter().all(|left| left.before == left.tokens), "{failed:?}");
    engine.cancel_with(None);
    assert_continues("llama", &mut engine, &[(a, &tokens[..9]), (b, &tokens[3..8])]);
}

#[test]
fn one_sequence_ends_between_steps_and_the_others_go_on() {
    let (_, mut engine, [a, b], tokens) = with_two("llama");
    let fork = engine.fork_sequence(a, 7).unwrap();
    engine.end_sequence(a).unwrap();
    assert!(matches!(together(&mut engine, &[(a, &tokens[..1])]), Err(Error::UnknownSequence(_))));
    assert_continues("llama", &mut engine, &[(b, &tokens[3..8]), (fork, &tokens[..7])]);
}

#[test]
#[cfg(unix)]
fn a_run_whose_weights_can_no_longer_be_read_fails() {
    orlop_gguf::handle_bus_errors().unwrap();
    let path = std::env::temp_dir().join(format!("orlop-failures-{}.gguf", std::process::id()));
    Synth { vocabulary: 4096, ..Synth::default() }.create(&path, &mut |_, _| ()).unwrap();
    let mut engine = load(&Model::open(&path).unwrap(), &one_cpu(), &Settings::default());
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(file.metadata().unwrap().len() / 8).unwrap();
    for _ in 0..2 {
        let failed = failure(engine.feed(&[1, 4000]));
        assert!(failed.cause.to_string().contains("can no longer be read"), "{}", failed.cause);
        assert_eq!(engine.len(), 0);
    }
    std::fs::remove_file(&path).unwrap();
}
