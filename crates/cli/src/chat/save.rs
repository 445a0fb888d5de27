//! `/save`: writes the chat to a file.

use std::borrow::Cow;
use std::path::Path;

use orlop::llm::Message;
use serde::Serialize;

use crate::failure::Failure;
use crate::output::Output;

#[derive(Serialize)]
struct SavedMessage<'a> {
    role: &'a str,
    content: Cow<'a, str>,
}

/// Writes the chat to a file, or returns an error message.
pub(super) fn save(messages: &[Message], path: &Path) -> Result<(), String> {
    let json = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
    let text = if json { as_json(messages) } else { as_text(messages) };
    let written = Output::create(path).and_then(|mut file| {
        file.write(&text)?;
        file.finish()
    });
    written.map_err(|failure| match failure {
        Failure::BadInput(sentence) => sentence,
        Failure::Other(error) => format!("{error:#}"),
        other => format!("{}: cannot write the file ({other:?})", path.display()),
    })
}

fn as_json(messages: &[Message]) -> String {
    let saved: Vec<SavedMessage<'_>> = messages
        .iter()
        .map(|message| SavedMessage { role: &message.role, content: message.content.text() })
        .collect();
    // Serializing strings cannot fail.
    serde_json::to_string_pretty(&saved).unwrap_or_default() + "\n"
}

fn as_text(messages: &[Message]) -> String {
    messages
        .iter()
        .map(|message| format!("{}: {}\n\n", message.role, message.content.text().trim()))
        .collect()
}
