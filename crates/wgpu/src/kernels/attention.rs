//! [FlashAttention](https://arxiv.org/abs/2205.14135): one workgroup per query processes as many visible rows at a time as it
//! has invocations, with an online softmax that rescales the sum of values by the largest score so far.

use orlop_backend::Reason;
use orlop_graph::{DType, FlashAttention, TensorDesc};

use super::Task;
use super::soft_max::LOWEST;
use crate::wgsl::{Kernel, WORKGROUP, Writer, can_read};

/// Maximum row length of Q and V, which are kept in workgroup memory and registers.
const LONGEST: u64 = 512;

pub(super) fn accepts(params: &FlashAttention, inputs: &[TensorDesc]) -> Result<(), Reason> {
    if let Some(operand) = (0..3).find(|operand| !can_read(inputs[*operand].dtype)) {
        return Err(Reason::DType { operand, dtype: inputs[operand].dtype });
    }
    let ranges = [params.kv_len_slot(), params.kv_first_slot()].into_iter().flatten();
    let mut integers = ranges.chain(params.page_slots().into_iter().flatten());
    if let Some(operand) = integers.find(|slot| inputs[*slot].dtype != DType::I32) {
        return Err(Reason::DType { operand, dtype: inputs[operand].dtype });
    }
    let longest = inputs[0].extents[0].max(inputs[2].extents[0]);
    if longest > LONGEST {
        return Err(Reason::Limit { limit: "the head size", value: longest, max: LONGEST });
    }
    Ok(())
}

pub(super) fn build(task: &Task<'_>, params: &FlashAttention) -> Kernel {
    let mut writer = Writer::new().with_subgroups(task.subgroups);
    let [q, k, v] = [&task.inputs[0], &task.inputs[1], &task.inputs[2]];
    writer.read("q", q).read("k", k).read("v", v);
    let Rows { limit, sequence, place, placed } = Rows::of(task, params, &mut writer);
    let length = match params.kv_len_slot() {
        Some(slot) => {
            writer.read("n", &task.inputs[slot]);
            format!(
                "  if (lane == 0u) {{ seen = min(u32(max({}, 0)), {limit}); }}
  let length = workgroupUniformLoad(&seen);
",
                listed("n", "token")
            )
        }
        None => "  let length = p.k_n1;\n".to_owned(),
    };
    if params.kv_len {
        writer.global("var<workgroup> seen: u32;");
    }
    let begun = match params.kv_first_slot() {
        Some(slot) => {
            writer.read("f", &task.inputs[slot]).global("var<workgroup> first_seen: u32;");
            format!(
                "  if (lane == 0u) {{ first_seen = u32(max({}, 0)); }}
  let begun = workgroupUniformLoad(&first_seen);
",
                listed("f", "token")
            )
        }
        None => "  let begun = 0u;\n".to_owned(),
    };
    let (mask, bias, hidden) = match params.mask_slot() {
        Some(slot) => {
            writer.read("m", &task.inputs[slot]);
            (
                "  let hidden = m_row(token, head % p.m_n2, seq % p.m_n3);
  let slope = slope(bitcast<f32>(p.bias), p.q_n2, head);
",
                "      let bias = slope * m_at(hidden, row);\n",
                "is_hidden(bias)",
            )
        }
        None => ("", "      let bias = 0.0;\n", "false"),
    };
    let sink = match params.sinks_slot() {
        Some(slot) => {
            writer.read("s", &task.inputs[slot]);
            "  let sink = s_at(p.s_o, head);
  let final_most = max(most, sink);
  let kept = exp_of(most - final_most);
  sum = sum * kept + exp_of(sink - final_most);
"
        }
        None => "  let kept = 1.0;\n",
    };
    writer.write("y", &task.output);
    writer.float("scale", params.scale).float("bias", params.max_bias).float("cap", params.soft_cap);
    let begin = match params.window {
        0 => "begun".to_owned(),
        window => format!("max(begun, max(length, {window}u) - {window}u)"),
    };
    let cap = if params.soft_cap == 0.0 {
        ""
    } else {
        "      score = bitcast<f32>(p.cap) * tanh_of(score / bitcast<f32>(p.cap));\n"
    };
    let [dk, tokens, heads, seqs] = q.desc.extents;
    let dv = v.desc.extents[0];
    let quads = dk.div_ceil(4).max(1);
    let (kv, rows) = (k.desc.extents[1], tokens * heads * seqs);
    writer.operations(2.0 * (kv * (dk + dv) * rows) as f64);
    writer.global(&format!(
        "var<workgroup> query: array<vec4<f32>, {quads}>;\nvar<workgroup> weights: array<f32, {WORKGROUP}>;"
    ));
    let Values { before, each, after } = if dv.is_multiple_of(4) && dv / 4 <= u64::from(WORKGROUP) {
        writer.global(&format!("var<workgroup> collected: array<vec4<f32>, {WORKGROUP}>;"));
        Values::in_quads(dv / 4, placed)
    } else {
        Values::in_columns(dv, placed)
    };
    let body = format!(
        "  let head = index % p.q_n2;
  let i1 = index / p.q_n2;
  let token = i1 % p.q_n1;
  let seq = i1 / p.q_n1;
  let kv_head = head / (p.q_n2 / p.k_n2);
  let kv_seq = seq / (p.q_n3 / p.k_n3);
  let source = q_row(token, head, seq);
  for (var n = lane; n < {quads}u; n += {WORKGROUP}u) {{ query[n] = q_quad(source, 4u * n); }}
  workgroupBarrier();
{length}{begun}{mask}{sequence}  var most = {LOWEST};
  var sum = 0.0;
{before}  for (var start = {begin}; start < length; start += {WORKGROUP}u) {{
    let row = start + lane;
    var score = {LOWEST};
    if (row < length) {{
{place}{bias}      if (!({hidden})) {{
        let at = k_row(place, kv_head, kv_seq);
        var product = 0.0;
        for (var n = 0u; n < {quads}u; n++) {{ product += dot(query[n], k_quad(at, 4u * n)); }}
        score = product * bitcast<f32>(p.scale);
{cap}        score += bias;
      }}
    }}
    let next = max(most, largest(score));
    let shrunk = exp_of(most - next);
    let weight = select(exp_of(score - next), 0.0, score <= {LOWEST});
    weights[lane] = weight;
    sum = sum * shrunk + total(weight);
    most = next;
    workgroupBarrier();
    let rows = min({WORKGROUP}u, length - start);
{each}    workgroupBarrier();
  }}
{sink}  let to = y_row(head, token, seq);
{after}"
    );
    writer.each_group(rows, &body)
}

