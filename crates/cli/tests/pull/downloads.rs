//! What is downloaded, and how downloads are continued.

use std::fs;
use std::path::Path;
use std::time::Duration;

use orlop::llm::Synth;
use serde_json::Value;

use crate::hub_server::{COMMIT, HubServer, REPOSITORY, Reply, kept, noise, usual};
use crate::support::Folder;
use crate::{command, finished, pull, pulled};

/// The repository's folder in the cache.
fn folder(home: &Folder) -> String {
    home.path("hub/models--org--model-GGUF")
}

/// A beginning of a file, as another program may have left it.
fn leave_part(home: &Folder, sha256: &str, bytes: &[u8]) {
    let blobs = format!("{}/blobs", folder(home));
    fs::create_dir_all(&blobs).unwrap();
    fs::write(format!("{blobs}/{sha256}.incomplete"), bytes).unwrap();
}

#[test]
fn files_lie_in_the_cache_as_other_tools_expect_them() {
    let (file, home) = (kept("m-Q4_K_M.gguf", noise(100_000)), Folder::new());
    let server = HubServer::start(vec![kept("m-F16.gguf", "other"), file.clone()]);
    let path = pull(&server, &home, REPOSITORY).result();
    let path = Path::new(path.trim_end());
    let repository = folder(&home);
    assert_eq!(path, Path::new(&format!("{repository}/snapshots/{COMMIT}/m-Q4_K_M.gguf")));
    assert_eq!(fs::read_link(path).unwrap(), Path::new(&format!("../../blobs/{}", file.sha256)));
    assert_eq!(fs::read(path).unwrap(), file.bytes);
    assert_eq!(fs::read_to_string(format!("{repository}/refs/main")).unwrap(), COMMIT);
    let blobs: Vec<_> = fs::read_dir(format!("{repository}/blobs")).unwrap().collect();
    assert_eq!(blobs.len(), 1, "{blobs:?}");
    assert_eq!(pulled(pull(&server, &home, REPOSITORY)), file.bytes);
    assert_eq!(server.starts(), [0], "the second pull downloads nothing");
}

#[test]
fn all_parts_of_a_split_model_are_downloaded() {
    let parts = [("Q8_0/m-Q8_0-00001-of-00002.gguf", 5000), ("Q8_0/m-Q8_0-00002-of-00002.gguf", 70_000)];
    let parts = parts.map(|(name, count)| kept(name, noise(count)));
    let (server, home) = (HubServer::start(parts.to_vec()), Folder::new());
    let run = finished(command(&server.endpoint(), &home).args(["pull", REPOSITORY, "--json"]));
    let json: Value = serde_json::from_str(&run.result()).unwrap();
    assert_eq!((&json["bytes"], &json["path"]), (&75_000.into(), &json["files"][0]));
    for (file, part) in json["files"].as_array().unwrap().iter().zip(&parts) {
        assert!(file.as_str().unwrap().ends_with(part.name), "{json}");
        assert_eq!(fs::read(file.as_str().unwrap()).unwrap(), part.bytes);
    }
}

#[test]
fn a_download_that_is_cut_is_continued_where_it_was_cut() {
    let file = kept("m-Q8_0.gguf", noise(300_000));
    let served = vec![file.clone()];
    let server = HubServer::with_fault(served.clone(), move |asked, before| {
        let cut = [None, Some(120_000), Some(0), Some(50_000)].get(before).copied().flatten();
        cut.map(|cut| Reply { cut: Some(cut), ..usual(asked, &served) })
    });
    assert_eq!(pulled(pull(&server, &Folder::new(), REPOSITORY)), file.bytes);
    assert_eq!(server.starts(), [0, 120_000, 120_000, 170_000]);
}

#[test]
fn a_hub_that_sends_nothing_more_is_an_error_and_what_came_is_kept() {
    let (file, home) = (kept("m-Q8_0.gguf", noise(300_000)), Folder::new());
    let served = vec![file.clone()];
    let server = HubServer::with_fault(served.clone(), move |asked, before| match before {
        0 => None,
        1 => Some(Reply { cut: Some(100_000), ..usual(asked, &served) }),
        2..5 => Some(Reply { cut: Some(0), ..usual(asked, &served) }),
        _ => None,
    });
    let said = pull(&server, &home, REPOSITORY).refusal(1);
    assert!(said.contains(&format!("{COMMIT}/m-Q8_0.gguf")) && said.contains("try again"), "{said}");
    assert_eq!(server.starts(), [0, 100_000, 100_000, 100_000]);
    assert_eq!(pulled(pull(&server, &home, REPOSITORY)), file.bytes);
    assert_eq!(server.starts()[4..], [100_000]);
}

