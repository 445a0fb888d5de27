//! Chats over several turns.

use std::ops::ControlFlow;
use std::sync::Arc;

use orlop_backend::{Cancel, Precision};
use orlop_gguf::{GgufFile as Parts, GgufPart};
use orlop_graph::DType;
use orlop_llm::{
    CacheTypes, Chat, ChatEvent, ChatTemplate, End, Engine, Error, Model, Sampler, SamplingOptions, Settings,
    Synth, TemplateSource, Tokenizer, Turn,
};

use crate::support::{greedy, load, one_cpu};

/// Answers of a random model: its text is all bytes and words, so that it can be cut into tokens in many ways.
struct Talk {
    model: Model,
    tokenizer: Tokenizer,
    engine: Engine,
    sampler: Sampler,
}

const LIMIT: usize = 9;

fn settings() -> Settings {
    let cache = CacheTypes { k: DType::F32, v: DType::F32 };
    Settings { context: Some(400), precision: Precision::F32, cache, ..Settings::default() }
}

impl Talk {
    fn new() -> Talk {
        let synth = Synth { vocabulary: 700, context: 400, ..Synth::default() };
        let file = GgufPart::from_bytes(Arc::new(synth.bytes().unwrap())).unwrap();
        let model = Model::from_file(Parts::from_file(file)).unwrap();
        let tokenizer = Tokenizer::from_metadata(model.file().metadata()).unwrap();
        let engine = load(&model, &one_cpu(), &settings());
        Talk { model, tokenizer, engine, sampler: Sampler::new(SamplingOptions::greedy(), 0) }
    }

    fn answer(&mut self, chat: &mut Chat) -> Result<(String, Turn), Error> {
        let mut text = String::new();
        let turn =
            chat.answer(&mut self.engine, &self.tokenizer, &mut self.sampler, Some(LIMIT), &mut |heard| {
                if let ChatEvent::Text(piece) = heard {
                    text.push_str(piece);
                }
                ControlFlow::Continue(())
            })?;
        Ok((text, turn))
    }

