//! Errors of commands and their exit statuses.

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

/// Why a command failed; determines the exit status.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Invalid arguments or files: status 2.
    BadInput(String),
    /// No command was given; holds the help: status 2.
    NoCommand(String),
    /// No result was found within the limits: status 3.
    OverLimits(String),
    /// No result exists within the limits: status 4.
    Impossible(String),
    /// Other errors: status 1.
    Other(anyhow::Error),
    /// The reader closed standard output: no message, status 0.
    OutputClosed,
}

impl Failure {
    /// An invalid file: its name, the location of the error, and a message.
    pub(crate) fn in_file(file: &str, place: impl Display, what: impl Display) -> Failure {
        Failure::BadInput(format!("{file}, {place}: {what}"))
    }

    /// A violated invariant.
    pub(crate) fn internal_error(what: impl Display) -> Failure {
        Failure::Other(anyhow::anyhow!("{what}; this is a bug in orlop, please report it with the input"))
    }

    /// A failed write to standard output.
    pub(crate) fn printing(error: io::Error) -> Failure {
        if is_disconnected(&error) {
            return Failure::OutputClosed;
        }
        Failure::Other(anyhow::anyhow!("cannot write to standard output ({error}); check its redirection"))
    }

    /// Prints the message to standard error and returns the exit status.
    pub(crate) fn report(self) -> ExitCode {
        let (status, sentence) = match self {
            Failure::BadInput(sentence) => (2, sentence),
            Failure::OverLimits(sentence) => (3, sentence),
            Failure::Impossible(sentence) => (4, sentence),
            Failure::Other(error) => (1, format!("{error:#}")),
            Failure::NoCommand(help) => {
                let _ = writeln!(io::stderr(), "{help}");
                return ExitCode::from(2);
            }
            Failure::OutputClosed => return ExitCode::SUCCESS,
        };
        // Names of files and tensors may contain line breaks; the message is one line.
        let sentence: String = sentence.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let _ = writeln!(io::stderr(), "orlop: {sentence}");
        ExitCode::from(status)
    }
}

/// Whether a pipe's reader or a terminal was closed.
pub(crate) fn is_disconnected(error: &io::Error) -> bool {
    const HUNG_UP: i32 = 5; // EIO, which has no `ErrorKind`
    error.kind() == io::ErrorKind::BrokenPipe || (cfg!(unix) && error.raw_os_error() == Some(HUNG_UP))
}
