//! `orlop quantize` and `orlop synth`, as their users see them.

#[allow(dead_code)] // the tests of `orlop plan` need more of it
#[path = "../plan/support.rs"]
mod support;

use orlop::gguf::{GgufPart, Writer};
use orlop::graph::DType;
use orlop::llm::{FileType, Synth};
use support::{Folder, orlop};

fn model(folder: &Folder, file_type: FileType) -> String {
    let bytes = Synth { file_type, width: 256, hidden: 256, ..Synth::default() }.bytes().unwrap();
    folder.file("in.gguf", bytes)
}

fn dtype(path: &str, name: &str) -> DType {
    GgufPart::open(path).unwrap().tensor(name).unwrap().desc.dtype
}

#[test]
fn a_model_is_quantized() {
    let folder = Folder::new();
    let (input, output) = (model(&folder, FileType::F32), folder.path("out.gguf"));
    let line = orlop(&["quantize", &input, &output, "q4_k_m"]).result();
    assert!(line.starts_with(&output) && line.contains("16 tensors quantized, 5 unchanged"), "{line}");
    assert_eq!(dtype(&output, "output.weight"), DType::Q6_K);
    assert_eq!(dtype(&output, "blk.0.attn_q.weight"), DType::Q4_K);
    assert_eq!(GgufPart::open(&output).unwrap().metadata().u32("general.file_type").unwrap(), 15);
    orlop(&["quantize", &input, &output, "Q4_0", "--pure", "-t", "2"]).result();
    assert_eq!(dtype(&output, "output.weight"), DType::Q4_0);
}

#[test]
fn already_quantized_tensors_are_noted() {
    let folder = Folder::new();
    let (input, output) = (model(&folder, FileType::Q8_0), folder.path("out.gguf"));
    let run = orlop(&["quantize", &input, &output, "Q4_0"]);
    assert_eq!(run.status, Some(0));
    assert!(run.sentence().contains("16 tensors were already quantized"), "{run:?}");
}

#[test]
fn invalid_arguments_are_rejected_with_advice() {
    let folder = Folder::new();
    let (input, output) = (model(&folder, FileType::F32), folder.path("out.gguf"));
    let sentence = orlop(&["quantize", &input, &input, "Q4_0"]).refusal(2);
    assert!(sentence.contains(&input) && sentence.contains("give another name"), "{sentence}");
    let sentence = orlop(&["quantize", &input, &output, "Q9_Z"]).refusal(2);
    assert!(sentence.contains("unknown type") && sentence.contains("Q4_K_M, Q5_K_S"), "{sentence}");
    let sentence = orlop(&["quantize", &input, &output, "IQ2_XXS", "--imatrix", &input]).refusal(2);
    assert!(sentence.contains("importance"), "{sentence}");
    let sentence = orlop(&["quantize", &folder.path("missing.gguf"), &output, "Q4_0"]).refusal(2);
    assert!(sentence.ends_with("check the path"), "{sentence}");
    let sentence = orlop(&["quantize", &input, &folder.path("no/such/folder.gguf"), "Q4_0"]).refusal(2);
    assert!(sentence.contains("folder.gguf: cannot create the file"), "{sentence}");
    assert!(!std::path::Path::new(&output).exists());
}

#[test]
fn a_model_with_nan_is_rejected() {
    let folder = Folder::new();
    let bytes: Vec<u8> =
        [1.0f32, f32::INFINITY].repeat(64).iter().flat_map(|value| value.to_le_bytes()).collect();
    let mut writer = Writer::new();
    writer.tensor("broken.weight", DType::F32, &[64, 2], &bytes).unwrap();
    let mut file = Vec::new();
    writer.write(&mut file).unwrap();
    let (input, output) = (folder.file("in.gguf", file), folder.path("out.gguf"));
    let sentence = orlop(&["quantize", &input, &output, "Q8_0"]).refusal(2);
    assert!(sentence.contains("`broken.weight`") && sentence.contains("not finite"), "{sentence}");
}

#[test]
fn a_random_model_has_the_dimensions_of_its_preset() {
    let folder = Folder::new();
    let output = folder.path("out.gguf");
    let line =
        orlop(&["synth", &output, "--preset", "smollm2-135m", "--type", "Q8_0", "--seed", "3"]).result();
    assert!(line.starts_with(&output), "{line}");
    let file = GgufPart::open(&output).unwrap();
    assert_eq!(file.tensor("token_embd.weight").unwrap().desc.to_string(), "q8_0[576 49152 1 1]");
    assert_eq!(file.tensor("blk.29.ffn_down.weight").unwrap().desc.to_string(), "q8_0[1536 576 1 1]");
    assert!(orlop(&["inspect", &output]).result().contains("llama"));
}

#[test]
fn an_unknown_preset_is_refused_with_those_known() {
    let sentence = orlop(&["synth", "out.gguf", "--preset", "gpt-5"]).refusal(2);
    assert!(sentence.contains("tinyllama-1.1b") && sentence.contains("moe-small"), "{sentence}");
}
