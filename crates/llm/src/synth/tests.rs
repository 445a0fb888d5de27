//! Tests of random models.

use std::sync::Arc;

use orlop_gguf::{Array, GgufPart, Metadata};
use orlop_graph::DType;
use orlop_quant::decode;

use super::*;

fn read(synth: &Synth) -> GgufPart {
    GgufPart::from_bytes(Arc::new(synth.bytes().unwrap())).unwrap()
}

fn values(file: &GgufPart, name: &str) -> Vec<f32> {
    let tensor = file.tensor(name).unwrap();
    let mut values = vec![0.0; tensor.desc.extents.iter().product::<u64>() as usize];
    decode(tensor.desc.dtype, file.bytes_of(tensor), &mut values).unwrap();
    values
}

#[test]
fn equal_seeds_give_equal_bytes_and_others_do_not() {
    let synth = Synth { file_type: FileType::Q4_K_M, width: 256, hidden: 512, ..Synth::default() };
    assert!(synth.bytes().unwrap() == synth.bytes().unwrap());
    assert!(synth.bytes().unwrap() != Synth { seed: 1, ..synth.clone() }.bytes().unwrap());
}

#[test]
fn tensors_have_the_extents_that_the_dimensions_ask_for() {
    let synth = Synth {
        architecture: Architecture::find("qwen3").unwrap(),
        layers: 3,
        width: 96,
        heads: 6,
        kv_heads: 2,
        key: 32,
        value: 16,
        hidden: 160,
        vocabulary: 300,
        biases: true,
        head_norms: true,
        ..Synth::default()
    };
    let file = read(&synth);
    let extents = |name: &str| file.tensor(name).unwrap().extents().to_vec();
    assert_eq!(extents("token_embd.weight"), [96, 300]);
    assert_eq!(extents("output.weight"), [96, 300]);
    assert_eq!(extents("output_norm.weight"), [96]);
    assert_eq!(extents("blk.2.attn_q.weight"), [96, 192]);
    assert_eq!(extents("blk.2.attn_q.bias"), [192]);
    assert_eq!(extents("blk.2.attn_k.weight"), [96, 64]);
    assert_eq!(extents("blk.2.attn_v.weight"), [96, 32]);
    assert_eq!(extents("blk.2.attn_output.weight"), [96, 96]);
    assert_eq!(extents("blk.2.attn_k_norm.weight"), [32]);
    assert_eq!(extents("blk.2.ffn_gate.weight"), [96, 160]);
    assert_eq!(extents("blk.2.ffn_down.weight"), [160, 96]);
    assert!(file.tensor("blk.3.attn_q.weight").is_none());
    assert_eq!(file.metadata().u32("qwen3.attention.key_length").unwrap(), 32);
    assert_eq!(file.metadata().u32("qwen3.feed_forward_length").unwrap(), 160);
}

#[test]
fn experts_are_stacked_and_an_embedding_can_serve_twice() {
    let experts = Some(Experts { count: 4, used: 2, hidden: 96, ..Experts::default() });
    let file = read(&Synth { experts, tied: true, file_type: FileType::Q8_0, ..Synth::default() });
    assert_eq!(file.tensor("blk.1.ffn_up_exps.weight").unwrap().desc.to_string(), "q8_0[64 96 4 1]");
    assert_eq!(file.tensor("blk.1.ffn_down_exps.weight").unwrap().desc.to_string(), "q8_0[96 64 4 1]");
    assert_eq!(file.tensor("blk.1.ffn_gate_inp.weight").unwrap().desc.to_string(), "f32[64 4 1 1]");
    assert!(file.tensor("blk.1.ffn_up.weight").is_none() && file.tensor("output.weight").is_none());
    assert_eq!(file.metadata().u32("llama.expert_used_count").unwrap(), 2);
}

