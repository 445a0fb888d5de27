//! What must hold for any text as a chat template: it renders a chat or refuses it, in bounded steps, and plain chats are
//! always rendered. The fuzz target and a bounded test share it.

use orlop_llm::{ChatPrompt, ChatTemplate, Content, Message, RenderOptions, ToolCall};

/// A chat with everything that messages have.
fn messages() -> Vec<Message> {
    let call =
        ToolCall { id: "c".to_owned(), name: "f".to_owned(), arguments: r#"{"a": [1, "é"]}"#.to_owned() };
    let asked = Message {
        reasoning: Some("think".to_owned()),
        tool_calls: vec![call],
        ..Message::new("assistant", Content::Nothing)
    };
    let result = Message {
        tool_call_id: Some("c".to_owned()),
        name: Some("f".to_owned()),
        ..Message::new("tool", "3".to_owned())
    };
    let parts = Content::Parts(vec!["a".to_owned(), "b".to_owned()]);
    let [system, user, again] =
        ["system", "user", "user"].map(|role| Message::new(role, "Hi, é\n".to_owned()));
    vec![system, user, asked, result, Message { content: parts, ..again }]
}

/// Renders a chat; whether the template took it. The first byte chooses what comes after the chat.
///
/// # Panics
/// If the plain form lacks a message, or an error says nothing.
pub(crate) fn render(bytes: &[u8]) -> bool {
    let Some((choice, text)) = bytes.split_first() else { return false };
    let template = ChatTemplate::from_text(&String::from_utf8_lossy(text), "<s>", "</s>");
    let prompt = [ChatPrompt::Answer, ChatPrompt::Nothing, ChatPrompt::Continue][usize::from(*choice) % 3];
    let messages = messages();
    let plain = template.render_plain(&messages, prompt);
    assert!(plain.matches("Hi, é").count() == 2, "{plain}");
    match template.render(&messages, &RenderOptions::from(prompt)) {
        Ok(_) => template.fault().is_none(),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            false
        }
    }
}
