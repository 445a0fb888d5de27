//! Tests of samplers.

use super::*;

const GOLDEN: [u32; 8] = [667, 926, 210, 852, 642, 593, 568, 630];

const ALL: SamplingOptions = SamplingOptions {
    repeat_penalty: 1.0,
    frequency_penalty: 0.0,
    presence_penalty: 0.0,
    repeat_last: 64,
    top_k: 0,
    top_p: 1.0,
    min_p: 0.0,
    temperature: 1.0,
};

/// How often each token comes, of 20,000.
fn counts(options: SamplingOptions, logits: &[f32]) -> Vec<usize> {
    let mut sampler = Sampler::new(options, 42);
    let mut counts = vec![0; logits.len()];
    for _ in 0..20_000 {
        counts[sampler.sample(logits) as usize] += 1;
    }
    counts
}

#[test]
fn tokens_come_as_often_as_they_are_likely() {
    let likely = [0.5f32, 0.3, 0.15, 0.05];
    let logits = likely.map(f32::ln);
    for (count, likely) in counts(ALL, &logits).iter().zip(likely) {
        assert!((*count as f32 / 20_000.0 - likely).abs() < 0.01, "{count} for {likely}");
    }
    // At temperature 0.5 probabilities are squared and scaled.
    let squares = counts(SamplingOptions { temperature: 0.5, ..ALL }, &logits);
    assert!((squares[0] as f32 / squares[1] as f32 - 25.0 / 9.0).abs() < 0.2, "{squares:?}");
}

#[test]
fn each_limit_leaves_what_it_says() {
    let logits = [0.15f32, 0.5, 0.05, 0.3].map(f32::ln);
    let left = |options| {
        let counts = counts(options, &logits);
        (0..4).filter(|id| counts[*id] > 0).collect::<Vec<_>>()
    };
    assert_eq!(left(SamplingOptions { top_k: 1, ..ALL }), [1]);
    assert_eq!(left(SamplingOptions { top_k: 3, ..ALL }), [0, 1, 3]);
    assert_eq!(left(SamplingOptions { top_k: 9, ..ALL }), [0, 1, 2, 3]);
    assert_eq!(left(SamplingOptions { top_p: 0.7, ..ALL }), [1, 3]);
    assert_eq!(left(SamplingOptions { top_p: 0.0, ..ALL }), [1]);
    assert_eq!(left(SamplingOptions { min_p: 0.2, ..ALL }), [0, 1, 3]);
    assert_eq!(left(SamplingOptions { min_p: 1.0, ..ALL }), [1]);
    // top-p sees only what top-k left: 0.5 of 0.8 is more than 0.6.
    assert_eq!(left(SamplingOptions { top_k: 2, top_p: 0.6, ..ALL }), [1]);
    // The limits come before the temperature, which would otherwise make all tokens alike.
    assert_eq!(left(SamplingOptions { min_p: 0.2, temperature: 100.0, ..ALL }), [0, 1, 3]);
}

#[test]
fn the_defaults_are_the_usual_ones() {
    let options = SamplingOptions::default();
    assert_eq!((options.top_k, options.top_p, options.min_p, options.temperature), (40, 0.95, 0.05, 0.8));
    assert_eq!(options.repeat_penalty, 1.0);
}

#[test]
fn a_seed_gives_the_same_tokens_on_every_machine() {
    let logits: Vec<f32> = (0..1000u32).map(|id| (id * 7919 % 1000) as f32 / 150.0).collect();
    let tokens = |seed| {
        let mut sampler = Sampler::new(SamplingOptions::default(), seed);
        (0..8).map(|_| sampler.sample(&logits)).collect::<Vec<_>>()
    };
    assert_eq!(tokens(1), tokens(1));
    assert_ne!(tokens(1), tokens(2));
    assert_eq!(tokens(42), GOLDEN);
}

#[test]
fn odd_logits_have_defined_answers() {
    let nan = f32::NAN;
    for options in [ALL, SamplingOptions::default(), SamplingOptions::greedy()] {
        for penalty in [1.0, 1.5] {
            let mut sampler = Sampler::new(SamplingOptions { repeat_penalty: penalty, ..options }, 3);
            assert_eq!(sampler.sample(&[]), 0);
            assert_eq!(sampler.sample(&[nan, nan]), 0);
            assert_eq!(sampler.sample(&[nan, -1e9, nan]), 1);
            assert_eq!(sampler.sample(&[1.0, f32::INFINITY, 2.0]), 1);
            assert_eq!(sampler.sample(&[f32::NEG_INFINITY, -5.0]), 1);
        }
    }
    let mut greedy = Sampler::new(SamplingOptions::greedy(), 0);
    assert_eq!(greedy.sample(&[1.0, 3.0, 3.0]), 1);
    assert_eq!(greedy.sample(&[f32::NEG_INFINITY; 3]), 0);
}

#[test]
fn repeated_tokens_become_less_likely_for_as_long_as_asked() {
    let options = SamplingOptions { repeat_penalty: 2.0, repeat_last: 2, ..SamplingOptions::greedy() };
    let mut sampler = Sampler::new(options, 0);
    let logits = [3.0, 2.5, 2.0, -1.0];
    // 0 is halved to 1.5, then 1 to 1.25, and 2 wins; then 0 is forgotten.
    assert_eq!([(); 4].map(|()| sampler.sample(&logits)), [0, 1, 2, 0]);
    // A negative logit goes down, too.
    let mut sampler = Sampler::new(options, 0);
    sampler.accept(0);
    assert_eq!(sampler.sample(&[-1.0, -1.5]), 1);
}

