//! `/save`.

use std::path::Path;

use orlop::llm::Message;
use serde::Serialize;

use crate::failure::Failure;
use crate::output::Output;

#[derive(Serialize)]
struct Said<'a> {
    role: &'a str,
    content: &'a str,
}

/// Writes what was said to a file; a sentence says why not.
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
        other => format!("{} cannot be written ({other:?})", path.display()),
    })
}

fn as_json(messages: &[Message]) -> String {
    let said: Vec<Said<'_>> =
        messages.iter().map(|message| Said { role: &message.role, content: &message.content }).collect();
    // Strings alone always become JSON.
    serde_json::to_string_pretty(&said).unwrap_or_default() + "\n"
}

fn as_text(messages: &[Message]) -> String {
    messages.iter().map(|message| format!("{}: {}\n\n", message.role, message.content.trim())).collect()
}
