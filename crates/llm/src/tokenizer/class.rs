//! Classes of characters that pre-tokenizers tell apart, by Unicode general category.

use unicode_general_category::{GeneralCategory as Category, get_general_category};

/// `\p{L}`.
pub(super) fn letter(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_alphabetic();
    }
    use Category::*;
    matches!(
        get_general_category(c),
        UppercaseLetter | LowercaseLetter | TitlecaseLetter | ModifierLetter | OtherLetter
    )
}

/// `\p{N}`.
pub(super) fn number(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_digit();
    }
    use Category::*;
    matches!(get_general_category(c), DecimalNumber | LetterNumber | OtherNumber)
}

/// `\p{M}`.
pub(super) fn mark(c: char) -> bool {
    use Category::*;
    !c.is_ascii() && matches!(get_general_category(c), NonspacingMark | SpacingMark | EnclosingMark)
}

/// `\p{P}`.
pub(super) fn punctuation(c: char) -> bool {
    use Category::*;
    matches!(
        get_general_category(c),
        ConnectorPunctuation
            | DashPunctuation
            | OpenPunctuation
            | ClosePunctuation
            | InitialPunctuation
            | FinalPunctuation
            | OtherPunctuation
    )
}

/// `\p{S}`.
pub(super) fn symbol(c: char) -> bool {
    use Category::*;
    matches!(get_general_category(c), MathSymbol | CurrencySymbol | ModifierSymbol | OtherSymbol)
}

/// What may come before the lower case letters of a word: `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`.
pub(super) fn upper(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_uppercase();
    }
    use Category::*;
    mark(c)
        || matches!(get_general_category(c), UppercaseLetter | TitlecaseLetter | ModifierLetter | OtherLetter)
}

/// What may come after the upper case letters of a word: `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`.
pub(super) fn lower(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_lowercase();
    }
    use Category::*;
    mark(c) || matches!(get_general_category(c), LowercaseLetter | ModifierLetter | OtherLetter)
}

/// `\p{Han}`.
pub(super) fn han(c: char) -> bool {
    matches!(c,
        '\u{2e80}'..='\u{2e99}'
        | '\u{2e9b}'..='\u{2ef3}'
        | '\u{2f00}'..='\u{2fd5}'
        | '\u{3005}'
        | '\u{3007}'
        | '\u{3021}'..='\u{3029}'
        | '\u{3038}'..='\u{303b}'
        | '\u{3400}'..='\u{4dbf}'
        | '\u{4e00}'..='\u{9fff}'
        | '\u{f900}'..='\u{fa6d}'
        | '\u{fa70}'..='\u{fad9}'
        | '\u{16fe2}'..='\u{16fe3}'
        | '\u{16ff0}'..='\u{16ff1}'
        | '\u{20000}'..='\u{323af}')
}

/// Letters of the alphabets with two cases, as old vocabularies list them.
pub(super) fn two_cased(c: char) -> bool {
    use Category::*;
    let newer = matches!(c,
        '\u{560}'..='\u{588}'
        | '\u{10c7}'..='\u{10ff}'
        | '\u{1c80}'..='\u{1c8f}'
        | '\u{2d00}'..='\u{2d2d}'
        | '\u{a790}'..='\u{a7ff}'
        | '\u{ab30}'..='\u{ab6f}'
        | '\u{10570}'..='\u{105bf}'
        | '\u{10d50}'..='\u{10d8f}'
        | '\u{16e40}'..='\u{16ebf}'
        | '\u{1d400}'..='\u{1d7ff}'
        | '\u{1df00}'..='\u{1df2f}');
    !newer && matches!(get_general_category(c), UppercaseLetter | LowercaseLetter | TitlecaseLetter)
}

/// `\s`.
pub(super) fn space(c: char) -> bool {
    c.is_whitespace()
}

/// `[\r\n]`.
pub(super) fn newline(c: char) -> bool {
    matches!(c, '\r' | '\n')
}

/// `[^\s\p{L}\p{N}]`.
pub(super) fn other(c: char) -> bool {
    !space(c) && !letter(c) && !number(c)
}
