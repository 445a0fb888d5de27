//! The C interface: its header, programs in C, and random calls.

mod calls;
mod programs;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use orlop::llm::Synth;

fn crate_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A tiny model of random weights.
fn tiny_model() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("tiny-{}.gguf", std::process::id()));
        let tiny =
            Synth { layers: 2, width: 64, heads: 2, kv_heads: 1, key: 32, value: 32, ..Synth::default() };
        Synth { hidden: 128, vocabulary: 300, context: 128, ..tiny }.create(&path, &mut |_, _| ()).unwrap();
        path
    })
}

#[test]
fn the_header_is_that_of_the_code() {
    let config = cbindgen::Config::from_file(crate_folder().join("cbindgen.toml")).unwrap();
    let mut written = Vec::new();
    cbindgen::Builder::new()
        .with_config(config)
        .with_src(crate_folder().join("src/error.rs"))
        .with_src(crate_folder().join("src/model.rs"))
        .with_src(crate_folder().join("src/sequence.rs"))
        .with_src(crate_folder().join("src/plan.rs"))
        .with_src(crate_folder().join("src/graph.rs"))
        .generate()
        .unwrap()
        .write(&mut written);
    let header = crate_folder().join("include/orlop.h");
    // Sections of Rust's documentation are of no use in C.
    let text = String::from_utf8(written).unwrap();
    let lines = text.lines().collect::<Vec<_>>().join("\n") + "\n";
    let text = lines
        .replace(" *\n * # Safety\n * As the rules of the header say.\n", "")
        .replace("\n *\n * # Safety", "\n * Safety:");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&header, &text).unwrap();
    }
    let found = std::fs::read_to_string(&header).unwrap_or_default();
    assert!(found == text, "{} differs; UPDATE_GOLDEN=1 writes it", header.display());
}
