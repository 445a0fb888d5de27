//! Tests of chat templates.

use super::*;

fn chat() -> Vec<Message> {
    vec![Message::new("system", "Be brief."), Message::new("user", "Hi & <bye>?")]
}

#[test]
fn the_tokens_that_begin_and_end_a_text_are_variables() {
    let template = "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}]{{ m.content }}{{ eos_token }}\n\
                    {% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}";
    let template = ChatTemplate::from_text(template, "<s>", "</s>");
    assert_eq!(template.source(), TemplateSource::File);
    let text = template.render(&chat(), &ChatPrompt::Answer.into()).unwrap();
    assert_eq!(text, "<s>[system]Be brief.</s>\n[user]Hi & <bye>?</s>\n[assistant]");
    let text = template.render(&chat()[1..], &ChatPrompt::Nothing.into()).unwrap();
    assert_eq!(text, "<s>[user]Hi & <bye>?</s>\n");
}

#[test]
fn a_broken_template_says_so_and_gives_way_to_the_plain_form() {
    let template = ChatTemplate::from_text("{% for m in messages %}", "", "");
    assert_eq!(template.source(), TemplateSource::Broken);
    let fault = template.fault().unwrap().to_string();
    assert!(fault.starts_with("the chat template does not work: "), "{fault}");
    let text = template.render(&chat(), &ChatPrompt::Answer.into()).unwrap();
    assert_eq!(text, "System: Be brief.\nUser: Hi & <bye>?\nAssistant:");
}

#[test]
fn a_file_without_a_template_has_the_plain_form() {
    let template = ChatTemplate::new(Ok(None), String::new(), String::new());
    assert_eq!((template.source(), template.fault().is_none()), (TemplateSource::Missing, true));
    assert_eq!(template.render(&chat()[1..], &ChatPrompt::Nothing.into()).unwrap(), "User: Hi & <bye>?\n");
}

#[test]
fn what_a_template_refuses_is_an_error_with_its_words() {
    let template = ChatTemplate::from_text("a\n{{ raise_exception('no system here') }}", "", "");
    let error = template.render(&chat(), &ChatPrompt::Answer.into()).unwrap_err().to_string();
    assert_eq!(error, "the chat template does not work: no system here (line 2)");
}

#[test]
fn a_template_that_never_ends_is_stopped() {
    let endless = "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{% endfor %}\
                   {% endfor %}{% endfor %}";
    let template = ChatTemplate::from_text(endless, "", "");
    assert!(template.render(&chat(), &ChatPrompt::Answer.into()).is_err());
    let template = ChatTemplate::from_text("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "", "");
    assert!(template.render(&chat(), &ChatPrompt::Answer.into()).is_err());
}

#[test]
fn numbers_in_a_template_cannot_ask_for_all_memory() {
    let render =
        |text: &str| ChatTemplate::from_text(text, "", "").render(&chat(), &ChatPrompt::Answer.into());
    let huge = i64::MAX;
    for filter in [
        format!("'a'|indent({huge})"),
        format!("'a'|indent(width={huge})"),
        format!("'%{huge}d'|format(1)"),
        format!("'%.{huge}f'|format(1.5)"),
        format!("'{{:>{huge}}}'.format('a')"),
        format!("'{{:}}<{huge}}}'.format('a')"),
        format!("[1]|batch({huge}, 0)"),
        format!("[1]|slice({huge})|length"),
        format!("'a' * {huge}"),
    ] {
        let error = render(&format!("{{{{ {filter} }}}}")).unwrap_err().to_string();
        assert!(error.contains("too large"), "{filter}: {error}");
    }
    let honest = "{{ 'a\nb'|indent(2) }}|{{ 'a\nb'|indent(width=3, first=true) }}|{{ '%5.1f'|format(1.25) }}|\
                  {{ '{:>4}'.format('a') }}|{{ [1, 2, 3]|batch(2, 0) }}|{{ [1, 2, 3]|slice(2) }}";
    assert_eq!(
        render(honest).unwrap(),
        "a\n  b|   a\n   b|  1.2|   a|[[1, 2], [3, 0]]|[[1, 2], [3]]",
        "and those that do not are as ever"
    );
}

#[test]
fn what_a_template_writes_is_bounded() {
    let long = |times: usize| {
        let text =
            format!("{{% set x = 'é' * 500000 %}}{{% for i in range({times}) %}}{{{{ x }}}}{{% endfor %}}");
        ChatTemplate::from_text(&text, "", "").render(&chat(), &ChatPrompt::Answer.into())
    };
    assert_eq!(long(10).unwrap().len(), 10_000_000);
    let error = long(100).unwrap_err().to_string();
    assert!(error.contains("its text is longer than 67108864 bytes"), "{error}");
}

#[test]
fn dates_are_written_as_asked() {
    let template = ChatTemplate::from_text("{{ strftime_now('%Y') | int > 2000 }}", "", "");
    assert_eq!(template.render(&[], &ChatPrompt::Nothing.into()).unwrap().to_lowercase(), "true");
}

#[test]
fn an_answer_is_continued_where_it_stopped() {
    let template = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</{{ m.role }}>{% endfor %}";
    let template = ChatTemplate::from_text(template, "", "");
    let messages = [Message::new("user", "Hi"), Message::new("assistant", "Once upon ")];
    let text = template.render(&messages, &ChatPrompt::Continue.into()).unwrap();
    assert_eq!(text, "<user>Hi</user><assistant>Once upon");
    assert_eq!(template.render_plain(&messages, ChatPrompt::Continue), "User: Hi\nAssistant: Once upon ");
}

#[test]
fn contents_have_the_form_that_a_template_takes() {
    let parts = Content::Parts(vec!["a".to_owned(), "b".to_owned()]);
    let render = |template: &str, content: &Content| {
        let template = ChatTemplate::from_text(template, "", "");
        template.render(&[Message::new("user", content.clone())], &ChatPrompt::Nothing.into()).unwrap()
    };
    let texts = "{% for m in messages %}{{ m.content }}{% endfor %}";
    let lists = "{% for m in messages %}{% for p in m.content %}<{{ p.text }}>{% endfor %}{% endfor %}";
    let both = "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}\
                {% for p in m.content %}<{{ p.text }}>{% endfor %}{% endif %}{% endfor %}";
    assert_eq!(
        [render(texts, &parts), render(lists, &parts), render(both, &parts)],
        ["a\nb", "<a><b>", "<a><b>"]
    );
    let text = Content::from("a");
    assert_eq!([render(texts, &text), render(lists, &text), render(both, &text)], ["a", "<a>", "a"]);
}

#[test]
fn arguments_that_a_template_refuses_as_objects_are_written_as_text() {
    let template = "{% for m in messages %}{% for c in m.tool_calls %}{{ 'args=' + c.function.arguments }}{% endfor %}{% endfor %}";
    let template = ChatTemplate::from_text(template, "", "");
    let call = ToolCall { id: "1".into(), name: "f".into(), arguments: r#"{"a":1}"#.into() };
    let text = template.render(&[Message::calls(vec![call])], &ChatPrompt::Nothing.into());
    assert_eq!(text.unwrap(), r#"args={"a":1}"#);
}
