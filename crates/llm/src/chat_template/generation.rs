//! The tag `{% generation %}`, by which `transformers` finds the model's part of a text: it writes nothing.

/// The template with `if true` for these tags, which Jinja itself does not know.
pub(super) fn without_tags(template: &str) -> String {
    let mut text = String::with_capacity(template.len());
    let mut rest = template;
    while let Some(start) = rest.find("{%") {
        let (before, tag) = rest.split_at(start);
        text.push_str(before);
        let Some(end) = tag.find("%}") else {
            rest = tag;
            break;
        };
        let inner = &tag[2..end];
        let word = inner.trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+');
        match word {
            "generation" => text.push_str(&tag[..end].replace(word, "if true")),
            "endgeneration" => text.push_str(&tag[..end].replace(word, "endif")),
            _ => text.push_str(&tag[..end]),
        }
        rest = &tag[end..];
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_tags_change() {
        let template = "{%- generation -%}a{% endgeneration %}{% if generation %}{{ '{% generation' }}";
        assert_eq!(
            without_tags(template),
            "{%- if true -%}a{% endif %}{% if generation %}{{ '{% generation' }}"
        );
    }
}
