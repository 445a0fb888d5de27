//! A model's file and its configuration.

use std::path::Path;
use std::sync::Arc;

use orlop_gguf::GgufFile as File;

use crate::{Config, Error};

/// A model's file and its configuration; no weight is loaded. Clones share it.
#[derive(Clone, Debug)]
pub struct Model {
    file: Arc<File>,
    config: Arc<Config>,
}

impl Model {
    /// Opens a GGUF file, and all its parts if it is a split one. The files must not change while they are in use.
    ///
    /// # Errors
    /// What is wrong with the file; and as [`Config::read`].
    pub fn open(path: impl AsRef<Path>) -> Result<Model, Error> {
        Model::from_file(File::open(path)?)
    }

    /// The model of an open file.
    ///
    /// # Errors
    /// As [`Config::read`].
    pub fn from_file(file: File) -> Result<Model, Error> {
        let config = Arc::new(Config::read(file.metadata())?);
        Ok(Model { file: Arc::new(file), config })
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Its sizes and constants.
    pub fn config(&self) -> &Config {
        &self.config
    }
}
