//! The numbers by which kernels tell functions and modes apart.
//!
//! They are written once, here: the constants have the same names on both sides, and [`header`] is put in front of the
//! sources that NVRTC compiles.

use std::fmt::Write;

use orlop_graph::{Glu, RopeMode, SortDirection, Unary};

macro_rules! numbers {
    ($($of:literal { $($name:ident = $number:literal,)* })*) => {
        $($(pub(super) const $name: i32 = $number;)*)*

        /// What each group of numbers is for, and its names and numbers.
        const GROUPS: &[(&str, &[(&str, i32)])] = &[$(($of, &[$((stringify!($name), $number)),*])),*];
    };
}

numbers! {
    "functions of `op_unary`" {
        UNARY_SQR = 0,
        UNARY_SQRT = 1,
        UNARY_LOG = 2,
        UNARY_EXP = 3,
        UNARY_SIN = 4,
        UNARY_COS = 5,
        UNARY_NEG = 6,
        UNARY_ABS = 7,
        UNARY_SGN = 8,
        UNARY_STEP = 9,
        UNARY_RELU = 10,
        UNARY_GELU = 11,
        UNARY_GELU_ERF = 12,
        UNARY_GELU_QUICK = 13,
        UNARY_SILU = 14,
        UNARY_SIGMOID = 15,
        UNARY_TANH = 16,
        UNARY_ELU = 17,
        UNARY_HARD_SWISH = 18,
        UNARY_HARD_SIGMOID = 19,
        UNARY_SOFTPLUS = 20,
        UNARY_SCALE = 21,
        UNARY_CLAMP = 22,
        UNARY_LEAKY_RELU = 23,
    }
    "`gate_function`" {
        GATE_RELU = 0,
        GATE_GELU = 1,
        GATE_GELU_ERF = 2,
        GATE_GELU_QUICK = 3,
        GATE_SILU = 4,
    }
    "`op_binary`" {
        BINARY_ADD = 0,
        BINARY_SUB = 1,
        BINARY_MUL = 2,
        BINARY_DIV = 3,
    }
    "`op_rearrange`" {
        REARRANGE_REPEAT = 0,
        REARRANGE_PAD = 1,
        REARRANGE_ROLL = 2,
        REARRANGE_PLACE = 3,
    }
    "`op_patch`" {
        PATCH_SET = 0,
        PATCH_ADD = 1,
    }
    "`op_sum_rows`" {
        ROWS_SUM = 0,
        ROWS_MEAN = 1,
    }
    "`op_argsort`" {
        SORT_ASCENDING = 0,
        SORT_DESCENDING = 1,
    }
    "`op_norm`" {
        NORM_MEAN = 0,
        NORM_RMS = 1,
        NORM_L2 = 2,
    }
    "modes of rotation" {
        ROPE_NORMAL = 0,
        ROPE_NEOX = 1,
        ROPE_SECTIONS = 2,
    }
    "`op_im2col`" {
        IM2COL_1D = 0,
        IM2COL_2D = 1,
    }
    "`op_conv`" {
        CONV_1D = 1,
        CONV_2D = 2,
        CONV_DEPTHWISE_2D = 3,
    }
    "`op_conv_transpose`" {
        CONV_TRANSPOSE_1D = 1,
        CONV_TRANSPOSE_2D = 2,
    }
    "`op_pool`" {
        POOL_MAX = 0,
        POOL_MEAN = 1,
    }
    "`op_upscale`" {
        UPSCALE_NEAREST = 0,
        UPSCALE_BILINEAR = 1,
    }
}

/// The numbers for the kernels' sources: an `enum` for each group.
pub(crate) fn header() -> String {
    let mut text = String::from("// Made by `kernels/numbers.rs`.\n");
    for (of, numbers) in GROUPS {
        let numbers: Vec<String> =
            numbers.iter().map(|(name, number)| format!("{name} = {number}")).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "enum {{ {} }}; // {of}", numbers.join(", "));
    }
    text
}

pub(super) fn unary(function: Unary) -> i32 {
    match function {
        Unary::Sqr => UNARY_SQR,
        Unary::Sqrt => UNARY_SQRT,
        Unary::Log => UNARY_LOG,
        Unary::Exp => UNARY_EXP,
        Unary::Sin => UNARY_SIN,
        Unary::Cos => UNARY_COS,
        Unary::Neg => UNARY_NEG,
        Unary::Abs => UNARY_ABS,
        Unary::Sgn => UNARY_SGN,
        Unary::Step => UNARY_STEP,
        Unary::Relu => UNARY_RELU,
        Unary::Gelu => UNARY_GELU,
        Unary::GeluErf => UNARY_GELU_ERF,
        Unary::GeluQuick => UNARY_GELU_QUICK,
        Unary::Silu => UNARY_SILU,
        Unary::Sigmoid => UNARY_SIGMOID,
        Unary::Tanh => UNARY_TANH,
        Unary::Elu => UNARY_ELU,
        Unary::HardSwish => UNARY_HARD_SWISH,
        Unary::HardSigmoid => UNARY_HARD_SIGMOID,
        Unary::Softplus => UNARY_SOFTPLUS,
    }
}

pub(super) fn gate(gate: Glu) -> i32 {
    match gate {
        Glu::Relu => GATE_RELU,
        Glu::Gelu => GATE_GELU,
        Glu::GeluErf => GATE_GELU_ERF,
        Glu::GeluQuick => GATE_GELU_QUICK,
        Glu::Silu => GATE_SILU,
    }
}