#[test]
fn frequency_counts_and_presence_does_not() {
    let logits = [3.0, 1.0, 0.0];
    let greedy = |options: SamplingOptions, seen: &[u32]| {
        let mut sampler = Sampler::new(SamplingOptions { temperature: 0.0, ..options }, 0);
        assert!(!sampler.takes_likeliest());
        sampler.restart(seen);
        sampler.sample(&logits)
    };
    let frequency = SamplingOptions { frequency_penalty: 0.8, ..ALL };
    let presence = SamplingOptions { presence_penalty: 0.8, ..ALL };
    assert_eq!((greedy(frequency, &[0, 0]), greedy(frequency, &[0, 0, 0])), (0, 1));
    assert_eq!((greedy(presence, &[0, 0]), greedy(presence, &[0, 0, 0])), (0, 0));
    assert_eq!(greedy(SamplingOptions { presence_penalty: 2.5, ..ALL }, &[0]), 1);
    // Less than 0 prefers what is there.
    assert_eq!(greedy(SamplingOptions { presence_penalty: -4.0, ..ALL }, &[2]), 2);
}

#[test]
fn a_bias_raises_lowers_and_forbids() {
    let logits = [3.0, 2.0, 1.0];
    let sample = |bias: Vec<(u32, f32)>| {
        let mut sampler = Sampler::new(SamplingOptions::greedy(), 0).with_bias(bias);
        sampler.sample(&logits)
    };
    assert_eq!(sample(vec![(2, 5.0)]), 2);
    assert_eq!(sample(vec![(0, f32::NEG_INFINITY)]), 1);
    assert_eq!(sample(vec![(0, -0.6), (0, -0.6)]), 1);
    assert_eq!(sample(vec![(0, f32::NAN), (99, 100.0)]), 0);
    assert!(!Sampler::new(SamplingOptions::greedy(), 0).with_bias(vec![(0, 1.0)]).takes_likeliest());
    let mut sampler = Sampler::new(ALL, 1).with_bias(vec![(0, f32::NEG_INFINITY)]);
    assert!((0..200).all(|_| sampler.sample(&logits) != 0));
}

#[test]
fn only_allowed_tokens_are_chosen() {
    let logits: Vec<f32> = (0..100).map(|id| id as f32 / 10.0).collect();
    let mask: TokenMask = [3, 40, 41].into_iter().collect();
    for options in [SamplingOptions::greedy(), SamplingOptions::default(), ALL] {
        let mut sampler = Sampler::new(options, 9);
        for _ in 0..100 {
            let token = sampler.sample_allowed(&logits, &mask).unwrap();
            assert!(mask.allows(token));
            assert!(options.temperature > 0.0 || token == 41);
        }
        assert_eq!(sampler.sample_allowed(&logits, &TokenMask::none()), None);
        assert_eq!(sampler.sample_allowed(&logits, &[500].into_iter().collect()), None);
        assert_eq!(sampler.sample_allowed(&[f32::NEG_INFINITY; 5], &[3, 4].into_iter().collect()), Some(3));
    }
    // top-k counts allowed tokens only.
    let mut sampler = Sampler::new(SamplingOptions { top_k: 3, ..ALL }, 2);
    assert!((0..500).any(|_| sampler.sample_allowed(&logits, &mask) == Some(40)));
    // A mask of all tokens changes nothing.
    let (mut plain, mut masked) = (Sampler::new(ALL, 4), Sampler::new(ALL, 4));
    let all = TokenMask::first(100);
    assert!((0..50).all(|_| Some(plain.sample(&logits)) == masked.sample_allowed(&logits, &all)));
}

#[test]
fn nothing_is_allocated_after_the_first_call() {
    let options = SamplingOptions { repeat_penalty: 1.1, ..SamplingOptions::default() };
    let mut sampler = Sampler::new(options, 5);
    let logits: Vec<f32> = (0..5000).map(|id| (id % 97) as f32 / 10.0).collect();
    let capacities = |sampler: &Sampler| {
        let Sampler { recent, penalized, candidates, weights, .. } = sampler;
        [recent.capacity(), penalized.capacity(), candidates.capacity(), weights.capacity()]
    };
    sampler.sample(&logits);
    let first = capacities(&sampler);
    for _ in 0..200 {
        sampler.sample(&logits);
    }
    assert_eq!(capacities(&sampler), first);
}

#[test]
fn a_restart_counts_the_last_tokens_and_no_others() {
    let options = SamplingOptions { repeat_penalty: 4.0, repeat_last: 2, ..SamplingOptions::greedy() };
    let logits = [4.0, 3.0, 2.0, 1.5];
    let mut sampler = Sampler::new(options, 0);
    sampler.restart(&[0, 1, 2]);
    assert_eq!(sampler.sample(&logits), 0, "the first of three is too long ago");
    sampler.restart(&[2, 0, 1]);
    assert_eq!(sampler.sample(&logits), 2);
    sampler.restart(&[]);
    assert_eq!(sampler.sample(&logits), 0);
}
