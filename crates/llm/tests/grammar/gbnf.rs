//! Grammars in llama.cpp's syntax.

use orlop_llm::{Grammar, GrammarError};

use crate::support::{compiler, matches};

/// JSON, written with what the syntax has: groups, classes, escapes, repetitions, comments.
const JSON: &str = r#"# JSON without exponents
root   ::= object
value  ::= object | array | string | number
  | ("true" | "false" | "null") ws
object ::=
  "{" ws (
    member ("," ws member)*
  )? "}" ws
member ::= string ":" ws value
array  ::= "[" ws (value ("," ws value)*)? "]" ws # possibly empty
string ::= "\"" ([^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}))* "\"" ws
number ::= "-"? ([0-9] | [1-9] [0-9]{0,15}) ("." [0-9]+)? ws
ws ::= | " " | "\n" [ \t]{0,20}
"#;

#[test]
fn a_grammar_of_json_matches_json() {
    let compiler = compiler();
    let grammar = Grammar::of_text(JSON);
    assert!(matches!(grammar, Grammar::Gbnf(_)));
    for yes in ["{}", "{\"a\": [1, -2.5, {\"é\\n\": \"\\u00e9/\"}], \"b\": null}", "{\n\t\"x\":[]\n}"] {
        assert!(matches(&compiler, &grammar, yes), "{yes}");
    }
    for no in ["", "[]", "{\"a\"}", "{\"a\": 01}", "{\"a\": \"\\x\"}", "{\"a\": \"\n\"}"] {
        assert!(!matches(&compiler, &grammar, no), "{no}");
    }
}

#[test]
fn everything_of_the_syntax_is_read() {
    let compiler = compiler();
    for (grammar, yes, no) in [
        ("root ::= \"a\" \"b\"", &["ab"][..], &["a", ""][..]),
        ("root ::= a | b-c\na ::= \"1\"\nb-c ::= \"2\"", &["1", "2"], &["12"]),
        ("root ::= [a-c]{2}", &["ab", "cc"], &["a", "abc", "dd"]),
        ("root ::= [^a-c]{1,}", &["xyz", "\n"], &["", "xa"]),
        ("root ::= \"x\"{2,3} .", &["xxx", "xxxx", "xx/"], &["xx", "x"]),
        ("root ::= [-+] [\\]\\[\\\\]", &["-]", "+[", "-\\"], &["a]"]),
        ("root ::= [a-]", &["a", "-"], &["b"]),
        ("root ::= \"\\x41\\u00e9\\U0001F980\\t\\\"\"", &["Aé🦀\t\""], &["A"]),
        ("root ::= \"\"", &[""], &["a"]),
        ("root ::= (\"a\" (\"b\" | \"c\")+)? \"d\"", &["d", "abcd"], &["ad"]),
        ("root ::= \"(\" root \")\" | \"x\"", &["x", "((x))"], &["((x)"]),
        ("root ::= root \"+\" \"1\" | \"1\"", &["1", "1+1+1"], &["1+"]),
        ("root ::= (\"a\"+){2}", &["aa", "aaaa"], &["a"]),
        ("root ::= \"ab\" | \"abc\" \"d\"", &["ab", "abcd"], &["abc"]),
        ("root ::= \"/\" [/#] # a comment\r\n", &["//", "/#"], &["/"]),
    ] {
        let grammar = Grammar::Gbnf(grammar.into());
        for answer in yes {
            assert!(matches(&compiler, &grammar, answer), "{grammar:?} {answer}");
        }
        for answer in no {
            assert!(!matches(&compiler, &grammar, answer), "{grammar:?} {answer}");
        }
    }
}

#[test]
fn tokens_are_named_or_numbered() {
    let compiler = compiler();
    for (grammar, allowed) in
        [("<s>", vec![1]), ("<[5]>", vec![5]), ("!<[5]>", (0..1200).filter(|id| *id != 5).collect())]
    {
        let mut matcher = compiler.compile(&Grammar::Gbnf(format!("root ::= {grammar} \"a\""))).unwrap();
        assert_eq!(matcher.mask().unwrap().unwrap().iter().collect::<Vec<_>>(), allowed, "{grammar}");
        matcher.accept(allowed[0]).unwrap();
        assert!(matcher.forced().len() <= 1);
    }
}

#[test]
fn mistakes_are_errors_with_their_line() {
    let compiler = compiler();
    for (grammar, line, reason) in [
        ("root ::= a", 1, "`a` is not defined"),
        ("x ::= \"a\"\n\ny ::= x", 3, "no rule `root`"),
        ("root ::= \"a\"\nroot ::= \"b\"", 2, "defined twice"),
        ("root ::= \"a", 1, "expected a character"),
        ("root ::= [a", 1, "expected a character"),
        ("root ::= []", 1, "empty"),
        ("root ::= [z-a]", 1, "empty"),
        ("root ::= (\"a\"", 1, "expected `)`"),
        ("root ::= \"a\")", 1, "the end of the rule"),
        ("\nroot ::= * \"a\"", 2, "what is repeated"),
        ("root ::= \"a\"{3,2}", 1, "impossible"),
        ("root ::= \"a\"{1000000}", 1, "at most 2000"),
        ("root ::= \"a\"{x}", 1, "a number"),
        ("root ::= \"\\q\"", 1, "no escape"),
        ("root ::= \"\\ud800\"", 1, "4 hexadecimal digits"),
        ("root ::= <a b>", 1, "a token such as"),
        ("root ::= !<s>", 1, "needs the token's number"),
        ("root = \"a\"", 1, "`::=`"),
        ("root ::= \"a\"\n%", 2, "the name of a rule"),
    ] {
        match compiler.compile(&Grammar::Gbnf(grammar.into())) {
            Err(GrammarError::Gbnf { line: found, reason: said }) => {
                assert_eq!(found, line, "{grammar}: {said}");
                assert!(said.contains(reason), "{grammar}: {said}");
            }
            other => panic!("{grammar}: {other:?}"),
        }
    }
}
