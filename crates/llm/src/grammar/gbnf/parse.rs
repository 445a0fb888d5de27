//! GBNF as a tree.

use hashbrown::HashMap;

use super::super::GrammarError;

/// A part of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expression {
    Literal(String),
    /// A class of characters, as a regular expression.
    Class(String),
    /// A token of the vocabulary, as Lark writes it.
    Token(String),
    /// The rule with this index.
    Rule(usize),
    Repeat(Box<Expression>, usize, Option<usize>),
    Sequence(Vec<Expression>),
    Choice(Vec<Expression>),
}

impl Expression {
    /// Adds the rules it refers to; false if it holds a token, and then not all of them.
    pub(super) fn refers(&self, rules: &mut Vec<usize>) -> bool {
        match self {
            Expression::Literal(_) | Expression::Class(_) => true,
            Expression::Token(_) => false,
            Expression::Rule(rule) => {
                rules.push(*rule);
                true
            }
            Expression::Repeat(item, ..) => item.refers(rules),
            Expression::Sequence(items) | Expression::Choice(items) => {
                items.iter().all(|item| item.refers(rules))
            }
        }
    }
}

/// A rule of a grammar.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) name: String,
    pub(super) body: Expression,
}

/// A part may be repeated this often; above, only without limit.
const MAX_REPEATS: usize = 2000;

