//! Where the first word of a text ends, by the regular expressions of pre-tokenizers.
//!
//! Each function here is one such expression, written by hand: it returns the length in bytes of the match at the start
//! of a text that is not empty, 0 for none. Backtracking is limited, so every text is split in linear time, which
//! regular expressions with look-ahead do not guarantee.

use super::class::{
    han, letter, lower, mark, newline, number, other, punctuation, space, symbol, two_cased, upper,
};

/// How many characters from the start on are of a class, in bytes.
fn run(text: &str, class: impl Fn(char) -> bool) -> usize {
    text.find(|c| !class(c)).unwrap_or(text.len())
}

/// As [`run`], for at most `most` characters.
fn run_of(text: &str, most: usize, class: impl Fn(char) -> bool) -> usize {
    text.chars().take(most).take_while(|c| class(*c)).map(char::len_utf8).sum()
}

fn starts(text: &str, class: impl Fn(char) -> bool) -> bool {
    text.chars().next().is_some_and(class)
}

/// The length of the first character, if it is of a class; 0 if not.
fn one(text: &str, class: impl Fn(char) -> bool) -> usize {
    run_of(text, 1, class)
}

/// `'s|'t|'re|'ve|'m|'ll|'d`, with `fold` in upper case, too.
fn contraction(text: &str, fold: bool) -> usize {
    let letter = |at: usize| {
        let byte = text.as_bytes().get(at).copied().unwrap_or(0);
        if fold { byte.to_ascii_lowercase() } else { byte }
    };
    match (letter(0), letter(1), letter(2)) {
        (b'\'', b's' | b't' | b'm' | b'd', _) => 2,
        (b'\'', b'r' | b'v', b'e') | (b'\'', b'l', b'l') => 3,
        _ => 0,
    }
}

/// `\s+(?!\S)|\s+`: white space that leaves its last character to what follows, unless it is the only one.
fn blank(text: &str) -> usize {
    let end = run(text, space);
    let last = text[..end].chars().next_back().map_or(0, char::len_utf8);
    if end == text.len() || end == last { end } else { end - last }
}

/// `\s*[\r\n]+|\s+(?!\S)|\s+`: as [`blank`], but ends with the last line that is blank to its end.
fn blank_lines(text: &str) -> usize {
    match text[..run(text, space)].rfind(newline) {
        Some(last) => last + 1,
        None => blank(text),
    }
}

/// GPT-2: `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`.
pub(super) fn gpt2(text: &str) -> usize {
    let short = contraction(text, false);
    if short > 0 {
        return short;
    }
    let prefix = one(text, |c| c == ' ');
    for class in [letter as fn(char) -> bool, number, other] {
        let length = run(&text[prefix..], class);
        if length > 0 {
            return prefix + length;
        }
    }
    blank(text)
}

/// GPT-4 and those after it: `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|
/// ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`, with this many digits in a group.
fn gpt4(text: &str, digits: usize, letter: fn(char) -> bool, other: fn(char) -> bool) -> usize {
    let short = contraction(text, true);
    if short > 0 {
        return short;
    }
    let prefix = one(text, |c| !newline(c) && !number(c));
    if prefix > 0 && (starts(text, letter) || starts(&text[prefix..], letter)) {
        return prefix + run(&text[prefix..], letter);
    }
    let group = run_of(text, digits, number);
    if group > 0 {
        return group;
    }
    marks_and_blanks(text, other, newline)
}

/// ` ?[…]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`.
fn marks_and_blanks(text: &str, other: impl Fn(char) -> bool, tail: impl Fn(char) -> bool) -> usize {
    let prefix = one(text, |c| c == ' ');
    let length = run(&text[prefix..], other);
    if length > 0 {
        let end = prefix + length;
        return end + run(&text[end..], tail);
    }
    blank_lines(text)
}

/// Llama 3: digits in groups of up to three.
pub(super) fn llama3(text: &str) -> usize {
    gpt4(text, 3, letter, other)
}

/// Qwen 2: digits one by one.
pub(super) fn qwen2(text: &str) -> usize {
    gpt4(text, 1, letter, other)
}

