//! Answers read whole and in pieces.

use serde_json::json;

use super::*;

/// Reads an answer in pieces that end at these bytes, and joins adjacent parts of a kind. What was given of a call before it
/// was complete has to be the call.
fn read(format: &AnswerFormat, answer: &str, mut piece: impl FnMut() -> usize) -> Vec<AnswerPart> {
    let mut parser = AnswerParser::new(format.clone());
    let (mut parts, mut rest) = (Vec::new(), answer);
    while !rest.is_empty() {
        let (first, after) = rest.split_at(rest.ceil_char_boundary(piece().clamp(1, rest.len())));
        parts.extend(parser.push(first));
        rest = after;
    }
    parts.extend(parser.finish());
    let (mut joined, mut given): (Vec<AnswerPart>, Option<ToolCall>) = (Vec::new(), None);
    for part in parts {
        match (joined.last_mut(), part) {
            (_, AnswerPart::CallBegins { id, name }) => {
                let call = ToolCall { id, name, arguments: String::new() };
                assert_eq!(given.replace(call), None, "the last call is complete");
            }
            (_, AnswerPart::CallArguments(more)) => {
                assert!(!more.is_empty());
                given.as_mut().expect("it has begun").arguments.push_str(&more);
            }
            (_, AnswerPart::Call(call)) => {
                assert!(given.take().is_none_or(|given| given == call), "{call:?}");
                joined.push(AnswerPart::Call(call));
            }
            (Some(AnswerPart::Text(all)), AnswerPart::Text(more))
            | (Some(AnswerPart::Reasoning(all)), AnswerPart::Reasoning(more)) => all.push_str(&more),
            (_, part) => joined.push(part),
        }
    }
    assert_eq!(given, None, "every call is complete");
    joined
}

fn format(template: &str) -> AnswerFormat {
    let properties = json!({"city": {"type": "string"}, "days": {"type": "integer"}});
    let tool =
        json!({"type": "function", "function": {"name": "look", "parameters": {"properties": properties}}});
    AnswerFormat::of_template(template, &[tool])
}

fn text(text: &str) -> AnswerPart {
    AnswerPart::Text(text.to_owned())
}

fn thought(text: &str) -> AnswerPart {
    AnswerPart::Reasoning(text.to_owned())
}

fn call(id: &str, name: &str, arguments: &str) -> AnswerPart {
    AnswerPart::Call(ToolCall { id: id.to_owned(), name: name.to_owned(), arguments: arguments.to_owned() })
}

/// Checks an answer in pieces of every size.
#[track_caller]
fn check(template: &str, answer: &str, parts: &[AnswerPart]) {
    for size in 1..=answer.len() {
        assert_eq!(read(&format(template), answer, || size), parts, "in pieces of {size}");
    }
}