/// The rules of a grammar, all of them defined.
pub(super) fn rules(text: &str) -> Result<Vec<Rule>, GrammarError> {
    let mut parser = Parser { text, at: 0, names: HashMap::new(), bodies: Vec::new() };
    parser.space(true);
    while parser.at < text.len() {
        parser.rule()?;
    }
    let Parser { mut names, bodies, .. } = parser;
    let mut rules = Vec::with_capacity(bodies.len());
    for (index, (body, line)) in bodies.into_iter().enumerate() {
        let name = names.extract_if(|_, known| *known == index).next().map(|(name, _)| name.to_owned());
        let name = name.unwrap_or_default();
        let Some(body) = body else {
            return Err(GrammarError::Gbnf { line, reason: format!("the rule `{name}` is not defined") });
        };
        rules.push(Rule { name, body });
    }
    Ok(rules)
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    names: HashMap<&'a str, usize>,
    /// Of each rule, and the line where it was first named.
    bodies: Vec<(Option<Expression>, usize)>,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn wrong<T>(&self, reason: impl Into<String>) -> Result<T, GrammarError> {
        let line = 1 + self.text[..self.at].matches('\n').count();
        Err(GrammarError::Gbnf { line, reason: reason.into() })
    }

    fn expected<T>(&self, what: &str) -> Result<T, GrammarError> {
        match self.rest().chars().next() {
            Some(found) => self.wrong(format!("expected {what}, found {found:?}")),
            None => self.wrong(format!("expected {what}, found the end")),
        }
    }

    fn take(&mut self, mark: &str) -> bool {
        let found = self.rest().starts_with(mark);
        self.at += if found { mark.len() } else { 0 };
        found
    }

    /// Passes white space and comments.
    fn space(&mut self, newlines: bool) {
        loop {
            let rest = self.rest();
            let comment = if rest.starts_with('#') { rest.find('\n').unwrap_or(rest.len()) } else { 0 };
            let blank = |c: char| c == ' ' || c == '\t' || newlines && (c == '\n' || c == '\r');
            let space = comment + rest[comment..].len() - rest[comment..].trim_start_matches(blank).len();
            if space == 0 {
                return;
            }
            self.at += space;
        }
    }

    fn name(&mut self) -> Option<&'a str> {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let rest = self.rest();
        let len = rest.find(|c| !word(c)).unwrap_or(rest.len());
        self.at += len;
        (len > 0).then_some(&rest[..len])
    }

    fn index_of(&mut self, name: &'a str) -> usize {
        let line = 1 + self.text[..self.at].matches('\n').count();
        let next = self.bodies.len();
        let index = *self.names.entry(name).or_insert(next);
        if index == next {
            self.bodies.push((None, line));
        }
        index
    }

    fn rule(&mut self) -> Result<(), GrammarError> {
        let Some(name) = self.name() else { return self.expected("the name of a rule") };
        let index = self.index_of(name);
        self.space(false);
        if !self.take("::=") {
            return self.expected("`::=`");
        }
        self.space(true);
        let body = self.choice(false)?;
        if self.at < self.text.len() && !matches!(self.rest().as_bytes()[0], b'\n' | b'\r') {
            return self.expected("the end of the rule");
        }
        if self.bodies[index].0.replace(body).is_some() {
            return self.wrong(format!("the rule `{name}` is defined twice"));
        }
        self.space(true);
        Ok(())
    }

    fn choice(&mut self, nested: bool) -> Result<Expression, GrammarError> {
        let mut alternatives = vec![self.sequence(nested)?];
        loop {
            // The next line may go on with another alternative.
            let before = self.at;
            self.space(true);
            if !self.take("|") {
                self.at = before;
                break;
            }
            self.space(true);
            alternatives.push(self.sequence(nested)?);
        }
        match alternatives.pop() {
            Some(only) if alternatives.is_empty() => Ok(only),
            last => Ok(Expression::Choice(alternatives.into_iter().chain(last).collect())),
        }
    }

    fn sequence(&mut self, nested: bool) -> Result<Expression, GrammarError> {
        let mut items: Vec<Expression> = Vec::new();
        while let Some(next) = self.rest().chars().next() {
            match next {
                '"' => items.push(self.literal()?),
                '[' => items.push(self.class()?),
                '<' | '!' => items.push(self.token()?),
                '.' => {
                    self.at += 1;
                    items.push(Expression::Class("(?s:.)".to_owned()));
                }
                '(' => {
                    self.at += 1;
                    self.space(true);
                    let group = self.choice(true)?;
                    if !self.take(")") {
                        return self.expected("`)`");
                    }
                    items.push(group);
                }
                '*' | '+' | '?' | '{' => {
                    let Some(item) = items.pop() else { return self.expected("what is repeated") };
                    let (least, most) = self.repeats()?;
                    items.push(Expression::Repeat(Box::new(item), least, most));
                }
                _ => match self.name() {
                    Some(name) => {
                        let rule = self.index_of(name);
                        items.push(Expression::Rule(rule));
                    }
                    None => break,
                },
            }
            self.space(nested);
        }
        match items.len() {
            1 => Ok(items.remove(0)),
            _ => Ok(Expression::Sequence(items)),
        }
    }

    fn literal(&mut self) -> Result<Expression, GrammarError> {
        self.at += 1;
        let mut text = String::new();
        while !self.take("\"") {
            text.push(self.character()?);
        }
        Ok(Expression::Literal(text))
    }

    fn class(&mut self) -> Result<Expression, GrammarError> {
        self.at += 1;
        let mut class = if self.take("^") { "[^".to_owned() } else { "[".to_owned() };
        let start = class.len();
        let escaped = |c: char| format!("\\x{{{:x}}}", u32::from(c));
        while !self.take("]") {
            let first = self.character()?;
            class.push_str(&escaped(first));
            if self.rest().starts_with('-') && !self.rest().starts_with("-]") {
                self.at += 1;
                let last = self.character()?;
                if last < first {
                    return self.wrong(format!("the range from {first:?} to {last:?} is empty"));
                }
                class.push('-');
                class.push_str(&escaped(last));
            }
        }
        if class.len() == start {
            return self.wrong("the class of characters is empty");
        }
        class.push(']');
        Ok(Expression::Class(class))
    }

    /// `<name>`, `<[id]>`, or `!<[id]>` for all others.
    fn token(&mut self) -> Result<Expression, GrammarError> {
        let negated = self.take("!");
        let end = self.rest().find(|c: char| c == '>' || c.is_whitespace());
        let text = end.and_then(|end| self.rest().get(..end + 1)).filter(|text| text.ends_with('>'));
        let Some(text) = text.filter(|text| text.starts_with('<') && text.len() > 2) else {
            return self.expected("a token such as `<think>` or `<[1000]>`");
        };
        self.at += text.len();
        match (negated, text.strip_prefix("<[")) {
            (false, _) => Ok(Expression::Token(text.to_owned())),
            (true, Some(id)) => Ok(Expression::Token(format!("<[^{id}"))),
            (true, None) => self.wrong(format!("`!{text}` needs the token's number, as `!<[1000]>`")),
        }
    }

    fn repeats(&mut self) -> Result<(usize, Option<usize>), GrammarError> {
        for (mark, least, most) in [("*", 0, None), ("+", 1, None), ("?", 0, Some(1))] {
            if self.take(mark) {
                return Ok((least, most));
            }
        }
        self.at += 1;
        self.space(true);
        let Some(least) = self.number()? else { return self.expected("a number") };
        let mut most = Some(least);
        if self.take(",") {
            self.space(true);
            most = self.number()?;
        }
        if !self.take("}") {
            return self.expected("`}`");
        }
        match most {
            Some(most) if most < least => {
                self.wrong(format!("at least {least} and at most {most} repetitions are impossible"))
            }
            _ => Ok((least, most)),
        }
    }

    fn number(&mut self) -> Result<Option<usize>, GrammarError> {
        let rest = self.rest();
        let digits = &rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())];
        self.at += digits.len();
        self.space(true);
        if digits.is_empty() {
            return Ok(None);
        }
        match digits.parse().ok().filter(|number| *number <= MAX_REPEATS) {
            Some(number) => Ok(Some(number)),
            None => {
                self.wrong(format!("{digits} repetitions are too many; at most {MAX_REPEATS} are accepted"))
            }
        }
    }

    /// A character of a literal or a class, which may be escaped.
    fn character(&mut self) -> Result<char, GrammarError> {
        let Some(first) = self.rest().chars().next() else { return self.expected("a character") };
        self.at += first.len_utf8();
        if first != '\\' {
            return Ok(first);
        }
        let Some(escaped) = self.rest().chars().next() else { return self.expected("a character") };
        self.at += escaped.len_utf8();
        let digits = match escaped {
            'n' => return Ok('\n'),
            'r' => return Ok('\r'),
            't' => return Ok('\t'),
            '"' | '\\' | '[' | ']' => return Ok(escaped),
            'x' => 2,
            'u' => 4,
            'U' => 8,
            other => return self.wrong(format!("`\\{other}` is no escape")),
        };
        let code = self.rest().get(..digits).and_then(|hex| u32::from_str_radix(hex, 16).ok());
        match code.and_then(char::from_u32) {
            Some(character) => {
                self.at += digits;
                Ok(character)
            }
            None => self.wrong(format!("`\\{escaped}` needs {digits} hexadecimal digits of a character")),
        }
    }
}