/// UfakZeka: as Qwen 2, without contractions.
pub(super) fn ufakzeka(text: &str) -> usize {
    let prefix = one(text, |c| !newline(c) && !number(c) && !letter(c));
    match run(&text[prefix..], letter) {
        0 => match one(text, number) {
            0 => marks_and_blanks(text, other, newline),
            digit => digit,
        },
        length => prefix + length,
    }
}

/// Seed Coder: as Qwen 2, and marks take no line ends.
pub(super) fn seed_coder(text: &str) -> usize {
    let length = qwen2(text);
    let prefix = one(text, |c| c == ' ');
    match run(&text[prefix..], other) {
        marks if marks > 0 && !text[..length].contains(letter) => prefix + marks,
        _ => length,
    }
}

/// EXAONE MoE: as Qwen 2, but words go on behind a space, marks belong to letters, and other marks take one line end or `/`.
pub(super) fn exaone_moe(text: &str) -> usize {
    let short = contraction(text, true);
    if short > 0 {
        return short;
    }
    let prefix = one(text, |c| !newline(c) && !number(c) && !letter(c));
    let mut end = prefix;
    loop {
        let gap = if end > prefix { one(&text[end..], |c| c == ' ') } else { 0 };
        let word = match (one(&text[end..], letter), one(&text[end + gap..], letter)) {
            (0, 0) => break,
            (0, letter) => gap + letter,
            (letter, _) => letter,
        };
        end += word;
        end += run(&text[end..], mark);
    }
    if end > prefix {
        return end;
    }
    if starts(text, number) {
        return one(text, number);
    }
    let prefix = one(text, |c| c == ' ');
    match run(&text[prefix..], other) {
        0 => blank_lines(text),
        length => prefix + length + one(&text[prefix + length..], |c| newline(c) || c == '/'),
    }
}

/// Jais 2: as Llama 3, and runs of blanks are cut into powers of two.
pub(super) fn jais2(text: &str) -> usize {
    // A run of other blanks is looked at up to the longest piece and one character more.
    let blanks = text.chars().take(513).take_while(|c| space(*c)).count();
    if blanks == 0
        || !starts(text, space)
        || llama3(text) != blank(text)
        || text[..run_of(text, 513, space)].contains(newline)
    {
        return llama3(text);
    }
    let bytes = |characters: usize| run_of(text, characters, space);
    let ends = bytes(blanks) == text.len();
    let fits = |most: usize| blanks > most || blanks == most && ends;
    let sizes = [512, 256, 128, 64, 32, 16, 8, 4, 2, 1];
    bytes(sizes.into_iter().find(|size| fits(*size)).unwrap_or(1))
}

/// Qwen 3.5: as Qwen 2, and marks belong to letters.
pub(super) fn qwen35(text: &str) -> usize {
    gpt4(text, 1, |c| letter(c) || mark(c), |c| other(c) && !mark(c))
}

/// As Qwen 2, with any number of digits.
pub(super) fn any_digits(text: &str) -> usize {
    gpt4(text, usize::MAX, letter, other)
}

/// Words that begin in upper case and go on in lower case:
/// `[^\r\n\p{L}\p{N}]?U*L+` or `[^\r\n\p{L}\p{N}]?U+L*`, where letters without case are both U and L.
fn cased(text: &str, upper: fn(char) -> bool, lower: fn(char) -> bool) -> usize {
    let prefix = one(text, |c| !newline(c) && !letter(c) && !number(c));
    let ends_lower = |from: usize| {
        let word = &text[from..];
        let turn = run(word, upper);
        match run(&word[turn..], lower) {
            0 => word[..turn].rfind(lower).map_or(0, |last| last + one(&word[last..], lower)),
            rest => turn + rest,
        }
    };
    let all_upper = |from: usize| run(&text[from..], upper);
    for (from, match_at) in [
        (prefix, &ends_lower as &dyn Fn(usize) -> usize),
        (0, &ends_lower),
        (prefix, &all_upper),
        (0, &all_upper),
    ] {
        let length = match_at(from);
        if length > 0 {
            return from + length;
        }
    }
    0
}

