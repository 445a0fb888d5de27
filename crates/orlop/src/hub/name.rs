//! Names of models: `org/repo[:quant]`.

use std::fmt;
use std::str::FromStr;

use super::HubError;

/// A model of a hub: `org/repo`, and which of its files: `org/repo:Q8_0`, or `org/repo:file.gguf`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubModel {
    repository: String,
    pub(super) wanted: Option<String>,
}

impl HubModel {
    /// `org/repo`.
    pub fn repository(&self) -> &str {
        &self.repository
    }
}

/// Longest name of an owner or a repository.
const MOST: usize = 96;

fn is_part(part: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !part.is_empty()
        && part.len() <= MOST
        && part.bytes().all(known)
        && !part.starts_with(['-', '.'])
        && !part.contains("..")
        && !part.contains("--")
}

impl FromStr for HubModel {
    type Err = HubError;

    fn from_str(text: &str) -> Result<HubModel, HubError> {
        let refused = |why| HubError::Name { name: text.to_owned(), why };
        let (repository, wanted) = match text.split_once(':') {
            None => (text, None),
            Some((repository, wanted)) => (repository, Some(wanted)),
        };
        let parts = repository.split_once('/').filter(|(org, repo)| is_part(org) && is_part(repo));
        parts.ok_or_else(|| refused("expected org/repo or org/repo:quant"))?;
        if wanted.is_some_and(|wanted| wanted.is_empty() || wanted.chars().any(char::is_control)) {
            return Err(refused("the quantization after `:` is missing"));
        }
        Ok(HubModel { repository: repository.to_owned(), wanted: wanted.map(str::to_owned) })
    }
}

impl fmt::Display for HubModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.repository)?;
        self.wanted.iter().try_for_each(|wanted| write!(f, ":{wanted}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_an_owner_and_a_repository_and_never_leave_a_folder() {
        for name in ["ggml-org/models", "a/b", "Org.x/Re_po-1.5:Q4_K_M", "a/b:dir/file.gguf"] {
            assert_eq!(name.parse::<HubModel>().unwrap().to_string(), name);
        }
        for name in
            ["", "a", "a/", "/b", "a/b/c", "../b", "a/..", "a/.b", "a b/c", "a/b:", "a/b?c", "a--b/c", "é/b"]
        {
            assert!(matches!(name.parse::<HubModel>(), Err(HubError::Name { .. })), "{name}");
        }
    }
}
