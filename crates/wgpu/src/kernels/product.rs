//! Matrix products with matrices of any type.
//!
//! Few rows of activations (a token, or a handful): a workgroup computes some elements of a row of the result, and its
//! invocations split the dot products. Many rows: a workgroup computes a tile of the result from tiles of both operands
//! converted to F32. On software adapters barriers cost more than they save, so each invocation computes elements alone.

use super::Task;
use crate::wgsl::{Kernel, WORKGROUP, Writer};

/// Elements of a row of the result that one workgroup computes.
const AT_ONCE: u64 = 4;
/// Rows of activations that an invocation multiplies by one row of the matrix.
const BATCH: u64 = 8;
/// Up to this many rows of activations, tiles are not used.
const FEW: u64 = 4;
/// Side of a tile.
const TILE: u64 = 32;

pub(super) fn mul_mat(task: &Task<'_>) -> Kernel {
    let [k, m, _, _] = task.inputs[0].desc.extents;
    let n = task.inputs[1].desc.extents[1];
    let mut writer = Writer::new().with_subgroups(task.subgroups);
    writer.read("a", &task.inputs[0]).read("b", &task.inputs[1]).write("y", &task.output);
    writer.operations(2.0 * k as f64 * task.output.desc.elements() as f64);
    match () {
        () if !task.cooperative => alone(task, writer, m, n),
        () if n <= FEW => few(task, writer, m),
        () => many(task, writer),
    }
}

/// Sums of `AT_ONCE` rows of `a`, from `left` on, times one row of `b`, of their first `depth` elements.
fn sums() -> String {
    format!(
        "  var sums = vec4<f32>();
  for (var q = 4u * lane; q < depth; q += {}u) {{
    let v = b_quad(right, q);
    for (var r = 0u; r < {AT_ONCE}u; r++) {{ sums[r] += dot(a_quad(left + min(r, rest) * p.a_s1, q), v); }}
  }}
  sums = totals(sums);
  if (lane == 0u) {{
    for (var r = 0u; r <= min(rest, {AT_ONCE}u - 1u); r++) {{ y_put(to, i + r, sums[r]); }}
  }}
",
        4 * WORKGROUP
    )
}

/// Some rows of the matrix per invocation, read once for some rows of activations.
fn alone(task: &Task<'_>, mut writer: Writer, m: u64, n: u64) -> Kernel {
    let batch = BATCH.min(n.next_power_of_two());
    // More rows are fewer reads of activations, but also fewer invocations.
    let rows: u64 = if m < 2048 { 2 } else { 4 };
    let (strips, batches) = (m.div_ceil(rows), n.div_ceil(batch));
    writer.number("strips", strips).number("batches", batches);
    let quads: String =
        (0..rows).map(|r| format!("    let u{r} = a_quad(left + min({r}u, rest) * p.a_s1, q);\n")).collect();
    let dots: Vec<String> = (0..rows).map(|r| format!("dot(u{r}, v)")).collect();
    let body = format!(
        "  let i = (index % p.strips) * {rows}u;
  let i1 = index / p.strips;
  let j = (i1 % p.batches) * {batch}u;
  let i2 = i1 / p.batches;
  let k = i2 % p.y_n2;
  let l = i2 / p.y_n2;
  let left = a_row(i, k / (p.b_n2 / p.a_n2), l / (p.b_n3 / p.a_n3));
  let rest = p.a_n1 - 1u - i;
  let right = b_row(j, k, l);
  let rows = min({batch}u, p.b_n1 - j);
  var sums = array<vec{rows}<f32>, {batch}>();
  for (var q = 0u; q < p.a_n0; q += 4u) {{
{quads}    for (var r = 0u; r < rows; r++) {{
      let v = b_quad(right + r * p.b_s1, q);
      sums[r] += vec{rows}<f32>({});
    }}
  }}
  let to = y_row(j, k, l);
  for (var r = 0u; r < rows; r++) {{
    for (var c = 0u; c <= min(rest, {rows}u - 1u); c++) {{ y_put(to + r * p.y_s1, i + c, sums[r][c]); }}
  }}
",
        dots.join(", ")
    );
    let [_, _, n2, n3] = task.output.desc.extents;
    writer.each(strips * batches * n2 * n3, &body)
}

fn few(task: &Task<'_>, mut writer: Writer, m: u64) -> Kernel {
    let strips = m.div_ceil(AT_ONCE);
    writer.number("strips", strips);
    let body = format!(
        "  let i = (index % p.strips) * {AT_ONCE}u;
  let i1 = index / p.strips;
  let j = i1 % p.y_n1;
  let i2 = i1 / p.y_n1;
  let k = i2 % p.y_n2;
  let l = i2 / p.y_n2;
  let left = a_row(i, k / (p.b_n2 / p.a_n2), l / (p.b_n3 / p.a_n3));
  let right = b_row(j, k, l);
  let to = y_row(j, k, l);
  let rest = p.a_n1 - 1u - i;
  let depth = p.a_n0;
{}",
        sums()
    );
    writer.each_group(strips * task.output.desc.rows(), &body)
}

