//! What a repository has.

use serde_json::Value as Json;

use super::request::Client;
use super::{HubError, HubModel, choice};

/// The files of a repository at a commit.
#[derive(Debug)]
pub(super) struct Listing {
    pub(super) commit: String,
    files: Vec<HubFile>,
    url: String,
}

/// A file of a repository.
#[derive(Clone, Debug)]
pub(super) struct HubFile {
    /// Its path in the repository.
    pub(super) name: String,
    pub(super) bytes: u64,
    /// Its name in the cache: the checksum, or git's name of a small file.
    pub(super) blob: String,
    pub(super) sha256: Option<String>,
}

/// Most bytes of a listing.
const LISTING_BYTES: u64 = 64 << 20;

impl Listing {
    /// Asks a hub.
    pub(super) fn fetch(client: &Client, repository: &str) -> Result<Listing, HubError> {
        let path = format!("api/models/{repository}/revision/main?blobs=true");
        let hub = || client.endpoint().to_string();
        let response = client.get(&path, 0)?;
        match response.status {
            200 => {}
            404 => return Err(HubError::NoRepository { hub: hub(), repository: repository.to_owned() }),
            status @ (401 | 403) => {
                return Err(HubError::NotAllowed { hub: hub(), repository: repository.to_owned(), status });
            }
            status => return Err(HubError::Status { url: response.url().to_owned(), status }),
        }
        let url = response.url().to_owned();
        let bytes = response.whole(LISTING_BYTES)?;
        let wrong = |what: &str| HubError::Answer { url: url.clone(), what: what.to_owned() };
        let json: Json = serde_json::from_slice(&bytes).map_err(|error| wrong(&error.to_string()))?;
        let commit =
            json["sha"].as_str().filter(|sha| is_hex(sha, 40)).ok_or_else(|| wrong("it has no commit"))?;
        let siblings = json["siblings"].as_array().ok_or_else(|| wrong("it lists no files"))?;
        let files = siblings.iter().filter_map(file).collect();
        Ok(Listing { commit: commit.to_owned(), files, url })
    }

    /// The files of a model.
    pub(super) fn choose(&self, model: &HubModel) -> Result<Vec<HubFile>, HubError> {
        let names: Vec<&str> = self.files.iter().map(|file| file.name.as_str()).collect();
        let chosen = choice::choose(&names, model)?;
        let of = |name: &str| {
            let file = self.files.iter().find(|file| file.name == name);
            let file = file.filter(|file| stays_below(&file.name)).ok_or_else(|| HubError::Answer {
                url: self.url.clone(),
                what: format!("{name:?} is not a path in a repository"),
            })?;
            Ok(file.clone())
        };
        chosen.into_iter().map(of).collect()
    }
}

/// A file of a listing; `None` without a size and a hash, by which a download is checked.
fn file(json: &Json) -> Option<HubFile> {
    let name = json["rfilename"].as_str()?.to_owned();
    let lfs = &json["lfs"];
    let sha256 = lfs["sha256"].as_str().filter(|hash| is_hex(hash, 64)).map(str::to_ascii_lowercase);
    let blob = sha256.clone().or_else(|| {
        json["blobId"].as_str().filter(|id| lfs.is_null() && is_hex(id, 40)).map(str::to_owned)
    })?;
    let bytes = json["size"].as_u64().or_else(|| lfs["size"].as_u64())?;
    Some(HubFile { name, bytes, blob, sha256 })
}

fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether a path stays below the folder that it is joined to, on all systems.
fn stays_below(path: &str) -> bool {
    let fine = |part: &str| {
        let forbidden = |c: char| c.is_control() || ['\\', ':'].contains(&c);
        !part.is_empty() && part != "." && part != ".." && !part.contains(forbidden)
    };
    path.split('/').all(fine)
}
