//! How elements of each type are read from and written to words of 32 bits.
//!
//! Blocks of GGUF files are used as they are: they begin at any even byte (MXFP4: at any byte), so words are put together
//! from two where needed.

use orlop_graph::{DType, TensorDesc};
use orlop_quant::grid::{self, Grid};
use orlop_quant::{BlockField, BlockLayout, Integers, block_layout};

/// Whether kernels read elements of this type as floats.
pub(crate) fn can_read(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::BF16) || reader(dtype).is_some()
}

/// Whether kernels write elements of this type one by one.
pub(crate) fn can_write(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::BF16 | DType::I32)
}

/// Whether invocations write parts of words.
pub(crate) fn writes_parts(dtype: DType) -> bool {
    !dtype.block_bytes().is_multiple_of(4)
}

/// An operand, as its functions are written.
pub(crate) struct Access<'a> {
    pub(crate) name: &'static str,
    pub(crate) binding: usize,
    pub(crate) desc: &'a TensorDesc,
    /// Whether its words are atomic.
    pub(crate) atomic: bool,
    pub(crate) written: bool,
    /// Whether its rows begin at whole words.
    pub(crate) words: bool,
}

impl Access<'_> {
    /// All its functions: their names, and their text with `@` for the operand's name.
    pub(crate) fn functions(&self) -> Vec<(String, String)> {
        let mut all: Vec<(String, String)> = Vec::new();
        let mut add = |name: &str, text: String| {
            all.push((name.replace('@', self.name), text.replace('@', self.name) + "\n"));
        };
        let buffer = format!("b{}", self.binding);
        let word = if self.atomic { format!("atomicLoad(&{buffer}[w])") } else { format!("{buffer}[w]") };
        add("@_word", format!("fn @_word(w: u32) -> u32 {{ return {word}; }}"));
        for (name, text) in READERS {
            add(name, text.to_owned());
        }
        let whole = self.desc.dtype.block_bytes().is_multiple_of(4);
        add("@_any4", if whole { WHOLE4 } else { ANY4 }.to_owned());
        if codebook(self.desc.dtype).is_some() {
            add("@_entry", ENTRY.to_owned());
        }
        add("@_at", self.at());
        add("@_quad", self.quad());
        match self.desc.dtype {
            DType::I32 => add("@_int", INT32.to_owned()),
            DType::I64 => add("@_int", INT64.to_owned()),
            _ => {}
        }
        if self.written {
            for (name, text) in self.writers(&buffer) {
                add(name, text);
            }
        }
        all
    }

    fn at(&self) -> String {
        let body = match self.desc.dtype {
            DType::F32 => "return bitcast<f32>(@_word((row + i * p.@_s0) >> 2u));",
            DType::F16 => "return half_float(@_raw2(row + i * p.@_s0));",
            DType::BF16 => "return bitcast<f32>(@_raw2(row + i * p.@_s0) << 16u);",
            DType::I32 => "return f32(@_int(row, i));",
            _ => "let q = @_quad(row, i & ~3u); return q[i & 3u];",
        };
        format!("fn @_at(row: u32, i: u32) -> f32 {{ {body} }}")
    }

    fn quad(&self) -> String {
        if let Some((elements, body)) = block(self.desc.dtype) {
            return format!(
                "fn @_quad(row: u32, i: u32) -> vec4<f32> {{
  let at = row + (i / {elements}u) * p.@_s0;
  let r = i % {elements}u;
{body}}}"
            );
        }
        let gapless = self.desc.rows_are_contiguous();
        let together = match self.desc.dtype {
            DType::F32 if gapless => {
                "  let w = (row + i * 4u) >> 2u;
  return bitcast<vec4<f32>>(vec4<u32>(@_word(w), @_word(w + 1u), @_word(w + 2u), @_word(w + 3u)));\n"
            }
            DType::F16 if gapless && self.words => {
                "  let w = (row + i * 2u) >> 2u;
  return vec4<f32>(unpack2x16float(@_word(w)), unpack2x16float(@_word(w + 1u)));\n"
            }
            _ => {
                "  return vec4<f32>(@_at(row, i), @_at(row, i + 1u), @_at(row, i + 2u), @_at(row, i + 3u));\n"
            }
        };
        if self.desc.extents[0].is_multiple_of(4) {
            return format!("fn @_quad(row: u32, i: u32) -> vec4<f32> {{\n{together}}}");
        }
        format!(
            "fn @_quad(row: u32, i: u32) -> vec4<f32> {{
  if (i + 3u < p.@_n0) {{
{together}  }}
  var v = vec4<f32>();
  for (var j = 0u; j < 4u; j++) {{ if (i + j < p.@_n0) {{ v[j] = @_at(row, i + j); }} }}
  return v;
}}"
        )
    }

    fn writers(&self, b: &str) -> Vec<(&'static str, String)> {
        let store = if self.atomic { format!("atomicStore(&{b}[w], v);") } else { format!("{b}[w] = v;") };
        let part = |bytes: u32| {
            let (mask, low) = if bytes == 2 { ("0xffffu", "at & 2u") } else { ("0xffu", "at & 3u") };
            let change = if self.atomic {
                format!("atomicAnd(&{b}[w], ~({mask} << s)); atomicOr(&{b}[w], (v & {mask}) << s);")
            } else {
                format!("{b}[w] = ({b}[w] & ~({mask} << s)) | ((v & {mask}) << s);")
            };
            format!("fn @_set{bytes}(at: u32, v: u32) {{ let w = at >> 2u; let s = ({low}) * 8u; {change} }}")
        };
        let put = match self.desc.dtype {
            DType::F16 => "@_set2(row + i * p.@_s0, to_half(v));",
            DType::BF16 => "@_set2(row + i * p.@_s0, to_brain(v));",
            DType::I32 => "@_set4(row + i * p.@_s0, bitcast<u32>(i32(v)));",
            _ => "@_set4(row + i * p.@_s0, bitcast<u32>(v));",
        };
        let pair = match self.desc.dtype {
            DType::BF16 => "to_brain(a) | (to_brain(b) << 16u)",
            _ => "to_half(a) | (to_half(b) << 16u)",
        };
        vec![
            ("@_set4", format!("fn @_set4(at: u32, v: u32) {{ let w = at >> 2u; {store} }}")),
            ("@_set2", part(2)),
            ("@_set1", part(1)),
            ("@_put", format!("fn @_put(row: u32, i: u32, v: f32) {{ {put} }}")),
            ("@_put_pair", format!("fn @_put_pair(at: u32, a: f32, b: f32) {{ @_set4(at, {pair}); }}")),
            ("@_encode", encoder(self.desc.dtype).unwrap_or_default()),
        ]
    }
}

