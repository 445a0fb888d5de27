//! Answers of a model with random weights to random schemas: each one that ends is valid.

mod generator;
mod validator;

use std::ops::ControlFlow;

use orlop_llm::{End, Grammar, SamplingOptions, Settings, TextModel, TextOptions};
use orlop_testkit::Random;
use proptest::test_runner::Config;
use serde_json::Value as Json;

use crate::support::{compiler, model, one_cpu, text, walk};

/// A quarter of the cases of property tests: 64 by default, 1,024 every night.
fn seeds() -> std::ops::Range<u64> {
    0..u64::from(Config::default().cases / 4)
}

#[test]
fn every_answer_that_ends_is_valid() {
    let mut model = TextModel::load(&model(), &one_cpu(), &Settings::default()).unwrap();
    let mut ended = 0;
    for seed in seeds() {
        let schema = generator::schema(&mut Random::new(seed));
        let options = TextOptions {
            max_tokens: Some(400),
            sampling: Some(SamplingOptions {
                top_k: 0,
                top_p: 1.0,
                min_p: 0.0,
                ..SamplingOptions::default()
            }),
            seed,
            grammar: Some(Grammar::JsonSchema(schema.clone())),
            ..TextOptions::default()
        };
        let (answer, end) =
            model.generate("an answer:", &options, &mut |_| ControlFlow::Continue(())).unwrap();
        if end == End::Token {
            ended += 1;
            let value: Json = serde_json::from_str(&answer).expect(&answer);
            if let Err(error) = validator::check(&schema, &schema, &value) {
                panic!("seed {seed}: {answer} is not valid for {schema}: {error}");
            }
        }
    }
    assert!(ended * 10 >= seeds().end * 8, "{ended} of {}", seeds().end);
}

#[test]
fn every_walk_that_ends_is_valid() {
    let compiler = compiler();
    let mut ended = 0;
    for seed in seeds() {
        let mut random = Random::new(1_000_000 + seed);
        let schema = generator::schema(&mut random);
        let mut matcher = compiler.compile(&Grammar::JsonSchema(schema.clone())).unwrap();
        if let Some(answer) = walk(&compiler, &mut matcher, &mut random, 400) {
            ended += 1;
            let answer = text(&compiler, &answer);
            let value: Json = serde_json::from_str(&answer).expect(&answer);
            if let Err(error) = validator::check(&schema, &schema, &value) {
                panic!("seed {seed}: {answer} is not valid for {schema}: {error}");
            }
        }
    }
    assert!(ended * 10 >= seeds().end * 8, "{ended} of {}", seeds().end);
}
