//! Colours, sparingly: where somebody watches who has not said no.

use std::fmt::Display;
use std::io::{IsTerminal, Write, stderr};

/// Whether what goes to a stream may have colours: it is a terminal that knows them, and `NO_COLOR` is not set.
pub(crate) fn may_colour(stream: &impl IsTerminal) -> bool {
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    stream.is_terminal() && !unwanted && !dumb
}

/// A remark on standard error, fainter than what it is about.
pub(crate) fn note(text: impl Display) {
    let mut stream = stderr().lock();
    let (faint, plain) = if may_colour(&stream) { ("\x1b[2m", "\x1b[0m") } else { ("", "") };
    // Where standard error is closed there is nobody left to tell.
    let _ = writeln!(stream, "{faint}{text}{plain}");
}
