//! `types.cuh`, which precedes every source: element types, layouts of blocks and sizes of structures, generated from what
//! the rest of the program uses, so that kernels cannot disagree with it.

use std::fmt::Write as _;

use orlop_graph::DType;
use orlop_quant::{BLOCK_LAYOUTS, BlockLayout, Integers, block_layout};

/// Plain types that kernels know.
const PLAIN: [DType; 8] =
    [DType::F32, DType::F16, DType::BF16, DType::F64, DType::I8, DType::I16, DType::I32, DType::I64];

/// Block types that kernels cannot read yet.
const UNREAD: [DType; 11] = [
    DType::TQ1_0,
    DType::NVFP4,
    DType::Q1_0,
    DType::Q2_0,
    DType::IQ1_S,
    DType::IQ1_M,
    DType::IQ2_XXS,
    DType::IQ2_XS,
    DType::IQ2_S,
    DType::IQ3_XXS,
    DType::IQ3_S,
];

/// Block types that kernels can read: `block_element` in `common.cuh` has a case for each.
pub(crate) fn is_block(dtype: DType) -> bool {
    block_layout(dtype).is_some() && !UNREAD.contains(&dtype)
}

/// A type's name in kernels.
fn name(dtype: DType) -> String {
    dtype.name().to_uppercase()
}

/// The header's text. Everything is a macro, as sources are compiled for some types only.
pub(crate) fn text() -> String {
    let mut text = "// Element types, by their numbers in GGUF files.\n".to_owned();
    for dtype in PLAIN.into_iter().chain(BLOCK_LAYOUTS.iter().map(|layout| layout.dtype)) {
        define(&mut text, &name(dtype), dtype.gguf_id());
    }
    text.push_str("// Blocks: sizes, offsets of fields, what codes stand for.\n");
    BLOCK_LAYOUTS.iter().for_each(|layout| add_layout(&mut text, layout));
    let sizes = |layout: &BlockLayout| format!("(type) == {} ? {} : ", name(layout.dtype), layout.elements);
    let cases: String = BLOCK_LAYOUTS.iter().map(sizes).collect();
    define(&mut text, "ELEMENTS_OF(type)", format!("({cases}1)"));
    text.push_str("int block_elements(int dtype) {\n    switch (dtype) {\n");
    for layout in &BLOCK_LAYOUTS {
        let dtype = name(layout.dtype);
        let _ = writeln!(text, "        case {dtype}: return {dtype}_ELEMENTS;");
    }
    text.push_str("        default: return 1;\n    }\n}\n");
    text
}

fn define(text: &mut String, name: &str, value: impl std::fmt::Display) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "#define {name} {value}");
}

fn add_layout(text: &mut String, layout: &BlockLayout) {
    let dtype = name(layout.dtype);
    define(text, &format!("{dtype}_ELEMENTS"), layout.elements);
    define(text, &format!("{dtype}_BYTES"), layout.bytes);
    define(text, &format!("{dtype}_GROUP"), layout.group);
    for field in layout.fields {
        let role = field.role.name().to_uppercase();
        define(text, &format!("{dtype}_{role}_AT"), field.offset);
        define(text, &format!("{dtype}_{role}_BYTES"), field.bytes);
    }
    if let Integers::Biased(bias) = layout.codes {
        define(text, &format!("{dtype}_BIAS"), bias);
    }
    if let Some(Integers::Biased(bias)) = layout.group_scales {
        define(text, &format!("{dtype}_GROUP_SCALE_BIAS"), bias);
    }
    if let Integers::Table(table) = layout.codes {
        let values: Vec<String> = table.iter().map(ToString::to_string).collect();
        let _ = writeln!(text, "__constant__ signed char {dtype}_VALUES[16] = {{{}}};", values.join(", "));
        let word = |four: &[i8; 4]| format!("0x{:08x}", u32::from_le_bytes(four.map(|value| value as u8)));
        let words: Vec<String> = table.as_chunks().0.iter().map(word).collect();
        define(text, &format!("{dtype}_WORDS"), format!("{{{}}}", words.join(", ")));
    }
}

/// Assertions that structures of kernels have the sizes that they have here.
pub(crate) fn size_assertions(structures: &[(&str, usize)]) -> String {
    let assertion = |(name, bytes): &(&str, usize)| {
        format!("static_assert(sizeof({name}) == {bytes}, \"{name} is another structure in the program\");\n")
    };
    structures.iter().map(assertion).collect()
}

#[cfg(test)]
mod tests {
    use orlop_quant::block_types;

    use super::*;

