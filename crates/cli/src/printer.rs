//! Standard output.

use std::fmt::Display;
use std::io::{self, BufWriter, StdoutLock, Write};

use serde::Serialize;

use crate::failure::Failure;

/// Writes results to standard output.
pub(crate) struct Printer {
    out: BufWriter<StdoutLock<'static>>,
}

impl Printer {
    pub(crate) fn new() -> Printer {
        Printer { out: BufWriter::new(io::stdout().lock()) }
    }

    /// Prints one line and flushes.
    pub(crate) fn line(&mut self, line: impl Display) -> Result<(), Failure> {
        writeln!(self.out, "{line}").and_then(|()| self.out.flush()).map_err(Failure::printing)
    }

    /// Prints a value as one line of JSON.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string(value).map_err(|error| Failure::Other(error.into()))?;
        self.line(text)
    }
}