const READERS: [(&str, &str); 6] = [
    (
        "@_row",
        "fn @_row(j: u32, k: u32, l: u32) -> u32 { return p.@_o + j * p.@_s1 + k * p.@_s2 + l * p.@_s3; }",
    ),
    ("@_raw4", "fn @_raw4(at: u32) -> u32 { return @_word(at >> 2u); }"),
    ("@_raw2", "fn @_raw2(at: u32) -> u32 { return (@_word(at >> 2u) >> ((at & 2u) * 8u)) & 0xffffu; }"),
    ("@_raw1", "fn @_raw1(at: u32) -> u32 { return (@_word(at >> 2u) >> ((at & 3u) * 8u)) & 0xffu; }"),
    // Two halves in one word, where blocks begin at whole ones.
    (
        "@_halves",
        "fn @_halves(at: u32) -> vec2<f32> {
  let w = @_word(at >> 2u);
  return vec2<f32>(half_float(w & 0xffffu), half_float(w >> 16u));
}",
    ),
    // Scale and minimum of a group of 32 in a block of 256, six bits each.
    (
        "@_six",
        "fn @_six(at: u32, g: u32) -> vec2<f32> {
  if (g < 4u) { return vec2<f32>(f32(@_raw1(at + g) & 63u), f32(@_raw1(at + 4u + g) & 63u)); }
  let j = g - 4u;
  let both = @_raw1(at + 8u + j);
  return vec2<f32>(f32((both & 15u) | ((@_raw1(at + j) >> 6u) << 4u)),
    f32((both >> 4u) | ((@_raw1(at + 4u + j) >> 6u) << 4u)));
}",
    ),
];

