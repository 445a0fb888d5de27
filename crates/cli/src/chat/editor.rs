//! The line editor of a chat.

use std::env;
use std::fs;
use std::io::{ErrorKind, stdout};
use std::path::PathBuf;

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{Config, Context, Helper};

use super::command;
use crate::failure::Failure;
use crate::style::may_colour;

/// User input.
pub(super) enum Line {
    Text(String),
    /// Ctrl-C.
    Interrupted,
    /// Invalid UTF-8.
    NotText,
    /// Ctrl-D, or a closed terminal.
    End,
}

/// Reads lines, with a history.
pub(super) struct Editor {
    editor: rustyline::Editor<Completion, FileHistory>,
    history: Option<PathBuf>,
    coloured: bool,
}

const PROMPT: &str = "> ";
const MORE: &str = ". ";

impl Editor {
    /// Opens the editor with the history of other chats.
    pub(super) fn open() -> Result<Editor, Failure> {
        let config = Config::builder().history_ignore_space(false).auto_add_history(false).build();
        let mut editor = rustyline::Editor::with_config(config).map_err(unusable)?;
        editor.set_helper(Some(Completion));
        let history = state_folder().map(|folder| folder.join("history"));
        if let Some(path) = &history {
            // A chat works without a history.
            let _ = path.parent().map(fs::create_dir_all);
            let _ = editor.load_history(path);
        }
        Ok(Editor { editor, history, coloured: may_colour(&stdout()) })
    }

    /// The next message or command.
    pub(super) fn read(&mut self) -> Result<Line, Failure> {
        let mut text = String::new();
        loop {
            let prompt = if text.is_empty() { PROMPT } else { MORE };
            match self.line(prompt)? {
                Line::Text(line) => text.push_str(&line),
                other => return Ok(other),
            }
            if text.ends_with('\\') {
                text.pop();
                text.push('\n');
                continue;
            }
            if !text.trim().is_empty() {
                self.remember(&text);
            }
            return Ok(Line::Text(text));
        }
    }

    /// Whether the user answers a question with yes or an empty line.
    pub(super) fn confirms(&mut self, question: &str) -> Result<bool, Failure> {
        Ok(match self.line(question)? {
            Line::Text(answer) => matches!(answer.trim().to_lowercase().as_str(), "" | "y" | "yes"),
            _ => false,
        })
    }

    fn line(&mut self, prompt: &str) -> Result<Line, Failure> {
        let styled = if self.coloured { format!("\x1b[1;32m{prompt}\x1b[0m") } else { prompt.to_owned() };
        match self.editor.readline(&(prompt, styled.as_str())) {
            Ok(line) => Ok(Line::Text(line)),
            Err(ReadlineError::Eof) => Ok(Line::End),
            Err(ReadlineError::Interrupted) => Ok(Line::Interrupted),
            Err(ReadlineError::Io(error)) if error.kind() == ErrorKind::InvalidData => Ok(Line::NotText),
            Err(error) if is_disconnected(&error) => Err(Failure::OutputClosed),
            Err(error) => Err(unusable(error)),
        }
    }

    /// Adds a line to the history and saves it at once.
    fn remember(&mut self, line: &str) {
        let _ = self.editor.add_history_entry(line);
        if let Some(path) = &self.history {
            let _ = self.editor.append_history(path);
        }
    }
}

/// Whether the terminal was closed.
fn is_disconnected(error: &ReadlineError) -> bool {
    match error {
        ReadlineError::Io(error) => crate::failure::is_disconnected(error),
        #[cfg(unix)]
        ReadlineError::Errno(errno) => crate::failure::is_disconnected(&(*errno).into()),
        _ => false,
    }
}

fn unusable(error: ReadlineError) -> Failure {
    Failure::Other(anyhow::anyhow!("cannot use the terminal ({error}); add a prompt after `orlop run`"))
}

/// The folder of the history: `orlop` in the user's state folder.
fn state_folder() -> Option<PathBuf> {
    let folder = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let below = |name: &str, below: &str| folder(name).map(|home| home.join(below));
    below("XDG_STATE_HOME", "orlop")
        .or_else(|| if cfg!(windows) { below("LOCALAPPDATA", "orlop") } else { None })
        .or_else(|| {
            let macos = cfg!(target_os = "macos");
            below("HOME", if macos { "Library/Application Support/orlop" } else { ".local/state/orlop" })
        })
}

/// Completes the names of commands.
struct Completion;

impl Completer for Completion {
    type Candidate = &'static str;

    fn complete(
        &self,
        line: &str,
        pos: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<&'static str>)> {
        let begun = &line[..pos];
        let fitting = command::names().filter(|name| begun.starts_with('/') && name.starts_with(begun));
        Ok((0, fitting.collect()))
    }
}

impl Hinter for Completion {
    type Hint = String;
}

impl Highlighter for Completion {}
impl Validator for Completion {}
impl Helper for Completion {}
