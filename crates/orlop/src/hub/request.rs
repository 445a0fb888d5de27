//! Requests to a hub. Each is one `curl`, which gets its arguments over a pipe, so that no list of processes shows a token; its
//! redirects are followed here, so that no other server sees the token.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use super::HubError;

/// Scheme and authority of an address, with the path of a hub: `https://huggingface.co`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    /// `https://host:port`.
    site: String,
    /// Empty, or a path that begins with `/`.
    path: String,
}

/// Whether a byte may be part of an address or a header as it is.
pub(super) fn is_plain(byte: u8) -> bool {
    (0x21..0x7f).contains(&byte) && byte != b'"' && byte != b'\\'
}

impl Origin {
    pub(super) fn parse(url: &str) -> Result<Origin, HubError> {
        let url = url.trim_end_matches('/');
        let site = site(url).filter(|_| url.bytes().all(is_plain) && !url.contains(['?', '#', '@']));
        let site = site.ok_or_else(|| HubError::Endpoint(url.to_owned()))?;
        Ok(Origin { site: site.to_owned(), path: url[site.len()..].to_owned() })
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.site, self.path)
    }
}

/// Scheme and authority of an address of the web.
fn site(url: &str) -> Option<&str> {
    let (scheme, rest) = url.split_once("://").filter(|(scheme, _)| ["http", "https"].contains(scheme))?;
    let authority = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    (authority > 0).then(|| &url[..scheme.len() + "://".len() + authority])
}

/// Makes requests to a hub.
#[derive(Debug)]
pub(super) struct Client {
    endpoint: Origin,
    token: Option<String>,
}

/// Most redirects of a request.
const REDIRECTS: usize = 8;
/// Most bytes of a response's head.
const HEAD_BYTES: u64 = 64 << 10;

impl Client {
    pub(super) fn new(endpoint: Origin, token: Option<String>) -> Client {
        Client { endpoint, token }
    }

    pub(super) fn endpoint(&self) -> &Origin {
        &self.endpoint
    }

    /// The response to a request for a path of the hub, from a byte on.
    pub(super) fn get(&self, path: &str, from: u64) -> Result<Response, HubError> {
        let mut url = format!("{}/{path}", self.endpoint);
        for _ in 0..=REDIRECTS {
            let token = self.token.as_deref().filter(|_| site(&url) == Some(&self.endpoint.site));
            let response = Response::to(url, token, from)?;
            if !matches!(response.status, 301 | 302 | 303 | 307 | 308) {
                return Ok(response);
            }
            url = response.target()?;
        }
        Err(HubError::Answer { url, what: "it redirects again and again".to_owned() })
    }
}

/// A response: its head, and a body that is still coming.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) status: u16,
    headers: Vec<(String, String)>,
    url: String,
    body: BufReader<ChildStdout>,
    curl: Child,
}

impl Response {
    /// Makes one request.
    fn to(url: String, token: Option<&str>, from: u64) -> Result<Response, HubError> {
        let mut command = Command::new("curl");
        // The user's own settings of curl may be about other things than bodies on standard output.
        command.args(["--disable", "--config", "-"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut curl = command.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => HubError::NoCurl,
            _ => HubError::Curl(error),
        })?;
        let written = match curl.stdin.take() {
            Some(mut stdin) => stdin.write_all(settings(&url, token, from).as_bytes()),
            None => Ok(()),
        };
        let body = curl.stdout.take().ok_or_else(|| io::Error::other("it has no output"));
        let body = written.and(body).map_err(HubError::Curl)?;
        let mut response = Response { status: 0, headers: Vec::new(), url, body: BufReader::new(body), curl };
        // Responses with such a status come before the one that counts.
        while response.status < 200 {
            response.read_head()?;
        }
        Ok(response)
    }