// Four bytes that begin anywhere. There is no branch, as software adapters go both ways.
const ANY4: &str = "fn @_any4(at: u32) -> u32 {
  let s = (at & 3u) * 8u;
  let w = at >> 2u;
  return (@_word(w) >> s) | select(@_word(w + 1u) << (32u - s), 0u, s == 0u);
}";

// The same for types whose blocks are whole words.
const WHOLE4: &str = "fn @_any4(at: u32) -> u32 { return @_word(at >> 2u); }";

const INT32: &str =
    "fn @_int(row: u32, i: u32) -> i32 { return bitcast<i32>(@_word((row + i * p.@_s0) >> 2u)); }";

// What does not fit 32 bits becomes a number that is no index.
const INT64: &str = "fn @_int(row: u32, i: u32) -> i32 {
  let w = (row + i * p.@_s0) >> 2u;
  let low = bitcast<i32>(@_word(w));
  return select(-2147483647 - 1, low, bitcast<i32>(@_word(w + 1u)) == (low >> 31u));
}";

// An entry of the codebook, which is among the parameters.
const ENTRY: &str = "fn @_entry(i: u32) -> u32 {
  return (p.@_book[i >> 3u][(i >> 1u) & 3u] >> ((i & 1u) * 16u)) & 0xffffu;
}";

/// The codebook of a type that has one: two entries in each word.
pub(crate) fn codebook(dtype: DType) -> Option<Vec<u32>> {
    let grid: &Grid = match dtype {
        DType::IQ1_S | DType::IQ1_M => &grid::IQ1,
        DType::IQ2_XXS => &grid::IQ2_XXS,
        DType::IQ2_XS => &grid::IQ2_XS,
        DType::IQ2_S => &grid::IQ2_S,
        DType::IQ3_XXS => &grid::IQ3_XXS,
        DType::IQ3_S => &grid::IQ3_S,
        _ => return None,
    };
    let (pairs, _) = grid.entries.as_chunks();
    Some(pairs.iter().map(|[low, high]| u32::from(*low) | u32::from(*high) << 16).collect())
}

/// Elements of a block, and how four of them are read: `at` is the block's address, `r` the first element's number.
fn block(dtype: DType) -> Option<(usize, String)> {
    let layout = block_layout(dtype)?;
    Some((layout.elements, filled(reader(dtype)?, layout)))
}

/// A text about the blocks of a type, with `$` before the role of a field for its offset, `$bias` for the bias of codes,
/// `$group_bias` for that of group scales, `$levels` for the table of codes (four bytes in each word) and `$factor` for what
/// the scale is multiplied by.
fn filled(text: &str, layout: &BlockLayout) -> String {
    let mut text = text.to_owned();
    // Longer names first: some begin with others.
    let mut fields = layout.fields.to_vec();
    fields.sort_by_key(|field| std::cmp::Reverse(field.role.name().len()));
    for BlockField { role, offset, .. } in fields {
        let name = format!(" + ${}", role.name());
        text = text.replace(&name, &if offset == 0 { String::new() } else { format!(" + {offset}u") });
    }
    let group_bias = layout.group_scales.map_or(0, |scales| scales.bias());
    if let Integers::Table(levels) = layout.codes {
        let word = |four: &[i8; 4]| format!("0x{:08x}u", u32::from_le_bytes(four.map(|level| level as u8)));
        let words: Vec<String> = levels.as_chunks().0.iter().map(word).collect();
        text = text.replace("$levels", &format!("vec4<u32>({})", words.join(", ")));
    }
    text.replace("$bias", &format!("{}.0", layout.codes.bias()))
        .replace("$group_bias", &format!("{group_bias}.0"))
        .replace("$factor", &format!("{:?}", 1.0 / f64::from(1 << layout.scale_shift)))
}

