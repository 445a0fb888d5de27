//! Every architecture against logits of llama.cpp.

use std::path::Path;

use orlop_gguf::Metadata;
use orlop_llm::{Architecture, Blueprint, Config, Gating, Outputs, Settings};

use crate::embeddings::ENCODERS;
use crate::made::{MODELS, exact, halved_beside_scales, made, metadata_value, model, read, try_model};
use crate::support::{last_row, load, nmse, one_cpu, one_reference, rows, tokens_of};

/// An architecture without a fixture here is one that nothing compares with llama.cpp: add it to `generate.py`.
#[test]
fn every_architecture_has_a_fixture() {
    let named = MODELS.iter().chain(&ENCODERS);
    let tested: Vec<Architecture> = named.map(|name| model(&read(name)).config().architecture).collect();
    for architecture in Architecture::ALL {
        assert!(tested.contains(architecture), "MODELS in tests/models/made.rs lacks {architecture}");
    }
}

/// The list and the parts that its entries are made of are to be read, and to be grown by simplifying.
#[test]
fn architectures_take_a_thousand_lines_and_their_blocks_half_more() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let lines = |path: &Path| std::fs::read_to_string(path).unwrap().lines().count();
    let folder = |name: &str| -> usize {
        let files = std::fs::read_dir(source.join(name)).unwrap();
        files.map(|file| lines(&file.unwrap().path())).sum()
    };
    let (list, blocks) = (lines(&source.join("arch.rs")) + folder("arch"), folder("draft"));
    assert!(list <= 1000 && blocks <= 1500, "{list} lines of architectures, {blocks} of blocks");
}

#[test]
fn logits_of_every_architecture_are_those_of_llama_cpp() {
    for name in MODELS {
        let (model, tokens, expected) = made(name);
        let found = rows(&mut load(&model, &one_cpu(), &exact()), &tokens);
        let error = nmse(&found, &expected).sqrt();
        assert!(error < 1e-5, "{name}: {error:e}");
    }
}

/// The model with as many layers as that of 27 billion weights has no key for it.
#[test]
fn scores_of_deep_gemmas_are_scaled_by_the_width() {
    let (model, tokens, expected) = made("gemma2-deep");
    let error = nmse(&rows(&mut load(&model, &one_cpu(), &exact()), &tokens), &expected).sqrt();
    assert!(error < 1e-5, "{error:e}");
}

#[test]
fn the_reference_device_gives_the_same_logits() {
    for name in MODELS {
        let (model, tokens, expected) = made(name);
        let found = rows(&mut load(&model, &one_reference(), &exact()), &tokens);
        let error = nmse(&found, &expected).sqrt();
        assert!(error < 1e-5, "{name}: {error:e}");
    }
}

#[test]
fn prompts_in_pieces_and_single_tokens_give_the_same_logits() {
    for name in MODELS {
        let (model, tokens, _) = made(name);
        let whole = rows(&mut load(&model, &one_cpu(), &exact()), &tokens);
        for batch in [1, 2, 7] {
            let settings = Settings { batch, ..exact() };
            let error = nmse(&rows(&mut load(&model, &one_cpu(), &settings), &tokens), &whole);
            assert!(error < 1e-9, "{name} in batches of {batch}: {error:e}");
        }
        let last = Settings { outputs: Outputs::Last, ..exact() };
        let mut engine = load(&model, &one_cpu(), &last);
        engine.feed(&tokens[..11]).unwrap();
        let end = last_row(&mut engine, &tokens[11..]);
        assert!(nmse(&[end], &whole[tokens.len() - 1..]) < 1e-9, "{name}, the last token only");
    }
}

#[test]
fn a_second_text_knows_nothing_of_the_first() {
    for name in MODELS {
        let (model, tokens, _) = made(name);
        let mut engine = load(&model, &one_cpu(), &exact());
        let first = rows(&mut engine, &tokens);
        engine.truncate(0);
        let again = rows(&mut engine, &tokens);
        assert!(nmse(&again, &first) < 1e-9, "{name}");
    }
}

#[test]
fn scales_belong_to_the_products_of_every_architecture() {
    for name in MODELS {
        let (model, tokens, _) = made(name);
        let found = [model, halved_beside_scales(&read(name))]
            .map(|model| rows(&mut load(&model, &one_cpu(), &exact()), &tokens));
        let error = nmse(&found[1], &found[0]);
        assert!(error < 1e-12, "{name}: {error:e}");
    }
}

#[test]
fn a_scale_of_another_length_is_not_known() {
    let mut json = read("qwen2");
    json["tensors"].as_array_mut().unwrap().push(serde_json::json!(["blk.0.attn_q.scale", [2], 1.0, 0.0]));
    let error = Blueprint::plan(&model(&json), &one_cpu(), &exact()).unwrap_err().to_string();
    assert_eq!(error, "the tensor `blk.0.attn_q.scale` is not known in the architecture `qwen2`");
}

