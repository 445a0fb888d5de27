//! Chat templates give the text that Jinja itself gives.

use orlop_llm::{ChatPrompt, ChatTemplate, Message, TemplateSource};

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
        let part = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        let messages: Vec<Message> = case[1]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| Message::new(part(&item[0]), part(&item[1])))
            .collect();
        let prompt = if case[2].as_bool().unwrap() { ChatPrompt::Answer } else { ChatPrompt::Nothing };
        let found = template.render(&messages, prompt);
        match case[3].as_str() {
            Some(text) => assert_eq!(found.unwrap(), text, "{name}, {messages:?}"),
            None => {
                let error = found.unwrap_err().to_string();
                assert!(error.contains(case[4].as_str().unwrap()), "{name}: {error}");
            }
        }
    }
}
