//! Tests of the choice of types.

use super::*;

/// The matrices of a layered model, in file order, with a norm in each layer.
struct Names(Vec<(String, Vec<u64>)>);

impl Names {
    fn new(layers: u64, width: u64, hidden: u64) -> Names {
        let mut names = vec![
            ("token_embd.weight".to_owned(), vec![width, 1000]),
            ("output_norm.weight".to_owned(), vec![width]),
            ("output.weight".to_owned(), vec![width, 1000]),
        ];
        for layer in 0..layers {
            for (part, extents) in [
                ("attn_norm.weight", vec![width]),
                ("attn_q.weight", vec![width, width]),
                ("attn_q.bias", vec![width]),
                ("attn_k.weight", vec![width, width / 4]),
                ("attn_v.weight", vec![width, width / 4]),
                ("attn_output.weight", vec![width, width]),
                ("ffn_gate_inp.weight", vec![width, 8]),
                ("ffn_gate.weight", vec![width, hidden]),
                ("ffn_up.weight", vec![width, hidden]),
                ("ffn_down.weight", vec![hidden, width]),
            ] {
                names.push((format!("blk.{layer}.{part}"), extents));
            }
        }
        Names(names)
    }

    fn without(mut self, name: &str) -> Names {
        self.0.retain(|(known, _)| known != name);
        self
    }

    fn types(&self, file_type: FileType, spread: MixturePolicy, traits: &Traits<'_>) -> Vec<(&str, DType)> {
        let candidate = |(name, extents)| Candidate { name, extents, dtype: DType::F32 };
        let tensors: Vec<_> = self.0.iter().map(|(name, extents)| candidate((name, extents))).collect();
        let types = mixture(file_type, spread, traits, &tensors);
        self.0.iter().map(|(name, _)| name.as_str()).zip(types).collect()
    }
}

fn of<'a>(types: &'a [(&str, DType)], name: &'a str) -> Vec<DType> {
    types.iter().filter(|(known, _)| known.ends_with(name)).map(|(_, dtype)| *dtype).collect()
}

const LLAMA: Traits<'static> =
    Traits { architecture: "llama", layers: 16, sharing: 4, experts: 0, importance: false };

#[test]
fn the_table_is_in_the_order_of_the_enum_and_names_lead_back() {
    for (index, file_type) in FileType::all().enumerate() {
        assert_eq!(file_type as usize, index);
        assert_eq!(FileType::from_name(&file_type.name().to_lowercase()), Some(file_type));
    }
    assert_eq!(FileType::from_name("q4_K"), Some(FileType::Q4_K_M));
    assert_eq!(FileType::from_name("Q9_0"), None);
}

#[test]
fn each_file_type_spreads_its_types_as_llama_cpp_does() {
    use DType::{Q2_K, Q3_K, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0};
    let names = Names::new(16, 512, 1024);
    // File type; embedding, output, keys, attention output, feed-forward up; values and feed-forward down by layer,
    // as digits of K types, in 16 layers of which two are an eighth and one a sixteenth.
    let k_quants = [
        (FileType::Q2_K, [Q2_K, Q6_K, Q2_K, Q3_K, Q2_K], "4444444444444444", "3333333333333333"),
        (FileType::Q3_K_S, [Q3_K, Q6_K, Q3_K, Q3_K, Q3_K], "3333333333333333", "3333333333333333"),
        (FileType::Q3_K_M, [Q3_K, Q6_K, Q3_K, Q4_K, Q3_K], "5544444444444444", "5444444444444444"),
        (FileType::Q3_K_L, [Q3_K, Q6_K, Q3_K, Q5_K, Q3_K], "5555555555555555", "5555555555555555"),
        (FileType::Q4_K_S, [Q4_K, Q6_K, Q4_K, Q4_K, Q4_K], "5555444444444444", "5544444444444444"),
        (FileType::Q4_K_M, [Q4_K, Q6_K, Q4_K, Q4_K, Q4_K], "6644644644644666", "6644644644644666"),
        (FileType::Q5_K_S, [Q5_K, Q6_K, Q5_K, Q5_K, Q5_K], "5555555555555555", "5555555555555555"),
        (FileType::Q5_K_M, [Q5_K, Q6_K, Q5_K, Q5_K, Q5_K], "6655655655655666", "6655655655655666"),
        (FileType::Q6_K, [Q6_K; 5], "6666666666666666", "6666666666666666"),
    ];
    let digit = |dtype: &DType| match dtype {
        Q2_K => '2',
        Q3_K => '3',
        Q4_K => '4',
        Q5_K => '5',
        Q6_K => '6',
        other => panic!("{other} is none of the K types"),
    };
    for (file_type, [embedding, output, keys, attended, up], values, down) in k_quants {
        let types = names.types(file_type, MixturePolicy::Mixed, &LLAMA);
        assert_eq!(of(&types, "token_embd.weight"), [embedding], "{file_type}");
        assert_eq!(of(&types, "output.weight")[0], output, "{file_type}");
        assert_eq!(of(&types, "attn_k.weight"), [keys; 16], "{file_type}");
        assert_eq!(of(&types, "attn_output.weight"), [attended; 16], "{file_type}");
        assert_eq!(of(&types, "ffn_up.weight"), [up; 16], "{file_type}");
        let digits = |name| of(&types, name).iter().map(digit).collect::<String>();
        assert_eq!(digits("attn_v.weight"), values, "{file_type}");
        assert_eq!(digits("ffn_down.weight"), down, "{file_type}");
    }
    for (file_type, dtype) in
        [(FileType::Q4_0, Q4_0), (FileType::Q4_1, Q4_1), (FileType::Q5_0, Q5_0), (FileType::Q5_1, Q5_1)]
    {
        let types = names.types(file_type, MixturePolicy::Mixed, &LLAMA);
        assert_eq!(of(&types, "output.weight")[0], Q6_K);
        assert_eq!(of(&types, "token_embd.weight"), [dtype]);
        assert_eq!(of(&types, "attn_v.weight"), [dtype; 16]);
        assert_eq!(of(&types, "ffn_down.weight"), [dtype; 16]);
    }
    let types = names.types(FileType::Q8_0, MixturePolicy::Mixed, &LLAMA);
    assert_eq!(of(&types, "output.weight")[0], Q8_0);
}

