use crate::support::{Folder, orlop};

/// The error for a file, without its path.
fn refusal(contents: impl AsRef<[u8]>) -> String {
    let folder = Folder::new();
    let file = folder.file("bad.csv", contents);
    let out = folder.path("out.csv");
    let sentence = orlop(&["plan", &file, "--json", "--output", &out]).refusal(2);
    assert_eq!(folder.files(), ["bad.csv"]);
    let rest = sentence.strip_prefix(&file).unwrap_or_else(|| panic!("names the file: {sentence}"));
    rest.trim_start_matches(", ").to_owned()
}

fn row(row: &str) -> String {
    refusal(format!("id,lower,upper,size,alignment\nfine,0,1,8,8\n\n{row}\n"))
}

#[test]
fn a_missing_column_is_named() {
    assert!(refusal("id,lower,size\n0,1,2\n").starts_with("line 1: the header has no column `upper`"));
    assert!(refusal("0,0,1,4\n1,0,1,4\n").starts_with("line 1: the header has no column `id`"));
    assert!(refusal("id,lower,lower,upper,size\n").contains("`lower` twice"));
}

#[test]
fn an_invalid_number_is_named_by_line_and_column() {
    assert!(row("x,zero,1,8,8").starts_with("line 4, column `lower`: `zero` is not a whole number"));
    assert!(row("x,0,1.5,8,8").starts_with("line 4, column `upper`: `1.5`"));
    assert!(row("x,0,1,,8").starts_with("line 4, column `size`: the field is empty"));
    assert!(row("x,0,1,+8,8").starts_with("line 4, column `size`: `+8`"));
}

#[test]
fn negative_numbers_are_refused() {
    assert!(row("x,-3,1,8,8").starts_with("line 4, column `lower`: -3 is negative"));
    assert!(row("x,0,1,-8,8").starts_with("line 4, column `size`: -8 is negative"));
}

#[test]
fn numbers_beyond_64_bits_are_refused() {
    assert!(row("x,0,18446744073709551616,8,8").starts_with("line 4, column `upper`: 18446744073709551616"));
    assert!(row("x,0,1,18446744073709551615,8").starts_with("line 4, column `size`: 18446744073709551615"));
    assert!(
        row("x,0,1,18446744073709551608,8").starts_with("line 4, column `size`: the sum of sizes overflows")
    );
}

#[test]
fn a_lifetime_of_no_steps_is_refused() {
    assert!(row("x,3,3,8,8").starts_with("line 4, column `upper`: 3 is not above lower, 3"));
    assert!(row("x,4,3,8,8").starts_with("line 4, column `upper`: 3 is not above lower, 4"));
}

#[test]
fn an_alignment_that_is_no_power_of_two_is_refused() {
    assert!(row("x,0,1,8,0").starts_with("line 4, column `alignment`: 0 is not a power of two"));
    assert!(row("x,0,1,8,12").starts_with("line 4, column `alignment`: 12 is not a power of two"));
}

#[test]
fn ids_are_unique() {
    assert!(row("fine,0,1,8,8").starts_with("line 4, column `id`: `fine` is already used in line 2"));
}

#[test]
fn lines_have_as_many_fields_as_the_header() {
    assert!(row("x,0,1,8").starts_with("line 4: 4 fields, but the header has 5"));
    assert!(row("x,0,1,8,8,8").starts_with("line 4: 6 fields, but the header has 5"));
}

#[test]
fn an_empty_file_is_refused() {
    assert!(refusal("").starts_with(": the file is empty; "));
    assert!(refusal(" \n\n").starts_with(": the file is empty; "));
}

#[test]
fn text_that_is_not_utf8_is_refused() {
    assert!(refusal(b"id,lower,upper,size\na,0,\xff,1\n").starts_with("line 2, column 5: invalid UTF-8"));
}