/// WGSL of an integer in a list that may have any shape.
pub(super) fn listed(name: &str, index: &str) -> String {
    format!(
        "{name}_int({name}_row({index} / p.{name}_n0 % p.{name}_n1, {index} / (p.{name}_n0 * p.{name}_n1) % p.{name}_n2, \
         {index} / (p.{name}_n0 * p.{name}_n1 * p.{name}_n2)), {index} % p.{name}_n0)"
    )
}

/// WGSL of where rows are.
struct Rows {
    /// How many a query may see.
    limit: String,
    /// Before all rows.
    sequence: String,
    /// `place`, where row `row` is.
    place: String,
    /// The same for row `r` of those with known weights.
    placed: &'static str,
}

impl Rows {
    fn of(task: &Task<'_>, params: &FlashAttention, writer: &mut Writer) -> Rows {
        let Some([pages, sequences]) = params.page_slots() else {
            let place = "      let place = row;\n".to_owned();
            return Rows { limit: "p.k_n1".to_owned(), sequence: String::new(), place, placed: "start + r" };
        };
        writer.read("g", &task.inputs[pages]).read("t", &task.inputs[sequences]);
        writer.global(&format!("var<workgroup> places: array<u32, {WORKGROUP}>;"));
        let rows = params.page_rows;
        // Indices out of range were reported before; here they only must stay within the operands.
        let sequence = listed("t", "token");
        Rows {
            limit: format!("p.g_n0 * {rows}u"),
            sequence: format!("  let pages = g_row(min(u32(max({sequence}, 0)), p.g_n1 - 1u), 0u, 0u);\n"),
            place: format!(
                "      let page = min(u32(max(g_int(pages, row / {rows}u), 0)), p.k_n1 / {rows}u - 1u);
      let place = page * {rows}u + row % {rows}u;
      places[lane] = place;
"
            ),
            placed: "places[r]",
        }
    }
}

/// WGSL of the sum of values: before all rows, for `rows` rows with known `weights`, and at the end.
struct Values {
    before: String,
    each: String,
    after: String,
}

impl Values {
    /// An invocation sums four columns of a part of the rows; the parts are added at the end.
    fn in_quads(quads: u64, placed: &str) -> Values {
        let shares = u64::from(WORKGROUP) / quads;
        Values {
            before: format!(
                "  var held = vec4<f32>();\n  let part = lane % {quads}u;\n  let share = lane / {quads}u;\n"
            ),
            each: format!(
                "    held *= shrunk;
    if (share < {shares}u) {{
      for (var r = share; r < rows; r += {shares}u) {{
        let weight = weights[r];
        if (weight != 0.0) {{ held += weight * v_quad(v_row({placed}, kv_head, kv_seq), 4u * part); }}
      }}
    }}
"
            ),
            after: format!(
                "  collected[lane] = held;
  workgroupBarrier();
  if (lane < {quads}u) {{
    for (var n = 1u; n < {shares}u; n++) {{ held += collected[lane + n * {quads}u]; }}
    for (var c = 0u; c < 4u; c++) {{ y_put(to, 4u * lane + c, select(held[c] * kept / sum, 0.0, sum == 0.0)); }}
  }}
"
            ),
        }
    }

    /// An invocation sums some columns of all rows.
    fn in_columns(columns: u64, placed: &str) -> Values {
        let held = columns.div_ceil(u64::from(WORKGROUP)).max(1);
        Values {
            before: format!("  var held = array<f32, {held}>();\n"),
            each: format!(
                "    for (var h = 0u; h < {held}u; h++) {{
      let column = lane + h * {WORKGROUP}u;
      var own = held[h] * shrunk;
      if (column < p.v_n0) {{
        for (var r = 0u; r < rows; r++) {{
          let weight = weights[r];
          if (weight != 0.0) {{ own += weight * v_at(v_row({placed}, kv_head, kv_seq), column); }}
        }}
      }}
      held[h] = own;
    }}
"
            ),
            after: format!(
                "  for (var h = 0u; h < {held}u; h++) {{
    let column = lane + h * {WORKGROUP}u;
    if (column < p.v_n0) {{ y_put(to, column, select(held[h] * kept / sum, 0.0, sum == 0.0)); }}
  }}
"
            ),
        }
    }
}
