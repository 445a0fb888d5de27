//! Text in, text out.

use std::ops::ControlFlow;
use std::sync::Arc;

use orlop_gguf::{GgufFile, GgufPart};
use orlop_llm::{End, Model, SamplingOptions, Settings, Synth, TextModel, TextOptions};

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