#[test]
fn the_smallest_files_spread_their_types_as_llama_cpp_does() {
    use DType::{
        IQ1_M, IQ1_S, IQ2_S, IQ2_XS, IQ2_XXS, IQ3_S, IQ3_XXS, Q2_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, TQ1_0,
        TQ2_0,
    };
    let names = Names::new(16, 512, 1024);
    let few = Traits { sharing: 1, importance: true, ..LLAMA };
    // File type; embedding, output, queries, keys, values, attention output; gate in the first and the middle layer, down in
    // the first and the middle layer.
    for (file_type, whole, layers) in [
        (FileType::IQ1_S, [Q2_K, Q5_K, IQ1_S, IQ1_S, Q2_K, IQ2_XXS], [IQ1_S, IQ1_S, Q2_K, IQ1_S]),
        (FileType::IQ1_M, [Q2_K, Q5_K, IQ1_M, IQ1_M, Q2_K, IQ2_XXS], [IQ1_M, IQ1_M, Q2_K, IQ1_M]),
        (FileType::IQ2_XXS, [Q2_K, Q5_K, IQ2_XXS, IQ2_XXS, Q2_K, IQ2_XXS], [IQ2_XXS, IQ2_XXS, Q2_K, IQ2_XXS]),
        (FileType::IQ2_XS, [Q2_K, Q5_K, IQ2_XS, IQ2_XS, Q2_K, IQ2_XS], [IQ2_XS, IQ2_XS, Q2_K, IQ2_XS]),
        (FileType::IQ2_S, [IQ3_S, Q5_K, IQ2_XS, IQ2_XS, IQ3_S, IQ3_S], [IQ2_XS, IQ2_XS, IQ3_S, IQ2_XS]),
        (FileType::IQ2_M, [IQ3_S, Q5_K, IQ2_S, IQ2_S, IQ3_S, IQ3_S], [IQ2_S, IQ2_S, IQ3_S, IQ2_S]),
        (FileType::Q2_K_S, [Q2_K, Q6_K, Q2_K, Q2_K, Q2_K, Q2_K], [Q2_K, Q2_K, Q4_K, Q2_K]),
        (
            FileType::IQ3_XXS,
            [IQ3_S, Q5_K, IQ2_S, IQ2_S, IQ3_XXS, IQ3_S],
            [IQ3_XXS, IQ3_XXS, IQ3_XXS, IQ3_XXS],
        ),
        (FileType::IQ3_XS, [IQ3_S, Q6_K, IQ3_XXS, IQ3_XXS, IQ3_S, IQ3_S], [IQ3_S, IQ3_XXS, IQ3_S, IQ3_S]),
        (FileType::IQ3_S, [IQ3_S, Q6_K, IQ3_S, IQ3_S, IQ3_S, IQ3_S], [IQ3_S, IQ3_S, IQ3_S, IQ3_S]),
        (FileType::IQ3_M, [IQ3_S, Q6_K, IQ3_S, IQ3_S, Q4_K, Q4_K], [IQ3_S, IQ3_S, Q4_K, IQ3_S]),
        (FileType::TQ1_0, [Q4_K, Q6_K, TQ1_0, TQ1_0, TQ1_0, TQ1_0], [TQ1_0, TQ1_0, TQ1_0, TQ1_0]),
        (FileType::TQ2_0, [Q4_K, Q6_K, TQ2_0, TQ2_0, TQ2_0, TQ2_0], [TQ2_0, TQ2_0, TQ2_0, TQ2_0]),
        (FileType::Q2_0, [Q4_K, Q6_K, Q2_0, Q2_0, Q2_0, Q2_0], [Q2_0, Q2_0, Q2_0, Q2_0]),
    ] {
        let types = names.types(file_type, MixturePolicy::Mixed, &few);
        let first = |name| of(&types, name)[0];
        let found = [
            first("token_embd.weight"),
            first("output.weight"),
            first("attn_q.weight"),
            first("attn_k.weight"),
            first("attn_v.weight"),
            first("attn_output.weight"),
        ];
        assert_eq!(found, whole, "{file_type}");
        let at = |name, layer| of(&types, name)[layer];
        let found = [
            at("ffn_gate.weight", 0),
            at("ffn_gate.weight", 8),
            at("ffn_down.weight", 0),
            at("ffn_down.weight", 8),
        ];
        assert_eq!(found, layers, "{file_type}");
        assert_eq!(of(&types, "ffn_up.weight"), of(&types, "ffn_gate.weight"), "{file_type}");
    }
    let shared = names.types(FileType::IQ2_XXS, MixturePolicy::Mixed, &LLAMA);
    assert_eq!(of(&shared, "attn_v.weight"), [Q4_K; 16]);
    let without = names.types(FileType::IQ3_XXS, MixturePolicy::Mixed, &Traits { importance: false, ..few });
    assert_eq!(of(&without, "attn_v.weight"), [IQ3_S; 16]);
    assert_eq!(of(&without, "ffn_down.weight")[1..3], [Q4_K, Q3_K]);
}

