//! Which files of a repository are a model.

use super::{HubError, HubModel};

/// The quantizations that are taken where none is named, the first one that is there.
const DEFAULT: [&str; 2] = ["Q4_K_M", "Q8_0"];

/// Most files that an error names.
const NAMED: usize = 12;

/// The files of a model: one, or all parts in order.
pub(super) fn choose<'a>(names: &[&'a str], model: &HubModel) -> Result<Vec<&'a str>, HubError> {
    let repository = || model.repository().to_owned();
    let mut models: Vec<&str> = names.iter().copied().filter(|name| is_model(name)).collect();
    models.sort_unstable();
    let first = models.first().ok_or_else(|| HubError::NoGguf { repository: repository() })?;
    let found = match &model.wanted {
        Some(wanted) if ends_with(wanted, GGUF) => {
            models.iter().find(|name| name.eq_ignore_ascii_case(wanted))
        }
        Some(wanted) => models.iter().find(|name| has_mark(name, wanted)),
        None => {
            let marked = DEFAULT.iter().find_map(|mark| models.iter().find(|name| has_mark(name, mark)));
            Some(marked.unwrap_or(first))
        }
    };
    let found = found.ok_or_else(|| {
        let known = models.iter().take(NAMED).map(|name| (*name).to_owned());
        let more = (models.len() > NAMED).then(|| format!("{} more", models.len() - NAMED));
        HubError::NoFile {
            repository: repository(),
            wanted: model.wanted.clone().unwrap_or_default(),
            known: known.chain(more).collect(),
        }
    })?;
    let Some((stem, count)) = split(found) else { return Ok(vec![found]) };
    let part = |number: usize| {
        let name = format!("{stem}-{number:05}-of-{count:05}{GGUF}");
        models.iter().copied().find(|known| *known == name)
    };
    let parts: Option<Vec<&str>> = (1..=count).map(part).collect();
    parts.ok_or_else(|| HubError::MissingPart { repository: repository(), file: (*found).to_owned() })
}

const GGUF: &str = ".gguf";

fn ends_with(name: &str, end: &str) -> bool {
    name.len() >= end.len() && name.as_bytes()[name.len() - end.len()..].eq_ignore_ascii_case(end.as_bytes())
}

/// Whether a file is a language model: not one of images, and no importance data.
fn is_model(name: &str) -> bool {
    let file = name.rsplit('/').next().unwrap_or(name).to_ascii_lowercase();
    ends_with(name, GGUF) && !file.contains("mmproj") && !file.contains("imatrix")
}

/// Whether a name has a quantization as a word: `IQ4_XS` and `Q4_K_M` are no `Q4_K`.
fn has_mark(name: &str, mark: &str) -> bool {
    let (name, mark) = (name.to_ascii_lowercase(), mark.to_ascii_lowercase());
    name.match_indices(&mark).any(|(place, _)| {
        let before = name[..place].chars().next_back();
        let after = name[place + mark.len()..].chars().next();
        before.is_none_or(|c| !c.is_alphanumeric()) && after.is_none_or(|c| ['-', '.', '/'].contains(&c))
    })
}

/// The stem and the number of parts of a file of a split model.
fn split(name: &str) -> Option<(&str, usize)> {
    let digits = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    let (rest, count) = name.strip_suffix(GGUF)?.rsplit_once("-of-")?;
    let (stem, number) = rest.rsplit_once('-')?;
    let count = count.parse().ok().filter(|_| digits(count) && digits(number))?;
    (count > 0).then_some((stem, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 12] = [
        "README.md",
        "mmproj-m-Q8_0.gguf",
        "m.imatrix.gguf",
        "m-BF16.gguf",
        "m-IQ4_XS.gguf",
        "m-Q4_K_S.gguf",
        "m-q4_k_m.gguf",
        "m-Q8_0.gguf",
        "Q6_K/m-Q6_K-00002-of-00002.gguf",
        "Q6_K/m-Q6_K-00001-of-00002.gguf",
        "m-Q5_0-00001-of-00003.gguf",
        "m-UD-Q2_K_XL.gguf",
    ];

    fn chosen<'a>(names: &[&'a str], wanted: &str) -> Result<Vec<&'a str>, HubError> {
        choose(names, &format!("a/b{wanted}").parse().unwrap())
    }

    #[test]
    fn a_quantization_is_a_word_of_a_name_in_any_case() {
        for (wanted, name) in [
            ("", "m-q4_k_m.gguf"),
            (":Q4_K_M", "m-q4_k_m.gguf"),
            (":q8_0", "m-Q8_0.gguf"),
            (":bf16", "m-BF16.gguf"),
            (":Q2_K_XL", "m-UD-Q2_K_XL.gguf"),
            (":M-q8_0.GGUF", "m-Q8_0.gguf"),
        ] {
            assert_eq!(chosen(&NAMES, wanted).unwrap(), [name], "{wanted}");
        }
        for wanted in [":Q4_K", ":Q4_XS", ":Q2_K", ":other.gguf", ":mmproj", ":imatrix"] {
            assert!(matches!(chosen(&NAMES, wanted), Err(HubError::NoFile { .. })), "{wanted}");
        }
    }

    #[test]
    fn without_the_usual_quantizations_the_first_file_is_taken() {
        assert_eq!(chosen(&["z-F16.gguf", "b-Q8_0.gguf", "a-F32.gguf"], "").unwrap(), ["b-Q8_0.gguf"]);
        assert_eq!(chosen(&["z-F16.gguf", "a-F32.gguf"], "").unwrap(), ["a-F32.gguf"]);
        assert!(matches!(chosen(&["model.safetensors"], ""), Err(HubError::NoGguf { .. })));
    }

    #[test]
    fn a_split_model_has_all_its_parts() {
        let parts = ["Q6_K/m-Q6_K-00001-of-00002.gguf", "Q6_K/m-Q6_K-00002-of-00002.gguf"];
        assert_eq!(chosen(&NAMES, ":Q6_K").unwrap(), parts);
        assert_eq!(chosen(&NAMES, ":Q6_K/m-Q6_K-00002-of-00002.gguf").unwrap(), parts);
        assert!(matches!(chosen(&NAMES, ":Q5_0"), Err(HubError::MissingPart { .. })));
    }
}
