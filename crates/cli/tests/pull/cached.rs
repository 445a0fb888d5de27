//! Models that are in the cache need no hub.

use crate::hub_server::{HubServer, REPOSITORY, kept, noise};
use crate::support::Folder;
use crate::{command, finished, pull, pulled};

#[test]
fn a_model_in_the_cache_needs_no_hub() {
    let (file, home) = (kept("m-Q8_0.gguf", noise(1000)), Folder::new());
    let server = HubServer::start(vec![file.clone(), kept("m-Q4_K_M.gguf", "other")]);
    let named = format!("{REPOSITORY}:Q8_0");
    let path = pull(&server, &home, &named).result();
    let away = |arguments: &[&str]| finished(command("http://127.0.0.1:9", &home).args(arguments));
    for model in [REPOSITORY, &named] {
        assert_eq!(away(&["pull", model]).result(), path, "what is there is taken");
    }
    let before = server.asked().len();
    let mut offline = command(&server.endpoint(), &home);
    let run = finished(offline.env("HF_HUB_OFFLINE", "1").args(["pull", REPOSITORY]));
    assert_eq!(pulled(run), file.bytes);
    assert_eq!(server.asked().len(), before, "nothing is asked");
    let missing = format!("{REPOSITORY}:Q4_K_M");
    let mut offline = command(&server.endpoint(), &home);
    let said = finished(offline.env("HF_HUB_OFFLINE", "1").args(["pull", &missing])).refusal(1);
    assert!(said.contains("HF_HUB_OFFLINE"), "{said}");
    assert!(away(&["pull", &missing]).refusal(1).contains("127.0.0.1:9"));
}