#[test]
fn values_are_distributed_as_they_should_be() {
    for file_type in [FileType::F32, FileType::BF16, FileType::Q8_0, FileType::Q4_0, FileType::Q6_K] {
        let synth = Synth { file_type, width: 256, hidden: 512, vocabulary: 1000, ..Synth::default() };
        let file = read(&synth);
        let row = |name: &str| file.tensor(name).unwrap().extents()[0] as f64;
        for name in ["token_embd.weight", "blk.0.ffn_up.weight", "blk.1.ffn_down.weight"] {
            let values = values(&file, name);
            let count = values.len() as f64;
            let mean = values.iter().map(|value| f64::from(*value)).sum::<f64>() / count;
            let deviation =
                (values.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>() / count).sqrt();
            let expected = 1.0 / row(name).sqrt();
            assert!(mean.abs() < 0.03 * expected, "{file_type} {name}: the mean is {mean}");
            assert!(
                (deviation / expected - 1.0).abs() < 0.05,
                "{file_type} {name}: {deviation}, not {expected}"
            );
        }
        assert!(values(&file, "blk.1.ffn_norm.weight").iter().all(|value| *value == 1.0));
    }
    let file = read(&Synth { norm_deviation: 0.1, ..Synth::default() });
    let norms = values(&file, "blk.1.ffn_norm.weight");
    assert!(norms.iter().all(|norm| (0.5..1.5).contains(norm)) && norms.iter().any(|norm| *norm != 1.0));
}

#[test]
fn layers_and_rows_differ() {
    let file = read(&Synth { width: 256, ..Synth::default() });
    let [first, second] = ["blk.0.ffn_up.weight", "blk.1.ffn_up.weight"].map(|name| values(&file, name));
    assert_ne!(first, second);
    let rows: std::collections::HashSet<Vec<u32>> =
        first.chunks(256).map(|row| row.iter().map(|value| value.to_bits()).collect()).collect();
    assert_eq!(rows.len(), 128);
}

#[test]
fn the_vocabulary_has_every_byte_and_no_token_twice() {
    for count in [259, 512, 32_000] {
        let file = read(&Synth { vocabulary: count, width: 32, layers: 1, hidden: 32, ..Synth::default() });
        let metadata = file.metadata();
        let tokens = metadata.strs("tokenizer.ggml.tokens").unwrap();
        assert_eq!(tokens.len() as u64, count);
        assert_eq!(tokens.iter().collect::<std::collections::HashSet<_>>().len() as u64, count);
        assert_eq!((tokens[1], tokens[3], tokens[258]), ("<s>", "<0x00>", "<0xFF>"));
        let kinds = metadata.i32s("tokenizer.ggml.token_type").unwrap();
        assert_eq!((kinds.len(), &kinds[..4]), (tokens.len(), &[2, 3, 3, 6][..]));
        let Array::F32(scores) = metadata.array("tokenizer.ggml.scores").unwrap() else { panic!() };
        assert_eq!(scores.len(), tokens.len());
        assert_eq!(metadata.u32("tokenizer.ggml.bos_token_id").unwrap(), 1);
    }
    let file = read(&Synth { vocabulary: 40, ..Synth::default() });
    assert_eq!(file.metadata().string("tokenizer.ggml.model").unwrap(), "no_vocab");
    assert_eq!(file.metadata().u32("llama.vocab_size").unwrap(), 40);
}

#[test]
fn keys_and_tensors_can_be_added_and_replaced() {
    let file = read(&Synth {
        metadata: vec![
            ("llama.rope.freq_base".to_owned(), 5e5f32.into()),
            ("llama.rope.scaling.factor".to_owned(), 2.0f32.into()),
        ],
        tensors: vec![
            SynthTensor::norm("rope_freqs.weight", 8, 0.0),
            SynthTensor::matrix("blk.1.attn_output.weight", &[64, 32]),
        ],
        ..Synth::default()
    });
    assert_eq!(file.metadata().f32("llama.rope.freq_base").unwrap(), 5e5);
    assert_eq!(file.metadata().optional("llama.rope.scaling.factor", Metadata::f32).unwrap(), Some(2.0));
    assert_eq!(file.tensor("rope_freqs.weight").unwrap().extents(), [8]);
    assert_eq!(file.tensor("blk.1.attn_output.weight").unwrap().extents(), [64, 32]);
}

#[test]
fn presets_have_the_sizes_of_the_models_that_they_are_named_for() {
    let weights = |name: &str| {
        let tensors = Synth::preset(name).unwrap().typed_tensors();
        tensors.iter().filter_map(|(tensor, _)| tensor.elements()).sum::<u64>()
    };
    assert_eq!(weights("smollm2-135m"), 134_515_008);
    assert_eq!(weights("tinyllama-1.1b"), 1_100_048_384);
    assert_eq!(weights("llama-7b"), 6_738_415_616);
    assert_eq!(weights("llama-70b"), 70_553_706_496);
    assert_eq!(weights("llama-405b"), 405_853_388_800);
    assert!((30_000_000_000..31_000_000_000).contains(&weights("qwen3-30b-a3b")));
    assert!((700_000_000..1_000_000_000).contains(&weights("moe-small")));
    assert!(Synth::PRESETS.iter().all(|name| Synth::preset(name).is_some()));
    assert!(Synth::preset("gpt-5").is_none());
}

