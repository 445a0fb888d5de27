//! Chat templates give the text that Jinja itself gives.

use orlop_llm::{ChatPrompt, ChatTemplate, Content, Message, RenderOptions, TemplateSource, ToolCall};
use serde_json::Value;

use crate::fixture::json;

#[test]
fn templates_render_as_in_jinja() {
    let fixture = json(include_str!("fixtures/chat.json"));
    let cases = fixture["cases"].as_array().unwrap();
    assert!(cases.len() > 30);
    for case in cases {
        let name = case[0].as_str().unwrap();
        let template = fixture["templates"][name].as_str().unwrap();
        let template = ChatTemplate::from_text(template, "<s>", "</s>");
        assert_eq!(template.source(), TemplateSource::File, "{name}: {:?}", template.fault());
        let part = |value: &Value| value.as_str().unwrap().to_owned();
        let messages: Vec<Message> = case[1]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| Message::new(part(&item[0]), part(&item[1])))
            .collect();
        let prompt = if case[2].as_bool().unwrap() { ChatPrompt::Answer } else { ChatPrompt::Nothing };
        let found = template.render(&messages, &prompt.into());
        match case[3].as_str() {
            Some(text) => assert_eq!(found.unwrap(), text, "{name}, {messages:?}"),
            None => {
                let error = found.unwrap_err().to_string();
                assert!(error.contains(case[4].as_str().unwrap()), "{name}: {error}");
            }
        }
    }
}

fn message(json: &Value) -> Message {
    let text = |key: &str| json[key].as_str().map(str::to_owned);
    let call = |call: &Value| ToolCall {
        id: call["id"].as_str().unwrap().to_owned(),
        name: call["function"]["name"].as_str().unwrap().to_owned(),
        arguments: call["function"]["arguments"].to_string(),
    };
    Message {
        role: text("role").unwrap(),
        content: text("content").map_or(Content::Nothing, Content::Text),
        reasoning: text("reasoning_content"),
        tool_calls: json["tool_calls"].as_array().into_iter().flatten().map(call).collect(),
        tool_call_id: text("tool_call_id"),
        name: text("name"),
    }
}

#[test]
fn tools_calls_and_reasoning_render_as_in_jinja() {
    let fixture = json(include_str!("fixtures/chat.json"));
    let template = ChatTemplate::from_text(fixture["templates"]["tools"].as_str().unwrap(), "<s>", "</s>");
    assert_eq!(template.source(), TemplateSource::File, "{:?}", template.fault());
    let cases = fixture["tools"].as_array().unwrap();
    assert_eq!(cases.len(), 8);
    for case in cases {
        let messages: Vec<Message> = case[0].as_array().unwrap().iter().map(message).collect();
        let options = RenderOptions {
            prompt: ChatPrompt::Answer,
            tools: case[1].as_array().cloned().unwrap_or_default(),
            variables: case[2].as_object().cloned().unwrap(),
        };
        assert_eq!(template.render(&messages, &options).unwrap(), case[3].as_str().unwrap());
    }
}