#[test]
fn weights_of_experts_may_be_scaled() {
    let mut by_weight = read("llama-experts");
    let mut by_key = by_weight.clone();
    let scale = 1.75;
    by_key["keys"]["llama.expert_weights_scale"] = scale.into();
    for tensor in by_weight["tensors"].as_array_mut().unwrap() {
        if tensor[0].as_str().unwrap().contains("ffn_down_exps") {
            tensor[3] = (tensor[3].as_f64().unwrap() * scale).into();
        }
    }
    let tokens = tokens_of(&by_key);
    let [one, other] =
        [by_key, by_weight].map(|json| rows(&mut load(&model(&json), &one_cpu(), &exact()), &tokens));
    assert!(nmse(&one, &other) < 1e-9);
}

#[test]
fn a_tensor_that_is_not_known_is_an_error() {
    let mut json = read("qwen3moe");
    let more = serde_json::json!(["blk.1.ffn_gate_shexp.weight", [48, 16], 0.0, 1.0]);
    json["tensors"].as_array_mut().unwrap().push(more);
    let error = Blueprint::plan(&model(&json), &one_cpu(), &exact()).unwrap_err().to_string();
    assert_eq!(error, "the tensor `blk.1.ffn_gate_shexp.weight` is not known in the architecture `qwen3moe`");
}

#[test]
fn windows_may_be_given_layer_by_layer() {
    let (model_by_period, tokens, _) = made("gemma3-scaled");
    let by_period = rows(&mut load(&model_by_period, &one_cpu(), &exact()), &tokens);
    for flags in [serde_json::json!([true, false, true, false]), serde_json::json!([1, 0, 1, 0])] {
        let mut json = read("gemma3-scaled");
        json["keys"]["gemma3.attention.sliding_window_pattern"] = flags;
        assert_eq!(rows(&mut load(&model(&json), &one_cpu(), &exact()), &tokens), by_period);
    }
}

#[test]
fn sections_of_no_size_are_none() {
    let (expected, tokens, _) = made("glm4");
    let mut json = read("glm4");
    json["keys"]["glm4.rope.dimension_sections"] = serde_json::json!([0, 0, 0, 0]);
    let [found, expected] =
        [model(&json), expected].map(|model| rows(&mut load(&model, &one_cpu(), &exact()), &tokens));
    assert_eq!(found, expected);
}

#[test]
fn models_whose_files_do_not_name_their_gating_are_known_by_their_shape() {
    let gating = |layers: u64, vocabulary: u64| {
        let mut metadata = Metadata::new();
        for (key, value) in read("deepseek2")["keys"].as_object().unwrap() {
            if !key.ends_with("expert_gating_func") {
                metadata.set(key, metadata_value(value)).unwrap();
            }
        }
        metadata.set("deepseek2.block_count", layers).unwrap();
        metadata.set("deepseek2.vocab_size", vocabulary).unwrap();
        Config::read(&metadata).unwrap().experts.unwrap().gating
    };
    assert_eq!([gating(47, 154_880), gating(48, 154_880)], [Gating::Sigmoid; 2]);
    assert_eq!([gating(47, 102_400), gating(27, 154_880)], [Gating::Softmax; 2]);
}

