//! What matches.

use orlop_llm::{Grammar, GrammarError, TokenMask};
use orlop_testkit::Random;
use serde_json::json;

use crate::support::{END, byte_token, compiler, follow, matches, text, walk};

#[test]
fn a_mask_allows_what_may_follow() {
    let compiler = compiler();
    let mut matcher = compiler.compile(&Grammar::Regex("ab?".into())).unwrap();
    let all: Vec<u32> = (0..compiler.tokenizer().vocabulary_size() as u32).collect();
    let spelled = |mask: &TokenMask| {
        let mut texts: Vec<&[u8]> =
            mask.iter().map(|token| compiler.tokenizer().decode_special(token)).collect();
        texts.sort();
        texts.dedup();
        texts.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect::<Vec<_>>()
    };
    assert_eq!(spelled(matcher.mask().unwrap().unwrap()), ["a", "ab"]);
    assert!(!matcher.may_end().unwrap());
    let before = format!("{matcher:?}");
    let refused: Vec<u32> =
        all.iter().copied().filter(|token| matcher.clone().accept(*token).is_err()).collect();
    assert!(refused.len() + matcher.mask().unwrap().unwrap().len() == all.len());
    let error = matcher.accept(END).unwrap_err();
    assert_eq!(error, GrammarError::Refused { token: END, tokens: 0 });
    assert!(matcher.accept(999_999).is_err());
    assert_eq!(format!("{matcher:?}"), before);
    follow(&compiler, &mut matcher, "a").unwrap();
    assert_eq!(spelled(matcher.mask().unwrap().unwrap()), ["</s>", "b"]);
    assert!(matcher.may_end().unwrap() && !matcher.is_complete());
    let mut other = matcher.clone();
    follow(&compiler, &mut matcher, "b").unwrap();
    assert!(matcher.is_complete());
    assert_eq!(matcher.mask().unwrap().unwrap().iter().collect::<Vec<_>>(), [END]);
    other.accept(END).unwrap();
    assert!(other.is_complete() && other.accept(END).is_err());
    matcher.accept(END).unwrap();
}

#[test]
fn regular_expressions_match_whole_answers() {
    let compiler = compiler();
    for (regex, yes, no) in [
        ("", &[""][..], &["a"][..]),
        ("(yes|no)", &["yes", "no"], &["", "yesno", "Yes"]),
        (r"\d{3}-\d{4}", &["555-0199"], &["5555-019"]),
        ("a/b", &["a/b"], &["a\\/b"]),
        ("//x", &["//x"], &[""]),
        ("[^\n]+", &["é🦀"], &["a\nb"]),
        ("(?i)on|off", &["ON", "Off"], &["o"]),
    ] {
        let grammar = Grammar::Regex(regex.into());
        for answer in yes {
            assert!(matches(&compiler, &grammar, answer), "{regex} {answer}");
        }
        for answer in no {
            assert!(!matches(&compiler, &grammar, answer), "{regex} {answer}");
        }
    }
}

