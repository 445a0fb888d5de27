//! State-space models: the short convolution, the scan, and that of the delta rule.

use super::{Task, coordinates};
use crate::wgsl::{Kernel, Writer};

pub(super) fn conv(task: &Task<'_>) -> Kernel {
    let mut writer = Writer::new();
    writer.read("x", &task.inputs[0]).read("w", &task.inputs[1]).write("y", &task.output);
    let body = format!(
        "{}  let source = x_row(i, k, 0u);
  let kernel = w_row(i, 0u, 0u);
  var sum = 0.0;
  for (var n = 0u; n < p.w_n0; n++) {{ sum += x_at(source, j + n) * w_at(kernel, n); }}
  y_put(y_row(j, k, l), i, sum);
",
        coordinates("y")
    );
    writer.each(task.output.desc.elements(), &body)
}

/// One invocation per channel of each head and sequence: it processes the tokens in order, and keeps its state in the
/// result.
pub(super) fn scan(task: &Task<'_>) -> Kernel {
    let mut writer = Writer::new();
    let names = ["s", "x", "t", "a", "b", "c", "n"];
    for (name, place) in names.into_iter().zip(&task.inputs) {
        writer.read(name, place);
    }
    let [head, heads, _, seqs] = task.inputs[1].desc.extents;
    writer.write("y", &task.output).number("outputs", task.inputs[1].desc.elements());
    let body = "  let channel = index % p.x_n0;
  let i1 = index / p.x_n0;
  let head = i1 % p.x_n1;
  let seq = i1 / p.x_n1;
  let n1 = seq / p.n_n0;
  let n2 = n1 / p.n_n1;
  let id = n_int(n_row(n1 % p.n_n1, n2 % p.n_n2, n2 / p.n_n2), seq % p.n_n0);
  let old = s_row(channel, head, min(u32(max(id, 0)), p.s_n3 - 1u));
  let state = p.outputs + index * p.s_n0;
  for (var i = 0u; i < p.s_n0; i++) { y_put(p.y_o, state + i, s_at(old, i)); }
  let share = head / (p.x_n1 / p.b_n1);
  let decay = a_row(head, 0u, 0u);
  for (var token = 0u; token < p.x_n2; token++) {
    let step = softplus(t_at(t_row(token, seq, 0u), head));
    let input = x_at(x_row(head, token, seq), channel) * step;
    let b = b_row(share, token, seq);
    let c = c_row(share, token, seq);
    var sum = 0.0;
    for (var i = 0u; i < p.s_n0; i++) {
      let rate = exp_of(step * a_at(decay, select(i, 0u, p.a_n0 == 1u)));
      let v = y_at(p.y_o, state + i) * rate + b_at(b, i) * input;
      y_put(p.y_o, state + i, v);
      sum += v * c_at(c, i);
    }
    y_put(p.y_o, ((seq * p.x_n2 + token) * p.x_n1 + head) * p.x_n0 + channel, sum);
  }
";
    writer.each(head * heads * seqs, body)
}

/// One invocation per value of each head and sequence: it processes the tokens in order, and keeps its column of the state
/// in the result, where those of its neighbors lie beside it.
pub(super) fn delta_scan(task: &Task<'_>) -> Kernel {
    let mut writer = Writer::new();
    let names = ["s", "r", "w", "k", "v", "a", "b", "n"];
    for (name, place) in names.into_iter().zip(&task.inputs) {
        writer.read(name, place);
    }
    let [value, heads, _, seqs] = task.inputs[4].desc.extents;
    writer.write("y", &task.output).number("outputs", task.inputs[4].desc.elements());
    let body = "  let value = index % p.v_n0;
  let i1 = index / p.v_n0;
  let head = i1 % p.v_n1;
  let seq = i1 / p.v_n1;
  let n1 = seq / p.n_n0;
  let n2 = n1 / p.n_n1;
  let id = min(u32(max(n_int(n_row(n1 % p.n_n1, n2 % p.n_n2, n2 / p.n_n2), seq % p.n_n0), 0)), p.s_n3 - 1u);
  let keys = p.s_n1;
  let state = p.outputs + i1 * keys * p.v_n0 + value;
  for (var i = 0u; i < keys; i++) { y_put(p.y_o, state + i * p.v_n0, s_at(s_row(i, head, id), value)); }
  for (var token = 0u; token < p.v_n2; token++) {
    let r = r_row(head, token, seq);
    let w = w_row(head, token, seq);
    let k = k_row(head, token, seq);
    let a = a_row(head, token, seq);
    let b = b_row(head, token, seq);
    let input = v_at(v_row(head, token, seq), value);
    var known = 0.0;
    for (var i = 0u; i < keys; i++) { known += y_at(p.y_o, state + i * p.v_n0) * a_at(a, i); }
    var sum = 0.0;
    for (var i = 0u; i < keys; i++) {
      let decay = w_at(w, select(i, 0u, p.w_n0 == 1u));
      let at = state + i * p.v_n0;
      let next = y_at(p.y_o, at) * decay - known * b_at(b, i) + input * k_at(k, i);
      y_put(p.y_o, at, next);
      sum += next * r_at(r, i);
    }
    y_put(p.y_o, ((seq * p.v_n2 + token) * p.v_n1 + head) * p.v_n0 + value, sum);
  }
";
    writer.each(value * heads * seqs, body)
}
