//! Input files.

use std::io::Read;
use std::path::Path;

use flate2::read::MultiGzDecoder;

use crate::failure::Failure;

/// The kind of a file, by its extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A model.
    Model,
    /// Buffers with lifetimes.
    Problem,
    /// ggml graphs, one per line.
    Graphs,
    /// An Orlop graph.
    Graph,
}

/// A text file in memory.
#[derive(Debug)]
pub(crate) struct Input {
    /// Its path, as given.
    pub(crate) name: String,
    pub(crate) text: String,
}

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Limit on decompressed bytes: a file of some megabytes could fill the memory.
const MAX_DECOMPRESSED: u64 = 2 << 30;

impl Input {
    /// Reads a file, gzip-compressed or not.
    pub(crate) fn read(path: &Path, kind: Kind) -> Result<Input, Failure> {
        let name = path.display().to_string();
        let bytes = std::fs::read(path).map_err(|error| {
            Failure::BadInput(format!("{name}: cannot read the file ({error}); check the path"))
        })?;
        let bytes =
            if bytes.starts_with(&GZIP_MAGIC) { decompress(&name, &bytes, MAX_DECOMPRESSED)? } else { bytes };
        let text = String::from_utf8(bytes).map_err(|error| not_utf8(&name, &error))?;
        if text.trim().is_empty() {
            return Err(Failure::BadInput(format!(
                "{name}: the file is empty; expected {}",
                kind.contents()
            )));
        }
        Ok(Input { name, text })
    }
}

impl Kind {
    /// The kind of a path.
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
                "{name}: models are memory-mapped and cannot be compressed; decompress it first"
            ))),
            _ => Err(Failure::BadInput(format!(
                "{name}: unknown file extension; use a .gguf, .csv, .jsonl or .json file (.gz is supported for the \
                 last three)"
            ))),
        }
    }

    /// The name of such files in messages.
    pub(crate) fn plural(&self) -> &'static str {
        match self {
            Kind::Model => "models (.gguf)",
            Kind::Problem => "buffers with lifetimes (.csv)",
            Kind::Graphs => "ggml graphs (.jsonl)",
            Kind::Graph => "Orlop graphs (.json)",
        }
    }

    fn contents(self) -> &'static str {
        match self {
            Kind::Model => "a model",
            Kind::Problem => "a header with id,lower,upper,size and one line per buffer",
            Kind::Graphs => "one graph per line",
            Kind::Graph => "a graph",
        }
    }
}

fn decompress(name: &str, bytes: &[u8], limit: u64) -> Result<Vec<u8>, Failure> {
    let mut text = Vec::new();
    MultiGzDecoder::new(bytes).take(limit.saturating_add(1)).read_to_end(&mut text).map_err(|error| {
        Failure::BadInput(format!(
            "{name}: the file is damaged or truncated: decompression failed after {} bytes ({error}); get a new copy",
            text.len()
        ))
    })?;
    if text.len() as u64 > limit {
        return Err(Failure::BadInput(format!(
            "{name}: decompressed, the file has more than the limit of {limit} bytes; split it, or decompress it first"
        )));
    }
    Ok(text)
}

fn not_utf8(name: &str, error: &std::string::FromUtf8Error) -> Failure {
    let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
    let line = 1 + good.iter().filter(|byte| **byte == b'\n').count();
    let column = 1 + good.iter().rev().take_while(|byte| **byte != b'\n').count();
    Failure::in_file(
        name,
        format_args!("line {line}, column {column}"),
        "invalid UTF-8; save the file as UTF-8",
    )
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    #[test]
    fn decompression_ends_at_the_limit() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&[b' '; 1000]).expect("memory");
        let bytes = encoder.finish().expect("memory");
        assert_eq!(decompress("a.csv.gz", &bytes, 1000).expect("within the limit").len(), 1000);
        let refused = decompress("a.csv.gz", &bytes, 999);
        assert!(matches!(refused, Err(Failure::BadInput(what)) if what.contains("limit of 999 bytes")));
    }
}
