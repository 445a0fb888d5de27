//! Grammars that would take too much memory or time, and mistakes.

use std::sync::mpsc;
use std::time::Duration;

use orlop_llm::{Grammar, GrammarError};
use orlop_testkit::Random;
use serde_json::{Value as Json, json};

use crate::support::{compiler, one_of, walk};

/// Compiles a grammar and follows it for some tokens. It has to come to an end.
fn tried(grammar: Grammar) -> Result<(), GrammarError> {
    let (done, wait) = mpsc::channel();
    let worker = std::thread::spawn(move || {
        let compiler = compiler();
        let result = compiler.compile(&grammar).and_then(|mut matcher| {
            for _ in 0..20 {
                let Some(mask) = matcher.mask()? else { break };
                let Some(token) = mask.iter().last() else { break };
                matcher.accept(token)?;
                if matcher.is_complete() {
                    break;
                }
            }
            Ok(())
        });
        done.send(result).unwrap();
    });
    let result = wait.recv_timeout(Duration::from_secs(120)).expect("it takes too long");
    worker.join().unwrap();
    result
}

#[test]
fn too_much_is_refused_before_it_is_built() {
    let deep = |levels: usize| {
        // `json!` would copy what is inside.
        (0..levels)
            .fold(json!({}), |inner, _| Json::Object([("items".to_owned(), inner)].into_iter().collect()))
    };
    let chain: serde_json::Map<String, Json> =
        (0..6000).map(|at| (format!("d{at}"), json!({"$ref": format!("#/$defs/d{}", at + 1)}))).collect();
    for (grammar, what, limit) in [
        (Grammar::JsonSchema(deep(64)), "levels of nesting", 64),
        (Grammar::JsonSchema(deep(100_000)), "levels of nesting", 64),
        (Grammar::JsonSchema(json!({"const": "x".repeat(300_000)})), "bytes", 256 << 10),
        (
            Grammar::JsonSchema(json!({"$defs": chain, "$ref": "#/$defs/d0"})),
            "levels in parts that it refers to",
            4096,
        ),
        (Grammar::Regex("a".repeat(70_000)), "bytes", 64 << 10),
        (Grammar::Lark(format!("start: {}", "(".repeat(5000))), "lines and brackets", 4096),
        (Grammar::Gbnf("\n".repeat(5000)), "lines and brackets", 4096),
    ] {
        match compiler().compile(&grammar) {
            Err(GrammarError::TooLarge { what: found, limit: most, .. }) => {
                assert_eq!((found, most), (what, limit))
            }
            other => panic!("{what}: {other:?}"),
        }
        // A value that is nested so deep cannot be dropped on a small stack.
        if let Grammar::JsonSchema(mut schema) = grammar {
            while let Some(inner) = schema.get_mut("items").map(Json::take) {
                schema = inner;
            }
        }
    }
}

#[test]
fn the_deepest_grammars_within_the_bounds_do_not_overflow_the_stack() {
    let chain = |count: usize| {
        let links = (0..count)
            .map(|at| (format!("d{at}"), json!({"items": {"$ref": format!("#/$defs/d{}", at + 1)}})));
        let mut links: serde_json::Map<String, Json> = links.collect();
        links.insert(format!("d{count}"), json!({"type": "null"}));
        json!({"$defs": links, "$ref": "#/$defs/d0"})
    };
    let rules: String = (0..4000).map(|at| format!("r{at}: r{}\n", at + 1)).collect();
    let terminals: String = (0..4000).map(|at| format!("T{at}: T{}\n", at + 1)).collect();
    let named: String = (0..4000).map(|at| format!("r{at} ::= \"a\" r{}\n", at + 1)).collect();
    let recursive: String = (0..4000).map(|at| format!("r{at} ::= \"a\" r{} | root\n", at + 1)).collect();
    for grammar in [
        Grammar::JsonSchema(chain(2000)),
        Grammar::Lark(format!("start: r0\n{rules}r4000: \"a\"\n")),
        Grammar::Lark(format!("start: T0\n{terminals}T4000: \"a\"\n")),
        Grammar::Gbnf(format!("root ::= r0\n{named}r4000 ::= \"a\"\n")),
        Grammar::Gbnf(format!("root ::= r0\n{recursive}r4000 ::= \"a\"\n")),
        Grammar::Gbnf(format!("root ::= {}\"a\"{}", "(".repeat(4000), ")".repeat(4000))),
        Grammar::Gbnf(format!("root ::= {}\"a\"{}", "(\"b\" | ".repeat(4000), ")".repeat(4000))),
        Grammar::Lark(format!("start: {}\"a\"{}", "(".repeat(4000), ")".repeat(4000))),
        Grammar::Regex(format!("{}a{}", "(".repeat(4000), ")".repeat(4000))),
        Grammar::Regex(format!("{}a{}", "(b|".repeat(240), ")".repeat(240))),
        Grammar::Regex(format!("a{}", "?".repeat(60_000))),
        Grammar::Regex("ab".repeat(30_000)),
        Grammar::Regex("a|b".repeat(20_000)),
    ] {
        let _ = tried(grammar);
    }
}

