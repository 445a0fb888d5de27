//! Texts and chats with grammars.

use std::ops::ControlFlow;
use std::sync::Arc;

use orlop_llm::{
    Blueprint, Chat, ChatTemplate, End, Engine, GenerateEvent, GenerateOptions, Grammar, GrammarCompiler,
    Lookup, Sampler, SamplingOptions, Settings, Special, Speculator, TextModel, TextOptions, Tokenizer,
    generate_with,
};

use crate::support::{model, one_cpu};

struct Place {
    engine: Engine,
    compiler: GrammarCompiler,
}

impl Place {
    fn new() -> Place {
        let settings = Settings { draft: 6, ..Settings::default() };
        let model = model();
        let blueprint = Blueprint::plan(&model, &one_cpu(), &settings).unwrap();
        let tokenizer = Tokenizer::from_metadata(model.file().metadata()).unwrap();
        let engine = Engine::load(blueprint, &mut |_, _| ()).unwrap();
        Place { engine, compiler: GrammarCompiler::new(Arc::new(tokenizer)).unwrap() }
    }

    /// The new text, how it ended, and how many tokens it has.
    fn made(&mut self, grammar: &Grammar, limit: Option<usize>, drafts: bool) -> (String, End, usize) {
        let tokenizer = self.compiler.tokenizer().clone();
        let prompt = tokenizer.prompt("say it", Special::AsText);
        let mut matcher = self.compiler.compile(grammar).unwrap();
        let mut speculator =
            drafts.then(|| Speculator::new(&self.engine, Box::new(Lookup::new(600))).unwrap());
        let mut sampler = Sampler::new(SamplingOptions { temperature: 1.0, ..SamplingOptions::default() }, 3);
        let mut tokens = Vec::new();
        self.engine.truncate(0);
        let options = GenerateOptions { limit, speculator: speculator.as_mut(), grammar: Some(&mut matcher) };
        let end = generate_with(&mut self.engine, &tokenizer, &mut sampler, &prompt, options, &mut |event| {
            if let GenerateEvent::Token(token) = event {
                tokens.push(token);
            }
            ControlFlow::Continue(())
        });
        assert_eq!(self.engine.len(), prompt.len() + tokens.len() - 1, "the last token is not fed");
        let bytes = tokens.iter().flat_map(|token| tokenizer.decode(*token)).copied().collect();
        (String::from_utf8(bytes).unwrap(), end.unwrap(), tokens.len())
    }
}

#[test]
fn certain_tokens_are_fed_together() {
    let mut place = Place::new();
    let fixed = "the answer is always the same: ";
    let grammar = Grammar::Lark(format!("start: \"{fixed}\" /[0-9]/ \" of 10\""));
    place.engine.record();
    let (text, end, count) = place.made(&grammar, None, false);
    assert!(text.starts_with(fixed) && text.ends_with(" of 10"), "{text}");
    assert_eq!(end, End::Token);
    let runs = place.engine.recorded().len();
    assert!(count > 12 && runs < 8, "{count} tokens in {runs} runs");
    for limit in 1..count {
        let (part, end, made) = place.made(&grammar, Some(limit), false);
        assert_eq!((made, end), (limit, End::Limit));
        assert!(text.starts_with(&part), "{part}");
    }
}

#[test]
fn drafts_change_nothing() {
    let mut place = Place::new();
    for grammar in [
        Grammar::Regex("(ab|ba){20}".into()),
        Grammar::Lark("start: (\"one two three \" /[a-c]/ \"; \"){6}".into()),
        Grammar::JsonSchema(
            serde_json::json!({"type": "array", "items": {"const": "again"}, "minItems": 5, "maxItems": 9}),
        ),
    ] {
        for limit in [None, Some(17)] {
            assert_eq!(place.made(&grammar, limit, false), place.made(&grammar, limit, true), "{grammar:?}");
        }
    }
}

#[test]
fn each_answer_of_a_chat_matches() {
    let Place { mut engine, compiler } = Place::new();
    let tokenizer = compiler.tokenizer().clone();
    let template = ChatTemplate::from_metadata(model().file().metadata(), &tokenizer);
    let matcher = compiler.compile(&Grammar::Regex("yes|no|I do not know".into())).unwrap();
    let mut chat = Chat::new(template).with_grammar(Some(matcher));
    let mut sampler = Sampler::new(SamplingOptions::default(), 1);
    for _ in 0..3 {
        chat.say("well?");
        let turn = chat
            .answer(&mut engine, &tokenizer, &mut sampler, None, &mut |_| ControlFlow::Continue(()))
            .unwrap();
        assert_eq!(turn.end, End::Token);
        let answer = chat.messages().last().unwrap().content.text().into_owned();
        assert!(["yes", "no", "I do not know"].contains(&answer.as_str()), "{answer}");
    }
}

#[test]
fn a_grammar_that_is_wrong_generates_nothing() {
    let mut text = TextModel::load(&model(), &one_cpu(), &Settings::default()).unwrap();
    let options = TextOptions { grammar: Some(Grammar::Regex("(".into())), ..TextOptions::default() };
    let error = text.generate("a", &options, &mut |_| ControlFlow::Continue(())).unwrap_err();
    assert!(error.to_string().contains("regular expression"), "{error}");
    let options = TextOptions { grammar: Some(Grammar::Regex("abc".into())), ..options };
    let (made, end) = text.generate("a", &options, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!((made.as_str(), end), ("abc", End::Token));
}