    fn read_head(&mut self) -> Result<(), HubError> {
        let mut head = (&mut self.body).take(HEAD_BYTES);
        let mut lines = Vec::new();
        loop {
            let mut line = Vec::new();
            let count = head.read_until(b'\n', &mut line).map_err(HubError::Curl)?;
            let line = String::from_utf8_lossy(&line).trim_end().to_owned();
            match (count, line.is_empty()) {
                (0, _) => return Err(self.failure("it sends no head of a response")),
                (_, true) => break,
                (_, false) => lines.push(line),
            }
        }
        let status = lines.first().filter(|line| line.starts_with("HTTP/"));
        let status = status.and_then(|line| line.split(' ').nth(1)?.parse().ok());
        let status = status.filter(|status| (100..1000).contains(status));
        self.status = status.ok_or_else(|| self.wrong("it sends no status"))?;
        let header = |line: &String| {
            let (name, value) = line.split_once(':')?;
            Some((name.to_ascii_lowercase(), value.trim().to_owned()))
        };
        self.headers = lines.iter().skip(1).filter_map(header).collect();
        Ok(())
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Where a redirect leads.
    fn target(&self) -> Result<String, HubError> {
        let location = self.header("location").filter(|location| location.bytes().all(is_plain));
        let location = location.ok_or_else(|| self.wrong("it redirects to nowhere"))?;
        let site = site(&self.url).unwrap_or_default();
        let target = match location {
            path if path.starts_with('/') && !path.starts_with("//") => format!("{site}{path}"),
            url => url.to_owned(),
        };
        let secure = |url: &str| url.starts_with("https://");
        match self::site(&target) {
            None => Err(self.wrong("it redirects to something that is no address")),
            Some(_) if secure(&self.url) && !secure(&target) => {
                Err(self.wrong("it redirects to an address without TLS"))
            }
            Some(_) => Ok(target),
        }
    }

    /// The whole body, of this many bytes at most.
    pub(super) fn whole(mut self, most: u64) -> Result<Vec<u8>, HubError> {
        let mut bytes = Vec::new();
        (&mut self.body).take(most + 1).read_to_end(&mut bytes).map_err(HubError::Curl)?;
        if bytes.len() as u64 > most {
            return Err(self.wrong(&format!("its answer is longer than {most} bytes")));
        }
        self.finish()?;
        Ok(bytes)
    }

    /// Whether the connection ended as it should, after the last byte.
    pub(super) fn finish(mut self) -> Result<(), HubError> {
        let status = self.curl.wait().map_err(HubError::Curl)?;
        if status.success() { Ok(()) } else { Err(self.failure("the connection is lost")) }
    }

    /// What curl says of a request that failed, or else what is known.
    fn failure(&mut self, known: &str) -> HubError {
        let mut said = String::new();
        let read = self.curl.stderr.take().map(|stderr| stderr.take(4096).read_to_string(&mut said));
        let said = said.lines().next().filter(|_| matches!(read, Some(Ok(_))));
        // `curl: (7) Failed to connect`
        let said = said.map(|line| line.split_once(") ").map_or(line, |(_, what)| what));
        HubError::Network { url: self.url.clone(), what: said.unwrap_or(known).to_owned() }
    }

    pub(super) fn wrong(&self, what: &str) -> HubError {
        HubError::Answer { url: self.url.clone(), what: what.to_owned() }
    }
}

impl Read for Response {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.body.read(buffer)
    }
}

impl Drop for Response {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.curl.kill();
        let _ = self.curl.wait();
    }
}

/// What curl reads. Addresses and tokens are plain characters.
fn settings(url: &str, token: Option<&str>, from: u64) -> String {
    const ALWAYS: &str = "silent\nshow-error\ninclude\nsuppress-connect-headers\ngloboff\nproto = \"=http,https\"\n\
                          connect-timeout = 30\nspeed-limit = 1\nspeed-time = 60\n";
    let mut text = ALWAYS.to_owned();
    text.push_str(concat!("user-agent = \"orlop/", env!("CARGO_PKG_VERSION"), "\"\n"));
    text.push_str(&format!("url = \"{url}\"\n"));
    if from > 0 {
        text.push_str(&format!("range = \"{from}-\"\n"));
    }
    if let Some(token) = token {
        text.push_str(&format!("header = \"Authorization: Bearer {token}\"\n"));
    }
    text
}

/// A path as a part of an address.
pub(super) fn encoded(path: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    let each = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    path.bytes().map(each).collect()
}
