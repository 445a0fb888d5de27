//! Log probabilities of tokens.

use super::{likelier_first, number};
use crate::sampling::Candidate;

/// The log probabilities of a chosen token and of the likeliest ones, by the model's own distribution: the softmax of its
/// logits, before penalties, biases, masks and temperature, as llama.cpp and vLLM report them.
///
/// ```
/// let scores = orlop_llm::LogProbabilities::of(&[0.0, 2.0, 1.0], 2, 2);
/// assert_eq!(scores.top.iter().map(|(token, _)| *token).collect::<Vec<_>>(), [1, 2]);
/// assert!((scores.chosen - -1.4076).abs() < 1e-4);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct LogProbabilities {
    /// Of the chosen token; minus infinity for a token without a logit.
    pub chosen: f32,
    /// The likeliest tokens with theirs, the likeliest first; among equals the lowest id.
    pub top: Vec<(u32, f32)>,
}

impl LogProbabilities {
    /// Of the token `chosen`, and of the `top` likeliest ones.
    pub fn of(logits: &[f32], chosen: u32, top: usize) -> LogProbabilities {
        let highest = logits.iter().copied().map(number).fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = match highest.is_finite() {
            true => logits.iter().map(|logit| f64::from(libm::expf(number(*logit) - highest))).sum(),
            false => 1.0,
        };
        let total = libm::log(sum) as f32;
        let of = |logit: f32| match (highest.is_finite(), number(logit)) {
            (true, logit) => logit - highest - total,
            (false, f32::INFINITY) => 0.0,
            (false, _) => f32::NEG_INFINITY,
        };
        let mut likeliest: Vec<Candidate> =
            logits.iter().zip(0..).map(|(logit, id)| Candidate { id, logit: number(*logit) }).collect();
        let count = top.min(likeliest.len());
        if 0 < count && count < likeliest.len() {
            likeliest.select_nth_unstable_by(count - 1, likelier_first);
        }
        likeliest.truncate(count);
        likeliest.sort_unstable_by(likelier_first);
        LogProbabilities {
            chosen: logits.get(chosen as usize).map_or(f32::NEG_INFINITY, |logit| of(*logit)),
            top: likeliest.iter().map(|candidate| (candidate.id, of(candidate.logit))).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_sum_to_one() {
        let logits = [0.5f32, -1.0, 3.0, 2.0, f32::NAN, f32::NEG_INFINITY];
        let scores = LogProbabilities::of(&logits, 3, 6);
        let sum: f32 = scores.top.iter().map(|(_, score)| score.exp()).sum();
        assert!((sum - 1.0).abs() < 1e-6, "{sum}");
        assert_eq!(scores.top.iter().map(|(token, _)| *token).collect::<Vec<_>>(), [2, 3, 0, 1, 4, 5]);
        assert_eq!(scores.top[1], (3, scores.chosen));
        assert_eq!(LogProbabilities::of(&logits, 3, 2).top, scores.top[..2]);
        assert_eq!(LogProbabilities::of(&logits, 3, 99).top, scores.top);
    }

    #[test]
    fn odd_logits_have_defined_answers() {
        assert_eq!(
            LogProbabilities::of(&[], 0, 3),
            LogProbabilities { chosen: f32::NEG_INFINITY, top: vec![] }
        );
        let all = LogProbabilities::of(&[f32::NEG_INFINITY; 2], 0, 1);
        assert_eq!((all.chosen, all.top[0].0), (f32::NEG_INFINITY, 0));
        assert_eq!(LogProbabilities::of(&[1.0, f32::INFINITY], 1, 1).top, [(1, 0.0)]);
        assert_eq!(LogProbabilities::of(&[1.0], 7, 0).chosen, f32::NEG_INFINITY);
    }
}