#[test]
fn tagged_calls_are_json_or_xml() {
    let template = "<think></think><tool_call>";
    check(
        template,
        "<think>\nHm < é.\n</think>\n\nI look.\n<tool_call>\n{\"name\": \"look\", \"arguments\": {\"city\": \"</tool_call>}\"}}\n\
         </tool_call>\n<tool_call>{\"name\": \"b\", \"arguments\": {}}</tool_call>",
        &[
            thought("Hm < é."),
            text("I look."),
            call("", "look", r#"{"city":"</tool_call>}"}"#),
            call("", "b", "{}"),
        ],
    );
    check(
        template,
        "<tool_call>\n<function=look>\n<parameter=city>\n12\n</parameter>\n<parameter=days>\n12\n</parameter>\n\
         </function>\n</tool_call>",
        &[call("", "look", r#"{"city":"12","days":12}"#)],
    );
    check(
        template,
        "a<tool_call>look\n<arg_key>city</arg_key>\n<arg_value>Kiel</arg_value>\n<arg_key>days</arg_key>\n\
         <arg_value>2</arg_value>\n</tool_call>",
        &[text("a"), call("", "look", r#"{"city":"Kiel","days":2}"#)],
    );
}

#[test]
fn a_call_without_its_closing_mark_is_a_call() {
    let template = "<tool_call>";
    check(template, "<tool_call>{\"name\": \"look\"}", &[call("", "look", "{}")]);
    check(template, "<tool_call>{\"name\": \"look\"} x", &[call("", "look", "{}"), text("x")]);
}

#[test]
fn mistral_calls_are_an_array_or_named() {
    let template = "[TOOL_CALLS] [THINK]";
    check(
        template,
        "[THINK]hm[/THINK]ok [TOOL_CALLS] [{\"name\": \"look\", \"arguments\": {\"city\": \"]\"}, \"id\": \"abc\"}]",
        &[thought("hm"), text("ok"), call("", "look", r#"{"city":"]"}"#)],
    );
    check(
        template,
        "[TOOL_CALLS]look[CALL_ID]x1[ARGS]{\"days\": 1}[TOOL_CALLS]b[ARGS]{}",
        &[call("x1", "look", r#"{"days": 1}"#), call("", "b", "{}")],
    );
}

#[test]
fn llama_calls_are_the_whole_answer() {
    let template = "ipython <|python_tag|>";
    check(
        template,
        " {\"name\": \"look\", \"parameters\": {\"days\": 1}}; {\"name\": \"b\", \"parameters\": {}}",
        &[call("", "look", r#"{"days":1}"#), call("", "b", "{}")],
    );
    check(template, "<|python_tag|>{\"name\": \"b\", \"parameters\": {}}", &[call("", "b", "{}")]);
    for plain in [
        "{\"name\": \"x\"}",
        "say {\"name\": \"b\", \"parameters\": {}}",
        "{not json",
        "<|python_tag|>print(1)",
    ] {
        check(template, plain, &[text(plain)]);
    }
}

#[test]
fn deepseek_calls_have_marks_of_their_own() {
    let template = "<｜tool▁calls▁begin｜> </think>";
    let answer = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>look\n```json\n{\"days\": 1}\n```\
                  <｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>b<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>";
    check(template, answer, &[call("", "look", r#"{"days": 1}"#), call("", "b", "{}")]);
}

#[test]
fn harmony_channels_are_reasoning_calls_and_text() {
    check(
        "<|channel|><|message|>",
        "<|channel|>analysis<|message|>Look it up.<|end|><|start|>assistant<|channel|>commentary to=functions.look \
         <|constrain|>json<|message|>{\"days\": 1}<|call|><|start|>assistant<|channel|>final<|message|>Sunny. <|x|>",
        &[thought("Look it up."), call("", "look", r#"{"days": 1}"#), text("Sunny. <|x|>")],
    );
}

#[test]
fn reasoning_that_the_prompt_opened_needs_no_mark() {
    let format = format("<think>").after_prompt("<|assistant|>\n<think>\n");
    assert_eq!(read(&format, "\nhm\n</think>\n\nyes", || 2), [thought("hm"), text("yes")]);
    assert_eq!(read(&format, "never closed ", || 3), [thought("never closed ")]);
}

#[test]
fn without_tools_calls_are_text() {
    let format = AnswerFormat::of_template("<tool_call>", &[]);
    let answer = "<tool_call>{\"name\": \"a\"}</tool_call>";
    assert_eq!(read(&format, answer, || 4), [text(answer)]);
}

#[test]
fn no_split_changes_the_parts_and_nothing_is_lost() {
    let pieces = [
        "q",
        " q ",
        "\n",
        "<",
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
        "{\"name\": \"q\", \"arguments\": {\"q\": \"q\"}}",
        "{",
        "}",
        "\"",
        "\\",
        "[",
        "]",
        "<function=q>",
        "</function>",
        "<parameter=q>",
        "</parameter>",
        "<arg_key>",
        "</arg_key>",
        "<arg_value>",
        "</arg_value>",
        "[TOOL_CALLS]",
        "[ARGS]",
        "[THINK]",
        "[/THINK]",
        "<|python_tag|>",
        ";",
        "é",
        "<|channel|>",
        "<|start|>",
        "<|message|>",
        "<|end|>",
        "<|call|>",
        "analysis",
        "final",
        "assistant",
        " to=functions.q ",
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁call▁begin｜>",
        "<｜tool▁sep｜>",
        "<｜tool▁call▁end｜>",
        "<｜tool▁calls▁end｜>",
    ];
    let templates = [
        "<think><tool_call>",
        "[TOOL_CALLS][THINK]",
        "<|python_tag|>",
        "<｜tool▁calls▁begin｜></think>",
        "<|channel|><|message|>",
        "",
    ];
    let mut state = 1u64;
    let mut random = move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for round in 0..30_000 {
        let format = format(templates[round % templates.len()]);
        let answer: String = (0..1 + random(12)).map(|_| pieces[random(pieces.len())]).collect();
        let whole = read(&format, &answer, || usize::MAX);
        assert_eq!(read(&format, &answer, || 1), whole, "{answer:?}");
        assert_eq!(read(&format, &answer, || 1 + random(9)), whole, "{answer:?}");
        let count = |text: &str| text.matches('q').count();
        let kept: usize = whole
            .iter()
            .map(|part| match part {
                AnswerPart::Text(text) | AnswerPart::Reasoning(text) => count(text),
                AnswerPart::Call(call) => count(&call.name) + count(&call.arguments) + count(&call.id),
                AnswerPart::CallBegins { .. } | AnswerPart::CallArguments(_) => unreachable!("joined"),
            })
            .sum();
        // A key that is there twice keeps its last value, and the kind of a call is no part of it.
        if !answer.contains("<parameter=")
            && !answer.contains("<arg_key>")
            && !answer.contains("<｜tool▁sep｜>")
        {
            assert_eq!(kept, count(&answer), "{answer:?} {whole:?}");
        }
    }
}

/// What the pieces of an answer give, piece by piece.
fn given(template: &str, pieces: &[&str]) -> Vec<Vec<AnswerPart>> {
    let mut parser = AnswerParser::new(format(template));
    let mut given: Vec<Vec<AnswerPart>> = pieces.iter().map(|piece| parser.push(piece)).collect();
    given.push(parser.finish());
    given
}

fn begins(id: &str, name: &str) -> AnswerPart {
    AnswerPart::CallBegins { id: id.to_owned(), name: name.to_owned() }
}

fn arguments(text: &str) -> AnswerPart {
    AnswerPart::CallArguments(text.to_owned())
}

#[test]
fn arguments_are_given_as_they_come() {
    let pieces = [
        "<tool_call>{\"name\": \"lo",
        "ok\", \"arguments\": ",
        "{\"city\": \"Ki",
        " \\\"}el",
        "\"} }",
        "</tool_call>",
    ];
    let expected: [&[AnswerPart]; 7] = [
        &[],
        &[],
        &[begins("", "look"), arguments(r#"{"city":"Ki"#)],
        &[arguments(r#" \"}el"#)],
        &[arguments("\"}"), call("", "look", r#"{"city":"Ki \"}el"}"#)],
        &[],
        &[],
    ];
    assert_eq!(given("<tool_call>", &pieces), expected);
    let pieces = ["[TOOL_CALLS]look[CALL_ID]7[ARGS]", "{\"days\": 1", "2}"];
    let expected: [&[AnswerPart]; 4] = [
        &[],
        &[begins("7", "look"), arguments(r#"{"days": 1"#)],
        &[arguments("2}"), call("7", "look", r#"{"days": 12}"#)],
        &[],
    ];
    assert_eq!(given("[TOOL_CALLS]", &pieces), expected);
    let pieces = ["<|channel|>commentary to=functions.look<|message|> ", "{\"days\": ", "12} <|ca", "ll|>"];
    let expected: [&[AnswerPart]; 5] = [
        &[],
        &[begins("", "look"), arguments("{\"days\":")],
        &[arguments(" 12}")],
        &[call("", "look", r#"{"days": 12}"#)],
        &[],
    ];
    assert_eq!(given("<|channel|><|message|>", &pieces), expected);
}

#[test]
fn calls_in_another_order_are_given_when_they_are_complete() {
    for body in [
        r#"{"arguments": {"a": 1}, "name": "look"}"#,
        r#"{"function": {"name": "look", "arguments": {"a": 1}}}"#,
        r#"{"name": "look", "arguments": "{\"a\":1}"}"#,
        r#"{"name": "lo\u006fk", "arguments": {"a": 1}}"#,
        r#"[{"arguments": {"a": 1}, "name": "look"}]"#,
    ] {
        let parts = given("<tool_call>", &[&format!("<tool_call>{body}</tool_call>")]);
        assert_eq!(parts[0], [call("", "look", r#"{"a":1}"#)], "{body}");
    }
}

#[test]
fn a_call_that_has_begun_ends_where_it_cannot_be_read() {
    check(
        "<tool_call>",
        r#"<tool_call>{"name": "look", "arguments": {"a": "b"#,
        &[call("", "look", r#"{"a":"b"#)],
    );
    check(
        "<tool_call>",
        r#"<tool_call>{"name": "look", "arguments": {"a": 1}, 2}</tool_call>"#,
        &[call("", "look", r#"{"a":1}"#), text(", 2}</tool_call>")],
    );
}

#[test]
fn arguments_in_tags_are_given_as_the_json_that_they_stand_for() {
    let pieces = [
        "<tool_call>\n<function=lo",
        "ok>\n<parameter=city>\nKi",
        "el\n",
        "<b> \"x\"",
        "\n</parameter>\n<parameter=days>1",
        "2\n</parameter></func",
        "tion>\n<function=b></function></tool_call> ok",
    ];
    let expected: [&[AnswerPart]; 8] = [
        &[],
        &[begins("", "look"), arguments(r#"{"city":"Ki"#)],
        &[arguments("el")],
        &[arguments(r#"\n<b> \"x\""#)],
        &[arguments(r#"","days":"#)],
        &[arguments("12")],
        &[
            arguments("}"),
            call("", "look", r#"{"city":"Kiel\n<b> \"x\"","days":12}"#),
            begins("", "b"),
            arguments("{}"),
            call("", "b", "{}"),
            text("ok"),
        ],
        &[],
    ];
    assert_eq!(given("<tool_call>", &pieces), expected);
    let pieces = [
        "<tool_call>look\n<arg",
        "_key>city</arg_key>\n<arg_value>Ki",
        "el</arg_value><arg_key>city</arg_key><arg_value>other</arg_value>",
        "</tool_call>",
    ];
    let expected: [&[AnswerPart]; 5] = [
        &[],
        &[begins("", "look"), arguments(r#"{"city":"Ki"#)],
        &[arguments(r#"el""#)],
        &[arguments("}"), call("", "look", r#"{"city":"Kiel"}"#)],
        &[],
    ];
    assert_eq!(given("<tool_call>", &pieces), expected);
}

#[test]
fn calls_in_an_array_are_given_one_after_the_other() {
    let pieces = [
        "[TOOL_CALLS] [{\"name\": \"look\", \"arguments\": {\"days\": 1",
        "}, \"id\": \"abc\"}, {\"name\": \"b\", ",
        "\"arguments\": {}}",
        "] ok",
    ];
    let expected: [&[AnswerPart]; 5] = [
        &[begins("", "look"), arguments(r#"{"days":1"#)],
        &[arguments("}"), call("", "look", r#"{"days":1}"#)],
        &[begins("", "b"), arguments("{}"), call("", "b", "{}")],
        &[text("ok")],
        &[],
    ];
    assert_eq!(given("[TOOL_CALLS]", &pieces), expected);
    check("<tool_call>", "<tool_call>[]</tool_call>a", &[text("a")]);
    check("<tool_call>", "<tool_call>[1]</tool_call>", &[text("<tool_call>[1]</tool_call>")]);
    check(
        "<tool_call>",
        r#"<tool_call>[{"name": "b"}, 1]</tool_call>"#,
        &[call("", "b", "{}"), text(", 1]</tool_call>")],
    );
}

#[test]
fn arguments_between_marks_are_given_as_they_come() {
    let pieces = [
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>lo",
        "ok\n```json\n{\"days\"",
        ": 1}\n```<｜tool▁call▁end｜>",
        "<｜tool▁call▁begin｜>b<｜tool▁sep｜>{",
        "}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    ];
    let expected: [&[AnswerPart]; 6] = [
        &[],
        &[begins("", "look"), arguments(r#"{"days""#)],
        &[arguments(": 1}"), call("", "look", r#"{"days": 1}"#)],
        &[begins("", "b"), arguments("{")],
        &[arguments("}"), call("", "b", "{}")],
        &[],
    ];
    assert_eq!(given("<｜tool▁calls▁begin｜>", &pieces), expected);
}

#[test]
fn a_call_in_tags_that_is_cut_ends_with_what_has_come() {
    let template = "<tool_call>";
    for (answer, arguments) in [
        ("<tool_call><function=look><parameter=city>Ki", r#"{"city":"Ki"#),
        ("<tool_call><function=look><parameter=days>1", r#"{"days":1"#),
        ("<tool_call><function=look>", ""),
        ("<tool_call>look<arg_key>days</arg_key><arg_value>1</arg_value>", r#"{"days":1}"#),
    ] {
        check(template, answer, &[call("", "look", arguments)]);
    }
    check(template, "<tool_call><function=look", &[text("<tool_call><function=look")]);
}