/// GPT-4o: words by case, with contractions at their ends, and digits in groups of up to three.
pub(super) fn gpt4o(text: &str) -> usize {
    match cased(text, upper, lower) {
        0 => digits_or_marks(text, 3),
        word => word + contraction(&text[word..], true),
    }
}

/// Tekken: words by case, and digits one by one.
pub(super) fn tekken(text: &str) -> usize {
    match cased(text, upper, lower) {
        0 => digits_or_marks(text, 1),
        word => word,
    }
}

/// Youtu: as GPT-4o, with digits one by one.
pub(super) fn youtu(text: &str) -> usize {
    match cased(text, upper, lower) {
        0 => digits_or_marks(text, 1),
        word => word + contraction(&text[word..], true),
    }
}

/// Kimi K2: as GPT-4o, with Han characters apart.
pub(super) fn kimi(text: &str) -> usize {
    let characters = run(text, han);
    if characters > 0 {
        return characters;
    }
    match cased(text, |c| upper(c) && !han(c), |c| lower(c) && !han(c)) {
        0 => match run_of(text, 3, number) {
            0 => marks_and_blanks(text, other, newline),
            group => group,
        },
        word => word + contraction(&text[word..], true),
    }
}

fn digits_or_marks(text: &str, digits: usize) -> usize {
    match run_of(text, digits, number) {
        0 => marks_and_blanks(text, other, |c| newline(c) || c == '/'),
        group => group,
    }
}

/// DeepSeek 3, after digits and CJK were taken out: an ASCII mark with ASCII letters,
/// `[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+`, ` ?[\p{P}\p{S}]+[\r\n]*`, and blanks.
pub(super) fn deepseek3(text: &str) -> usize {
    let ascii_mark = one(text, |c| c.is_ascii_punctuation());
    let ascii_letters = run(&text[ascii_mark..], |c| c.is_ascii_alphabetic());
    if ascii_mark > 0 && ascii_letters > 0 {
        return ascii_mark + ascii_letters;
    }
    let wordy = |c| letter(c) || mark(c);
    let prefix = one(text, |c| !newline(c) && !letter(c) && !punctuation(c) && !symbol(c));
    for from in [prefix, 0] {
        let length = run(&text[from..], wordy);
        if length > 0 {
            return from + length;
        }
    }
    marks_and_blanks(text, |c| punctuation(c) || symbol(c), newline)
}

/// As that, but marks take no line ends, and line ends stand alone.
pub(super) fn spark(text: &str) -> usize {
    if starts(text, newline) {
        return 1;
    }
    let prefix = one(text, |c| c == ' ');
    let marks = run(&text[prefix..], |c| punctuation(c) || symbol(c));
    let length = deepseek3(text);
    if marks > 0 && length >= prefix + marks && !text[..length].contains(letter) {
        return prefix + marks;
    }
    if starts(text, space) && text[..length].chars().all(space) { blank(text) } else { length }
}

/// `[^\n]+|[\n]+`.
pub(super) fn lines(text: &str) -> usize {
    let ends = starts(text, |c| c == '\n');
    run(text, |c| (c == '\n') == ends)
}

/// `\S+`.
pub(super) fn unspaced(text: &str) -> usize {
    run(text, |c| !space(c))
}

/// `<sentinel:[0-9]+>`.
pub(super) fn sentinel(text: &str) -> usize {
    let Some(rest) = text.strip_prefix("<sentinel:") else { return 0 };
    let digits = run(rest, |c| c.is_ascii_digit());
    if digits > 0 && rest[digits..].starts_with('>') { "<sentinel:".len() + digits + 1 } else { 0 }
}

/// `IMGIMG[A-I]{1,4}Z`.
pub(super) fn image_token(text: &str) -> usize {
    let Some(rest) = text.strip_prefix("IMGIMG") else { return 0 };
    let letters = run_of(rest, 4, |c| matches!(c, 'A'..='I'));
    if letters > 0 && rest[letters..].starts_with('Z') { "IMGIMG".len() + letters + 1 } else { 0 }
}

