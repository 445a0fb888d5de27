//! The commands of a chat, which start with `/`.

use std::path::PathBuf;

/// A command of a chat.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Command {
    Help,
    Reset,
    Again,
    Memory,
    Save(PathBuf),
    SaveState(PathBuf),
    LoadState(PathBuf),
    Quit,
}

/// Syntax and help of each command.
const COMMANDS: [(&str, &str); 8] = [
    ("/help", "list these commands"),
    ("/reset", "clear the chat"),
    ("/again", "regenerate the last answer"),
    ("/memory", "show memory and context use"),
    ("/save FILE", "save the chat: as JSON if FILE ends in .json, else as text"),
    ("/save-state FILE", "save the chat and the cache, to continue later"),
    ("/load-state FILE", "continue a saved chat"),
    ("/quit", "quit (also Ctrl-D)"),
];

const KEYS: &str = "Ctrl-C stops an answer. A line that ends in \\ continues on the next one.
A line that starts with a space is a message, even if a / follows.";

/// The names of the commands.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    COMMANDS.iter().map(|(form, _)| form.split(' ').next().unwrap_or(form))
}

/// The text of `/help`.
pub(super) fn help() -> String {
    let lines = COMMANDS.iter().map(|(form, what)| format!("{form:<16} {what}\n"));
    lines.chain([KEYS.to_owned()]).collect()
}

impl Command {
    /// `None` for a message; an error for an unknown command.
    pub(super) fn parse(line: &str) -> Option<Result<Command, String>> {
        if !line.starts_with('/') {
            return None;
        }
        let (name, argument) = line.trim().split_once(char::is_whitespace).unwrap_or((line.trim(), ""));
        let argument = argument.trim();
        let plain = |command: Command| match argument {
            "" => Ok(command),
            _ => Err(format!("{name} takes no argument; /help lists the commands")),
        };
        Some(match name {
            "/help" | "/?" => plain(Command::Help),
            "/reset" | "/clear" => plain(Command::Reset),
            "/again" | "/regen" => plain(Command::Again),
            "/memory" => plain(Command::Memory),
            "/quit" | "/exit" | "/bye" => plain(Command::Quit),
            "/save" | "/save-state" | "/load-state" if argument.is_empty() => {
                Err(format!("{name} needs a file name"))
            }
            "/save" => Ok(Command::Save(argument.into())),
            "/save-state" => Ok(Command::SaveState(argument.into())),
            "/load-state" => Ok(Command::LoadState(argument.into())),
            _ => Err(format!(
                "unknown command {name}; /help lists the commands, a space before the / makes it a message"
            )),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_that_start_with_a_slash_are_commands() {
        assert_eq!(Command::parse("/save  my chat.txt "), Some(Ok(Command::Save("my chat.txt".into()))));
        assert_eq!(Command::parse("/reset"), Some(Ok(Command::Reset)));
        assert_eq!(Command::parse("1/2"), None);
        assert_eq!(Command::parse(" /reset"), None);
        for (line, expected) in
            [("/dance", "/dance"), ("/save", "needs a file name"), ("/reset all", "takes no argument")]
        {
            let refusal = Command::parse(line).unwrap().unwrap_err();
            assert!(refusal.contains(expected), "{refusal}");
        }
    }

    #[test]
    fn every_listed_command_is_known() {
        for name in names() {
            let file = ["/save", "/save-state", "/load-state"].contains(&name);
            let line = if file { format!("{name} x") } else { name.to_owned() };
            assert!(Command::parse(&line).unwrap().is_ok(), "{name}");
            assert!(help().contains(name));
        }
    }
}
