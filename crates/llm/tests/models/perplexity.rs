use orlop_llm::{Error, Outputs, Settings, perplexity};

use crate::support::{load, one_cpu, reference};

#[test]
fn the_second_half_of_every_chunk_is_scored() {
    let (model, tokens, _) = reference("llama-dense.Q4_0");
    let settings = Settings { outputs: Outputs::All, ..Settings::default() };
    let mut engine = load(&model, &one_cpu(), &settings);
    for (length, scored) in [(3, 1), (4, 1), (5, 2), (8, 3)] {
        let found = perplexity(&mut engine, &tokens, length, &mut |_, _| {}).unwrap();
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
        let refused = perplexity(&mut engine, &tokens, length, &mut |_, _| {}).unwrap_err();
        let Error::BadSetting { setting, value, .. } = &refused else { panic!("{refused}") };
        assert!(setting.contains("-c") && *value == length.to_string(), "{refused}");
    }
    let refused = perplexity(&mut engine, &tokens[..2], 3, &mut |_, _| {}).unwrap_err();
    assert!(matches!(refused, Error::TextTooShort { tokens: 2, needed: 3 }), "{refused}");
}
