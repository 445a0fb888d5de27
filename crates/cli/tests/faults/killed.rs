use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::model;
use crate::support::{Folder, orlop};

#[test]
fn a_process_that_is_killed_while_it_writes_leaves_the_old_file() {
    let folder = Folder::new();
    let (model, out) = (model(&folder), folder.file("out.gguf", "old"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_orlop"));
    command.args(["synth", "--preset", "smollm2-135m", &out]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let draft = || folder.files().into_iter().find(|name| name.starts_with(".out.gguf."));
    let has_begun = || {
        let draft: Option<PathBuf> = draft().map(|name| folder.path(&name).into());
        draft.is_some_and(|path| path.metadata().is_ok_and(|metadata| metadata.len() > 0))
    };
    while !has_begun() {
        assert_eq!(child.try_wait().unwrap(), None, "it has ended before it was killed");
        sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(draft().is_some());
    assert_eq!(std::fs::read_to_string(&out).unwrap(), "old");
    // What it left is in no other's way.
    orlop(&["quantize", &model, &out, "F16"]).result();
    assert!(orlop(&["inspect", &out]).result().contains("f16"));
}
