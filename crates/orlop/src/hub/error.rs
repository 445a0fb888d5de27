//! Why a model cannot be had from a hub.

use std::io;
use std::path::PathBuf;

/// Why a model cannot be had from a hub.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// Not the name of a model.
    #[error("`{name}` is not a model of a hub: {why}")]
    Name {
        /// The name.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Not the address of a hub.
    #[error("`{0}` is not the address of a hub")]
    Endpoint(String),
    /// A token that no request could have.
    #[error("the token of the hub has characters that a token cannot have")]
    Token,
    /// No variable says where files are kept.
    #[error("there is no cache folder for models of a hub")]
    NoFolder,
    /// The cache folder cannot be used.
    #[error("cannot write {} ({source})", .path.display())]
    Cache {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// There is no such repository.
    #[error("{hub} has no model {repository}")]
    NoRepository {
        /// The hub.
        hub: String,
        /// The repository.
        repository: String,
    },
    /// The repository is not for everyone, or does not exist: hubs do not tell strangers which.
    #[error("{hub} has no model {repository}, or does not give it to this user (status {status})")]
    NotAllowed {
        /// The hub.
        hub: String,
        /// The repository.
        repository: String,
        /// The status of its response.
        status: u16,
    },
    /// The repository has other files.
    #[error("{repository} has no {wanted}; it has {}", .known.join(", "))]
    NoFile {
        /// The repository.
        repository: String,
        /// What was asked for.
        wanted: String,
        /// Files that it has, or some of them.
        known: Vec<String>,
    },
    /// The repository has no model in the format of llama.cpp.
    #[error("{repository} has no GGUF files")]
    NoGguf {
        /// The repository.
        repository: String,
    },
    /// A part of a split model is missing.
    #[error("{repository} has {file}, but not all of its parts")]
    MissingPart {
        /// The repository.
        repository: String,
        /// A part that is there.
        file: String,
    },
    /// Nothing is asked of a hub, and the model is not in the cache.
    #[error("the model is not in the cache, and nothing is downloaded while HF_HUB_OFFLINE is set")]
    Offline,
    /// There is no `curl`.
    #[error("models of a hub are downloaded with curl, and there is no curl")]
    NoCurl,
    /// `curl` does not start or cannot be read.
    #[error("cannot run curl ({0})")]
    Curl(io::Error),
    /// The hub cannot be reached, or the connection is lost.
    #[error("cannot read {url} ({what})")]
    Network {
        /// The address.
        url: String,
        /// What curl says.
        what: String,
    },
    /// The hub answers with an error.
    #[error("{url} answers with status {status}")]
    Status {
        /// The address.
        url: String,
        /// The status.
        status: u16,
    },
    /// The hub answers with something else than its API says.
    #[error("{url} does not answer as a hub does: {what}")]
    Answer {
        /// The address.
        url: String,
        /// What is wrong.
        what: String,
    },
    /// A download is not what the hub promised.
    #[error("the download of {file} is damaged: {what}")]
    Damaged {
        /// The file.
        file: String,
        /// What is wrong with it.
        what: String,
    },
}

impl HubError {
    pub(super) fn cache(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> HubError {
        let path = path.into();
        move |source| HubError::Cache { path, source }
    }

    /// Whether another name, quantization, token or address is needed.
    pub fn is_about_request(&self) -> bool {
        matches!(
            self,
            HubError::Name { .. }
                | HubError::Endpoint(_)
                | HubError::Token
                | HubError::NoRepository { .. }
                | HubError::NotAllowed { .. }
                | HubError::NoFile { .. }
                | HubError::NoGguf { .. }
                | HubError::MissingPart { .. }
        )
    }

    /// Whether the same request may succeed later.
    pub(super) fn is_about_network(&self) -> bool {
        match self {
            HubError::Network { .. } | HubError::Offline | HubError::NoCurl => true,
            HubError::Status { status, .. } => *status == 429 || *status >= 500,
            _ => false,
        }
    }
}
