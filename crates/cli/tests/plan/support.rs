use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs the command.
pub(crate) fn orlop(arguments: &[&str]) -> Run {
    let output = Command::new(env!("CARGO_BIN_EXE_orlop"))
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("the command starts");
    Run {
        status: output.status.code(),
        stdout: String::from_utf8(output.stdout).expect("UTF-8 on standard output"),
        stderr: String::from_utf8(output.stderr).expect("UTF-8 on standard error"),
    }
}

impl Run {
    /// Standard output of a successful run with an empty standard error.
    pub(crate) fn result(self) -> String {
        assert_eq!((self.status, self.stderr.as_str()), (Some(0), ""), "{self:?}");
        self.stdout
    }

    /// The error of a run that ended with `status` and printed no result.
    pub(crate) fn refusal(self, status: i32) -> String {
        assert_eq!((self.status, self.stdout.as_str()), (Some(status), ""), "{self:?}");
        self.sentence()
    }

    /// The error line on standard error.
    pub(crate) fn sentence(&self) -> String {
        assert_eq!(self.stderr.matches('\n').count(), 1, "{self:?}");
        assert!(self.stderr.ends_with('\n'), "{self:?}");
        assert!(self.stderr.contains("; "), "says what to do: {self:?}");
        self.stderr.trim_end().strip_prefix("orlop: ").expect("names the command").to_owned()
    }
}

/// A temporary folder of one test.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("orlop-cli-{}-{count}", std::process::id()));
        std::fs::create_dir(&path).expect("a fresh folder");
        Folder(path)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a path in UTF-8").to_owned()
    }

    /// Writes a file and gives its path.
    pub(crate) fn file(&self, name: &str, contents: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, contents).expect("a file in a folder of our own");
        path
    }

    /// Names of the files in it.
    pub(crate) fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).expect("a folder of our own");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The path of a fixture.
pub(crate) fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    path.to_str().expect("a path in UTF-8").to_owned()
}

/// The decompressed text of a fixture.
pub(crate) fn fixture_text(name: &str) -> String {
    let bytes = std::fs::read(fixture(name)).expect("a fixture");
    let mut text = String::new();
    if name.ends_with(".gz") {
        flate2::read::GzDecoder::new(bytes.as_slice()).read_to_string(&mut text).expect("gzip");
    } else {
        text = String::from_utf8(bytes).expect("UTF-8");
    }
    text
}

/// JSON lines.
pub(crate) fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("JSON on each line")).collect()
}

/// A whole number.
pub(crate) fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is a number"))
}

/// The items of a list.
pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("{value} is a list"))
}