#[test]
fn sizes_that_cannot_be_are_named() {
    let cases = [
        ("mamba2", "ssm.group_count", serde_json::json!(0), "`mamba2.ssm.group_count` is 0"),
        (
            "mamba2",
            "ssm.group_count",
            serde_json::json!(4),
            "`mamba2.ssm.group_count` is 4: groups must divide",
        ),
        (
            "mamba2",
            "ssm.time_step_rank",
            serde_json::json!(7),
            "`mamba2.ssm.time_step_rank` is 7: heads must",
        ),
        ("mamba2", "ssm.conv_kernel", serde_json::json!(1), "`mamba2.ssm.conv_kernel` is 1"),
        (
            "mamba2",
            "ssm.state_size",
            serde_json::json!(4_000_000_000u32),
            "`mamba2.ssm.state_size` is 4000000000",
        ),
        ("mamba2", "ssm.inner_size", serde_json::json!(192), "`blk.0.ssm_in.weight` is [48, 262]"),
        (
            "gemma3",
            "attention.sliding_window_pattern",
            serde_json::json!([true, false]),
            "`gemma3.attention.sliding_window_pattern` is 2: an array must have one entry a layer",
        ),
        ("phi3", "rope.scaling.type", serde_json::json!("spiral"), "`phi3.rope.scaling.type` is spiral"),
        ("qwen3moe", "expert_used_count", serde_json::json!(9), "`qwen3moe.expert_used_count` is 9"),
        ("glm4moe", "expert_gating_func", serde_json::json!(9), "`glm4moe.expert_gating_func` is 9"),
        ("glm4moe", "expert_group_count", serde_json::json!(4), "`glm4moe.expert_group_count` is 4: groups"),
        ("glm4moe", "expert_group_count", serde_json::json!(2), "`glm4moe.expert_group_used_count` is 0"),
        ("glm4moe", "nextn_predict_layers", serde_json::json!(4), "`glm4moe.nextn_predict_layers` is 4"),
        ("glm4", "block_count", serde_json::json!(1_000_000_000), "`glm4.block_count` is 1000000000"),
        (
            "gemma2",
            "attention.sliding_window",
            serde_json::json!(0),
            "`gemma2.attention.sliding_window` is 0",
        ),
        (
            "deci",
            "attention.head_count_kv",
            serde_json::json!([2, 0]),
            "`deci.attention.head_count_kv` is 2: an",
        ),
        (
            "deci",
            "attention.head_count_kv",
            serde_json::json!([3, 0, 0, 1, 0, 4]),
            "`deci.attention.head_count_kv` is 3: heads",
        ),
        ("deci", "feed_forward_length", serde_json::json!([1]), "`deci.feed_forward_length` is 1: an array"),
        ("deci", "attention.head_count", serde_json::json!(0), "`deci.attention.head_count`"),
        (
            "qwen3vl",
            "rope.dimension_sections",
            serde_json::json!([2, 2, 2, 2]),
            "`qwen3vl.rope.dimension_sections` is 2: the fourth",
        ),
        (
            "gemma4",
            "attention.shared_kv_layers",
            serde_json::json!(8),
            "`gemma4.attention.shared_kv_layers` is 8: a",
        ),
        (
            "gemma4",
            "rope.dimension_count_swa",
            serde_json::json!(10),
            "`gemma4.rope.dimension_count_swa` is 10: no",
        ),
        (
            "llama4",
            "attention.sliding_window",
            serde_json::json!(0),
            "`llama4.attention.sliding_window` is 0: models",
        ),
        ("mamba", "ssm.conv_kernel", serde_json::json!(1), "`mamba.ssm.conv_kernel` is 1"),
        ("lfm2", "shortconv.l_cache", serde_json::json!(0), "`lfm2.shortconv.l_cache` is 0"),
        ("lfm2", "shortconv.l_cache", serde_json::json!(1), "`lfm2.shortconv.l_cache` is 1"),
        (
            "lfm2",
            "attention.head_count_kv",
            serde_json::json!([0, 2]),
            "`lfm2.attention.head_count_kv` is 2: an",
        ),
        (
            "lfm2",
            "attention.head_count_kv",
            serde_json::json!([0, 0, 0, 0, 0, 0]),
            "`lfm2.attention.head_count` is 0: some",
        ),
        (
            "nemotron_h",
            "feed_forward_length",
            serde_json::json!([1]),
            "`nemotron_h.feed_forward_length` is 1: an",
        ),
        (
            "deepseek2",
            "attention.kv_lora_rank",
            serde_json::json!(0),
            "`deepseek2.attention.kv_lora_rank` is 0",
        ),
        (
            "deepseek2",
            "attention.kv_lora_rank",
            serde_json::json!(20),
            "`deepseek2.attention.key_length` is 20",
        ),
        (
            "deepseek2",
            "attention.key_length_mla",
            serde_json::json!(4),
            "`deepseek2.attention.key_length_mla` is 4: positions",
        ),
        (
            "mistral4",
            "attention.temperature_length",
            serde_json::json!(1u64 << 33),
            "`mistral4.attention.temperature_length` is 8589934592",
        ),
        (
            "qwen35",
            "full_attention_interval",
            serde_json::json!(0),
            "`qwen35.full_attention_interval` is 0: it must",
        ),
        (
            "qwen35",
            "full_attention_interval",
            serde_json::json!(100),
            "`qwen35.full_attention_interval` is 100: some",
        ),
        (
            "qwen35",
            "attention.recurrent_layers",
            serde_json::json!([true, false]),
            "`qwen35.attention.recurrent_layers` is 2: an array",
        ),
        ("qwen35", "ssm.group_count", serde_json::json!(3), "`qwen35.ssm.group_count` is 3: groups"),
        ("qwen35", "ssm.state_size", serde_json::json!(0), "`qwen35.ssm.state_size` is 0"),
        ("qwen35", "ssm.inner_size", serde_json::json!(64), "`blk.0.attn_qkv.weight` is [32, 64]"),
        ("qwen35", "nextn_predict_layers", serde_json::json!(9), "`qwen35.nextn_predict_layers` is 9"),
        ("qwen35moe", "expert_used_count", serde_json::json!(0), "`qwen35moe.expert_used_count` is 0"),
        ("rwkv7", "wkv.head_size", serde_json::json!(7), "`rwkv7.wkv.head_size` is 7: heads"),
        ("rwkv7", "token_shift_count", serde_json::json!(1), "`rwkv7.token_shift_count` is 1: a layer"),
        ("rwkv7", "feed_forward_length", serde_json::json!([1]), "`rwkv7.feed_forward_length` is 1: an"),
        (
            "qwen3vl",
            "rope.dimension_sections",
            serde_json::json!([8, 8]),
            "`qwen3vl.rope.dimension_sections` is 2: it must",
        ),
    ];
    for (name, key, value, expected) in cases {
        let mut json = read(name);
        json["keys"][format!("{name}.{key}")] = value;
        let drawn =
            try_model(&json, |_, _| {}).and_then(|model| Blueprint::plan(&model, &one_cpu(), &exact()));
        let said = drawn.unwrap_err().to_string();
        assert!(said.contains(expected), "{said}, and not {expected}");
    }
}
