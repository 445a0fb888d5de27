//! A message of a saved chat: the text of a JSON object, which leaves out what the message does not have.

use serde_json::{Map, Value as Json, json};

use crate::{Content, Message, ToolCall};

const ROLE: &str = "role";
const CONTENT: &str = "content";
const REASONING: &str = "reasoning";
const TOOL_CALLS: &str = "tool_calls";
const TOOL_CALL_ID: &str = "tool_call_id";
const NAME: &str = "name";

pub(super) fn write(message: &Message) -> String {
    let Message { role, content, reasoning, tool_calls, tool_call_id, name } = message;
    let content = match content {
        Content::Nothing => None,
        Content::Text(text) => Some(json!(text)),
        Content::Parts(parts) => Some(json!(parts)),
    };
    let calls: Vec<Json> = tool_calls
        .iter()
        .map(|ToolCall { id, name, arguments }| json!({"id": id, "name": name, "arguments": arguments}))
        .collect();
    let fields = [
        (ROLE, Some(json!(role))),
        (CONTENT, content),
        (REASONING, reasoning.as_ref().map(|text| json!(text))),
        (TOOL_CALLS, (!calls.is_empty()).then_some(Json::Array(calls))),
        (TOOL_CALL_ID, tool_call_id.as_ref().map(|text| json!(text))),
        (NAME, name.as_ref().map(|text| json!(text))),
    ];
    let fields = fields.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    Json::Object(fields.collect()).to_string()
}

/// `None` for a text that [`write`] does not make.
pub(super) fn read(text: &str) -> Option<Message> {
    let Json::Object(fields) = serde_json::from_str(text).ok()? else { return None };
    let content = match fields.get(CONTENT) {
        None => Content::Nothing,
        Some(Json::Array(parts)) => Content::Parts(parts.iter().map(string).collect::<Option<_>>()?),
        Some(text) => Content::Text(string(text)?),
    };
    let tool_calls = match fields.get(TOOL_CALLS) {
        None => Vec::new(),
        Some(calls) => calls.as_array()?.iter().map(tool_call).collect::<Option<_>>()?,
    };
    Some(Message {
        role: string(fields.get(ROLE)?)?,
        content,
        reasoning: optional(&fields, REASONING)?,
        tool_calls,
        tool_call_id: optional(&fields, TOOL_CALL_ID)?,
        name: optional(&fields, NAME)?,
    })
}

fn tool_call(json: &Json) -> Option<ToolCall> {
    let field = |key| string(json.get(key)?);
    Some(ToolCall { id: field("id")?, name: field("name")?, arguments: field("arguments")? })
}

/// A field that may be missing, but is otherwise a string.
fn optional(fields: &Map<String, Json>, key: &str) -> Option<Option<String>> {
    fields.get(key).map_or(Some(None), |value| string(value).map(Some))
}

fn string(json: &Json) -> Option<String> {
    json.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_as_it_was_written() {
        let call = ToolCall { id: "1".into(), name: "add".into(), arguments: r#"{"a": "\""}"#.into() };
        let parts = Content::Parts(vec!["one".into(), "two\n".into()]);
        let messages = [
            Message::new("user", "Hello").with_name("Ann"),
            Message { content: parts, ..Message::new("user", "") },
            Message::calls(vec![call.clone(), call]).with_reasoning("Add."),
            Message::tool_result("1", "3").with_name("add"),
            Message::new("assistant", ""),
        ];
        for message in messages {
            assert_eq!(read(&write(&message)), Some(message));
        }
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for text in ["", "[]", "{}", r#"{"role": 1}"#, r#"{"role": "a", "name": 1}"#] {
            assert_eq!(read(text), None, "{text}");
        }
        for rest in [r#""content": [1]"#, r#""tool_calls": {}"#, r#""tool_calls": [{"id": "1"}]"#] {
            assert_eq!(read(&format!(r#"{{"role": "a", {rest}}}"#)), None, "{rest}");
        }
    }
}