#[test]
fn an_outline_has_the_header_of_the_file_and_takes_no_memory() {
    let synth = Synth::default();
    let (outline, whole) = (synth.outline().unwrap(), read(&synth));
    assert_eq!((outline.tensors(), outline.bytes()), (whole.tensors(), whole.bytes()));
    assert!(outline.bytes_of(outline.tensor("token_embd.weight").unwrap()).iter().all(|byte| *byte == 0));
    let large = Synth { file_type: FileType::F16, ..Synth::preset("llama-405b").unwrap() };
    assert_eq!(large.outline().unwrap().bytes() >> 30, 755);
}

#[test]
fn every_file_type_can_be_made() {
    for file_type in FileType::all() {
        let synth = Synth { file_type, layers: 1, width: 256, hidden: 256, ..Synth::default() };
        let file = read(&synth);
        assert_eq!(file.metadata().u32("general.file_type").unwrap(), file_type.id());
        let up = file.tensor("blk.0.ffn_up.weight").unwrap().desc.dtype;
        assert_eq!(up, if file_type == FileType::MXFP4_MOE { DType::Q8_0 } else { file_type.dtype() });
        assert!(values(&file, "blk.0.ffn_up.weight").iter().all(|value| value.is_finite()));
    }
}

#[test]
fn dimensions_that_make_no_model_are_refused() {
    let refused = |synth: Synth| matches!(synth.bytes(), Err(Error::BadSetting { .. }));
    let base = Synth::default;
    assert!(refused(Synth { width: 0, ..base() }));
    assert!(refused(Synth { kv_heads: 3, ..base() }));
    assert!(refused(Synth { vocabulary: 1 << 32, ..base() }));
    assert!(refused(Synth {
        experts: Some(Experts { count: 2, used: 3, hidden: 64, ..Experts::default() }),
        ..base()
    }));
}

#[test]
fn small_models_of_every_architecture_can_be_drawn() {
    use crate::Model;
    use crate::arch::{HeadNorms, Mixers};
    let experts = Experts { count: 4, used: 2, hidden: 32, ..Experts::default() };
    let cases = Architecture::ALL.iter().flat_map(|known| [(*known, None), (*known, Some(experts))]);
    for (architecture, experts) in cases {
        let sizes = StateSpace { kernel: 4, inner: 96, state: 16, heads: 6, groups: 2 };
        let facts = architecture.facts();
        let synth = Synth {
            architecture,
            head_norms: facts.head_norms != HeadNorms::Nothing,
            biases: facts.biased,
            kv_heads: 4,
            experts,
            state_space: matches!(facts.mixers, Mixers::Only(_)).then_some(sizes),
            ..Synth::default()
        };
        if !synth.can_be_made() {
            assert!(matches!(synth.keys(), Err(Error::BadSetting { .. })), "{architecture}");
            continue;
        }
        let model = Model::from_file(orlop_gguf::GgufFile::from_file(read(&synth))).unwrap();
        let config = model.config().clone();
        assert_eq!((config.architecture, config.layers.len()), (architecture, 2));
        let shape = crate::BatchShape { tokens: 3, outputs: 1 };
        let spec = crate::draft::GraphSpec {
            adapters: &[],
            config: &config,
            file: model.file(),
            shape,
            sizes: crate::cache::CacheSizes { context: 16, batch: 3, sequences: 1 },
            cache: crate::CacheTypes::default(),
            pooling: None,
            taps: false,
            counts: false,
            layout: &crate::LayerPlacement::all_on(orlop_sched::DeviceId::default(), config.layers.len()),
            cut: crate::CutType::F32,
        };
        let drawn = spec.build().unwrap();
        assert_eq!(drawn.weights.len(), model.file().tensors().len(), "{architecture}");
    }
}

#[test]
fn every_preset_is_of_a_known_architecture() {
    for name in Synth::PRESETS {
        let keys = Synth::preset(name).unwrap().keys().unwrap();
        crate::Config::read(&keys).unwrap();
    }
}