#[test]
fn importance_data_changes_the_mixture() {
    let names = Names::new(16, 512, 1024);
    let with = Traits { importance: true, ..LLAMA };
    let down = |file_type, traits| {
        of(&names.types(file_type, MixturePolicy::Mixed, traits), "ffn_down.weight")[..3].to_vec()
    };
    assert_eq!(down(FileType::Q4_0, &with), [DType::Q4_1, DType::Q4_1, DType::Q4_0]);
    assert_eq!(down(FileType::Q5_0, &with), [DType::Q5_1, DType::Q5_1, DType::Q5_0]);
    assert_eq!(down(FileType::IQ4_XS, &with), [DType::IQ4_XS; 3]);
    assert_eq!(down(FileType::IQ4_XS, &LLAMA), [DType::Q5_K, DType::Q5_K, DType::IQ4_XS]);
}

#[test]
fn biases_are_not_counted_as_layers() {
    let mut names = Names::new(16, 512, 1024);
    let plain =
        names.types(FileType::Q4_K_M, MixturePolicy::Mixed, &LLAMA).into_iter().map(|(_, dtype)| dtype);
    let plain: Vec<DType> = plain.collect();
    let biases = (0..16).map(|layer| (format!("blk.{layer}.ffn_down.bias"), vec![512]));
    names.0.extend(biases.collect::<Vec<_>>());
    let types = names.types(FileType::Q4_K_M, MixturePolicy::Mixed, &LLAMA);
    assert!(types.iter().zip(&plain).all(|((_, dtype), plain)| dtype == plain));
}

#[test]
fn what_is_no_matrix_of_a_product_stays_as_it_is() {
    let names = Names::new(2, 512, 1024);
    for file_type in FileType::all() {
        for spread in [MixturePolicy::Mixed, MixturePolicy::Pure] {
            let types = names.types(file_type, spread, &LLAMA);
            for name in ["norm.weight", ".bias", "ffn_gate_inp.weight"] {
                assert!(of(&types, name).iter().all(|dtype| *dtype == DType::F32), "{name} as {file_type}");
            }
        }
    }
    let candidate = |name, extents, dtype| Candidate { name, extents, dtype };
    let tensors = [
        candidate("blk.0.ffn_norm.weight", &[512][..], DType::F16),
        candidate("blk.0.ffn_gate_tid2eid.weight", &[512, 512], DType::I32),
        candidate("table.weight", &[512, 512], DType::I32),
        candidate("blk.0.column.weight", &[512, 1, 1], DType::BF16),
    ];
    let types = mixture(FileType::Q4_0, MixturePolicy::Pure, &LLAMA, &tensors);
    assert_eq!(types, [DType::F16, DType::I32, DType::I32, DType::BF16]);
}

