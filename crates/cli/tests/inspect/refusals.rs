use crate::models::{model, part};
use crate::support::{Folder, orlop};

#[test]
fn files_that_cannot_be_read_are_named_with_what_to_do() {
    let folder = Folder::new();
    let missing = folder.path("missing.gguf");
    let sentence = orlop(&["inspect", &missing]).refusal(2);
    assert!(sentence.starts_with(&missing) && sentence.ends_with("check the path"), "{sentence}");
    let other = folder.file("other.gguf", "PK and so on");
    let sentence = orlop(&["inspect", &other, "--json"]).refusal(2);
    assert!(sentence.starts_with(&other) && sentence.ends_with("use a .gguf file"), "{sentence}");
    let old = folder.file("old.gguf", b"GGUF\x01\0\0\0");
    assert!(orlop(&["inspect", &old]).refusal(2).contains("version 1"));
}

#[test]
fn a_model_cut_short_names_the_tensor() {
    let folder = Folder::new();
    let whole = std::fs::read(model(&folder)).unwrap();
    let cut = folder.file("cut.gguf", &whole[..whole.len() - 100]);
    let sentence = orlop(&["inspect", &cut]).refusal(2);
    assert!(sentence.contains("tensor `up`") && sentence.contains("get a new copy"), "{sentence}");
}

#[test]
fn a_missing_part_is_named() {
    let folder = Folder::new();
    let first = part(&folder, 0);
    let sentence = orlop(&["inspect", &first]).refusal(2);
    let second = folder.path("m-00002-of-00002.gguf");
    assert!(sentence.contains(&second) && sentence.contains("part 2 of 2"), "{sentence}");
}

#[test]
fn two_files_are_no_sense() {
    orlop(&["inspect", "a.gguf", "-m", "b.gguf"]).refusal(2);
    assert!(orlop(&["inspect", "--help"]).result().contains("--tensors"));
}
