//! Messages and JSON as values of templates.

use std::sync::Arc;

use minijinja::value::{Enumerator, Object, ObjectRepr, Value};
use serde_json::{Map, Value as Json};

use super::message::{Content, Message, ToolCall};

/// The form in which a template takes messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    /// Whether a content may be a text.
    pub(super) takes_text: bool,
    /// Whether a content may be a list of parts.
    pub(super) takes_parts: bool,
    /// The key of what the model thought.
    pub(super) reasoning_key: &'static str,
}

/// What to try after a template refused messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attempt {
    /// Arguments of calls as objects, not as the text of them.
    objects: bool,
    /// Missing contents as `none`, not as an empty text.
    nothing: bool,
}

impl Attempt {
    /// All ways to write these messages, as `transformers` does it first.
    pub(super) fn all(messages: &[Message]) -> impl Iterator<Item = Attempt> {
        let calls = messages.iter().any(|message| !message.tool_calls.is_empty());
        let empty = messages.iter().any(|message| message.content == Content::Nothing);
        let of = |objects, nothing| Attempt { objects, nothing };
        [of(true, true), of(true, false), of(false, true), of(false, false)]
            .into_iter()
            .filter(move |attempt| (calls || attempt.objects) && (empty || attempt.nothing))
    }
}

/// A message as a template sees it.
pub(super) fn message(message: &Message, form: Form, attempt: Attempt) -> Value {
    let text = |text: &str| Value::from(text);
    let fields = [
        ("role", Some(text(&message.role))),
        ("content", Some(content(&message.content, form, attempt))),
        (form.reasoning_key, message.reasoning.as_deref().map(text)),
        ("tool_calls", (!message.tool_calls.is_empty()).then(|| calls(&message.tool_calls, attempt))),
        ("tool_call_id", message.tool_call_id.as_deref().map(text)),
        ("name", message.name.as_deref().map(text)),
    ];
    map(fields.into_iter().filter_map(|(key, value)| Some((key, value?))))
}

fn content(content: &Content, form: Form, attempt: Attempt) -> Value {
    let parts = |texts: &[String]| {
        let part = |text: &String| {
            map([("type", Value::from("text")), ("text", Value::from(text.as_str()))].into_iter())
        };
        texts.iter().map(part).collect::<Value>()
    };
    match content {
        Content::Nothing if attempt.nothing => Value::from(()),
        Content::Parts(texts) if form.takes_parts => parts(texts),
        Content::Text(text) if !form.takes_text => parts(std::slice::from_ref(text)),
        other => Value::from(other.text()),
    }
}

fn calls(calls: &[ToolCall], attempt: Attempt) -> Value {
    let call = |call: &ToolCall| {
        let object = serde_json::from_str::<Json>(&call.arguments).ok().filter(Json::is_object);
        let arguments = match object {
            Some(object) if attempt.objects => json(&object),
            _ => Value::from(call.arguments.as_str()),
        };
        let function = map([("name", Value::from(call.name.as_str())), ("arguments", arguments)].into_iter());
        let id = Value::from(call.id.as_str());
        map([("id", id), ("type", Value::from("function")), ("function", function)].into_iter())
    };
    calls.iter().map(call).collect()
}

/// The fields of a JSON object.
pub(super) fn fields(object: &Map<String, Json>) -> Value {
    map(object.iter().map(|(key, value)| (key.as_str(), json(value))))
}

/// A JSON value; the keys of objects keep their order.
pub(super) fn json(value: &Json) -> Value {
    match value {
        Json::Null => Value::from(()),
        Json::Bool(value) => Value::from(*value),
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => items.iter().map(json).collect(),
        Json::Object(object) => fields(object),
        Json::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(integer), _, _) => Value::from(integer),
            (_, Some(integer), _) => Value::from(integer),
            (_, _, float) => Value::from(float.unwrap_or_default()),
        },
    }
}

/// A map that keeps the order of its keys.
#[derive(Debug)]
struct Fields(Vec<(Value, Value)>);

impl Object for Fields {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Map
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value.clone())
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.0.iter().map(|(name, _)| name.clone()).collect())
    }
}

fn map<'a>(fields: impl Iterator<Item = (&'a str, Value)>) -> Value {
    Value::from_object(Fields(fields.map(|(key, value)| (Value::from(key), value)).collect()))
}
