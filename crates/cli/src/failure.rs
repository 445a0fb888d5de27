//! How a command ends when it does not end well.

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

/// Why a command did not do what it was asked, and with it the exit status.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Arguments or files that make no sense: status 2.
    BadInput(String),
    /// Nothing to do was named; this is the help: status 2.
    NoCommand(String),
    /// Nothing was found within the limits given, though something may exist: status 3.
    OverLimits(String),
    /// Nothing can exist within the limits given: status 4.
    Impossible(String),
    /// Anything else: status 1.
    Other(anyhow::Error),
    /// Whoever read our output has had enough: nothing to say, status 0.
    NobodyListens,
}

impl Failure {
    /// A file that makes no sense: which, where in it, and what to do about it.
    pub(crate) fn in_file(file: &str, place: impl Display, what: impl Display) -> Failure {
        Failure::BadInput(format!("{file}, {place}: {what}"))
    }

    /// A result of our own that does not hold.
    pub(crate) fn our_mistake(what: impl Display) -> Failure {
        Failure::Other(anyhow::anyhow!(
            "{what}; this is a mistake in orlop, please report it together with the input"
        ))
    }

    /// Something that could not be written to standard output.
    pub(crate) fn printing(error: io::Error) -> Failure {
        if is_gone(&error) {
            return Failure::NobodyListens;
        }
        Failure::Other(anyhow::anyhow!(
            "the result could not be written to standard output ({error}); check where it is sent"
        ))
    }

    /// Says the sentence on standard error, and gives the exit status.
    pub(crate) fn report(self) -> ExitCode {
        let (status, sentence) = match self {
            Failure::BadInput(sentence) => (2, sentence),
            Failure::OverLimits(sentence) => (3, sentence),
            Failure::Impossible(sentence) => (4, sentence),
            Failure::Other(error) => (1, format!("{error:#}")),
            Failure::NoCommand(help) => {
                // As below.
                let _ = writeln!(io::stderr(), "{help}");
                return ExitCode::from(2);
            }
            Failure::NobodyListens => return ExitCode::SUCCESS,
        };
        // A file or a tensor may have a name of several lines; the sentence stays one line all the same.
        let sentence: String = sentence.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        // Where standard error is closed there is nobody left to tell.
        let _ = writeln!(io::stderr(), "orlop: {sentence}");
        ExitCode::from(status)
    }
}

/// Whether a pipe's reader or a terminal went away.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    const HUNG_UP: i32 = 5; // EIO, which has no kind of its own
    error.kind() == io::ErrorKind::BrokenPipe || (cfg!(unix) && error.raw_os_error() == Some(HUNG_UP))
}
