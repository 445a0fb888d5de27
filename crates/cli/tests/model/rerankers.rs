use std::sync::Arc;

use orlop::DType;
use orlop::gguf::{GgufPart, Writer};
use orlop::llm::Synth;

/// Writes a small model with random weights and a classifier.
pub(crate) fn reranker(path: &str) {
    let synth = Synth { layers: 1, ..Synth::default() };
    let model = GgufPart::from_bytes(Arc::new(synth.bytes().unwrap())).unwrap();
    let weights: Vec<u8> = (0..synth.width).flat_map(|column| (column as f32 - 31.5).to_le_bytes()).collect();
    let mut writer = Writer::copy_of(&model).unwrap();
    writer.set("tokenizer.chat_template.rerank", "{query} {document}").unwrap();
    writer.tensor("cls.output.weight", DType::F32, &[synth.width, 1], &weights).unwrap();
    let mut file = Vec::new();
    writer.write(&mut file).unwrap();
    std::fs::write(path, file).unwrap();
}