/// The text of [`block`], to be filled.
fn reader(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::Q4_0 => {
            "  let q = @_any4(at + $codes + (r & 15u)) >> ((r >> 4u) * 4u);
  return half_float(@_raw2(at + $scale)) * (nibbles(q) - $bias);\n"
        }
        DType::Q4_1 => {
            "  let q = @_any4(at + $codes + (r & 15u)) >> ((r >> 4u) * 4u);
  let d = @_halves(at + $scale);
  return d.x * nibbles(q) + d.y;\n"
        }
        DType::Q5_0 => {
            "  let q = @_any4(at + $codes + (r & 15u)) >> ((r >> 4u) * 4u);
  let high = @_any4(at + $high_bits) >> r;
  return half_float(@_raw2(at + $scale)) * (nibbles(q) + 16.0 * bits(high) - $bias);\n"
        }
        DType::Q5_1 => {
            "  let q = @_any4(at + $codes + (r & 15u)) >> ((r >> 4u) * 4u);
  let high = @_any4(at + $high_bits) >> r;
  let d = @_halves(at + $scale);
  return d.x * (nibbles(q) + 16.0 * bits(high)) + d.y;\n"
        }
        DType::Q8_0 => "  return half_float(@_raw2(at + $scale)) * vec4<f32>(unpack4xI8(@_any4(at + $codes + r)));\n",
        DType::Q8_1 => "  return half_float(@_raw2(at + $scale)) * vec4<f32>(unpack4xI8(@_any4(at + $codes + r)));\n",
        DType::Q8_K => "  return bitcast<f32>(@_any4(at + $scale)) * vec4<f32>(unpack4xI8(@_any4(at + $codes + r)));\n",
        DType::TQ2_0 => {
            "  let q = @_any4(at + $codes + (r >> 7u) * 32u + (r & 31u)) >> (((r >> 5u) & 3u) * 2u);
  return half_float(@_raw2(at + $scale)) * (vec4<f32>(unpack4xU8(q & 0x03030303u)) - $bias);\n"
        }
        DType::Q2_K => {
            "  let q = @_any4(at + $codes + (r >> 7u) * 32u + (r & 31u)) >> (((r >> 5u) & 3u) * 2u);
  let s = @_raw1(at + $group_scales + (r >> 4u));
  let d = @_halves(at + $scale);
  return d.x * f32(s & 15u) * vec4<f32>(unpack4xU8(q & 0x03030303u)) - d.y * f32(s >> 4u);\n"
        }
        DType::Q3_K => {
            "  let low = @_any4(at + $codes + (r >> 7u) * 32u + (r & 31u)) >> (((r >> 5u) & 3u) * 2u);
  let high = @_any4(at + $high_bits + (r & 31u)) >> (r >> 5u);
  let q = (low & 0x03030303u) | ((high & 0x01010101u) << 2u);
  let g = r >> 4u;
  let s = ((@_raw1(at + $group_scales + (g & 7u)) >> ((g >> 3u) * 4u)) & 15u)
    | (((@_raw1(at + $group_scales + 8u + (g & 3u)) >> ((g >> 2u) * 2u)) & 3u) << 4u);
  return half_float(@_raw2(at + $scale)) * (f32(s) - $group_bias) * (vec4<f32>(unpack4xU8(q)) - $bias);\n"
        }
        DType::Q4_K => {
            "  let q = @_any4(at + $codes + (r >> 6u) * 32u + (r & 31u)) >> (((r >> 5u) & 1u) * 4u);
  let s = @_six(at + $group_scales, r >> 5u);
  let d = @_halves(at + $scale);
  return d.x * s.x * nibbles(q) - d.y * s.y;\n"
        }
        DType::Q5_K => {
            "  let low = @_any4(at + $codes + (r >> 6u) * 32u + (r & 31u)) >> (((r >> 5u) & 1u) * 4u);
  let high = @_any4(at + $high_bits + (r & 31u)) >> (r >> 5u);
  let q = (low & 0x0f0f0f0fu) | ((high & 0x01010101u) << 4u);
  let s = @_six(at + $group_scales, r >> 5u);
  let d = @_halves(at + $scale);
  return d.x * s.x * vec4<f32>(unpack4xU8(q)) - d.y * s.y;\n"
        }
        DType::Q6_K => {
            "  let low = @_any4(at + $codes + (r >> 7u) * 64u + (r & 63u)) >> (((r >> 6u) & 1u) * 4u);
  let high = @_any4(at + $high_bits + (r >> 7u) * 32u + (r & 31u)) >> (((r >> 5u) & 3u) * 2u);
  let q = (low & 0x0f0f0f0fu) | ((high & 0x03030303u) << 4u);
  let s = f32(extractBits(bitcast<i32>(@_raw1(at + $group_scales + (r >> 4u))), 0u, 8u));
  return half_float(@_raw2(at + $scale)) * s * (vec4<f32>(unpack4xU8(q)) - $bias);\n"
        }
        DType::IQ4_NL => {
            "  let q = @_any4(at + $codes + (r & 15u)) >> ((r >> 4u) * 4u);
  return half_float(@_raw2(at + $scale)) * picked($levels, unpack4xU8(q & 0x0f0f0f0fu));\n"
        }
        DType::IQ4_XS => {
            "  let q = @_any4(at + $codes + (r >> 5u) * 16u + (r & 15u)) >> (((r >> 4u) & 1u) * 4u);
  let g = r >> 5u;
  let s = ((@_raw1(at + $group_scales + (g >> 1u)) >> ((g & 1u) * 4u)) & 15u) | (((@_raw2(at + $group_scales_high) >> (g * 2u)) & 3u) << 4u);
  return half_float(@_raw2(at + $scale)) * (f32(s) - $group_bias) * picked($levels, unpack4xU8(q & 0x0f0f0f0fu));\n"
        }
        DType::MXFP4 => {
            "  let q = @_any4(at + $codes + (r & 15u)) >> ((r >> 4u) * 4u);
  let e = @_raw1(at + $scale);
  let scale = bitcast<f32>(select((e - 1u) << 23u, 0x00200000u << e, e < 2u));
  return scale * micro(q);\n"
        }
        DType::NVFP4 => {
            "  let q = @_any4(at + $codes + (r >> 4u) * 8u + (r & 7u)) >> (((r >> 3u) & 1u) * 4u);
  let s = @_raw1(at + $scale + (r >> 4u)) & 127u;
  let e = s >> 3u;
  let size = f32((s & 7u) + select(8u, 0u, e == 0u)) * bitcast<f32>((max(e, 1u) + 116u) << 23u);
  return select(size, 0.0, s == 127u) * micro(q);\n"
        }
        DType::Q1_0 => {
            "  let q = (vec4<u32>(@_raw1(at + $codes + (r >> 3u))) >> ((r & 7u) + vec4<u32>(0u, 1u, 2u, 3u))) & vec4<u32>(1u);
  return half_float(@_raw2(at + $scale)) * picked($levels, q);\n"
        }
        DType::Q2_0 => {
            "  let q = (vec4<u32>(@_raw1(at + $codes + (r >> 2u))) >> vec4<u32>(0u, 2u, 4u, 6u)) & vec4<u32>(3u);
  return half_float(@_raw2(at + $scale)) * (vec4<f32>(q) - $bias);\n"
        }
        // Runs of 32, 16 and 4 bytes; the digits of a byte are apart by the length of its run.
        DType::TQ1_0 => {
            "  var run = vec3<u32>(0u, 31u, 5u);
  var e = r;
  if (r >= 240u) { run = vec3<u32>(48u, 3u, 2u); e = r - 240u; } else if (r >= 160u) { run = vec3<u32>(32u, 15u, 4u); e = r - 160u; }
  var q = unpack4xU8(@_any4(at + $codes + run.x + (e & run.y)));
  for (var digit = e >> run.z; digit > 0u; digit--) { q = (q * 3u) & vec4<u32>(255u); }
  return half_float(@_raw2(at + $scale)) * picked($levels, (q * 3u) >> vec4<u32>(8u));\n"
        }
        DType::IQ1_S => {
            "  let word = @_raw2(at + $high_bits + (r >> 5u) * 2u);
  let index = @_raw1(at + $codes + (r >> 3u)) | (((word >> (((r >> 3u) & 3u) * 3u)) & 7u) << 8u);
  let q = pairs(@_entry(index) >> ((r & 4u) * 2u), select(0u, 15u, word > 0x7fffu));
  return half_float(@_raw2(at + $scale)) * $factor * odd((word >> 12u) & 7u) * picked($levels, q);\n"
        }
        // The scale's bits are four at a time the upper ones of the words with group scales.
        DType::IQ1_M => {
            "  var scale = 0u;
  for (var k = 0u; k < 4u; k++) { scale |= (@_raw2(at + $group_scales + k * 2u) >> 12u) << (k * 4u); }
  let s = @_raw2(at + $group_scales + (r >> 6u) * 2u) >> (((r >> 4u) & 3u) * 3u);
  let high = @_raw1(at + $high_bits + (r >> 4u)) >> (((r >> 3u) & 1u) * 4u);
  let index = @_raw1(at + $codes + (r >> 3u)) | ((high & 7u) << 8u);
  let q = pairs(@_entry(index) >> ((r & 4u) * 2u), select(0u, 15u, (high & 8u) != 0u));
  return half_float(scale) * $factor * odd(s & 7u) * picked($levels, q);\n"
        }
        DType::IQ2_XXS => {
            "  let word = @_any4(at + $codes + (r >> 5u) * 8u + 4u);
  let index = @_raw1(at + $codes + (r >> 5u) * 8u + ((r >> 3u) & 3u));
  let signs = even_signs(word >> (((r >> 3u) & 3u) * 7u));
  let q = pairs(@_entry(index) >> ((r & 4u) * 2u), signs >> (r & 4u));
  return half_float(@_raw2(at + $scale)) * $factor * odd(word >> 28u) * picked($levels, q);\n"
        }
        DType::IQ2_XS => {
            "  let word = @_raw2(at + $codes + (r >> 3u) * 2u);
  let q = pairs(@_entry(word & 511u) >> ((r & 4u) * 2u), even_signs(word >> 9u) >> (r & 4u));
  let s = @_raw1(at + $group_scales + (r >> 5u)) >> (((r >> 4u) & 1u) * 4u);
  return half_float(@_raw2(at + $scale)) * $factor * odd(s & 15u) * picked($levels, q);\n"
        }
        DType::IQ2_S => {
            "  let high = @_raw1(at + $high_bits + (r >> 5u)) >> (((r >> 3u) & 3u) * 2u);
  let index = @_raw1(at + $codes + (r >> 3u)) | ((high & 3u) << 8u);
  let q = pairs(@_entry(index) >> ((r & 4u) * 2u), @_raw1(at + $signs + (r >> 3u)) >> (r & 4u));
  let s = @_raw1(at + $group_scales + (r >> 5u)) >> (((r >> 4u) & 1u) * 4u);
  return half_float(@_raw2(at + $scale)) * $factor * odd(s & 15u) * picked($levels, q);\n"
        }
        DType::IQ3_XXS => {
            "  let word = @_any4(at + $signs + (r >> 5u) * 4u);
  let signs = even_signs(word >> (((r >> 3u) & 3u) * 7u));
  let q = triples(@_entry(@_raw1(at + $codes + (r >> 2u))), signs >> (r & 4u));
  return half_float(@_raw2(at + $scale)) * $factor * odd(word >> 28u) * picked($levels, q);\n"
        }
        DType::IQ3_S => {
            "  let high = @_raw1(at + $high_bits + (r >> 5u)) >> ((r >> 2u) & 7u);
  let index = @_raw1(at + $codes + (r >> 2u)) | ((high & 1u) << 8u);
  let q = triples(@_entry(index), @_raw1(at + $signs + (r >> 3u)) >> (r & 4u));
  let s = @_raw1(at + $group_scales + (r >> 6u)) >> (((r >> 5u) & 1u) * 4u);
  return half_float(@_raw2(at + $scale)) * $factor * odd(s & 15u) * picked($levels, q);\n"
        }
        _ => return None,
    })
}

