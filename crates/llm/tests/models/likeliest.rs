//! The likeliest token, with and without reading logits.

use std::ops::ControlFlow;
use std::sync::Arc;

use orlop_gguf::{GgufFile as Parts, GgufPart};
use orlop_llm::{
    Engine, Error, GenerateEvent, Model, Outputs, Part, RunRows, Sampler, SamplingOptions, Settings, Synth,
    Tokenizer, generate,
};

use crate::support::{greedy, last_row, load, one_cpu, reference};

/// A random model with a vocabulary.
fn synthetic() -> (Model, Tokenizer) {
    let synth = Synth { vocabulary: 700, context: 100, ..Synth::default() };
    let file = GgufPart::from_bytes(Arc::new(synth.bytes().unwrap())).unwrap();
    let model = Model::from_file(Parts::from_file(file)).unwrap();
    let tokenizer = Tokenizer::from_metadata(model.file().metadata()).unwrap();
    (model, tokenizer)
}

fn generated(engine: &mut Engine, tokenizer: &Tokenizer, options: SamplingOptions) -> Vec<u32> {
    let mut tokens = Vec::new();
    let mut each = |event| {
        if let GenerateEvent::Token(token) = event {
            tokens.push(token);
        }
        ControlFlow::Continue(())
    };
    generate(engine, tokenizer, &mut Sampler::new(options, 5), &[1, 2, 3], Some(20), &mut each).unwrap();
    tokens
}

/// The same with all logits in sight.
fn sampled(engine: &mut Engine, tokenizer: &Tokenizer, options: SamplingOptions) -> Vec<u32> {
    let mut sampler = Sampler::new(options, 5);
    [1, 2, 3].into_iter().for_each(|token| sampler.accept(token));
    let mut tokens = vec![sampler.sample(&last_row(engine, &[1, 2, 3]))];
    while tokens.len() < 20 && !tokens.last().is_some_and(|token| tokenizer.is_end(*token)) {
        tokens.push(sampler.sample(&last_row(engine, &tokens[tokens.len() - 1..])));
    }
    tokens
}

#[test]
fn the_likeliest_token_is_the_one_with_the_largest_logit() {
    let (model, tokens, _) = reference("llama-dense.Q4_0");
    // With all logits of a batch there is no row that alone could tell.
    for (outputs, sequences) in [(Outputs::Last, 1), (Outputs::All, 1), (Outputs::Last, 2)] {
        let settings = Settings { outputs, sequences, ..Settings::default() };
        let expected = greedy(&mut load(&model, &one_cpu(), &settings), &tokens, 24);
        let mut engine = load(&model, &one_cpu(), &settings);
        engine.feed(&tokens).unwrap();
        let mut found = vec![engine.last_best().unwrap()];
        while found.len() < expected.len() {
            engine.feed(&found[found.len() - 1..]).unwrap();
            found.push(engine.last_best().unwrap());
        }
        assert_eq!(found, expected, "{outputs:?}, {sequences} sequences");
    }
}

#[test]
fn each_part_has_its_likeliest_token() {
    let (model, tokens, _) = reference("llama-dense.Q4_0");
    let mut engine = load(&model, &one_cpu(), &Settings { sequences: 3, batch: 16, ..Settings::default() });
    let ids = [(); 2].map(|()| engine.start_sequence().unwrap());
    let texts = [&tokens[..20], &tokens[5..6]];
    let mut best = [0; 2];
    let parts = [Part::last(ids[0], texts[0]), Part::last(ids[1], texts[1])];
    let mut see = |mut rows: RunRows<'_>| {
        rows.best()?.for_each(|(row, token)| best[row.part] = token);
        Ok(())
    };
    engine.feed_parts(&parts, &mut see).unwrap();
    for (text, best) in texts.into_iter().zip(best) {
        let mut alone = load(&model, &one_cpu(), &Settings::default());
        alone.feed(text).unwrap();
        assert_eq!(alone.last_best().unwrap(), best);
    }
}

#[test]
fn text_is_the_same_whether_logits_are_read_or_not() {
    let (model, tokenizer) = synthetic();
    let plain = SamplingOptions { temperature: 5.0, ..SamplingOptions::default() };
    let penalized = SamplingOptions { repeat_penalty: 1.5, ..SamplingOptions::greedy() };
    let texts = [SamplingOptions::greedy(), plain, penalized].map(|options| {
        let [mut one, mut other] = [(); 2].map(|()| load(&model, &one_cpu(), &Settings::default()));
        let text = generated(&mut one, &tokenizer, options);
        assert_eq!(text, sampled(&mut other, &tokenizer, options), "{options:?}");
        text
    });
    assert!(texts[0] != texts[1] && texts[0] != texts[2], "{texts:?}");
}

#[test]
fn logits_can_be_read_later_and_are_gone_with_the_next_run() {
    let (model, tokens, _) = reference("llama-dense.Q4_0");
    let settings = Settings { context: Some(32), ..Settings::default() };
    let [mut engine, mut other] = [(); 2].map(|()| load(&model, &one_cpu(), &settings));
    assert!(matches!(engine.last_logits(), Err(Error::NoLogits)));
    assert!(matches!(engine.last_best(), Err(Error::NoLogits)));
    engine.feed(&tokens[..8]).unwrap();
    let best = engine.last_best().unwrap();
    let expected = last_row(&mut other, &tokens[..8]);
    // What is refused at once changes nothing.
    assert!(engine.feed(&[128]).is_err());
    assert_eq!(engine.last_logits().unwrap(), expected);
    assert_eq!(engine.last_best().unwrap(), best);
    engine.feed(&tokens[8..]).unwrap();
    assert_eq!(engine.last_logits().unwrap(), last_row(&mut other, &tokens[8..]));
}