#[test]
fn a_part_of_another_program_is_continued_and_a_wrong_one_is_downloaded_again() {
    let file = kept("m-Q8_0.gguf", noise(200_000));
    for (part, starts) in [
        (&file.bytes[..150_000], &[150_000][..]),
        (&file.bytes[..], &[]),
        (&[7; 1000], &[1000, 0]),
        (&[7; 200_000], &[0]),
        (&[7; 200_001], &[0]),
    ] {
        let (server, home) = (HubServer::start(vec![file.clone()]), Folder::new());
        leave_part(&home, &file.sha256, part);
        assert_eq!(pulled(pull(&server, &home, REPOSITORY)), file.bytes);
        assert_eq!(server.starts(), starts);
    }
}

#[test]
fn a_hub_that_knows_no_ranges_sends_the_whole_file_again() {
    let (file, home) = (kept("m-Q8_0.gguf", noise(200_000)), Folder::new());
    let whole = file.bytes.clone();
    let server = HubServer::with_fault(vec![file.clone()], move |asked, _| {
        asked.is_file().then(|| Reply::new(200, whole.clone()))
    });
    leave_part(&home, &file.sha256, &file.bytes[..1000]);
    assert_eq!(pulled(pull(&server, &home, REPOSITORY)), file.bytes);
    assert_eq!(server.starts(), [1000]);
}

#[test]
fn two_pulls_at_the_same_time_download_once() {
    let (file, home) = (kept("m-Q8_0.gguf", noise(200_000)), Folder::new());
    let served = vec![file.clone()];
    let server = HubServer::with_fault(served.clone(), move |asked, _| {
        asked.is_file().then(|| {
            std::thread::sleep(Duration::from_millis(300));
            usual(asked, &served)
        })
    });
    let both = [(); 2].map(|()| {
        let mut command = command(&server.endpoint(), &home);
        command.args(["pull", REPOSITORY]).stdout(std::process::Stdio::piped()).spawn().unwrap()
    });
    for process in both {
        let output = process.wait_with_output().unwrap();
        assert!(output.status.success());
        let path = String::from_utf8(output.stdout).unwrap();
        assert_eq!(fs::read(path.trim_end()).unwrap(), file.bytes);
    }
    assert_eq!(server.starts(), [0]);
}

#[test]
fn a_token_is_sent_to_the_hub_and_to_no_other_server() {
    let file = kept("m-Q8_0.gguf", noise(1000));
    let elsewhere = HubServer::start(vec![file.clone()]);
    let target = elsewhere.endpoint();
    let server = HubServer::with_fault(vec![file.clone()], move |asked, before| match before {
        0 => Some(Reply::redirect(&asked.path)),
        _ if asked.is_file() => Some(Reply::redirect(&format!("{target}{}", asked.path))),
        _ => None,
    });
    let home = Folder::new();
    home.file("token", "hf_secret\n");
    assert_eq!(pulled(pull(&server, &home, REPOSITORY)), file.bytes);
    let tokens = |server: &HubServer| server.asked().into_iter().map(|asked| asked.token).collect::<Vec<_>>();
    assert_eq!(tokens(&server), [(); 3].map(|()| Some("Bearer hf_secret".to_owned())));
    assert_eq!(tokens(&elsewhere), [None]);
    let other = Folder::new();
    let mut named = command(&server.endpoint(), &other);
    let run = finished(named.env("HF_TOKEN", "other").args(["pull", REPOSITORY]));
    assert_eq!(pulled(run), file.bytes);
    assert_eq!(tokens(&server)[4].as_deref(), Some("Bearer other"));
}

#[test]
fn a_model_of_a_hub_runs() {
    let home = Folder::new();
    let bytes = Synth { layers: 1, vocabulary: 400, ..Synth::default() }.bytes().unwrap();
    let made = home.file("made.gguf", &bytes);
    let server = HubServer::start(vec![kept("m-Q8_0.gguf", bytes)]);
    let run = |model: &[&str]| {
        let mut command = command(&server.endpoint(), &home);
        let run = finished(
            command
                .arg("run")
                .args(model)
                .args(["-n", "4", "--temp", "0", "-t", "1", "-c", "64", "--json", "a"]),
        );
        assert_eq!(run.status, Some(0), "{run:?}");
        serde_json::from_str::<Value>(&run.stdout).unwrap()["tokens"].clone()
    };
    assert_eq!(run(&["-hf", REPOSITORY]), run(&["-m", &made]));
}
