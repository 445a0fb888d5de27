//! State-space models: the short convolution and the scan.

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
