//! WGSL functions shared by kernels, independent of their operands.

use super::WORKGROUP;

/// All functions: name and source.
pub(crate) fn functions(subgroups: bool) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> =
        PLAIN.iter().map(|(name, text)| ((*name).into(), (*text).into())).collect();
    all.push(reduction("total", "f32", "a + b", subgroups.then_some("subgroupAdd")));
    all.push(reduction("largest", "f32", "max(a, b)", subgroups.then_some("subgroupMax")));
    all.push(reduction("totals", "vec4<f32>", "a + b", subgroups.then_some("subgroupAdd")));
    all
}

/// A reduction over the invocations of a workgroup, with subgroup operations if available.
fn reduction(name: &str, kind: &str, combine: &str, subgroup: Option<&str>) -> (String, String) {
    let memory = if kind == "f32" { "partial" } else { "partials" };
    let text = match subgroup {
        Some(subgroup) => format!(
            "fn {name}(v: {kind}) -> {kind} {{
  let own = {subgroup}(v);
  if (mate == 0u) {{ {memory}[team] = own; }}
  workgroupBarrier();
  var a = {memory}[0];
  for (var i = 1u; i < teams; i++) {{ let b = {memory}[i]; a = {combine}; }}
  workgroupBarrier();
  return a;
}}
"
        ),
        None => format!(
            "fn {name}(v: {kind}) -> {kind} {{
  {memory}[lane] = v;
  workgroupBarrier();
  for (var half = {half}u; half > 0u; half >>= 1u) {{
    if (lane < half) {{ let a = {memory}[lane]; let b = {memory}[lane + half]; {memory}[lane] = {combine}; }}
    workgroupBarrier();
  }}
  let result = {memory}[0];
  workgroupBarrier();
  return result;
}}
",
            half = WORKGROUP / 2
        ),
    };
    (name.to_owned(), text)
}

