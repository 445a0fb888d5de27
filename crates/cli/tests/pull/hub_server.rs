//! A hub: the listing of a repository, its files, and what goes wrong.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

pub(crate) const REPOSITORY: &str = "org/model-GGUF";
pub(crate) const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A file of the repository.
#[derive(Clone)]
pub(crate) struct Kept {
    pub(crate) name: &'static str,
    pub(crate) bytes: Vec<u8>,
    /// What the listing says of its contents.
    pub(crate) sha256: String,
}

/// A file whose checksum is right.
pub(crate) fn kept(name: &'static str, bytes: impl Into<Vec<u8>>) -> Kept {
    let bytes = bytes.into();
    let sha256 = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    Kept { name, bytes, sha256 }
}

/// Bytes that differ everywhere.
pub(crate) fn noise(count: usize) -> Vec<u8> {
    (0..count as u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// What was asked of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) path: String,
    /// The first byte that is wanted.
    pub(crate) from: usize,
    pub(crate) token: Option<String>,
}

impl Asked {
    /// Whether a file is asked for, and not the listing.
    pub(crate) fn is_file(&self) -> bool {
        self.path.contains("/resolve/")
    }
}

/// A response.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<String>,
    pub(crate) body: Vec<u8>,
    /// Bytes after which the connection is closed.
    pub(crate) cut: Option<usize>,
}

impl Reply {
    pub(crate) fn new(status: u16, body: impl Into<Vec<u8>>) -> Reply {
        Reply { status, headers: Vec::new(), body: body.into(), cut: None }
    }

    pub(crate) fn redirect(to: &str) -> Reply {
        Reply { headers: vec![format!("Location: {to}")], ..Reply::new(302, "elsewhere") }
    }
}

/// Replaces the usual reply to some requests.
type Fault = dyn Fn(&Asked, usize) -> Option<Reply> + Send + Sync;

/// A hub that runs until it is dropped.
pub(crate) struct HubServer {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl HubServer {
    /// A hub that does what hubs do.
    pub(crate) fn start(files: Vec<Kept>) -> HubServer {
        HubServer::with_fault(files, |_, _| None)
    }

    /// A hub with a fault, which is given each request and the number of requests before it.
    pub(crate) fn with_fault(
        files: Vec<Kept>,
        fault: impl Fn(&Asked, usize) -> Option<Reply> + Send + Sync + 'static,
    ) -> HubServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::<Mutex<Vec<Asked>>>::default();
        let (seen, files, fault): (_, _, Arc<Fault>) = (Arc::clone(&asked), Arc::new(files), Arc::new(fault));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (seen, files, fault) = (Arc::clone(&seen), Arc::clone(&files), Arc::clone(&fault));
                std::thread::spawn(move || answer(&stream.unwrap(), &seen, &files, &*fault));
            }
        });
        HubServer { address, asked }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// All requests so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// The first byte of each request for a file.
    pub(crate) fn starts(&self) -> Vec<usize> {
        self.asked().iter().filter(|asked| asked.is_file()).map(|asked| asked.from).collect()
    }
}

fn answer(stream: &TcpStream, seen: &Mutex<Vec<Asked>>, files: &[Kept], fault: &Fault) {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let Some(path) = lines.next().and_then(|line| Some(line.split(' ').nth(1)?.to_owned())) else { return };
    let mut asked = Asked { path, from: 0, token: None };
    for line in lines.take_while(|line| !line.is_empty()) {
        match line.split_once(": ") {
            Some(("Range", range)) => {
                asked.from =
                    range.strip_prefix("bytes=").unwrap().strip_suffix('-').unwrap().parse().unwrap();
            }
            Some(("Authorization", token)) => asked.token = Some(token.to_owned()),
            _ => {}
        }
    }
    let before = {
        let mut seen = seen.lock().unwrap();
        seen.push(asked.clone());
        seen.len() - 1
    };
    let reply = fault(&asked, before).unwrap_or_else(|| usual(&asked, files));
    let Reply { status, headers, body, cut } = reply;
    let mut head = format!("HTTP/1.1 {status} \r\nContent-Length: {}\r\nConnection: close\r\n", body.len());
    headers.iter().for_each(|header| head.push_str(&format!("{header}\r\n")));
    let sent = cut.map_or(body.as_slice(), |cut| &body[..cut]);
    let mut stream = stream;
    // A client that has seen enough closes the connection.
    let _ = stream.write_all(&[head.as_bytes(), b"\r\n", sent].concat());
}

/// What a hub replies.
pub(crate) fn usual(asked: &Asked, files: &[Kept]) -> Reply {
    if asked.path == format!("/api/models/{REPOSITORY}/revision/main?blobs=true") {
        return Reply::new(200, listing(files).to_string());
    }
    let name = asked.path.strip_prefix(&format!("/{REPOSITORY}/resolve/{COMMIT}/"));
    let Some(file) = files.iter().find(|file| Some(file.name) == name) else {
        return Reply::new(404, "Repository not found");
    };
    match asked.from {
        0 => Reply::new(200, file.bytes.clone()),
        from => {
            let (last, all) = (file.bytes.len() - 1, file.bytes.len());
            let range = format!("Content-Range: bytes {from}-{last}/{all}");
            Reply { headers: vec![range], ..Reply::new(206, &file.bytes[from..]) }
        }
    }
}

/// What the API says of the repository.
pub(crate) fn listing(files: &[Kept]) -> Value {
    let sibling = |file: &Kept| {
        let size = file.bytes.len();
        let lfs = json!({ "sha256": file.sha256, "size": size, "pointerSize": 134 });
        json!({ "rfilename": file.name, "size": size, "blobId": COMMIT, "lfs": lfs })
    };
    let read_me = json!({ "rfilename": "README.md", "size": 3, "blobId": COMMIT });
    let siblings: Vec<Value> = files.iter().map(sibling).chain([read_me]).collect();
    json!({ "id": REPOSITORY, "sha": COMMIT, "siblings": siblings })
}
