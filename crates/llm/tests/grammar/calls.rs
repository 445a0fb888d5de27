//! Grammars of tool calls: what they allow, the parser of answers reads as calls.

use std::sync::Arc;

use orlop_gguf::{Array, GgufFile, GgufPart, Strings};
use orlop_llm::{
    AnswerFormat, AnswerParser, AnswerPart, GrammarCompiler, GrammarError, Synth, Tokenizer, ToolChoice,
};
use orlop_testkit::Random;
use serde_json::{Value as Json, json};

use crate::support::{END, follow, walk};

/// Control tokens of all formats, in the place of words.
const MARKS: [&str; 15] = [
    "[TOOL_CALLS]",
    "[ARGS]",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁sep｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁calls▁end｜>",
    "<|channel|>",
    "<|message|>",
    "<|start|>",
    "<|end|>",
    "<|call|>",
    "<|return|>",
    "<|constrain|>",
    "<think>",
];

fn compiler() -> GrammarCompiler {
    let synth = Synth { vocabulary: 1200, ..Synth::default() };
    let file = GgufFile::from_file(GgufPart::from_bytes(Arc::new(synth.bytes().unwrap())).unwrap());
    let mut metadata = file.metadata().clone();
    let first = 1200 - MARKS.len();
    let tokens = metadata.strings("tokenizer.ggml.tokens").unwrap();
    let token = |(at, token): (usize, &[u8])| match at.checked_sub(first) {
        Some(mark) => MARKS[mark].as_bytes().to_vec(),
        None => token.to_vec(),
    };
    let tokens: Strings = tokens.iter().enumerate().map(token).collect();
    let mut kinds = metadata.i32s("tokenizer.ggml.token_type").unwrap();
    kinds[first..].fill(3);
    metadata.set("tokenizer.ggml.tokens", Array::from(tokens)).unwrap();
    metadata.set("tokenizer.ggml.token_type", Array::from(kinds)).unwrap();
    GrammarCompiler::new(Arc::new(Tokenizer::from_metadata(&metadata).unwrap())).unwrap()
}

fn tools() -> Vec<Json> {
    let place = json!({"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}}, "required": ["name"],
        "additionalProperties": false});
    vec![
        json!({"type": "function", "function": {"name": "look", "parameters": {
            "$defs": {"place": place},
            "type": "object",
            "properties": {
                "city": {"type": "string", "maxLength": 9},
                "days": {"type": "integer", "minimum": 1, "maximum": 9},
                "unit": {"type": "string", "enum": ["C", "F"]},
                "near": {"$ref": "#/$defs/place"},
            },
            "required": ["city", "days"],
        }}}),
        json!({"type": "function", "function": {"name": "stop"}}),
    ]
}

/// Templates that hold the marks of each format.
const TEMPLATES: [&str; 9] = [
    "<tool_call>",
    "<tool_call><function=",
    "<tool_call><arg_key>",
    "[TOOL_CALLS]",
    "[TOOL_CALLS][ARGS]",
    "<｜tool▁calls▁begin｜>```json",
    "<｜tool▁calls▁begin｜>",
    "<|python_tag|>",
    "<|channel|><|message|>",
];

/// The calls in an answer; everything else has to be white space.
fn calls(format: &AnswerFormat, answer: &str) -> Vec<(String, Json)> {
    let mut parser = AnswerParser::new(format.clone());
    let mut parts = parser.push(answer);
    parts.extend(parser.finish());
    let call = |part: AnswerPart| match part {
        AnswerPart::Call(call) => Some((call.name, serde_json::from_str(&call.arguments).unwrap())),
        AnswerPart::Reasoning(_) | AnswerPart::CallBegins { .. } | AnswerPart::CallArguments(_) => None,
        AnswerPart::Text(text) => panic!("{text:?} in {answer:?}"),
    };
    parts.into_iter().filter_map(call).collect()
}

fn check(name: &str, arguments: &Json) {
    let members = arguments.as_object().unwrap();
    if name == "stop" {
        assert!(members.is_empty(), "{arguments}");
        return;
    }
    assert_eq!(name, "look");
    assert!(members["city"].is_string(), "{arguments}");
    assert!((1..=9).contains(&members["days"].as_i64().unwrap()), "{arguments}");
    for (name, value) in members {
        assert!(match name.as_str() {
            "city" | "days" => true,
            "unit" => *value == "C" || *value == "F",
            "near" => value["name"].is_string() && value.as_object().unwrap().len() == 1,
            _ => false,
        });
    }
}

#[test]
fn required_calls_are_calls_in_every_format() {
    let compiler = compiler();
    for (number, template) in TEMPLATES.iter().enumerate() {
        let mut tools = tools();
        if matches!(number, 1 | 2) {
            // There, a random text would hardly ever end.
            tools[0]["function"]["parameters"]["properties"]["city"] =
                json!({"type": "string", "enum": ["Kiel"]});
        }
        let format = AnswerFormat::of_template(template, &tools);
        let mut ended = 0;
        for (choice, parallel) in [(ToolChoice::Required, true), (ToolChoice::Function("look".into()), false)]
        {
            let fresh = compiler.compile_calls(&format, &tools, &choice, parallel).unwrap().unwrap();
            for seed in 0..6 {
                let mut random = Random::new(100 * number as u64 + seed);
                let Some(answer) = walk(&compiler, &mut fresh.clone(), &mut random, 400) else { continue };
                ended += 1;
                let bytes: Vec<u8> = answer
                    .iter()
                    .flat_map(|token| compiler.tokenizer().decode_special(*token))
                    .copied()
                    .collect();
                let answer = String::from_utf8(bytes).unwrap();
                let calls = calls(&format, &answer);
                assert!(!calls.is_empty() && (parallel || calls.len() == 1), "{template}: {answer}");
                for (name, arguments) in calls {
                    assert!(parallel || name == "look", "{template}: {answer}");
                    check(&name, &arguments);
                }
            }
        }
        assert!(ended >= 4, "{template}: {ended}");
    }
}

