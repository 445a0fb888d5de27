//! Models of a hub that speaks Hugging Face's API (feature `hub`): chosen by quantization, downloaded once, verified, and kept in
//! the cache folder that other tools share.
//!
//! `curl` makes the requests: TLS, certificates and proxies are those of the system. Nothing is printed here, and environment
//! variables are read by callers.

mod cache;
mod choice;
mod download;
mod error;
mod listing;
mod name;
mod request;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use cache::RepositoryCache;
use download::Download;
use listing::Listing;
use request::{Client, Origin};

pub use error::HubError;
pub use name::HubModel;

/// A hub, and where its files are kept.
#[derive(Clone, Debug)]
pub struct Hub {
    endpoint: Origin,
    token: Option<String>,
    /// Requests are made. Otherwise only the cache is used.
    online: bool,
    folder: PathBuf,
}

/// Where Hugging Face's hub is.
const ENDPOINT: &str = "https://huggingface.co";

/// What [`Hub::pull`] is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HubStage {
    /// Another process downloads the same file.
    Waiting,
    /// Files are downloaded.
    Downloading,
}

/// Gets the stage, and the bytes of all files, done and in total.
pub type HubProgress<'a> = &'a mut dyn FnMut(HubStage, u64, u64);

/// A model whose files are in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PulledModel {
    /// Its files: one, or the parts of a split model in order.
    pub files: Vec<PathBuf>,
    /// Bytes of all files.
    pub bytes: u64,
}

impl Hub {
    /// The hub that environment variables describe, which the caller reads: `HF_ENDPOINT`, `HF_TOKEN` (or the file
    /// `HF_TOKEN_PATH`, by default `$HF_HOME/token`), `HF_HUB_OFFLINE`, `HF_HUB_CACHE` (by default `$HF_HOME/hub`), and
    /// `HF_HOME` (by default `huggingface` in the user's cache folder).
    ///
    /// # Errors
    /// [`HubError::Endpoint`], [`HubError::Token`], and [`HubError::NoFolder`] if no variable says where the cache is.
    pub fn of(variable: &dyn Fn(&str) -> Option<OsString>) -> Result<Hub, HubError> {
        let value = |name: &str| variable(name).filter(|value| !value.is_empty());
        let folder = |name: &str| value(name).map(PathBuf::from);
        let text = |name: &str| value(name).map(|value| value.to_string_lossy().trim().to_owned());
        let user = || folder("HOME").or_else(|| folder("USERPROFILE")).map(|home| home.join(".cache"));
        let home = folder("HF_HOME").or_else(|| {
            let caches = folder("XDG_CACHE_HOME").or_else(user);
            caches.map(|caches| caches.join("huggingface"))
        });
        let hub = folder("HF_HUB_CACHE").or_else(|| home.as_ref().map(|home| home.join("hub")));
        let token_file = folder("HF_TOKEN_PATH").or_else(|| home.map(|home| home.join("token")));
        let saved = || fs::read_to_string(token_file?).ok().map(|token| token.trim().to_owned());
        let token = text("HF_TOKEN").or_else(saved).filter(|token| !token.is_empty());
        if !token.iter().all(|token| token.bytes().all(request::is_plain)) {
            return Err(HubError::Token);
        }
        let offline = text("HF_HUB_OFFLINE").is_some_and(|value| {
            ["1", "on", "yes", "true"].iter().any(|yes| value.eq_ignore_ascii_case(yes))
        });
        Ok(Hub {
            endpoint: Origin::parse(text("HF_ENDPOINT").as_deref().unwrap_or(ENDPOINT))?,
            token,
            online: !offline,
            folder: hub.ok_or(HubError::NoFolder)?,
        })
    }

    /// The files of a model, downloaded if they are not in the cache. Downloads that were cut are continued, and several
    /// processes may call this at once. A hub that cannot be reached is not needed for a model in the cache.
    ///
    /// # Errors
    /// [`HubError`]; what was downloaded until then is kept, unless it is not what the hub promised.
    pub fn pull(&self, model: &HubModel, progress: HubProgress<'_>) -> Result<PulledModel, HubError> {
        let cache = RepositoryCache::new(&self.folder, model.repository());
        let client = Client::new(self.endpoint.clone(), self.token.clone());
        let listed = match self.online {
            true => Listing::fetch(&client, model.repository()),
            false => Err(HubError::Offline),
        };
        let listing = match listed {
            Ok(listing) => listing,
            Err(error) if error.is_about_network() => return kept(&cache, model).ok_or(error),
            Err(error) => return Err(error),
        };
        let files = listing.choose(model)?;
        let bytes = files.iter().map(|file| file.bytes).sum();
        let mut before = 0;
        for file in &files {
            let mut report = |stage, done| progress(stage, before + done, bytes);
            let (repository, commit) = (model.repository(), listing.commit.as_str());
            let download = Download { client: &client, repository, commit, file };
            cache.hold(&download, &mut report)?;
            before += file.bytes;
        }
        cache.remember(&listing.commit)?;
        let files = files.iter().map(|file| cache.snapshot(&listing.commit, &file.name)).collect();
        Ok(PulledModel { files, bytes })
    }
}

/// A model of the last known commit whose files are all in the cache.
fn kept(cache: &RepositoryCache, model: &HubModel) -> Option<PulledModel> {
    let commit = cache.commit()?;
    let names = cache.names(&commit);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let chosen = choice::choose(&names, model).ok()?;
    let files: Vec<PathBuf> = chosen.into_iter().map(|name| cache.snapshot(&commit, name)).collect();
    let length = |path: &PathBuf| fs::metadata(path).ok().map(|metadata| metadata.len());
    let bytes = files.iter().map(length).sum::<Option<u64>>()?;
    Some(PulledModel { files, bytes })
}

impl PulledModel {
    /// The file to open: the only one, or the first part.
    pub fn path(&self) -> &Path {
        self.files.first().map_or(Path::new(""), PathBuf::as_path)
    }
}