#[test]
fn schemas_match_json_in_their_order() {
    let compiler = compiler();
    let schema = Grammar::JsonSchema(json!({
        "$defs": {"item": {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1, "maximum": 20}},
            "required": ["n"], "additionalProperties": false}},
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 4},
            "kind": {"enum": ["a", "b", null]},
            "items": {"type": "array", "items": {"$ref": "#/$defs/item"}, "minItems": 1, "maxItems": 2},
        },
        "required": ["name", "items"],
        "additionalProperties": false,
    }));
    for yes in [
        r#"{"name":"é","kind":"b","items":[{"n":20}]}"#,
        "{\n  \"name\": \"abcd\",\n  \"items\": [ {\"n\": 1}, {\"n\": 2} ]\n}",
        r#"{"name":"\"\n","kind":null,"items":[{"n":7}]}"#,
    ] {
        assert!(matches(&compiler, &schema, yes), "{yes}");
    }
    for no in [
        r#"{"kind":"b","name":"x","items":[{"n":2}]}"#,
        r#"{"name":"abcde","items":[{"n":2}]}"#,
        r#"{"name":"x","items":[{"n":21}]}"#,
        r#"{"name":"x","items":[{"n":1},{"n":1},{"n":1}]}"#,
        r#"{"name":"x","items":[]}"#,
        r#"{"name":"x","items":[{"n":2}],"more":1}"#,
        "[]",
    ] {
        assert!(!matches(&compiler, &schema, no), "{no}");
    }
    assert!(matches(&compiler, &Grammar::JsonObject, r#"{"a": [1, {"b": -2.5e3}], "c": "\"x"}"#));
    assert!(!matches(&compiler, &Grammar::JsonObject, "[1]"));
    // White space has an end.
    for (space, matched) in [
        (" ".to_owned(), true),
        (format!("\n{}", " ".repeat(24)), true),
        ("\n\t".to_owned(), true),
        ("  ".to_owned(), false),
        ("\n\n".to_owned(), false),
        (format!("\n{}", " ".repeat(25)), false),
    ] {
        assert_eq!(matches(&compiler, &Grammar::JsonObject, &format!("{{{space}}}")), matched, "{space:?}");
    }
}

#[test]
fn lark_grammars_have_rules_and_terminals() {
    let compiler = compiler();
    let sum = Grammar::Lark(
        "start: term (\"+\" term)*\nterm: NUMBER | \"(\" start \")\"\nNUMBER: /[0-9]+/\n".into(),
    );
    for yes in ["1", "1+2", "(1+(22+3))+4"] {
        assert!(matches(&compiler, &sum, yes), "{yes}");
    }
    for no in ["", "1+", "(1", "1)"] {
        assert!(!matches(&compiler, &sum, no), "{no}");
    }
    let special = Grammar::Lark("start: \"a\" <s> \"b\"".into());
    let mut matcher = compiler.compile(&special).unwrap();
    follow(&compiler, &mut matcher, "a").unwrap();
    assert_eq!(matcher.mask().unwrap().unwrap().iter().collect::<Vec<_>>(), [1]);
    matcher.accept(1).unwrap();
    follow(&compiler, &mut matcher, "b").unwrap();
    assert!(matcher.is_complete());
}

#[test]
fn text_that_is_certain_comes_as_tokens() {
    let compiler = compiler();
    let mut matcher =
        compiler.compile(&Grammar::Lark("start: \"result: \" /[0-9]/ \" units\"".into())).unwrap();
    let forced = matcher.forced();
    assert!(forced.len() > 1);
    forced.iter().for_each(|token| matcher.accept(*token).unwrap());
    let begin = text(&compiler, &forced);
    assert!("result: ".starts_with(&begin), "{begin}");
    follow(&compiler, &mut matcher, &"result: 7"[begin.len()..]).unwrap();
    let rest = matcher.forced();
    assert_eq!(text(&compiler, &rest), " units");
    rest.iter().for_each(|token| matcher.accept(*token).unwrap());
    assert!(matcher.is_complete() && matcher.forced().is_empty());
}

#[test]
fn free_text_goes_before_the_grammar() {
    let compiler = compiler();
    let grammar = Grammar::Regex("[0-9]+".into());
    let mut matcher = compiler.compile(&grammar).unwrap().after("</think>");
    let mask = matcher.mask().unwrap().unwrap();
    assert!(!mask.allows(END) && mask.len() == compiler.tokenizer().vocabulary_size() - 1);
    assert!(matcher.accept(END).is_err() && !matcher.may_end().unwrap());
    follow(&compiler, &mut matcher, "a </thin 7 </think>").unwrap();
    assert!(!matcher.mask().unwrap().unwrap().allows(byte_token(&compiler, b'a')));
    assert!(follow(&compiler, &mut matcher, "x").is_err());
    follow(&compiler, &mut matcher, "42").unwrap();
    matcher.accept(END).unwrap();
}

#[test]
fn a_grammar_may_apply_behind_each_mark() {
    let compiler = compiler();
    let fresh = compiler.compile(&Grammar::Regex("[0-9]>".into())).unwrap().after_each("<n ");
    let mut matcher = fresh.clone();
    assert_eq!(matcher.mask().unwrap(), None);
    assert!(matcher.may_end().unwrap());
    follow(&compiler, &mut matcher, "one <n").unwrap();
    follow(&compiler, &mut matcher, " ").unwrap();
    assert!(!matcher.may_end().unwrap() && matcher.mask().unwrap().is_some());
    assert!(follow(&compiler, &mut matcher, "x").is_err());
    follow(&compiler, &mut matcher, "1>").unwrap();
    assert_eq!(matcher.mask().unwrap(), None);
    follow(&compiler, &mut matcher, "two <n 2>").unwrap();
    assert!(!matcher.is_complete());
    matcher.accept(END).unwrap();
    assert!(matcher.is_complete());
    // A token that holds the mark and more.
    let mut matcher = fresh;
    let after = compiler.compile(&Grammar::Regex("bc*".into())).unwrap().after_each("a");
    for (token, free) in [("ab", false), ("aa", true)] {
        let id = (0..1200).find(|id| compiler.tokenizer().decode(*id) == token.as_bytes()).unwrap();
        let mut after = after.clone();
        after.accept(id).unwrap();
        assert_eq!(after.mask().unwrap().is_none(), free, "{token}");
    }
    matcher.accept(END).unwrap();
}

#[test]
fn every_answer_at_random_matches() {
    let compiler = compiler();
    let grammars = [
        Grammar::Regex("(a|bc){2,5}[^x]?".into()),
        Grammar::Lark("start: \"<\" item (\",\" item)* \">\"\nitem: /[a-z]{1,9}/ | start\n".into()),
        Grammar::Gbnf("root ::= \"[\" (root | [0-9]+) \"]\"".into()),
    ];
    let mut random = Random::new(7);
    let mut ended = 0;
    for grammar in &grammars {
        let fresh = compiler.compile(grammar).unwrap();
        for _ in 0..40 {
            if let Some(answer) = walk(&compiler, &mut fresh.clone(), &mut random, 60) {
                ended += 1;
                let answer = text(&compiler, &answer);
                assert!(matches(&compiler, grammar, &answer), "{grammar:?} {answer:?}");
            }
        }
    }
    assert!(ended > 90, "{ended}");
}
