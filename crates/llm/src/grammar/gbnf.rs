//! GBNF, the grammars of llama.cpp, as Lark.
//!
//! Parts without recursion become terminals. A terminal takes as much text as it can, so a part whose end may also begin what
//! follows it takes that, too: where this matters, fewer texts match than in llama.cpp, never others.

mod parse;

use super::GrammarError;
use parse::{Expression, Rule};

/// Whether a text defines the rule that GBNF begins with.
pub(super) fn defines_root(text: &str) -> bool {
    text.lines().any(|line| {
        let rest = line.trim_start().strip_prefix("root");
        rest.is_some_and(|rest| rest.trim_start().starts_with("::="))
    })
}

/// The same grammar in Lark.
pub(super) fn to_lark(text: &str) -> Result<String, GrammarError> {
    let rules = parse::rules(text)?;
    let root = rules.iter().position(|rule| rule.name == "root");
    let root = root.ok_or_else(|| GrammarError::Gbnf {
        line: text.lines().count().max(1),
        reason: "there is no rule `root`".to_owned(),
    })?;
    let mut regular = Regular { rules: &rules, known: vec![Known::Nothing; rules.len()] };
    let regular: Vec<bool> = (0..rules.len()).map(|index| regular.rule(index)).collect();
    let mut writer = Writer { regular, lark: String::new(), names: rules.len() };
    writer.define("start", &Expression::Rule(root), false);
    for (index, rule) in rules.iter().enumerate() {
        let terminal = writer.regular[index];
        writer.define(&name(terminal, index), &rule.body, terminal);
    }
    Ok(writer.lark)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    Nothing,
    /// It is looked at: another look means recursion.
    Begun,
    Regular(bool),
}

/// Which rules hold neither recursion nor tokens.
struct Regular<'a> {
    rules: &'a [Rule],
    known: Vec<Known>,
}

impl Regular<'_> {
    fn rule(&mut self, index: usize) -> bool {
        match self.known[index] {
            Known::Regular(regular) => regular,
            Known::Begun => false,
            Known::Nothing => {
                self.known[index] = Known::Begun;
                let rules = self.rules;
                let mut referred = Vec::new();
                let mut regular = rules[index].body.refers(&mut referred);
                for rule in referred {
                    regular &= self.rule(rule);
                }
                self.known[index] = Known::Regular(regular);
                regular
            }
        }
    }
}

/// Lark has names in capitals for terminals.
fn name(terminal: bool, number: usize) -> String {
    format!("{}{number}", if terminal { "T" } else { "r" })
}

struct Writer {
    /// Which rules are terminals.
    regular: Vec<bool>,
    lark: String,
    /// How many names are in use.
    names: usize,
}

impl Writer {
    fn define(&mut self, name: &str, body: &Expression, terminal: bool) {
        let alternatives = match body {
            Expression::Choice(alternatives) => alternatives.as_slice(),
            one => std::slice::from_ref(one),
        };
        let alternatives: Vec<String> =
            alternatives.iter().map(|alternative| self.alternative(alternative, terminal)).collect();
        self.lark.push_str(&format!("{name}: {}\n", alternatives.join(" | ")));
    }

    fn alternative(&mut self, alternative: &Expression, terminal: bool) -> String {
        let Expression::Sequence(items) = alternative else { return self.item(alternative, terminal) };
        // What is regular becomes one terminal with what is regular next to it.
        let joined = |a: &_, b: &_| !terminal && self.is_regular(a) && self.is_regular(b);
        let runs: Vec<&[Expression]> = items.chunk_by(joined).collect();
        let mut written = Vec::new();
        for run in runs {
            written.push(match run {
                [item] => self.item(item, terminal),
                run => self.defined(&Expression::Sequence(run.to_vec()), true),
            });
        }
        match written.is_empty() {
            true => "\"\"".to_owned(),
            false => written.join(" "),
        }
    }

    /// An expression that an operator may follow.
    fn item(&mut self, item: &Expression, terminal: bool) -> String {
        match item {
            Expression::Literal(text) => {
                let quoted = serde_json::Value::from(text.as_str()).to_string();
                quoted.replace('\u{7f}', "\\u007f")
            }
            Expression::Class(class) => format!("/{class}/"),
            Expression::Token(token) => token.clone(),
            Expression::Rule(index) => name(self.regular[*index], *index),
            Expression::Repeat(repeated, least, most) => {
                // All of it is one terminal if it can be.
                if !terminal && self.is_regular(item) {
                    return self.defined(item, true);
                }
                let repeated = match **repeated {
                    Expression::Repeat(..) => self.defined(repeated, terminal),
                    _ => self.item(repeated, terminal),
                };
                match (least, most) {
                    (0, None) => format!("{repeated}*"),
                    (1, None) => format!("{repeated}+"),
                    (0, Some(1)) => format!("{repeated}?"),
                    (least, None) => format!("{repeated}~{least} {repeated}*"),
                    (least, Some(most)) => format!("{repeated}~{least}..{most}"),
                }
            }
            Expression::Sequence(_) | Expression::Choice(_) => {
                let terminal = terminal || self.is_regular(item);
                self.defined(item, terminal)
            }
        }
    }

    /// The name of a new rule or terminal.
    fn defined(&mut self, body: &Expression, terminal: bool) -> String {
        let name = name(terminal, self.names);
        self.names += 1;
        self.define(&name, body, terminal);
        name
    }

    fn is_regular(&self, item: &Expression) -> bool {
        let mut referred = Vec::new();
        item.refers(&mut referred) && referred.iter().all(|rule| self.regular[*rule])
    }
}
