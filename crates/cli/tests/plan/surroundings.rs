use std::io::Read;
use std::process::{Command, Stdio};

use crate::support::{Folder, fixture, orlop};

#[test]
fn help_and_version_are_results() {
    assert!(orlop(&["--help"]).result().contains("plan"));
    let help = orlop(&["plan", "--help"]).result();
    for option in ["--json", "--output", "--strategy", "--capacity", "--effort", "--explain", "Exit status"] {
        assert!(help.contains(option), "{option}");
    }
    assert_eq!(orlop(&["--version"]).result(), format!("orlop {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn invalid_arguments_give_one_line() {
    let file = fixture("small.csv");
    for arguments in [
        &["plan", &file, "-m", &file][..],
        &["plan", &file, "--no-such-option"],
        &["plan", &file, "--capacity", "much"],
        &["plan", &file, "--capacity", "-1"],
        &["plan", &file, "--effort", "x"],
        &["plan", &file, "--strategy", "guess"],
        &["plan", &file, "--json", "--explain"],
        &["sail", &file],
    ] {
        orlop(arguments).refusal(2);
    }
}

#[test]
fn without_a_command_help_is_printed() {
    let run = orlop(&[]);
    assert_eq!((run.status, run.stdout.as_str()), (Some(2), ""), "{run:?}");
    assert_eq!(run.stderr, orlop(&["-h"]).result());
}

#[test]
fn files_that_cannot_be_read_or_written_are_named() {
    let folder = Folder::new();
    let missing = folder.path("missing.csv");
    assert!(orlop(&["plan", &missing]).refusal(2).starts_with(&missing));
    let strange = folder.file("notes.txt", "hello");
    assert!(orlop(&["plan", &strange]).refusal(2).contains(".csv, .jsonl or .json"));
    let model = folder.file("model.gguf", "GGUF");
    assert!(orlop(&["plan", &model]).refusal(2).starts_with(&model));
    let nowhere = folder.path("no/such/folder/out.csv");
    assert!(orlop(&["plan", &fixture("small.csv"), "--output", &nowhere]).refusal(2).starts_with(&nowhere));
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_orlop"))
        .args(["plan", &fixture("graphs.jsonl.gz"), "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    drop(child.stdout.take());
    let mut stderr = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut stderr).expect("UTF-8");
    assert_eq!((child.wait().expect("an end").code(), stderr.as_str()), (Some(0), ""));
}

#[cfg(unix)]
#[test]
fn output_goes_through_links_and_into_devices() {
    let folder = Folder::new();
    let (target, link) = (folder.file("target.csv", "old"), folder.path("link.csv"));
    std::os::unix::fs::symlink(&target, &link).expect("a link");
    orlop(&["plan", &fixture("small.csv"), "--output", &link]).result();
    assert!(std::fs::symlink_metadata(&link).expect("still there").is_symlink());
    assert!(std::fs::read_to_string(&target).expect("the output").starts_with("id,"));
    orlop(&["plan", &fixture("small.csv"), "--output", "/dev/null"]).result();
    assert!(!std::fs::metadata("/dev/null").expect("still there").is_file());
    let both = orlop(&["plan", &fixture("small.csv"), "--json", "--output", "/dev/stdout"]).result();
    assert!(both.starts_with("id,") && both.trim_end().ends_with('}'), "{both}");
}
