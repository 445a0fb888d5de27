//! State-space models: the short convolution, the scan, and that of the delta rule.

use orlop_graph::TensorDesc;

use super::coordinates::{coordinates, outer, shared};
use super::product::dot;
use super::rows::in_range;
use super::unary::softplus;
use crate::elements::extents;
use crate::{Elements, OpFailure};

pub(super) fn conv(x: &Elements, kernel: &Elements, output: &TensorDesc) -> Vec<f64> {
    let size = kernel.extents()[0];
    let element = |[channel, token, seq, _]: [usize; 4]| {
        dot(&x.row([channel, seq, 0])[token..token + size], kernel.row([channel, 0, 0]))
    };
    coordinates(extents(output)).map(element).collect()
}

/// For each head and token: `state = state * exp(step * a) + b * x * step`, `y = state · c`, where the step is
/// the softplus of `dt`. Heads share `b` and `c` in groups of neighbours.
pub(super) fn scan(x: &[Elements]) -> Result<Vec<f64>, OpFailure> {
    let [states, inputs, dt, a, b, c, ids] = x else { return Err(OpFailure::NotComputed) };
    let [size, _, _, _] = states.extents();
    let [inner, heads, tokens, seqs] = inputs.extents();
    let (decays, groups) = (a.extents()[0], b.extents()[1]);
    let mut outputs = vec![0.0; inputs.values().len()];
    let mut new_states = Vec::new();
    for (seq, id) in ids.values().iter().enumerate().take(seqs) {
        let from = in_range(*id as i64, states.desc().extents[3])?;
        for [channel, head, _] in outer([inner, heads, 1]) {
            let mut state = states.row([channel, head, from]).to_vec();
            for token in 0..tokens {
                let step = softplus(dt.at([head, token, seq, 0]));
                let input = inputs.at([channel, head, token, seq]) * step;
                let group = shared(head, groups, heads);
                let (b, c) = (b.row([group, token, seq]), c.row([group, token, seq]));
                for (at, state) in state.iter_mut().enumerate() {
                    let decay = a.at([if decays == 1 { 0 } else { at }, head, 0, 0]);
                    *state = *state * (step * decay).exp() + b[at] * input;
                }
                outputs[((seq * tokens + token) * heads + head) * inner + channel] = dot(&state, c);
            }
            new_states.extend(state);
        }
    }
    debug_assert_eq!(new_states.len(), size * inner * heads * seqs);
    outputs.extend(new_states);
    Ok(outputs)
}

/// For each head and token: `state = state w - (state a) b + v k`, `y = state r`, where rows of the state are values and
/// lie along its first dimension.
pub(super) fn delta_scan(x: &[Elements]) -> Result<Vec<f64>, OpFailure> {
    let [states, r, w, k, v, a, b, ids] = x else { return Err(OpFailure::NotComputed) };
    let [values, keys, _, _] = states.extents();
    let [_, heads, tokens, seqs] = v.extents();
    let mut outputs = vec![0.0; v.values().len()];
    let mut new_states = vec![0.0; values * keys * heads * seqs];
    for (seq, id) in ids.values().iter().enumerate().take(seqs) {
        let from = in_range(*id as i64, states.desc().extents[3])?;
        for [value, head, _] in outer([values, heads, 1]) {
            let mut state: Vec<f64> = (0..keys).map(|key| states.at([value, key, head, from])).collect();
            for token in 0..tokens {
                let [r, w, k, a, b] = [r, w, k, a, b].map(|operand| operand.row([head, token, seq]));
                let (known, input) = (dot(&state, a), v.at([value, head, token, seq]));
                for (key, state) in state.iter_mut().enumerate() {
                    let decay = w[if w.len() == 1 { 0 } else { key }];
                    *state = *state * decay - known * b[key] + input * k[key];
                }
                outputs[((seq * tokens + token) * heads + head) * values + value] = dot(&state, r);
            }
            for (key, state) in state.into_iter().enumerate() {
                new_states[((seq * heads + head) * keys + key) * values + value] = state;
            }
        }
    }
    outputs.extend(new_states);
    Ok(outputs)
}
