//! The messages of a chat.

use std::borrow::Cow;

/// One message of a chat.
///
/// ```
/// use orlop_llm::{Message, ToolCall};
///
/// let call = ToolCall { id: "call_0".into(), name: "add".into(), arguments: r#"{"a": 1, "b": 2}"#.into() };
/// let messages = [
///     Message::new("user", "What is 1 + 2?"),
///     Message::calls(vec![call]).with_reasoning("I should add them."),
///     Message::tool_result("call_0", "3"),
/// ];
/// assert_eq!(messages[2].role, "tool");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Who speaks: `system`, `user`, `assistant` or `tool`, or another role that the template knows.
    pub role: String,
    /// What is said.
    pub content: Content,
    /// What the model thought before it spoke; templates that know no reasoning leave it out.
    pub reasoning: Option<String>,
    /// The tools that the model called.
    pub tool_calls: Vec<ToolCall>,
    /// Of a tool's result: the call that it answers.
    pub tool_call_id: Option<String>,
    /// The name of the speaker, or of the tool.
    pub name: Option<String>,
}

/// What a message says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Content {
    /// Nothing, as beside tool calls.
    #[default]
    Nothing,
    /// A text.
    Text(String),
    /// Texts, one after the other.
    Parts(Vec<String>),
}

/// A call of a tool by the model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolCall {
    /// The name of the call, by which a result refers to it.
    pub id: String,
    /// The name of the function.
    pub name: String,
    /// The arguments as the text of a JSON object.
    pub arguments: String,
}

impl Message {
    /// A message of `role` that says `content`.
    pub fn new(role: impl Into<String>, content: impl Into<Content>) -> Message {
        Message { role: role.into(), content: content.into(), ..Message::default() }
    }

    /// A message of the model that calls tools and says nothing.
    pub fn calls(tool_calls: Vec<ToolCall>) -> Message {
        Message { role: "assistant".to_owned(), tool_calls, ..Message::default() }
    }

    /// The result of a call.
    pub fn tool_result(call: impl Into<String>, content: impl Into<Content>) -> Message {
        Message { tool_call_id: Some(call.into()), ..Message::new("tool", content) }
    }

    /// With what the model thought.
    #[must_use]
    pub fn with_reasoning(mut self, reasoning: impl Into<String>) -> Message {
        self.reasoning = Some(reasoning.into());
        self
    }

    /// With the name of the speaker, or of the tool.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<String>) -> Message {
        self.name = Some(name.into());
        self
    }
}

impl Content {
    /// The text, with the parts on lines of their own.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Content::Nothing => Cow::Borrowed(""),
            Content::Text(text) => Cow::Borrowed(text),
            Content::Parts(parts) => Cow::Owned(parts.join("\n")),
        }
    }
}

impl<T: Into<String>> From<T> for Content {
    fn from(text: T) -> Content {
        Content::Text(text.into())
    }
}
