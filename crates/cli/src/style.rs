//! Colours and notes on terminals.

use std::fmt::Display;
use std::io::{IsTerminal, Write, stderr};

/// Whether to use colours: the stream is a terminal that supports them, and `NO_COLOR` is not set.
pub(crate) fn may_colour(stream: &impl IsTerminal) -> bool {
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    stream.is_terminal() && !unwanted && !dumb
}

/// Prints a dimmed note to standard error.
pub(crate) fn note(text: impl Display) {
    let mut stream = stderr().lock();
    let (faint, plain) = if may_colour(&stream) { ("\x1b[2m", "\x1b[0m") } else { ("", "") };
    let _ = writeln!(stream, "{faint}{text}{plain}");
}
