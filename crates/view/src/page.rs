//! Pictures as a self-contained HTML page.

use crate::columns::Pages;
use crate::palette::{DARK, LIGHT};
use crate::{Error, Picture};

const HTML: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/style.css");
const SCRIPTS: [&str; 8] = [
    include_str!("page/plan.js"),
    include_str!("page/view.js"),
    include_str!("page/raster.js"),
    include_str!("page/draw.js"),
    include_str!("page/trade_offs.js"),
    include_str!("page/panel.js"),
    include_str!("page/control.js"),
    include_str!("page/start.js"),
];

/// A self-contained HTML page that shows the pictures, alone or two side by side.
///
/// Byte counts above 2^53 are rounded.
///
/// # Errors
/// [`Error::Empty`] without pictures, or for a picture without blocks.
pub fn page(pictures: &[Picture]) -> Result<String, Error> {
    write(pictures, false)
}

/// A [`page`] that shows two pictures side by side.
///
/// # Errors
/// As [`page`].
pub fn page_beside(before: &Picture, after: &Picture) -> Result<String, Error> {
    write(&[before.clone(), after.clone()], true)
}

fn write(pictures: &[Picture], beside: bool) -> Result<String, Error> {
    let Some(first) = pictures.first() else { return Err(Error::Empty { title: "this plan".to_owned() }) };
    pictures.iter().try_for_each(Picture::check)?;
    let failed =
        |error: serde_json::Error| Error::Json { title: first.title.clone(), what: error.to_string() };
    // Only `<` can end a script element.
    let data = serde_json::to_string(&Pages::new(pictures, beside)).map_err(failed)?.replace('<', "\\u003c");
    let style = format!(
        ":root{{color-scheme:light dark;{LIGHT}}}\
         @media(prefers-color-scheme:dark){{:root:not([data-theme=light]){{{DARK}}}}}\
         :root[data-theme=dark]{{color-scheme:dark;{DARK}}}:root[data-theme=light]{{color-scheme:light}}\n{STYLE}"
    );
    // Split the template first, so that inserted text is never searched for placeholders.
    let parts: Vec<&str> = HTML.split("{{").collect();
    let mut text = String::with_capacity(data.len() + HTML.len() + style.len() + (64 << 10));
    for (index, part) in parts.into_iter().enumerate() {
        let rest = match (index, part.split_once("}}")) {
            (0, _) | (_, None) => part,
            (_, Some((name, rest))) => {
                match name {
                    "title" => text.push_str(&escaped(&first.title)),
                    "style" => text.push_str(&style),
                    "data" => text.push_str(&data),
                    _ => SCRIPTS.iter().for_each(|script| text.push_str(script)),
                }
                rest
            }
        };
        text.push_str(rest);
    }
    Ok(text)
}

/// Escapes text for markup.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // Not allowed in XML.
            '\u{fffe}' | '\u{ffff}' => escaped.push(' '),
            control if control.is_control() => escaped.push(' '),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_markup_forbids_is_left_out() {
        assert_eq!(escaped("a<\u{1b}\u{fffe}b\u{ffff}&\u{fffd}"), "a&lt;  b &amp;\u{fffd}");
    }
}