    /// The numbers that were written by hand before the header was generated.
    #[test]
    fn the_header_has_the_numbers_of_gguf_and_of_the_blocks() {
        let text = text();
        let expected = "F32 0, F16 1, Q4_0 2, Q4_1 3, Q5_0 6, Q5_1 7, Q8_0 8, Q8_1 9, Q2_K 10, Q3_K 11, Q4_K 12, \
            Q5_K 13, Q6_K 14, Q8_K 15, IQ4_NL 20, IQ4_XS 23, I8 24, I16 25, I32 26, I64 27, F64 28, BF16 30, \
            MXFP4 39, \
            Q4_0_SCALE_AT 0, Q4_0_CODES_AT 2, Q4_0_BIAS 8, Q4_0_BYTES 18, \
            Q4_1_SCALE_AT 0, Q4_1_MIN_AT 2, Q4_1_CODES_AT 4, Q4_1_BYTES 20, \
            Q5_0_SCALE_AT 0, Q5_0_HIGH_BITS_AT 2, Q5_0_CODES_AT 6, Q5_0_BIAS 16, Q5_0_BYTES 22, \
            Q5_1_SCALE_AT 0, Q5_1_MIN_AT 2, Q5_1_HIGH_BITS_AT 4, Q5_1_CODES_AT 8, Q5_1_BYTES 24, \
            Q8_0_SCALE_AT 0, Q8_0_CODES_AT 2, Q8_0_BYTES 34, Q8_1_SCALE_AT 0, Q8_1_CODES_AT 4, \
            Q2_K_GROUP_SCALES_AT 0, Q2_K_CODES_AT 16, Q2_K_SCALE_AT 80, Q2_K_MIN_AT 82, Q2_K_GROUP 16, \
            Q3_K_HIGH_BITS_AT 0, Q3_K_CODES_AT 32, Q3_K_GROUP_SCALES_AT 96, Q3_K_GROUP_SCALES_BYTES 12, \
            Q3_K_SCALE_AT 108, Q3_K_BIAS 4, Q3_K_GROUP_SCALE_BIAS 32, Q3_K_GROUP 16, \
            Q4_K_SCALE_AT 0, Q4_K_MIN_AT 2, Q4_K_GROUP_SCALES_AT 4, Q4_K_CODES_AT 16, Q4_K_GROUP 32, \
            Q5_K_SCALE_AT 0, Q5_K_MIN_AT 2, Q5_K_GROUP_SCALES_AT 4, Q5_K_HIGH_BITS_AT 16, Q5_K_CODES_AT 48, \
            Q5_K_GROUP 32, \
            Q6_K_CODES_AT 0, Q6_K_HIGH_BITS_AT 128, Q6_K_GROUP_SCALES_AT 192, Q6_K_SCALE_AT 208, Q6_K_BIAS 32, \
            Q6_K_GROUP 16, Q8_K_SCALE_AT 0, Q8_K_CODES_AT 4, IQ4_NL_SCALE_AT 0, IQ4_NL_CODES_AT 2, \
            IQ4_XS_SCALE_AT 0, IQ4_XS_GROUP_SCALES_HIGH_AT 2, IQ4_XS_GROUP_SCALES_AT 4, IQ4_XS_CODES_AT 8, \
            IQ4_XS_GROUP_SCALE_BIAS 32, IQ4_XS_GROUP 32, MXFP4_SCALE_AT 0, MXFP4_CODES_AT 1, \
            IQ4_NL_WORDS {0xbfad9881, 0xf6eaddcf, 0x26190d01, 0x71594535}, \
            MXFP4_WORDS {0x03020100, 0x0c080604, 0xfdfeff00, 0xf4f8fafc}";
        let defines: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("#define ")).collect();
        for define in expected.split(", ").filter(|part| !part.starts_with("0x")) {
            let known = defines.iter().any(|line| *line == define || line.starts_with(&format!("{define},")));
            assert!(known, "{define}");
        }
        for table in [
            "IQ4_NL_VALUES[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};",
            "MXFP4_VALUES[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};",
            "{0xbfad9881, 0xf6eaddcf, 0x26190d01, 0x71594535}\n",
            "{0x03020100, 0x0c080604, 0xfdfeff00, 0xf4f8fafc}\n",
        ] {
            assert!(text.contains(table), "{table}");
        }
    }

    #[test]
    fn kernels_read_every_block_type() {
        let text = crate::modules::Source::General.text(None);
        let (_, reader) = text.split_once("float block_element(").unwrap();
        for dtype in block_types().filter(|dtype| is_block(*dtype)) {
            let case = format!("case {}:", name(dtype));
            assert!(reader.contains(&case), "{case}");
        }
    }

    #[test]
    fn kernels_use_names_that_the_header_has() {
        let header = text();
        let defined = |name: &str| header.lines().any(|line| line.split([' ', '[']).any(|word| word == name));
        for source in crate::modules::Source::ALL {
            let text = source.text(None);
            let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            for word in words.filter(|word| BLOCK_LAYOUTS.iter().any(|layout| is_of(word, layout))) {
                assert!(defined(word), "{word} in {}", source.name());
            }
        }
    }

    /// Whether a word is a type's name, or begins with it.
    fn is_of(word: &str, layout: &BlockLayout) -> bool {
        word.strip_prefix(&name(layout.dtype)).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
    }
}
