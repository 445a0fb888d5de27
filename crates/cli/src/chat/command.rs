//! What begins with `/`.

use std::path::PathBuf;

/// A command of a chat.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Command {
    Help,
    Reset,
    Again,
    Memory,
    Save(PathBuf),
    Quit,
}

/// How each is written, and what it does.
const COMMANDS: [(&str, &str); 6] = [
    ("/help", "list these commands"),
    ("/reset", "forget what was said"),
    ("/again", "answer the last message anew"),
    ("/memory", "say what the model takes, and how full the context is"),
    ("/save FILE", "write the chat to a file: as JSON if its name ends in .json, else as text"),
    ("/quit", "end the chat; so does Ctrl-D"),
];

const KEYS: &str = "Ctrl-C stops an answer. A line that ends in \\ goes on in the next one.
A line that begins with a space is said as it is, also if a / follows.";

/// What the commands are called.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    COMMANDS.iter().map(|(form, _)| form.split(' ').next().unwrap_or(form))
}

/// What `/help` prints.
pub(super) fn help() -> String {
    let lines = COMMANDS.iter().map(|(form, what)| format!("{form:<12} {what}\n"));
    lines.chain([KEYS.to_owned()]).collect()
}

impl Command {
    /// `None` for what is said to the model; an error for a command that there is not.
    pub(super) fn parse(line: &str) -> Option<Result<Command, String>> {
        if !line.starts_with('/') {
            return None;
        }
        let (name, argument) = line.trim().split_once(char::is_whitespace).unwrap_or((line.trim(), ""));
        let argument = argument.trim();
        let plain = |command: Command| match argument {
            "" => Ok(command),
            _ => Err(format!("{name} takes nothing behind it; /help lists the commands")),
        };
        Some(match name {
            "/help" | "/?" => plain(Command::Help),
            "/reset" | "/clear" => plain(Command::Reset),
            "/again" | "/regen" => plain(Command::Again),
            "/memory" => plain(Command::Memory),
            "/quit" | "/exit" | "/bye" => plain(Command::Quit),
            "/save" if argument.is_empty() => Err("/save needs the name of a file behind it".to_owned()),
            "/save" => Ok(Command::Save(argument.into())),
            _ => Err(format!(
                "there is no command {name}; /help lists those there are, and a space before the / makes it text"
            )),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_with_a_slash_is_a_command_and_nothing_else_is() {
        assert_eq!(Command::parse("/save  my chat.txt "), Some(Ok(Command::Save("my chat.txt".into()))));
        assert_eq!(Command::parse("/reset"), Some(Ok(Command::Reset)));
        assert_eq!(Command::parse("1/2"), None);
        assert_eq!(Command::parse(" /reset"), None);
        for (line, expected) in
            [("/dance", "/dance"), ("/save", "name of a file"), ("/reset all", "nothing behind")]
        {
            let refusal = Command::parse(line).unwrap().unwrap_err();
            assert!(refusal.contains(expected), "{refusal}");
        }
    }

    #[test]
    fn every_command_that_is_listed_is_known() {
        for name in names() {
            let line = if name == "/save" { "/save x".to_owned() } else { name.to_owned() };
            assert!(Command::parse(&line).unwrap().is_ok(), "{name}");
            assert!(help().contains(name));
        }
    }
}