#[test]
fn what_explodes_ends_with_an_error_or_a_mask() {
    let alternatives: Vec<Json> =
        (0..12).map(|at| json!({"anyOf": [{"properties": {format!("a{at}"): {"type": "string"}}}, {"type": "array"}]})).collect();
    let options: Vec<Json> =
        (0..3000).map(|at| json!({"type": "string", "pattern": format!("^{at}x*y{{0,9}}$")})).collect();
    for grammar in [
        Grammar::Regex("((a{1,1000}){1,1000}){1,1000}".into()),
        Grammar::Regex("(a|b)*a(a|b){400}".into()),
        Grammar::Regex(r"(\w+\s?){1,5000}!".into()),
        Grammar::Regex("(x+x+)+y".into()),
        Grammar::Regex(r"[\p{L}\p{N}]{1,3000}".into()),
        Grammar::Lark("start: start start | \"a\"".into()),
        Grammar::Lark("start: start | \"a\"".into()),
        Grammar::Lark("start: a~1000000\na: \"x\"~1000000\n".into()),
        Grammar::Lark("start: A\nA: \"x\"~2000000000\n".into()),
        Grammar::Lark("start: (\"a\" | \"a\" start)*\n".into()),
        Grammar::Gbnf("root ::= ((\"a\"{0,2000}){0,2000}){0,2000}".into()),
        Grammar::Gbnf("root ::= (root root root | \"a\")*".into()),
        Grammar::JsonSchema(json!({"type": "string", "minLength": 100_000_000})),
        Grammar::JsonSchema(json!({"type": "string", "maxLength": 1_000_000_000})),
        Grammar::JsonSchema(
            json!({"type": "array", "minItems": 100_000_000, "items": {"type": "array", "minItems": 1_000_000}}),
        ),
        Grammar::JsonSchema(json!({"type": "integer", "multipleOf": 1e-300})),
        Grammar::JsonSchema(json!({"type": "integer", "multipleOf": 999_983, "minimum": 5})),
        Grammar::JsonSchema(json!({"type": "number", "minimum": -1e308, "maximum": 1e308})),
        Grammar::JsonSchema(json!({"allOf": alternatives})),
        Grammar::JsonSchema(json!({"anyOf": options})),
        Grammar::JsonSchema(
            json!({"type": "object", "minProperties": 1_000_000, "additionalProperties": {"type": "null"}}),
        ),
        Grammar::JsonSchema(json!({"$ref": "#"})),
        Grammar::JsonSchema(json!({"allOf": [{"$ref": "#"}, {"type": "object"}]})),
    ] {
        let _ = tried(grammar);
    }
}

#[test]
fn mistakes_say_what_is_wrong() {
    let compiler = compiler();
    for (grammar, said) in [
        (Grammar::Regex("(".into()), "regular expression"),
        (Grammar::Regex("a\\".into()), "ends with a backslash"),
        (Grammar::Regex("a(?=b)".into()), "look-around"),
        (Grammar::Lark("start: x".into()), "unknown name: \"x\""),
        (Grammar::Lark("begin: \"x\"".into()), "start"),
        (Grammar::Lark("start: <no_such_token>".into()), "no_such_token"),
        (Grammar::JsonSchema(json!({"type": "strin"})), "strin"),
        (Grammar::JsonSchema(json!([1])), "it is not an object"),
        (Grammar::JsonSchema(json!({"not": {}})), "not"),
        (Grammar::JsonSchema(json!({"$ref": "http://example.com/x"})), "http://example.com/x"),
        (Grammar::JsonSchema(json!({"$ref": "#/nowhere"})), "nowhere"),
        (Grammar::JsonSchema(json!({"type": "integer", "minimum": 2, "maximum": 1})), "minimum"),
        (Grammar::JsonSchema(json!({"type": "string", "pattern": "("})), "("),
        (Grammar::JsonSchema(json!({"x-guidance": {"lenient": true}, "not": {}})), "not"),
    ] {
        let error = compiler.compile(&grammar).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(said), "{grammar:?}: {error}");
        assert!(!error.contains("<state>") && !error.contains("backtrace"), "{error}");
    }
}

#[test]
fn random_grammars_come_to_an_end() {
    let pieces = [
        "root",
        "::=",
        "start",
        ":",
        "a",
        "A",
        "\"x\"",
        "[a-z]",
        "/x+/",
        "(",
        ")",
        "*",
        "+",
        "?",
        "{2}",
        "~3",
        "|",
        "\n",
        "<s>",
        "<[3]>",
        "!<[3]>",
        ".",
        "%json",
        "{}",
        "%ignore",
        "%import common.INT",
        "\\",
        "&",
        "#",
        "@x",
        "[lazy]",
        "é",
    ];
    let compiler = compiler();
    let mut random = Random::new(3);
    let mut good = 0;
    for _ in 0..400 {
        let body: String =
            (0..random.index(9)).map(|_| format!("{} ", one_of(&mut random, &pieces))).collect();
        for grammar in [
            Grammar::Gbnf(format!("root ::= {body}")),
            Grammar::Lark(format!("start: {body}")),
            Grammar::Regex(body.replace(' ', "")),
        ] {
            let Ok(mut matcher) = compiler.compile(&grammar) else { continue };
            good += 1;
            for _ in 0..4 {
                let Ok(Some(mask)) = matcher.mask() else { break };
                let tokens: Vec<u32> = mask.iter().collect();
                assert!(!tokens.is_empty(), "{grammar:?}");
                matcher.accept(*one_of(&mut random, &tokens)).unwrap();
                if matcher.is_complete() {
                    break;
                }
            }
        }
    }
    assert!(good > 100, "{good}");
    let _ = walk(&compiler, &mut compiler.compile(&Grammar::JsonObject).unwrap(), &mut random, 50);
}
