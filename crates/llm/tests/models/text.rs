//! Text in, text out.

use std::ops::ControlFlow;
use std::sync::Arc;

use orlop_gguf::{GgufFile, GgufPart};
use orlop_llm::{End, Model, SamplingOptions, Settings, Special, Synth, TextModel, TextOptions};

use crate::support::one_cpu;

fn text_model() -> TextModel {
    let synth = Synth { vocabulary: 700, context: 400, ..Synth::default() };
    let file = GgufPart::from_bytes(Arc::new(synth.bytes().unwrap())).unwrap();
    let model = Model::from_file(GgufFile::from_file(file)).unwrap();
    TextModel::load(&model, &one_cpu(), &Settings { context: Some(64), ..Settings::default() }).unwrap()
}

#[test]
fn the_pieces_are_the_text_and_every_call_starts_anew() {
    let mut model = text_model();
    let options = TextOptions {
        max_tokens: Some(12),
        sampling: Some(SamplingOptions::greedy()),
        ..TextOptions::default()
    };
    let mut pieces = String::new();
    let (text, end) = model
        .generate("Once upon", &options, &mut |piece| {
            pieces.push_str(piece);
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!((pieces.as_str(), end), (text.as_str(), End::Limit));
    let again = model.generate("Once upon", &options, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(again, (text.clone(), End::Limit));
    let (first, end) = model.generate("Once upon", &options, &mut |_| ControlFlow::Break(())).unwrap();
    assert!(text.starts_with(&first) && first.len() < text.len());
    assert_eq!(end, End::Stopped);
}

#[test]
fn a_stop_text_ends_the_text_before_it() {
    let mut model = text_model();
    let sampling = Some(SamplingOptions::greedy());
    let options = TextOptions { max_tokens: Some(12), sampling, ..TextOptions::default() };
    let (text, _) = model.generate("Once upon", &options, &mut |_| ControlFlow::Continue(())).unwrap();
    let stop: String = text.chars().skip(text.chars().count() / 2).take(2).collect();
    let prompt = model.tokenizer().prompt("Once upon", Special::Parse);
    let options = TextOptions { stop: vec![stop.clone()], ..options };
    let stopped = model.generate_from(&prompt, &options, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(stopped.text, text.split(&stop).next().unwrap());
    assert_eq!((stopped.end, stopped.stopped_by), (End::Token, Some(stop)));
}

#[test]
fn a_prompt_that_goes_on_is_not_processed_again() {
    let (mut model, mut other) = (text_model(), text_model());
    let sampling = Some(SamplingOptions { repeat_penalty: 1.3, ..SamplingOptions::default() });
    let options = TextOptions { max_tokens: Some(6), sampling, seed: 7, ..TextOptions::default() };
    let prompt = model.tokenizer().prompt("Once upon", Special::Parse);
    let mut go = |_: &str| ControlFlow::Continue(());
    let first = model.generate_from(&prompt, &options, &mut go).unwrap();
    let longer = [&prompt[..], &first.tokens, &prompt].concat();
    let second = model.generate_from(&longer, &options, &mut go).unwrap();
    assert_eq!((first.kept, second.kept), (0, prompt.len() + first.tokens.len() - 1));
    assert_eq!(second.tokens, other.generate_from(&longer, &options, &mut go).unwrap().tokens);
}

#[test]
fn a_bias_of_minus_infinity_forbids_a_token() {
    let mut model = text_model();
    let sampling = Some(SamplingOptions::greedy());
    let options = TextOptions { max_tokens: Some(1), sampling, ..TextOptions::default() };
    let mut go = |_: &str| ControlFlow::Continue(());
    let first = model.generate_from(&[1, 2], &options, &mut go).unwrap().tokens[0];
    let options = TextOptions { bias: vec![(first, f32::NEG_INFINITY)], ..options };
    assert_ne!(model.generate_from(&[1, 2], &options, &mut go).unwrap().tokens[0], first);
}