#[test]
fn plain_and_pure_files_have_one_type_for_all_matrices() {
    let names = Names::new(8, 512, 1024);
    let matrices = |types: Vec<(&str, DType)>| {
        let kept = ["norm.weight", "bias", "gate_inp.weight"];
        let matrix = |name: &str| !kept.iter().any(|kept| name.ends_with(kept));
        types.into_iter().filter(|(name, _)| matrix(name)).map(|(_, dtype)| dtype).collect::<Vec<_>>()
    };
    for file_type in [FileType::F32, FileType::F16, FileType::BF16] {
        let types = matrices(names.types(file_type, MixturePolicy::Mixed, &LLAMA));
        assert!(types.iter().all(|dtype| *dtype == file_type.dtype()), "{types:?}");
    }
    for file_type in FileType::all() {
        let types = matrices(names.types(file_type, MixturePolicy::Pure, &LLAMA));
        assert!(types.iter().all(|dtype| *dtype == file_type.dtype()), "{types:?}");
    }
}

#[test]
fn an_embedding_that_is_also_the_output_gets_the_outputs_type() {
    let names = Names::new(1, 512, 1024).without("output.weight");
    let types = names.types(FileType::Q4_0, MixturePolicy::Mixed, &LLAMA);
    assert_eq!(of(&types, "token_embd.weight"), [DType::Q6_K]);
}

#[test]
fn rows_that_are_no_whole_blocks_get_smaller_blocks() {
    let types = |file_type, width| {
        let names = Names::new(8, width, 2 * width).without("output.weight");
        names
            .types(file_type, MixturePolicy::Mixed, &LLAMA)
            .iter()
            .map(|(_, dtype)| *dtype)
            .collect::<Vec<_>>()
    };
    // 576 is a multiple of 32, not of 256: the width of SmolLM2.
    let found = types(FileType::Q4_0, 576);
    assert_eq!(found[0], DType::Q8_0, "Q6_K would not fit");
    let found = types(FileType::Q4_K_M, 576);
    assert!(found.iter().all(|dtype| [DType::F32, DType::Q5_0, DType::Q8_0].contains(dtype)), "{found:?}");
    let found = types(FileType::Q3_K_S, 576);
    assert!(found.contains(&DType::Q4_0) && !found.contains(&DType::Q3_K), "{found:?}");
    assert!(types(FileType::IQ4_XS, 576).contains(&DType::IQ4_NL));
    let found = types(FileType::Q4_0, 20);
    assert!(found.iter().all(|dtype| [DType::F32, DType::F16].contains(dtype)), "{found:?}");
}

#[test]
fn experts_change_the_mixture() {
    let names = Names::new(16, 512, 1024);
    let eight = Traits { experts: 8, ..LLAMA };
    let types = names.types(FileType::Q4_K_M, MixturePolicy::Mixed, &eight);
    assert_eq!(of(&types, "attn_v.weight"), [DType::Q8_0; 16]);
    assert_eq!(of(&types, "attn_k.weight"), [DType::Q8_0; 16]);
    assert_eq!(of(&types, "attn_output.weight"), [DType::Q5_K; 16]);
    let tensor = |name, extents| Candidate { name, extents, dtype: DType::F32 };
    let tensors = [
        tensor("output.weight", &[512, 1000][..]),
        tensor("blk.0.attn_q.weight", &[512, 512]),
        tensor("blk.0.ffn_up_exps.weight", &[512, 1024, 8]),
    ];
    let types = mixture(FileType::MXFP4_MOE, MixturePolicy::Mixed, &eight, &tensors);
    assert_eq!(types, [DType::Q8_0, DType::Q8_0, DType::MXFP4]);
}

#[test]
fn the_order_of_the_tensors_does_not_matter() {
    let mut names = Names::new(16, 512, 1024);
    let types = |names: &Names| {
        let mut types: Vec<(String, DType)> = names
            .types(FileType::Q4_K_M, MixturePolicy::Mixed, &LLAMA)
            .into_iter()
            .map(|(name, dtype)| (name.to_owned(), dtype))
            .collect();
        types.sort();
        types
    };
    let forward = types(&names);
    names.0.reverse();
    assert_eq!(types(&names), forward);
}

#[test]
fn any_number_of_layers_can_be_claimed() {
    let names = Names::new(3, 256, 256);
    for layers in [0, 1, 3, u64::MAX] {
        for file_type in FileType::all() {
            names.types(file_type, MixturePolicy::Mixed, &Traits { layers, ..LLAMA });
        }
    }
    for (layers, layer) in (0..100).flat_map(|layers: u64| (0..layers).map(move |layer| (layers, layer))) {
        let (first, last) = (layers / 8, 7 * layers / 8);
        let expected = layer < first || layer >= last || (layer - first) % 3 == 2;
        assert_eq!(more_bits(layer, layers), expected, "{layer} of {layers}");
    }
}
