//! Adapters on the command line: `FILE`, or `FILE:SCALE`.

use std::convert::Infallible;
use std::path::PathBuf;

use orlop::llm::{Error, LoraAdapter, Model};

use crate::commands::inspect::refused;
use crate::failure::Failure;

/// An adapter's file, and the factor of its changes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AdapterArgument {
    path: PathBuf,
    scale: f32,
}

pub(crate) fn parse_adapter(text: &str) -> Result<AdapterArgument, Infallible> {
    let parts = text.rsplit_once(':').and_then(|(path, scale)| Some((path, scale.parse::<f32>().ok()?)));
    let (path, scale) = parts.unwrap_or((text, 1.0));
    Ok(AdapterArgument { path: path.into(), scale })
}

/// A model with the adapters of these files.
pub(crate) fn adapted(model: Model, adapters: &[AdapterArgument]) -> Result<Model, Failure> {
    adapters.iter().try_fold(model, |model, AdapterArgument { path, scale }| {
        let adapter = LoraAdapter::open(path).and_then(|adapter| adapter.scaled(*scale));
        adapter.and_then(|adapter| model.with_adapters(&[adapter])).map_err(|error| match error {
            Error::File(error) => refused(path, &error),
            error => Failure::BadInput(format!("{}: {error}; use another adapter (--lora)", path.display())),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_behind_the_last_colon_is_the_scale() {
        let parsed = |text: &str| {
            let AdapterArgument { path, scale } = parse_adapter(text).unwrap();
            (path.display().to_string(), scale)
        };
        assert_eq!(parsed("a.gguf"), ("a.gguf".to_owned(), 1.0));
        assert_eq!(parsed("a.gguf:0.5"), ("a.gguf".to_owned(), 0.5));
        assert_eq!(parsed("c:a.gguf"), ("c:a.gguf".to_owned(), 1.0));
        assert_eq!(parsed("c:a.gguf:-2"), ("c:a.gguf".to_owned(), -2.0));
    }
}