/// `[\t\n]|    |  `.
pub(super) fn indent(text: &str) -> usize {
    let spaces = run_of(text, 4, |c| c == ' ');
    if spaces >= 2 { spaces / 2 * 2 } else { one(text, |c| matches!(c, '\t' | '\n')) }
}

/// `[\p{P}!-/:-@\[-`{-~]`.
pub(super) fn one_mark(text: &str) -> usize {
    one(text, |c| c.is_ascii_punctuation() || punctuation(c))
}

/// Cuts `\s+$` off a text.
pub(super) fn blank_end<'a>(text: &'a str, pieces: &mut Vec<&'a str>) {
    let (before, end) = text.split_at(text.trim_end_matches(space).len());
    pieces.extend([before, end].into_iter().filter(|piece| !piece.is_empty()));
}

/// A space, and letters of the alphabets that have two cases.
pub(super) fn deepseek_llm_letters(text: &str) -> usize {
    spaced(text, two_cased)
}

/// `\s?[!-/:-~！-／：-～‘-‟　-。]+`.
pub(super) fn deepseek_llm_marks(text: &str) -> usize {
    spaced(
        text,
        |c| matches!(c, '!'..='/' | ':'..='~' | '！'..='／' | '：'..='～' | '\u{2018}'..='\u{201f}' | '\u{3000}'..='。'),
    )
}

/// `[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+`, or Chinese and Japanese as in [`deepseek3_cjk`].
pub(super) fn youtu_cjk(text: &str) -> usize {
    let korean = |c| matches!(c, '가'..='힣' | 'ㄱ'..='ㆎ');
    let marks = |c| "！…“”‘’—：；，".contains(c) || matches!(c, '、'..='〿' | '︰'..='﹏');
    let phonetic = |c| matches!(c, 'ㄅ'..='ㄯ');
    let runs = [run(text, korean), run(text, marks), run(text, phonetic), deepseek3_cjk(text)];
    runs.into_iter().find(|length| *length > 0).unwrap_or(0)
}

/// Runs of Asian scripts.
pub(super) fn asian(text: &str) -> usize {
    run(text, |c| {
        matches!(c,
            '\u{4e00}'..='\u{9fff}' | '\u{3400}'..='\u{4dbf}' | '\u{f900}'..='\u{faff}' | '\u{3040}'..='\u{30ff}'
            | '\u{ff65}'..='\u{ff9f}' | '\u{2f00}'..='\u{2fdf}' | '\u{e40}'..='\u{e7f}' | '\u{e80}'..='\u{eff}'
            | '\u{1780}'..='\u{17ff}' | '\u{1000}'..='\u{109f}' | '\u{aa60}'..='\u{aa7f}' | '\u{a9e0}'..='\u{a9ff}'
            | '\u{ac00}'..='\u{d7af}' | '\u{1100}'..='\u{11ff}')
    })
}

/// Cuts a text at its numbers, and these into groups of three digits from the right: `12345` is `12` and `345`.
pub(super) fn threes_from_the_right<'a>(text: &'a str, pieces: &mut Vec<&'a str>) {
    let mut rest = text;
    while !rest.is_empty() {
        let (before, from) = rest.split_at(rest.find(number).unwrap_or(rest.len()));
        let (mut digits, after) = from.split_at(run(from, number));
        if !before.is_empty() {
            pieces.push(before);
        }
        let mut group = digits.chars().count() % 3;
        while !digits.is_empty() {
            let (first, others) = digits.split_at(run_of(digits, if group == 0 { 3 } else { group }, number));
            pieces.push(first);
            (digits, group) = (others, 0);
        }
        rest = after;
    }
}

/// `\p{N}`.
pub(super) fn digit(text: &str) -> usize {
    one(text, number)
}

/// `\p{N}{1,3}`.
pub(super) fn three_digits_at_most(text: &str) -> usize {
    run_of(text, 3, number)
}

/// `\p{N}+`.
pub(super) fn digits(text: &str) -> usize {
    run(text, number)
}

