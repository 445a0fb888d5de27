use std::process::Command;

use crate::support::Folder;
use crate::{limited, model, run};

#[test]
fn a_file_that_does_not_fit_the_disk_leaves_the_old_one_and_nothing_else() {
    let folder = Folder::new();
    let model = model(&folder);
    let rows: String = (0..4000).map(|id| format!("{id},{id},{},64\n", id + 3)).collect();
    let problem = folder.file("problem.csv", format!("id,lower,upper,size\n{rows}"));
    let (out, prompt) = (folder.file("out", "old"), "One, two, three. ".repeat(40));
    let files = folder.files();
    // 8 KiB, in blocks of 512 bytes.
    let disk_full = |arguments: &[&str]| limited("-f 16", arguments);
    for arguments in [
        &["plan", &problem, "--output", &out][..],
        &["synth", "--preset", "smollm2-135m", &out],
        &["quantize", &model, &out, "F16"],
    ] {
        let sentence = disk_full(arguments).refusal(1);
        assert!(sentence.starts_with(&out) && sentence.contains("cannot write the file"), "{sentence}");
        assert_eq!(std::fs::read_to_string(&out).unwrap(), "old", "{arguments:?}");
        assert_eq!(folder.files(), files, "{arguments:?}");
    }
    // A state that is not there yet.
    let state = folder.path("state");
    let cached = ["run", "-m", &model, "-t", "1", "-c", "1024", "-n", "1", "--prompt-cache", &state, &prompt];
    let refused = disk_full(&cached);
    assert!(refused.status != Some(0) && refused.sentence().contains(&state), "{refused:?}");
    assert_eq!(folder.files(), files);
}

#[test]
fn memory_that_the_system_refuses_is_an_error() {
    let folder = Folder::new();
    let model = model(&folder);
    let arguments = ["run", "-m", &model, "-t", "1", "-n", "1", "--no-measure", "a"];
    // 400 MB, and a cache of 512 MiB.
    let small = limited("-v 400000", &[&arguments[..], &["-c", "64"]].concat());
    assert_eq!(small.status, Some(0), "{small:?}");
    let large = limited("-v 400000", &[&arguments[..], &["-c", "65536"]].concat());
    assert_eq!((large.status, large.stdout.as_str()), (Some(1), ""), "{large:?}");
    assert!(large.stderr.ends_with("no memory for a buffer of 536870912 bytes of cpu\n"), "{large:?}");
    assert_eq!(large.stderr.lines().count(), 1, "{large:?}");
}

#[test]
fn a_cache_folder_that_cannot_be_written_is_named_or_done_without() {
    let folder = Folder::new();
    let model = model(&folder);
    // Not even root writes there.
    let command = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_orlop"));
        run(command.args(arguments).env("ORLOP_CACHE", "/proc/orlop"))
    };
    // Speeds are measured again each time.
    assert_eq!(command(&["devices", "--measure"]).status, Some(0));
    assert_eq!(command(&["run", "-m", &model, "-t", "1", "-n", "1", "a"]).status, Some(0));
    // The default model has no other place.
    let sentence = command(&["tokenize", "a"]).sentence();
    assert!(sentence.contains("/proc/orlop"), "{sentence}");
}
