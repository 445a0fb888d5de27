//! A model's file and its configuration.

use std::path::Path;
use std::sync::Arc;

use orlop_gguf::GgufFile as File;

use crate::adapter::{AdapterFactors, joined};
use crate::{Config, Error, LoraAdapter};

/// A model's file and its configuration; no weight is loaded. Clones share it.
#[derive(Clone, Debug)]
pub struct Model {
    file: Arc<File>,
    config: Arc<Config>,
    adapters: Arc<[AdapterFactors]>,
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
        Ok(Model { file: Arc::new(file), config, adapters: Arc::new([]) })
    }

    /// The same with adapters, behind those that it has. Their changes are part of its graphs, and
    /// [`Engine::set_adapter_scale`](crate::Engine::set_adapter_scale) turns them on and off.
    ///
    /// # Errors
    /// [`Error::Adapter`] for one that does not fit.
    pub fn with_adapters(&self, adapters: &[LoraAdapter]) -> Result<Model, Error> {
        let (file, adapters) = joined(self, adapters)?;
        Ok(Model { file: Arc::new(file), config: Arc::clone(&self.config), adapters: adapters.into() })
    }

    /// The file; those of adapters are further parts of it.
    pub fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn adapters(&self) -> &[AdapterFactors] {
        &self.adapters
    }

    /// Its sizes and constants.
    pub fn config(&self) -> &Config {
        &self.config
    }
}