    /// What a model that knows nothing of this one's past makes of a prompt.
    fn anew(&self, prompt: &[u32]) -> String {
        let mut engine = load(&self.model, &one_cpu(), &settings());
        let mut tokens = greedy(&mut engine, prompt, LIMIT);
        if let Some(end) = tokens.iter().position(|token| self.tokenizer.is_end(*token)) {
            tokens.truncate(end);
        }
        let bytes: Vec<u8> = tokens.iter().flat_map(|token| self.tokenizer.decode(*token)).copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

fn template(content: &str) -> ChatTemplate {
    let text = format!(
        "{{% for m in messages %}}<s>{{{{ m.role }}}}: {content}</s>{{% endfor %}}\
         {{% if add_generation_prompt %}}<s>assistant: {{% endif %}}"
    );
    ChatTemplate::from_text(&text, "<s>", "</s>")
}

#[test]
fn answers_are_those_of_a_model_that_reads_everything_anew() {
    let templates = [
        template("{{ m.content }}"),
        template("{{ m.content | trim }}"),
        template("{% if loop.last %}{{ m.content }}{% else %}({{ m.content }}){% endif %}"),
        ChatTemplate::from_text("{% for", "<s>", "</s>"),
    ];
    for (index, template) in templates.into_iter().enumerate() {
        let mut talk = Talk::new();
        let mut chat = Chat::new(template).with_system("Be brief.");
        for message in ["Hello there", "é and more", "a b c", "the end"] {
            chat.say(message);
            let cached = talk.engine.len();
            let prompt = chat.prompt(&talk.tokenizer);
            let (text, turn) = talk.answer(&mut chat).unwrap();
            assert_eq!(text, talk.anew(&prompt), "template {index}, {message}");
            assert_eq!(turn.kept + turn.fed, prompt.len());
            // The third template changes what was said before, and the plain form puts a space before answers; the others
            // leave all as it was.
            let lost = [0, 0, cached, LIMIT][index];
            assert!(turn.kept + lost >= cached, "template {index}, {message}: {turn:?} of {cached}");
        }
        assert_eq!(chat.turns(), 4);
        chat.reset();
        assert_eq!((chat.turns(), chat.messages().len()), (0, 1));
        chat.say("Hello there");
        let prompt = chat.prompt(&talk.tokenizer);
        assert_eq!(
            talk.answer(&mut chat).unwrap().0,
            talk.anew(&prompt),
            "template {index}, from the beginning"
        );
    }
}

#[test]
fn a_conversation_that_is_too_long_can_lose_its_oldest_turns() {
    let mut talk = Talk::new();
    let mut chat = Chat::new(template("{{ m.content }}")).with_system("Be brief.");
    let error = loop {
        chat.say("word ".repeat(12));
        match talk.answer(&mut chat) {
            Ok(_) => assert!(chat.turns() < 100),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::ContextFull { context: 400, .. }), "{error}");
    let (before, turns) = (chat.messages().to_vec(), chat.turns());
    let count = chat.turns_over(&talk.tokenizer, 400, 100).unwrap();
    assert_eq!(chat.messages(), before, "asking changes nothing");
    assert!(0 < count && count < turns, "{count} of {turns}");
    chat.drop_turns(count);
    assert_eq!((chat.turns(), chat.messages()[0].role.as_str()), (turns - count, "system"));
    let prompt = chat.prompt(&talk.tokenizer);
    assert!(prompt.len() <= 300, "{}", prompt.len());
    assert_eq!(talk.answer(&mut chat).unwrap().0, talk.anew(&prompt));
    chat.say("word ".repeat(1000));
    assert_eq!(chat.turns_over(&talk.tokenizer, 400, 100), None);
}

#[test]
fn what_is_stopped_leaves_a_conversation_that_goes_on() {
    let mut talk = Talk::new();
    let mut chat = Chat::new(template("{{ m.content }}"));
    chat.say("Hello");
    let cancel = Cancel::new();
    cancel.cancel();
    talk.engine.cancel_with(Some(cancel));
    assert!(talk.answer(&mut chat).is_err());
    talk.engine.cancel_with(None);
    assert_eq!(chat.withdraw().as_deref(), Some("Hello"));

    chat.say("Hello");
    let Talk { engine, tokenizer, sampler, .. } = &mut talk;
    let mut heard = 0;
    let turn = chat.answer(engine, tokenizer, sampler, None, &mut |what| {
        heard += usize::from(matches!(what, ChatEvent::Text(_)));
        if heard == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(turn.unwrap().end, End::Stopped);
    chat.say("Go on");
    let prompt = chat.prompt(&talk.tokenizer);
    assert_eq!(talk.answer(&mut chat).unwrap().0, talk.anew(&prompt));
    let last = chat.withdraw_answer().unwrap();
    assert_eq!(talk.answer(&mut chat).unwrap().0, last, "the same again");
}

#[test]
fn a_template_that_knows_no_system_gets_it_with_the_first_message() {
    let talk = Talk::new();
    let strict = "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}\
                  <s>{{ m.content }}</s>{% endfor %}";
    let mut chat = Chat::new(ChatTemplate::from_text(strict, "<s>", "</s>")).with_system("Be brief.");
    chat.say("Hello");
    assert_eq!(chat.prompt(&talk.tokenizer), talk.tokenizer.chat("<s>Be brief.\n\nHello</s>"));
    assert_eq!(chat.source(), TemplateSource::File);
    let mut chat = Chat::new(ChatTemplate::from_text("{{ raise_exception('never') }}", "<s>", "</s>"));
    chat.say("Hello");
    assert_eq!(chat.prompt(&talk.tokenizer), talk.tokenizer.chat("User: Hello\nAssistant:"));
    assert_eq!(chat.source(), TemplateSource::Broken);
    assert!(chat.fault().unwrap().to_string().contains("never"));
}

#[test]
fn a_template_that_refuses_to_end_with_an_answer_is_not_given_up() {
    let strict = "{% if messages[-1].role != 'user' %}{{ raise_exception('the user speaks last') }}{% endif %}\
                  {% for m in messages %}<s>{{ m.role }}: {{ m.content }}</s>{% endfor %}<s>assistant: ";
    let mut talk = Talk::new();
    let mut chat = Chat::new(ChatTemplate::from_text(strict, "<s>", "</s>"));
    for message in ["Hello there", "a b c"] {
        chat.say(message);
        let cached = talk.engine.len();
        let prompt = chat.prompt(&talk.tokenizer);
        let (text, turn) = talk.answer(&mut chat).unwrap();
        assert_eq!(text, talk.anew(&prompt));
        assert_eq!((chat.source(), chat.fault().is_none()), (TemplateSource::File, true));
        assert!(turn.kept >= cached, "{turn:?} of {cached}");
        assert!(chat.turns_over(&talk.tokenizer, 400, 1).is_some());
        assert_eq!(chat.source(), TemplateSource::File, "asking gives nothing up");
    }
}

#[test]
fn a_saved_chat_goes_on_as_it_would_have() {
    let mut talk = Talk::new();
    let mut chat = Chat::new(template("{{ m.content }}"));
    chat.say("One.");
    talk.answer(&mut chat).unwrap();
    let saved = chat.state_bytes(&talk.engine).unwrap();
    chat.say("Two.");
    let expected = talk.answer(&mut chat).unwrap();

    let mut other = Talk::new();
    let mut resumed = Chat::new(template("{{ m.content }}"));
    resumed.say("Something else.");
    other.answer(&mut resumed).unwrap();
    let plain = other.engine.sequence_bytes(orlop_llm::SequenceId::FIRST, &[0]).unwrap_err();
    assert!(matches!(plain, Error::State(_)), "{plain}");
    resumed.load_state_bytes(&mut other.engine, Arc::new(saved.clone())).unwrap();
    resumed.say("Two.");
    assert_eq!(other.answer(&mut resumed).unwrap(), expected);
    assert_eq!(resumed.messages(), chat.messages());

    // The file of a sequence without a chat changes nothing.
    let len = other.engine.len();
    let mut empty = Talk::new().engine;
    let sequence = empty.sequence_bytes(orlop_llm::SequenceId::FIRST, &[]).unwrap();
    empty.truncate(0);
    let refused = resumed.load_state_bytes(&mut other.engine, Arc::new(sequence));
    assert!(matches!(refused, Err(Error::State(_))), "{refused:?}");
    assert_eq!((other.engine.len(), resumed.turns()), (len, 2));
}