const PLAIN: [(&str, &str); 28] = [
    // F16 is converted in code: drivers may round differently and flush subnormals to zero.
    (
        "half_float",
        "fn half_float(h: u32) -> f32 {
  let sign = (h & 0x8000u) << 16u;
  let exponent = (h >> 10u) & 31u;
  let mantissa = h & 0x3ffu;
  let small = bitcast<u32>(f32(mantissa) * 5.9604644775390625e-8);
  let normal = ((exponent + 112u) << 23u) | (mantissa << 13u);
  let special = 0x7f800000u | (mantissa << 13u);
  let size = select(select(normal, special, exponent == 31u), small, exponent == 0u);
  return bitcast<f32>(sign | size);
}
",
    ),
    (
        "to_half",
        "fn to_half(v: f32) -> u32 {
  let bits = bitcast<u32>(v);
  let sign = (bits >> 16u) & 0x8000u;
  let size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) { return sign | 0x7e00u; }
  if (size >= 0x477ff000u) { return sign | 0x7c00u; }
  if (size < 0x38800000u) {
    if (size < 0x33000000u) { return sign; }
    let shift = 126u - (size >> 23u);
    let mantissa = (size & 0x7fffffu) | 0x800000u;
    let kept = mantissa >> shift;
    let rest = mantissa & ((1u << shift) - 1u);
    let middle = 1u << (shift - 1u);
    let up = select(0u, 1u, rest > middle || (rest == middle && (kept & 1u) == 1u));
    return sign | (kept + up);
  }
  let rounded = size + 0xfffu + ((size >> 13u) & 1u);
  return sign | ((rounded >> 13u) - 0x1c000u);
}
",
    ),
    (
        "to_brain",
        "fn to_brain(v: f32) -> u32 {
  let bits = bitcast<u32>(v);
  if ((bits & 0x7fffffffu) > 0x7f800000u) { return (bits >> 16u) | 64u; }
  return (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
}
",
    ),
    ("table", "fn table(i: u32) -> f32 { return p.numbers[i >> 2u][i & 3u]; }\n"),
    ("nibbles", "fn nibbles(q: u32) -> vec4<f32> { return vec4<f32>(unpack4xU8(q & 0x0f0f0f0fu)); }\n"),
    ("bits", "fn bits(q: u32) -> vec4<f32> { return vec4<f32>(vec4<u32>(q, q >> 1u, q >> 2u, q >> 3u) & vec4<u32>(1u)); }\n"),
    // Entries of a table of 16 signed bytes.
    (
        "picked",
        "fn picked(levels: vec4<u32>, codes: vec4<u32>) -> vec4<f32> {
  var v = vec4<f32>();
  for (var j = 0u; j < 4u; j++) {
    v[j] = f32(extractBits(bitcast<i32>(levels[codes[j] >> 2u] >> ((codes[j] & 3u) * 8u)), 0u, 8u));
  }
  return v;
}
",
    ),
    // Codes of a codebook's entry, of two or three bits, each with one of the upper bits above it.
    (
        "pairs",
        "fn pairs(entry: u32, upper: u32) -> vec4<u32> {
  return ((vec4<u32>(entry) >> vec4<u32>(0u, 2u, 4u, 6u)) & vec4<u32>(3u))
    | (((vec4<u32>(upper) >> vec4<u32>(0u, 1u, 2u, 3u)) & vec4<u32>(1u)) << vec4<u32>(2u));
}
",
    ),
    (
        "triples",
        "fn triples(entry: u32, upper: u32) -> vec4<u32> {
  return ((vec4<u32>(entry) >> vec4<u32>(0u, 3u, 6u, 9u)) & vec4<u32>(7u))
    | (((vec4<u32>(upper) >> vec4<u32>(0u, 1u, 2u, 3u)) & vec4<u32>(1u)) << vec4<u32>(3u));
}
",
    ),
    // Eight signs of which seven are stored: the number of negative elements is even.
    (
        "even_signs",
        "fn even_signs(code: u32) -> u32 {
  let seven = code & 127u;
  return seven | ((countOneBits(seven) & 1u) << 7u);
}
",
    ),
    ("odd", "fn odd(stored: u32) -> f32 { return f32(2u * stored + 1u); }\n"),
    // Values of the codes of MXFP4 and NVFP4.
    (
        "micro",
        "fn micro(q: u32) -> vec4<f32> {
  let codes = unpack4xU8(q & 0x07070707u);
  let size = select(vec4<f32>(codes), vec4<f32>(6.0, 6.0, 6.0, 6.0), codes == vec4<u32>(5u));
  let large = select(select(size, vec4<f32>(8.0), codes == vec4<u32>(6u)), vec4<f32>(12.0), codes == vec4<u32>(7u));
  return select(large, -large, (unpack4xU8(q) & vec4<u32>(8u)) != vec4<u32>(0u));
}
",
    ),
    (
        "extreme",
        "fn extreme() -> f32 {
  var found = block[0];
  for (var j = 1u; j < 32u; j++) { if (abs(block[j]) > abs(found)) { found = block[j]; } }
  return found;
}
",
    ),
    ("is_nan", "fn is_nan(v: f32) -> bool { return (bitcast<u32>(v) & 0x7fffffffu) > 0x7f800000u; }\n"),
    ("is_hidden", "fn is_hidden(v: f32) -> bool { return bitcast<u32>(v) == 0xff800000u; }\n"),
    // An integer key with the order of floats: NaN first, both zeros equal.
    (
        "order",
        "fn order(v: f32) -> u32 {
  let bits = bitcast<u32>(v);
  if ((bits & 0x7fffffffu) > 0x7f800000u) { return 0u; }
  if ((bits & 0x7fffffffu) == 0u) { return 0x80000000u; }
  return select(bits | 0x80000000u, ~bits, (bits >> 31u) == 1u);
}
",
    ),
    // Drivers may be inexact beyond one period, and overflow incorrectly.
    (
        "turn",
        "fn turn(x: f32) -> vec2<f32> {
  let quarter = round(x * 0.63661977);
  var r = x - quarter * 1.5703125;
  r = r - quarter * 4.837512969970703125e-4;
  r = r - quarter * 7.54978995489188216e-8;
  let z = r * r;
  let s = r + r * z * (-1.6666654611e-1 + z * (8.3321608736e-3 - z * 1.9515295891e-4));
  let c = 1.0 - 0.5 * z + z * z * (4.166664568298827e-2 + z * (-1.388731625493765e-3 + z * 2.443315711809948e-5));
  switch (i32(quarter) & 3) {
    case 0: { return vec2<f32>(s, c); }
    case 1: { return vec2<f32>(c, -s); }
    case 2: { return vec2<f32>(-s, -c); }
    default: { return vec2<f32>(-c, s); }
  }
}
",
    ),
    ("exp_of", "fn exp_of(x: f32) -> f32 { return exp(clamp(x, -104.0, 88.7)); }\n"),
    (
        "tanh_of",
        "fn tanh_of(x: f32) -> f32 {
  let e = exp_of(-2.0 * abs(x));
  return sign(x) * (1.0 - e) / (1.0 + e);
}
",
    ),
    ("sigmoid", "fn sigmoid(x: f32) -> f32 { return 1.0 / (1.0 + exp_of(-x)); }\n"),
    ("hard_sigmoid", "fn hard_sigmoid(x: f32) -> f32 { return clamp((x + 3.0) / 6.0, 0.0, 1.0); }\n"),
    ("softplus", "fn softplus(x: f32) -> f32 { return max(x, 0.0) + log(1.0 + exp_of(-abs(x))); }\n"),
    // Abramowitz and Stegun 7.1.26.
    (
        "complement",
        "fn complement(x: f32) -> f32 {
  let t = 1.0 / (1.0 + 0.3275911 * abs(x));
  let series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
  let tail = series * exp_of(-x * x);
  return select(2.0 - tail, tail, x >= 0.0);
}
",
    ),
    (
        "gelu",
        "fn gelu(x: f32) -> f32 { return 0.5 * x * (1.0 + tanh_of(0.7978845608 * (x + 0.044715 * x * x * x))); }\n",
    ),
    ("gelu_erf", "fn gelu_erf(x: f32) -> f32 { return 0.5 * x * complement(-x * 0.70710678); }\n"),
    ("gelu_quick", "fn gelu_quick(x: f32) -> f32 { return x * sigmoid(1.702 * x); }\n"),
    ("silu", "fn silu(x: f32) -> f32 { return x * sigmoid(x); }\n"),
    // The ALiBi slope of a head (https://arxiv.org/abs/2108.12409).
    (
        "slope",
        "fn slope(bias: f32, heads: u32, head: u32) -> f32 {
  if (bias <= 0.0) { return 1.0; }
  let power = 1u << firstLeadingBit(heads);
  let first = bias / f32(power) * f32(head + 1u);
  let beyond = bias * 0.5 / f32(power) * f32(2u * (head - power) + 1u);
  return exp2(-select(beyond, first, head < power));
}
",
    ),
];
