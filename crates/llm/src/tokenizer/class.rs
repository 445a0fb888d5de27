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
