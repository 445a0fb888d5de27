//! Perplexity of a text.

use orlop_llm::{Error, Outputs, PerplexityOptions, Settings, perplexity};

use crate::support::{load, one_cpu, reference, rows};

/// Chunks of a length, fed as they are.
fn plain(chunk: usize) -> PerplexityOptions {
    PerplexityOptions { chunk, bos: None }
}

#[test]
fn the_second_half_of_every_chunk_is_scored() {
    let (model, tokens, _) = reference("llama-dense.Q4_0");
    let settings = Settings { outputs: Outputs::All, ..Settings::default() };
    let mut engine = load(&model, &one_cpu(), &settings);
    for (length, scored) in [(3, 1), (4, 1), (5, 2), (8, 3)] {
        let found = perplexity(&mut engine, &tokens, plain(length), &mut |_, _| {}).unwrap();
        assert_eq!((found.chunks, found.scored), (tokens.len() / length, scored * found.chunks));
        assert!(found.value.is_finite() && found.value >= 1.0, "{found:?}");
    }
}

#[test]
fn chunks_in_which_nothing_can_be_scored_are_refused_by_name() {
    let (model, tokens, _) = reference("llama-dense.Q4_0");
    let settings = Settings { outputs: Outputs::All, ..Settings::default() };
    let mut engine = load(&model, &one_cpu(), &settings);
    for length in [0, 1, 2] {
        let refused = perplexity(&mut engine, &tokens, plain(length), &mut |_, _| {}).unwrap_err();
        let Error::BadSetting { setting, value, .. } = &refused else { panic!("{refused}") };
        assert!(setting.contains("length of chunks") && *value == length.to_string(), "{refused}");
    }
    let refused = perplexity(&mut engine, &tokens[..2], plain(3), &mut |_, _| {}).unwrap_err();
    assert!(matches!(refused, Error::TextTooShort { tokens: 2, needed: 3 }), "{refused}");
}

/// Minus the mean logarithm of the probability of each chunk's second half, from logits of the chunks.
fn by_hand(chunks: &[Vec<u32>], logits: impl Fn(usize) -> Vec<Vec<f32>>) -> f64 {
    let (mut sum, mut scored) = (0.0, 0);
    for (index, chunk) in chunks.iter().enumerate() {
        let rows = logits(index);
        for place in chunk.len() / 2..chunk.len() - 1 {
            let exps: Vec<f64> = rows[place].iter().map(|logit| f64::from(*logit).exp()).collect();
            sum -= (exps[chunk[place + 1] as usize] / exps.iter().sum::<f64>()).ln();
            scored += 1;
        }
    }
    (sum / f64::from(scored)).exp()
}

/// A model that adds BOS sees it at the beginning of every chunk, in place of the chunk's first token.
#[test]
fn a_bos_replaces_the_first_token_of_every_chunk() {
    let (model, tokens, _) = reference("llama-dense.Q4_0");
    let settings = Settings { outputs: Outputs::All, ..Settings::default() };
    let chunks: Vec<Vec<u32>> = tokens.chunks_exact(6).map(<[u32]>::to_vec).collect();
    let mut values = Vec::new();
    for bos in [None, Some(1), Some(5)] {
        let mut engine = load(&model, &one_cpu(), &settings);
        let found = perplexity(&mut engine, &tokens, PerplexityOptions { chunk: 6, bos }, &mut |_, _| {});
        let found = found.unwrap();
        let expected = by_hand(&chunks, |index| {
            let mut fed = chunks[index].clone();
            fed[0] = bos.unwrap_or(fed[0]);
            rows(&mut load(&model, &one_cpu(), &settings), &fed)
        });
        assert!((found.value / expected - 1.0).abs() < 1e-6, "{bos:?}: {} and not {expected}", found.value);
        assert_eq!((found.chunks, found.scored), (chunks.len(), 2 * chunks.len()));
        values.push(found.value);
    }
    assert!(values[0] != values[1] && values[1] != values[2], "{values:?}");
}