/// How `block` (32 floats) is written at an address, for types that kernels encode.
fn encoder(dtype: DType) -> Option<String> {
    Some(filled(writer(dtype)?, block_layout(dtype)?))
}

/// The text of [`encoder`], to be filled.
fn writer(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::Q8_0 => {
            "fn @_encode(at: u32) {
  let scale = abs(extreme()) / 127.0;
  let inverse = select(0.0, 1.0 / scale, scale > 1.2e-38);
  @_set2(at + $scale, to_half(scale));
  for (var j = 0u; j < 16u; j++) {
    let a = block[2u * j] * inverse;
    let b = block[2u * j + 1u] * inverse;
    let low = bitcast<u32>(i32(sign(a) * floor(abs(a) + 0.5))) & 255u;
    let high = bitcast<u32>(i32(sign(b) * floor(abs(b) + 0.5))) & 255u;
    @_set2(at + $codes + 2u * j, low | (high << 8u));
  }
}"
        }
        DType::Q4_0 => {
            "fn @_encode(at: u32) {
  let scale = extreme() / -8.0;
  let inverse = select(0.0, 1.0 / scale, abs(scale) > 1.2e-38);
  @_set2(at + $scale, to_half(scale));
  for (var j = 0u; j < 8u; j++) {
    var both = 0u;
    for (var k = 0u; k < 2u; k++) {
      let low = min(u32(max(block[2u * j + k] * inverse + 8.5, 0.0)), 15u);
      let high = min(u32(max(block[16u + 2u * j + k] * inverse + 8.5, 0.0)), 15u);
      both |= (low | (high << 4u)) << (8u * k);
    }
    @_set2(at + $codes + 2u * j, both);
  }
}"
        }
        DType::Q4_1 => {
            "fn @_encode(at: u32) {
  var low = block[0];
  var high = block[0];
  for (var j = 1u; j < 32u; j++) { low = min(low, block[j]); high = max(high, block[j]); }
  let scale = (high - low) / 15.0;
  let inverse = select(0.0, 1.0 / scale, scale > 1.2e-38);
  @_set2(at + $scale, to_half(scale));
  @_set2(at + $min, to_half(low));
  for (var j = 0u; j < 8u; j++) {
    var both = 0u;
    for (var k = 0u; k < 2u; k++) {
      let first = min(u32((block[2u * j + k] - low) * inverse + 0.5), 15u);
      let second = min(u32((block[16u + 2u * j + k] - low) * inverse + 0.5), 15u);
      both |= (first | (second << 4u)) << (8u * k);
    }
    @_set2(at + $codes + 2u * j, both);
  }
}"
        }
        _ => return None,
    })
}

/// Whether kernels write blocks of this type.
pub(crate) fn can_encode(dtype: DType) -> bool {
    writer(dtype).is_some()
}

#[cfg(test)]
mod tests {
    use orlop_quant::block_types;

    use super::*;

    #[test]
    fn texts_have_the_offsets_of_fields() {
        for dtype in block_types() {
            let (_, text) = block(dtype).unwrap();
            assert!(!text.contains('$'), "{dtype}: {text}");
            assert!(encoder(dtype).is_none_or(|text| !text.contains('$')), "{dtype}");
        }
        let (elements, text) = block(DType::Q5_1).unwrap();
        assert_eq!(elements, 32);
        assert!(
            text.contains("@_any4(at + 8u + (r & 15u))") && text.contains("@_any4(at + 4u) >> r"),
            "{text}"
        );
        assert!(text.contains("@_halves(at);"), "{text}");
        let (elements, text) = block(DType::Q6_K).unwrap();
        assert_eq!(elements, 256);
        for part in ["@_any4(at + (r >> 7u) * 64u", "at + 128u + (r", "at + 192u + (r", "at + 208u", "- 32.0"]
        {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
