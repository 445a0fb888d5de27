//! Files that are read.

use std::io::Read;
use std::path::Path;

use flate2::read::MultiGzDecoder;

use crate::failure::Failure;

/// What a file holds, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A model.
    Model,
    /// Buffers with lifetimes.
    Problem,
    /// Graphs in ggml's terms, one a line.
    Graphs,
    /// A graph of our own.
    Graph,
}

/// A text file in memory.
#[derive(Debug)]
pub(crate) struct Input {
    /// Its name, as it was given.
    pub(crate) name: String,
    pub(crate) text: String,
}

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

impl Input {
    /// Reads a file, compressed or not.
    pub(crate) fn read(path: &Path, kind: Kind) -> Result<Input, Failure> {
        let name = path.display().to_string();
        let bytes = std::fs::read(path)
            .map_err(|error| Failure::BadInput(format!("{name} cannot be read ({error}); check the path")))?;
        let bytes = if bytes.starts_with(&GZIP_MAGIC) { unpack(&name, &bytes)? } else { bytes };
        let text = String::from_utf8(bytes).map_err(|error| not_utf8(&name, &error))?;
        if text.trim().is_empty() {
            return Err(Failure::BadInput(format!(
                "{name} is empty; give a file that holds {}",
                kind.holds()
            )));
        }
        Ok(Input { name, text })
    }
}

impl Kind {
    pub(crate) const ALL: [Kind; 4] = [Kind::Model, Kind::Problem, Kind::Graphs, Kind::Graph];

    /// What a file's name says.
    pub(crate) fn of(path: &Path) -> Result<Kind, Failure> {
        let name = path.display().to_string();
        let lower = name.to_ascii_lowercase();
        let stem = lower.strip_suffix(".gz").unwrap_or(&lower);
        match Path::new(stem).extension().and_then(|extension| extension.to_str()) {
            Some("csv") => Ok(Kind::Problem),
            Some("jsonl") => Ok(Kind::Graphs),
            Some("json") => Ok(Kind::Graph),
            Some("gguf") if stem == lower => Ok(Kind::Model),
            Some("gguf") => Err(Failure::BadInput(format!(
                "{name}: a model is mapped, so it cannot be compressed; unpack it first"
            ))),
            _ => Err(Failure::BadInput(format!(
                "{name}: the name does not say what the file holds; give a .gguf, .csv, .jsonl or .json file, or one \
                 of the last three with .gz behind it"
            ))),
        }
    }

    /// What such files are called.
    pub(crate) fn plural(&self) -> &'static str {
        match self {
            Kind::Model => "models (.gguf)",
            Kind::Problem => "buffers with lifetimes (.csv)",
            Kind::Graphs => "graphs of ggml (.jsonl)",
            Kind::Graph => "graphs of our own (.json)",
        }
    }

    fn holds(self) -> &'static str {
        match self {
            Kind::Model => "a model",
            Kind::Problem => "a header with id,lower,upper,size and a line for each buffer",
            Kind::Graphs => "a graph a line",
            Kind::Graph => "a graph",
        }
    }
}

fn unpack(name: &str, bytes: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut unpacked = Vec::new();
    MultiGzDecoder::new(bytes).read_to_end(&mut unpacked).map_err(|error| {
        Failure::BadInput(format!(
            "{name} is damaged or cut short: unpacking stops after {} bytes ({error}); get the file anew",
            unpacked.len()
        ))
    })?;
    Ok(unpacked)
}

fn not_utf8(name: &str, error: &std::string::FromUtf8Error) -> Failure {
    let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
    let line = 1 + good.iter().filter(|byte| **byte == b'\n').count();
    let column = 1 + good.iter().rev().take_while(|byte| **byte != b'\n').count();
    Failure::in_file(
        name,
        format_args!("line {line}, column {column}"),
        "this is not UTF-8 text; save the file as UTF-8",
    )
}