pub(super) fn sort(direction: SortDirection) -> i32 {
    match direction {
        SortDirection::Ascending => SORT_ASCENDING,
        SortDirection::Descending => SORT_DESCENDING,
    }
}

/// The mode and the sizes of its sections.
pub(super) fn rope(mode: RopeMode) -> (i32, [u32; 4]) {
    match mode {
        RopeMode::Normal => (ROPE_NORMAL, [0; 4]),
        RopeMode::Neox => (ROPE_NEOX, [0; 4]),
        RopeMode::Sections(sections) => (ROPE_SECTIONS, sections),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modules::Source;

    #[test]
    fn the_header_has_every_number() {
        let expected = "// Made by `kernels/numbers.rs`.
enum { UNARY_SQR = 0, UNARY_SQRT = 1, UNARY_LOG = 2, UNARY_EXP = 3, UNARY_SIN = 4, UNARY_COS = 5, UNARY_NEG = 6, \
UNARY_ABS = 7, UNARY_SGN = 8, UNARY_STEP = 9, UNARY_RELU = 10, UNARY_GELU = 11, UNARY_GELU_ERF = 12, \
UNARY_GELU_QUICK = 13, UNARY_SILU = 14, UNARY_SIGMOID = 15, UNARY_TANH = 16, UNARY_ELU = 17, UNARY_HARD_SWISH = 18, \
UNARY_HARD_SIGMOID = 19, UNARY_SOFTPLUS = 20, UNARY_SCALE = 21, UNARY_CLAMP = 22, UNARY_LEAKY_RELU = 23 }; \
// functions of `op_unary`
enum { GATE_RELU = 0, GATE_GELU = 1, GATE_GELU_ERF = 2, GATE_GELU_QUICK = 3, GATE_SILU = 4 }; // `gate_function`
enum { BINARY_ADD = 0, BINARY_SUB = 1, BINARY_MUL = 2, BINARY_DIV = 3 }; // `op_binary`
enum { REARRANGE_REPEAT = 0, REARRANGE_PAD = 1, REARRANGE_ROLL = 2, REARRANGE_PLACE = 3 }; // `op_rearrange`
enum { PATCH_SET = 0, PATCH_ADD = 1 }; // `op_patch`
enum { ROWS_SUM = 0, ROWS_MEAN = 1 }; // `op_sum_rows`
enum { SORT_ASCENDING = 0, SORT_DESCENDING = 1 }; // `op_argsort`
enum { NORM_MEAN = 0, NORM_RMS = 1, NORM_L2 = 2 }; // `op_norm`
enum { ROPE_NORMAL = 0, ROPE_NEOX = 1, ROPE_SECTIONS = 2 }; // modes of rotation
enum { IM2COL_1D = 0, IM2COL_2D = 1 }; // `op_im2col`
enum { CONV_1D = 1, CONV_2D = 2, CONV_DEPTHWISE_2D = 3 }; // `op_conv`
enum { CONV_TRANSPOSE_1D = 1, CONV_TRANSPOSE_2D = 2 }; // `op_conv_transpose`
enum { POOL_MAX = 0, POOL_MEAN = 1 }; // `op_pool`
enum { UPSCALE_NEAREST = 0, UPSCALE_BILINEAR = 1 }; // `op_upscale`
";
        assert_eq!(header(), expected);
    }

    #[test]
    fn numbers_of_a_group_differ_and_functions_cover_theirs() {
        for (of, numbers) in GROUPS {
            let mut found: Vec<i32> = numbers.iter().map(|(_, number)| *number).collect();
            found.sort_unstable();
            found.dedup();
            assert_eq!(found.len(), numbers.len(), "{of}");
        }
        let distinct = |mut numbers: Vec<i32>| {
            let count = numbers.len();
            numbers.sort_unstable();
            numbers.dedup();
            numbers.len() == count
        };
        assert!(distinct(Unary::ALL.map(unary).to_vec()));
        assert!(distinct(Glu::ALL.map(gate).to_vec()));
    }

    /// Kernels tell numbers apart by name: a `case`, a comparison, or a comment where a number is the rest.
    #[test]
    fn kernels_have_a_case_for_every_number() {
        let header = header().len();
        let sources: Vec<String> =
            Source::ALL.iter().map(|source| source.text(None)[header..].to_owned()).collect();
        let missing: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, numbers)| numbers.iter())
            .map(|(name, _)| *name)
            .filter(|name| !sources.iter().any(|text| handles(text, name)))
            .collect();
        assert!(missing.is_empty(), "no kernel has a case for {missing:?}");
    }

    #[test]
    fn a_number_that_is_only_named_has_no_case() {
        let text =
            "case A_ONE: return f(A_TWO); if (t.op == A_THREE) x(); else /* A_FOUR */ y(); case A_FIVES:";
        let found = ["A_ONE", "A_TWO", "A_THREE", "A_FOUR", "A_FIVE"].map(|name| handles(text, name));
        assert_eq!(found, [true, false, true, true, false]);
    }

    fn handles(text: &str, name: &str) -> bool {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let stands = |(at, _): (usize, &str)| {
            let (before, after) = (text[..at].trim_end(), &text[at + name.len()..]);
            !after.starts_with(is_part)
                && (before.ends_with("==")
                    || before.ends_with("case") && after.starts_with(':')
                    || before.ends_with("/*") && after.trim_start().starts_with("*/"))
        };
        text.match_indices(name).any(stands)
    }
}