#[test]
fn text_in_arguments_is_free() {
    let compiler = compiler();
    for (template, answer) in [
        (
            TEMPLATES[1],
            "<tool_call>\n<function=look>\n<parameter=city>\nA <b>\n\"é\"\n</parameter>\n<parameter=days>\n3\n</parameter>\n\
             <parameter=near>\n{\"name\": \"B\"}\n</parameter>\n</function>\n</tool_call>",
        ),
        (
            TEMPLATES[2],
            "<tool_call>look\n<arg_key>city</arg_key>\n<arg_value>A <b>\n\"é\"</arg_value>\n<arg_key>days</arg_key>\n\
             <arg_value>3</arg_value>\n<arg_key>near</arg_key>\n<arg_value>{\"name\":\"B\"}</arg_value>\n</tool_call>",
        ),
    ] {
        let format = AnswerFormat::of_template(template, &tools());
        let required = compiler.compile_calls(&format, &tools(), &ToolChoice::Required, false).unwrap();
        let mut matcher = required.unwrap();
        follow(&compiler, &mut matcher, answer).unwrap();
        assert!(matcher.is_complete());
        let arguments = json!({"city": "A <b>\n\"é\"", "days": 3, "near": {"name": "B"}});
        assert_eq!(calls(&format, answer), [("look".to_owned(), arguments)]);
    }
}

#[test]
fn automatic_calls_are_correct_and_text_is_free() {
    let compiler = compiler();
    for (template, before, call, wrong) in [
        (
            "<tool_call>",
            "Hi. <tool_call>",
            "\n{\"name\": \"stop\", \"arguments\": {}}\n</tool_call>",
            "{\"name\": \"x",
        ),
        ("<tool_call><function=", "<tool_call>", "<function=stop>\n</function></tool_call>", "<function=x"),
        ("<tool_call><arg_key>", "<tool_call>", "stop\n</tool_call>", "x"),
    ] {
        let format = AnswerFormat::of_template(template, &tools());
        let matcher = compiler.compile_calls(&format, &tools(), &ToolChoice::Auto, true).unwrap().unwrap();
        let mut matcher = matcher;
        assert_eq!(matcher.mask().unwrap(), None);
        follow(&compiler, &mut matcher, before).unwrap();
        assert!(matcher.mask().unwrap().is_some_and(|mask| !mask.allows(END)));
        assert!(follow(&compiler, &mut matcher.clone(), wrong).is_err(), "{template}");
        follow(&compiler, &mut matcher, call).unwrap();
        assert_eq!(matcher.mask().unwrap(), None, "{template}");
        follow(&compiler, &mut matcher, before).unwrap();
        assert!(follow(&compiler, &mut matcher, wrong).is_err());
    }
    let llama = AnswerFormat::of_template("<|python_tag|>", &tools());
    assert!(compiler.compile_calls(&llama, &tools(), &ToolChoice::Auto, true).unwrap().is_none());
}

#[test]
fn reasoning_goes_before_required_calls() {
    let compiler = compiler();
    let open = AnswerFormat::of_template("<think></think><tool_call>", &tools());
    let begun = open.clone().after_prompt("<think>\n");
    let call = "<tool_call>{\"name\":\"stop\",\"arguments\":{}}</tool_call>";
    let required =
        |format| compiler.compile_calls(format, &tools(), &ToolChoice::Required, false).unwrap().unwrap();
    let mut matcher = required(&begun);
    follow(&compiler, &mut matcher, "Hm.</think>").unwrap();
    assert!(follow(&compiler, &mut matcher.clone(), "text").is_err());
    follow(&compiler, &mut matcher, call).unwrap();
    assert!(matcher.is_complete());
    let mut matcher = required(&open);
    follow(&compiler, &mut matcher.clone(), call).unwrap();
    matcher.accept(1199).unwrap();
    follow(&compiler, &mut matcher, "Hm.</think>\n\n").unwrap();
    follow(&compiler, &mut matcher, call).unwrap();
    assert!(matcher.is_complete());
}

#[test]
fn calls_that_are_impossible_are_errors() {
    let compiler = compiler();
    let format = AnswerFormat::of_template("<tool_call>", &tools());
    let none = AnswerFormat::of_template("", &tools());
    let compile =
        |format, tools: &[Json], choice| compiler.compile_calls(format, tools, &choice, true).map(|_| ());
    let other = ToolChoice::Function("other".into());
    assert_eq!(compile(&format, &tools(), other.clone()), Err(GrammarError::NoCalls(other)));
    assert_eq!(
        compile(&none, &tools(), ToolChoice::Required),
        Err(GrammarError::NoCalls(ToolChoice::Required))
    );
    assert_eq!(compile(&none, &tools(), ToolChoice::Auto), Ok(()));
    assert_eq!(compile(&format, &[], ToolChoice::Required), Err(GrammarError::NoCalls(ToolChoice::Required)));
    for (tool, said) in [
        (json!({"function": {}}), "no name"),
        (json!({"name": "a", "parameters": 1}), "not an object"),
        (json!({"name": "a", "parameters": {"properties": {"x": {"type": "strin"}}}}), "strin"),
    ] {
        let error = compile(&format, &[tool], ToolChoice::Required).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}
