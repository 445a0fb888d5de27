//! Tools for models whose template knows none: they are described in the system message, and calls are written as
//! [Hermes](https://github.com/NousResearch/Hermes-Function-Calling) writes them.

use orlop_llm::{AnswerFormat, Content, Message, ToolCall};
use serde_json::Value as Json;

use crate::front::Ready;

/// Whether a model's template leaves tools out.
pub(crate) fn are_needed(ready: &Ready, tools: &[Json]) -> bool {
    !tools.is_empty() && !ready.template.text().contains("tools")
}

/// The format of answers: that of the template, with calls.
pub(crate) fn format(ready: &Ready, tools: &[Json]) -> AnswerFormat {
    AnswerFormat::of_template(&format!("{}<tool_call>", ready.template.text()), tools)
}

/// Where the description of the tools stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the system message.
    System,
    /// Before the first message of the user: some templates refuse system messages.
    User,
}

/// The messages of a chat as texts, with a description of the tools.
pub(crate) fn messages(messages: &[Message], tools: &[Json], place: Place) -> Vec<Message> {
    let mut written: Vec<Message> = Vec::with_capacity(messages.len() + 1);
    for message in messages {
        match (as_text(message), written.last_mut()) {
            // Results of several calls come together: templates want roles to alternate.
            ((role, text), Some(last)) if message.role == "tool" && last.role == role => {
                last.content = Content::Text(format!("{}\n{text}", last.content.text()));
            }
            ((role, text), _) => {
                written.push(Message { reasoning: message.reasoning.clone(), ..Message::new(role, text) });
            }
        }
    }
    let role = if place == Place::System { "system" } else { "user" };
    let description = description(tools);
    match written.first_mut().filter(|first| first.role == role) {
        Some(first) => first.content = Content::Text(format!("{description}\n\n{}", first.content.text())),
        None => written.insert(0, Message::new(role, description)),
    }
    written
}

fn as_text(message: &Message) -> (&str, String) {
    let text = message.content.text();
    match message.role.as_str() {
        "tool" => ("user", format!("<tool_response>\n{text}\n</tool_response>")),
        role => {
            let text = (!text.is_empty()).then(|| text.into_owned());
            let calls = message.tool_calls.iter().map(call_text);
            (role, text.into_iter().chain(calls).collect::<Vec<String>>().join("\n"))
        }
    }
}

fn call_text(call: &ToolCall) -> String {
    let name = Json::from(call.name.as_str());
    format!("<tool_call>\n{{\"name\": {name}, \"arguments\": {}}}\n</tool_call>", call.arguments)
}

fn description(tools: &[Json]) -> String {
    let tools: Vec<String> =
        tools.iter().map(|tool| tool.get("function").unwrap_or(tool).to_string()).collect();
    format!(
        "You can call these functions, each described in JSON:\n<tools>\n{}\n</tools>\nTo call one, write:\n<tool_call>\n\
         {{\"name\": \"the function\", \"arguments\": {{}}}}\n</tool_call>\nThe results come in <tool_response></tool_response>.",
        tools.join("\n")
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn calls_and_results_become_texts_with_the_tools_before_them() {
        let tools = [json!({ "type": "function", "function": { "name": "add" } })];
        let call = |id: &str| ToolCall {
            id: id.to_owned(),
            name: "add".to_owned(),
            arguments: "{\"a\":1}".to_owned(),
        };
        let chat = [
            Message::new("user", "Add."),
            Message::calls(vec![call("x"), call("y")]),
            Message::tool_result("x", "1"),
            Message::tool_result("y", "2"),
        ];
        let seen = |place: Place| -> Vec<(String, String)> {
            let written = messages(&chat, &tools, place);
            assert!(written.iter().all(|message| message.tool_calls.is_empty()));
            written
                .into_iter()
                .map(|message| (message.role.clone(), message.content.text().into_owned()))
                .collect()
        };
        let system = seen(Place::System);
        let roles: Vec<&str> = system.iter().map(|(role, _)| role.as_str()).collect();
        assert_eq!(roles, ["system", "user", "assistant", "user"]);
        assert!(system[0].1.contains("{\"name\":\"add\"}"), "{}", system[0].1);
        let called = "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\":1}}\n</tool_call>";
        assert_eq!(system[2].1, [called, called].join("\n"));
        assert_eq!(system[3].1, "<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response>");
        let user = seen(Place::User);
        assert_eq!(user.len(), 3);
        assert!(user[0].1.starts_with("You can call") && user[0].1.ends_with("\n\nAdd."), "{}", user[0].1);
    }
}
