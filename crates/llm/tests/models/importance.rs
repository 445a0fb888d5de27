//! Importance data that runs collect.

use orlop_gguf::GgufFile;
use orlop_llm::{Engine, Importance, ImportanceSums, Settings};

use crate::made::{exact, made};
use crate::support::{load, one_cpu, rows};

fn summed(name: &str, batch: u64) -> ImportanceSums {
    let (model, tokens, _) = made(name);
    let settings = Settings { importance: true, batch, ..exact() };
    let mut engine: Engine = load(&model, &one_cpu(), &settings);
    rows(&mut engine, &tokens);
    engine.importance().clone()
}

/// The means of a written file, which are what quantizing reads.
fn means(sums: &ImportanceSums, name: &str) -> (Importance, GgufFile) {
    let path = std::env::temp_dir().join(format!("orlop-importance-{}-{name}.gguf", std::process::id()));
    sums.write(&path, "text.txt", 1, 30).unwrap();
    let read = (Importance::open(&path).unwrap(), GgufFile::open(&path).unwrap());
    std::fs::remove_file(&path).unwrap();
    read
}

fn floats(file: &GgufFile, name: &str) -> Vec<f32> {
    orlop_testkit::f32s(file.bytes_of(file.tensor(name).unwrap()))
}

#[test]
fn sums_are_those_of_the_inputs_of_each_matrix() {
    let (model, tokens, _) = made("llama");
    let (importance, file) = means(&summed("llama", 512), "llama");
    // Seven matrices in each of two layers.
    assert_eq!(importance.matrices(), 14);
    // The inputs of the first layer are its norm of the embeddings.
    let table = floats(model.file(), "token_embd.weight");
    let norm = floats(model.file(), "blk.0.attn_norm.weight");
    let mut expected = vec![0.0f64; 48];
    for token in &tokens {
        let row = &table[48 * *token as usize..][..48];
        let square = row.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / 48.0;
        for ((sum, x), weight) in expected.iter_mut().zip(row).zip(&norm) {
            *sum += (f64::from(*x) * f64::from(*weight)).powi(2) / (square + 1e-5);
        }
    }
    for part in ["q", "k", "v"] {
        let name = format!("blk.0.attn_{part}.weight");
        let found = floats(&file, &format!("{name}.in_sum2"));
        for (found, expected) in found.iter().zip(&expected) {
            assert!((f64::from(*found) / expected - 1.0).abs() < 1e-5, "{found} {expected}");
        }
        assert_eq!(floats(&file, &format!("{name}.counts")), [30.0]);
        let of = importance.of(&name, &[48, 48]).unwrap().unwrap();
        assert!((f64::from(of[3]) - expected[3] / 30.0).abs() < 1e-5 * expected[3]);
    }
}

#[test]
fn experts_have_sums_of_the_tokens_that_chose_them() {
    let (importance, file) = means(&summed("llama-experts", 512), "experts");
    assert!(importance.of("blk.0.ffn_gate_inp.weight", &[48, 6]).unwrap().is_some());
    for part in ["gate", "up", "down"] {
        let name = format!("blk.1.ffn_{part}_exps.weight");
        let counts = floats(&file, &format!("{name}.counts"));
        assert_eq!(
            (counts.len(), counts.iter().sum::<f32>()),
            (6, 60.0),
            "two experts for each of 30 tokens"
        );
        let sums = floats(&file, &format!("{name}.in_sum2"));
        let columns = sums.len() / 6;
        for (count, sums) in counts.iter().zip(sums.chunks(columns)) {
            assert_eq!(*count > 0.0, sums.iter().any(|sum| *sum > 0.0));
        }
    }
}

#[test]
fn batches_change_no_sum() {
    for name in ["llama-experts", "gpt2", "jamba"] {
        let (_, whole) = means(&summed(name, 512), &format!("{name}-whole"));
        for batch in [1, 7] {
            let (_, parts) = means(&summed(name, batch), &format!("{name}-{batch}"));
            for tensor in whole.tensors() {
                let pairs = floats(&whole, &tensor.name).into_iter().zip(floats(&parts, &tensor.name));
                for (a, b) in pairs {
                    assert!((a - b).abs() <= 1e-4 * a.abs().max(1.0), "{name}, {}: {a} {b}", tensor.name);
                }
            }
        }
    }
}

#[test]
fn nothing_is_summed_without_being_asked_for() {
    let (model, tokens, _) = made("llama");
    let mut engine = load(&model, &one_cpu(), &exact());
    rows(&mut engine, &tokens);
    assert_eq!(engine.importance().matrices(), 0);
}
