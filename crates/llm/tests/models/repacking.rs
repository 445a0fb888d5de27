//! Weights are used where the file is mapped for one run, and repacked before the next.

use std::time::Duration;

use orlop_backend::{Cancel, DeviceError, Precision};
use orlop_llm::{Engine, Error, Model, Outputs, Settings};

use crate::support::{last_row, load, one_cpu, reference, rows};

/// An engine that has repacked nothing, and one that has.
fn both(model: &Model, settings: &Settings) -> [Engine; 2] {
    let [late, mut early] = [(); 2].map(|()| load(model, &one_cpu(), settings));
    let mut bytes = Vec::new();
    early.repack(&mut |done, all| bytes.push((done, all))).unwrap();
    let (done, all) = *bytes.last().unwrap();
    assert_eq!(done, all);
    let share = &early.memory().devices[0];
    assert!(all > 0 && all <= share.weights + share.repacked, "{all}");
    [late, early]
}

#[test]
fn the_first_run_gives_the_same_from_the_file_and_the_next_repacks() {
    for name in ["llama-dense.Q4_0", "llama-dense.Q4_K_M"] {
        let (model, tokens, _) = reference(name);
        for (first, precision) in
            [1, 3, 12].into_iter().flat_map(|first| [(first, Precision::Int16), (first, Precision::F32)])
        {
            let settings = Settings { outputs: Outputs::All, precision, ..Settings::default() };
            let [mut late, mut early] = both(&model, &settings);
            let [late_bytes, early_bytes] = [&late, &early].map(|engine| engine.memory().devices[0].total());
            assert_eq!(late_bytes, early_bytes, "what is repacked has its place from the beginning");
            assert_eq!(rows(&mut late, &tokens[..first]), rows(&mut early, &tokens[..first]), "{name}");
            late.check_races().unwrap();
            assert_eq!(late.repacking_time(), Duration::ZERO);
            assert_eq!(rows(&mut late, &tokens[first..]), rows(&mut early, &tokens[first..]), "{name}");
            assert!(late.repacking_time() > Duration::ZERO);
            late.truncate(0);
            early.truncate(0);
            let repacking = late.repacking_time();
            assert_eq!(rows(&mut late, &tokens[..first]), rows(&mut early, &tokens[..first]), "{name}");
            assert_eq!(late.repacking_time(), repacking, "once");
        }
    }
}

#[test]
fn what_takes_several_runs_is_repacked_before_the_first() {
    let (model, tokens, _) = reference("llama-dense.Q4_0");
    let [mut late, mut early] = both(&model, &Settings { batch: 4, ..Settings::default() });
    let expected = last_row(&mut early, &tokens);
    late.feed(&tokens).unwrap();
    assert!(late.repacking_time() > Duration::ZERO);
    assert_eq!(late.last_logits().unwrap(), expected);
}

#[test]
fn repacking_between_a_run_and_its_logits_leaves_them() {
    let (model, tokens, _) = reference("llama-dense.Q4_0");
    let [mut late, mut early] = both(&model, &Settings::default());
    late.feed(&tokens).unwrap();
    late.repack(&mut |_, _| ()).unwrap();
    assert_eq!(late.last_logits().unwrap(), last_row(&mut early, &tokens));
    assert_eq!(last_row(&mut late, &tokens), last_row(&mut early, &tokens));
}

#[test]
fn cancelled_repacking_can_go_on_later() {
    let (model, tokens, _) = reference("llama-dense.Q4_0");
    let [mut late, mut early] = both(&model, &Settings::default());
    late.feed(&tokens).unwrap();
    let cancel = Cancel::new();
    cancel.cancel();
    late.cancel_with(Some(cancel));
    let stopped = late.feed(&tokens).unwrap_err();
    let Error::RunFailed(stopped) = stopped else { panic!("{stopped}") };
    let Error::Device(cause) = &stopped.cause else { panic!("{stopped:?}") };
    assert!(matches!(**cause, DeviceError::Cancelled { step: 0, .. }), "{cause}");
    assert!(stopped.sequences.iter().all(orlop_llm::SequenceLeft::survives));
    assert_eq!(late.len(), tokens.len());
    late.cancel_with(None);
    early.feed(&tokens).unwrap();
    assert_eq!(last_row(&mut late, &tokens), last_row(&mut early, &tokens));
}