pub(super) fn mul_mat_id(task: &Task<'_>) -> Kernel {
    let [k, m, _, _] = task.inputs[0].desc.extents;
    let mut writer = Writer::new().with_subgroups(task.subgroups);
    writer.read("a", &task.inputs[0]).read("b", &task.inputs[1]).read("n", &task.inputs[2]);
    writer.write("y", &task.output);
    writer.operations(2.0 * k as f64 * task.output.desc.elements() as f64);
    let strips = m.div_ceil(AT_ONCE);
    writer.number("strips", strips);
    // An expert out of range is reported by its check; clamp it here. Where none is chosen, sums have no terms.
    let body = format!(
        "  let i = (index % p.strips) * {AT_ONCE}u;
  let i1 = index / p.strips;
  let used = i1 % p.y_n1;
  let token = i1 / p.y_n1;
  let chosen = n_int(n_row(token, 0u, 0u), used);
  let expert = min(u32(max(chosen, 0)), p.a_n2 - 1u);
  let depth = select(0u, p.a_n0, chosen >= 0);
  let left = a_row(i, expert, 0u);
  let right = b_row(used % p.b_n1, token, 0u);
  let to = y_row(used, token, 0u);
  let rest = p.a_n1 - 1u - i;
{}",
        sums()
    );
    writer.each_group(strips * task.output.desc.rows(), &body)
}

/// Tiles of 32 by 32; each of 64 invocations computes 4 by 4 elements.
fn many(task: &Task<'_>, mut writer: Writer) -> Kernel {
    let [m, n, n2, n3] = task.output.desc.extents;
    let (across, down) = (m.div_ceil(TILE), n.div_ceil(TILE));
    writer.number("across", across).number("down", down);
    writer
        .global("var<workgroup> left: array<vec4<f32>, 256>;\nvar<workgroup> right: array<vec4<f32>, 256>;");
    // Four quads of each tile per invocation: quad `q` of row `r` is at `r * 8 + q`.
    let body = format!(
        "  let first = (index % p.across) * {TILE}u;
  let i1 = index / p.across;
  let top = (i1 % p.down) * {TILE}u;
  let i2 = i1 / p.down;
  let k = i2 % p.y_n2;
  let l = i2 / p.y_n2;
  let a2 = k / (p.b_n2 / p.a_n2);
  let a3 = l / (p.b_n3 / p.a_n3);
  let x = (lane % 8u) * 4u;
  let y = (lane / 8u) * 4u;
  var sums = array<vec4<f32>, 4>();
  for (var start = 0u; start < p.a_n0; start += {TILE}u) {{
    for (var s = 0u; s < 4u; s++) {{
      let place = lane + s * 64u;
      let r = place / 8u;
      let q = start + (place % 8u) * 4u;
      var u = vec4<f32>();
      if (first + r < p.a_n1 && q < p.a_n0) {{ u = a_quad(a_row(first + r, a2, a3), q); }}
      left[place] = u;
      var v = vec4<f32>();
      if (top + r < p.b_n1 && q < p.b_n0) {{ v = b_quad(b_row(top + r, k, l), q); }}
      right[place] = v;
    }}
    workgroupBarrier();
    for (var q = 0u; q < 8u; q++) {{
      let a0 = left[x * 8u + q];
      let a1 = left[(x + 1u) * 8u + q];
      let a2 = left[(x + 2u) * 8u + q];
      let a3 = left[(x + 3u) * 8u + q];
      for (var r = 0u; r < 4u; r++) {{
        let v = right[(y + r) * 8u + q];
        sums[r] += vec4<f32>(dot(a0, v), dot(a1, v), dot(a2, v), dot(a3, v));
      }}
    }}
    workgroupBarrier();
  }}
  for (var r = 0u; r < 4u; r++) {{
    if (top + y + r >= p.y_n1) {{ break; }}
    let to = y_row(top + y + r, k, l);
    for (var c = 0u; c < 4u; c++) {{
      if (first + x + c < p.y_n0) {{ y_put(to, first + x + c, sums[r][c]); }}
    }}
  }}
"
    );
    writer.each_group(across * down * n2 * n3, &body)
}

pub(super) fn out_prod(task: &Task<'_>) -> Kernel {
    let mut writer = Writer::new();
    writer.read("a", &task.inputs[0]).read("b", &task.inputs[1]).write("y", &task.output);
    let depth = task.inputs[0].desc.extents[1];
    writer.operations(2.0 * depth as f64 * task.output.desc.elements() as f64);
    let body = format!(
        "{}  let a2 = k / (p.b_n2 / p.a_n2);
  let a3 = l / (p.b_n3 / p.a_n3);
  var sum = 0.0;
  for (var n = 0u; n < p.a_n1; n++) {{ sum += a_at(a_row(n, a2, a3), i) * b_at(b_row(n, k, l), j); }}
  y_put(y_row(j, k, l), i, sum);
",
        super::coordinates("y")
    );
    writer.each(task.output.desc.elements(), &body)
}