/// `[0-9][0-9][0-9]`.
pub(super) fn three_ascii_digits(text: &str) -> usize {
    if run_of(text, 3, |c| c.is_ascii_digit()) == 3 { 3 } else { 0 }
}

/// `[\p{P}\$\+<=>\^~\|]+`.
pub(super) fn marks(text: &str) -> usize {
    run(text, |c| punctuation(c) || "$+<=>^~|".contains(c))
}

/// `[\p{P}\$\+<=>\^~\|`]+`.
pub(super) fn falcon_marks(text: &str) -> usize {
    run(text, |c| punctuation(c) || "$+<=>^~|`".contains(c))
}

/// `[\r\n]`.
pub(super) fn line_end(text: &str) -> usize {
    one(text, newline)
}

/// `\s?\p{L}+`.
pub(super) fn spaced_letters(text: &str) -> usize {
    spaced(text, letter)
}

/// `\s?\p{P}+`.
pub(super) fn spaced_marks(text: &str) -> usize {
    spaced(text, punctuation)
}

fn spaced(text: &str, class: fn(char) -> bool) -> usize {
    let prefix = one(text, space);
    match run(&text[prefix..], class) {
        0 => 0,
        length => prefix + length,
    }
}

/// `[一-龥ࠀ-一가-퟿]+`.
pub(super) fn deepseek_coder_cjk(text: &str) -> usize {
    run(text, |c| matches!(c, '\u{0800}'..='\u{9fa5}' | '\u{ac00}'..='\u{d7ff}'))
}

/// `[一-龥぀-ゟ゠-ヿ]+`.
pub(super) fn deepseek3_cjk(text: &str) -> usize {
    run(text, |c| matches!(c, '\u{4e00}'..='\u{9fa5}' | '\u{3040}'..='\u{30ff}'))
}

/// ` ?[^(\s|.,!?…。，、।۔،)]+`.
pub(super) fn bloom(text: &str) -> usize {
    let prefix = one(text, |c| c == ' ');
    match run(&text[prefix..], |c| !space(c) && !"(|.,!?…。，、।۔،)".contains(c)) {
        0 => 0,
        length => prefix + length,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(first: fn(&str) -> usize, mut text: &str) -> Vec<&str> {
        let mut words = Vec::new();
        while !text.is_empty() {
            let (word, rest) = text.split_at(first(text).max(1));
            words.push(word);
            text = rest;
        }
        words
    }

    #[test]
    fn a_run_of_spaces_leaves_one_to_the_next_word() {
        assert_eq!(words(gpt2, "a   b \n"), ["a", "  ", " b", " \n"]);
        assert_eq!(words(llama3, "a   b \n\n  c"), ["a", "  ", " b", " \n\n", " ", " c"]);
        assert_eq!(words(gpt2, "\t\ta"), ["\t", "\t", "a"]);
        assert_eq!(words(llama3, "\t\ta"), ["\t", "\ta"]);
    }

    #[test]
    fn contractions_fold_case_only_in_later_families() {
        assert_eq!(words(gpt2, "I'LL we'll"), ["I", "'", "LL", " we", "'ll"]);
        assert_eq!(words(llama3, "I'LL we'll"), ["I", "'LL", " we", "'ll"]);
        assert_eq!(words(gpt4o, "I'LL we'll"), ["I'LL", " we'll"]);
    }

    #[test]
    fn digits_go_by_three_by_one_or_all_together() {
        assert_eq!(words(gpt2, " 12345"), [" 12345"]);
        assert_eq!(words(llama3, " 12345"), [" ", "123", "45"]);
        assert_eq!(words(qwen2, "123"), ["1", "2", "3"]);
    }

    #[test]
    fn case_splits_words_and_letters_without_case_go_with_both() {
        assert_eq!(words(tekken, "HelloWorld ABCdef"), ["Hello", "World", " ABCdef"]);
        assert_eq!(words(tekken, "ABC日本AB"), ["ABC日本", "AB"]);
        assert_eq!(words(tekken, "\u{301}"), ["\u{301}"]);
    }
}
