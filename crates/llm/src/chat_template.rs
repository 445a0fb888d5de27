//! Chats as text, by the template in a model file: a [Jinja](https://jinja.palletsprojects.com/) template in the key
//! `tokenizer.chat_template`, as Hugging Face's
//! [`apply_chat_template`](https://huggingface.co/docs/transformers/chat_templating) renders it.

mod bounds;
mod clock;
mod generation;
mod json;
mod message;
mod values;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{Environment, ErrorKind, context};
use orlop_gguf::Metadata;
use serde_json::{Map, Value as Json};

pub use message::{Content, Message, ToolCall};
use values::{Attempt, Form};

use crate::{Error, Tokenizer};

/// The key of the template.
const KEY: &str = "tokenizer.chat_template";

/// Maximum of instructions that a template may execute; real templates need far fewer.
const FUEL: u64 = 10_000_000;

/// Where the text of a chat comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateSource {
    /// The file's own template.
    File,
    /// The plain form, because the file has no template.
    Missing,
    /// The plain form, because the file's template cannot be read; [`ChatTemplate::fault`] says why.
    Broken,
}

/// What comes after the last message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChatPrompt {
    /// The beginning of an answer, for the model to go on.
    #[default]
    Answer,
    /// Nothing.
    Nothing,
    /// The text ends with the last message's content, for the model to continue it.
    Continue,
}

/// What a chat is rendered with beside its messages.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RenderOptions {
    /// What comes after the last message; by default the beginning of an answer.
    pub prompt: ChatPrompt,
    /// The tools that the model may call, in OpenAI's form: `{"type": "function", "function": {…}}`.
    pub tools: Vec<Json>,
    /// More variables of the template, such as `enable_thinking`. They cannot replace those that every template has.
    pub variables: Map<String, Json>,
}

impl From<ChatPrompt> for RenderOptions {
    fn from(prompt: ChatPrompt) -> RenderOptions {
        RenderOptions { prompt, ..RenderOptions::default() }
    }
}

/// Renders chats.
///
/// A template comes with a file, and is not trusted: it reads only the messages, and the number of its instructions, the
/// length of its output, and the numbers by which it asks for texts and lists are limited. Intermediate texts are not
/// limited: a template that joins a text with itself again and again can use up all memory.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    source: TemplateSource,
    fault: Option<Error>,
    form: Form,
    text: String,
    bos: String,
    eos: String,
}

/// The name of the one template in an environment.
const NAME: &str = "chat";

impl ChatTemplate {
    /// The template in a model file, or a plain one (`User: …`) where there is none or it cannot be read:
    /// [`ChatTemplate::source`] says which.
    pub fn from_metadata(metadata: &Metadata, tokenizer: &Tokenizer) -> ChatTemplate {
        let text = |id: Option<u32>| {
            let bytes = id.map(|id| tokenizer.decode_special(id)).unwrap_or_default();
            String::from_utf8_lossy(bytes).into_owned()
        };
        let template = metadata.optional(KEY, Metadata::string).map_err(Error::from);
        ChatTemplate::new(
            template.map(|found| found.map(str::to_owned)),
            text(tokenizer.bos()),
            text(tokenizer.eos()),
        )
    }

    /// From the text of a template and the texts of BOS and EOS.
    pub fn from_text(template: &str, bos: impl Into<String>, eos: impl Into<String>) -> ChatTemplate {
        ChatTemplate::new(Ok(Some(template.to_owned())), bos.into(), eos.into())
    }

    fn new(template: Result<Option<String>, Error>, bos: String, eos: String) -> ChatTemplate {
        let mut environment = environment();
        let mut text = String::new();
        let (source, fault) = match template {
            Ok(None) => (TemplateSource::Missing, None),
            Err(error) => (TemplateSource::Broken, Some(error)),
            Ok(Some(found)) => {
                text = found;
                match environment.add_template_owned(NAME, generation::without_tags(&text)) {
                    Ok(()) => (TemplateSource::File, None),
                    Err(error) => (TemplateSource::Broken, Some(fault(&error))),
                }
            }
        };
        let form = Form { takes_text: true, takes_parts: true, reasoning_key: reasoning_key(&text) };
        let mut template = ChatTemplate { environment, source, fault, form, text, bos, eos };
        if source == TemplateSource::File {
            (template.form.takes_text, template.form.takes_parts) = template.probe();
        }
        template
    }

    /// Whether the template takes contents that are texts, and such that are lists of parts.
    fn probe(&self) -> (bool, bool) {
        const MARK: &str = "orlop-probe";
        let shown = |content: Content| {
            let text = self.render_file(&[Message::new("user", content)], &RenderOptions::default());
            text.ok().filter(|text| text.contains(MARK))
        };
        let text = shown(MARK.into());
        // A list that is printed as it is shows its keys.
        let types = |text: &str| text.matches("type").count();
        let usual = text.as_deref().map_or(0, types);
        let parts = shown(Content::Parts(vec![MARK.to_owned()])).filter(|parts| types(parts) <= usual);
        (text.is_some() || parts.is_none(), parts.is_some())
    }

    /// The template as the file has it; empty if it has none.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Where the text of [`ChatTemplate::render`] comes from.
    pub fn source(&self) -> TemplateSource {
        self.source
    }

    /// What is wrong with the file's template, if something is.
    pub fn fault(&self) -> Option<&Error> {
        self.fault.as_ref()
    }

    /// The text of a chat.
    ///
    /// Messages are handed to the template as `transformers` does. Where the template refuses that, arguments of calls are
    /// tried as text and missing contents as empty ones. Contents are texts or parts as the template takes them.
    ///
    /// # Errors
    /// [`Error::ChatTemplate`] if the file's template refuses these messages, or fails over them;
    /// [`ChatTemplate::render_plain`] never does.
    pub fn render(&self, messages: &[Message], options: &RenderOptions) -> Result<String, Error> {
        match self.source {
            TemplateSource::File => self.render_file(messages, options),
            _ => Ok(self.render_plain(messages, options.prompt)),
        }
    }

    fn render_file(&self, messages: &[Message], options: &RenderOptions) -> Result<String, Error> {
        let mut first = None;
        for attempt in Attempt::all(messages) {
            match self.attempt(messages, options, attempt) {
                Ok(text) => return Ok(continued(text, messages, options.prompt)),
                Err(error) => first = first.or(Some(error)),
            }
        }
        Err(first.unwrap_or_else(|| Error::ChatTemplate("it cannot be rendered".to_owned())))
    }

    fn attempt(
        &self,
        messages: &[Message],
        options: &RenderOptions,
        attempt: Attempt,
    ) -> Result<String, Error> {
        let template = self.environment.get_template(NAME).map_err(|error| fault(&error))?;
        let messages = messages.iter().map(|message| values::message(message, self.form, attempt));
        let tools = (!options.tools.is_empty()).then(|| options.tools.iter().map(values::json));
        let usual = context! {
            messages => messages.collect::<Vec<Value>>(),
            tools => tools.map(Iterator::collect::<Vec<Value>>),
            documents => (),
            add_generation_prompt => options.prompt == ChatPrompt::Answer,
            bos_token => self.bos.as_str(),
            eos_token => self.eos.as_str(),
        };
        let others = values::fields(&options.variables);
        let mut text = bounds::Text::default();
        let values = minijinja::value::merge_maps([others, usual]);
        template.render_captured_to(values, &mut text).map_err(|error| fault(&error))?;
        Ok(text.into_string())
    }

    /// The text of a chat in a plain form, whatever the file says.
    pub fn render_plain(&self, messages: &[Message], prompt: ChatPrompt) -> String {
        let mut text = String::new();
        for message in messages {
            let mut role = message.role.chars();
            text.extend(role.next().into_iter().flat_map(char::to_uppercase));
            text.push_str(role.as_str());
            text.push_str(": ");
            text.push_str(&message.content.text());
            text.push('\n');
        }
        if prompt == ChatPrompt::Answer {
            text.push_str("Assistant:");
        }
        continued(text, messages, prompt)
    }
}

/// Cuts a text behind the last message's content, if that is to be continued.
fn continued(mut text: String, messages: &[Message], prompt: ChatPrompt) -> String {
    if let (ChatPrompt::Continue, Some(last)) = (prompt, messages.last()) {
        let content = last.content.text();
        if let Some(start) = text.rfind(content.trim()) {
            // Templates may cut white space off the end.
            let whole = content.trim_start();
            let kept = if text[start..].starts_with(whole) { whole.len() } else { content.trim().len() };
            text.truncate(start + kept);
        }
    }
    text
}

/// The key under which a template looks for what the model thought.
fn reasoning_key(template: &str) -> &'static str {
    let reads = |key: &str| {
        [format!(".{key}"), format!("['{key}']"), format!("[\"{key}\"]"), format!("'{key}' in")]
            .iter()
            .any(|form| template.contains(form))
    };
    let known = ["reasoning_content", "thinking", "reasoning"];
    known.into_iter().find(|key| reads(key)).unwrap_or("reasoning_content")
}

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    let blocks = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(blocks.expect("the usual delimiters are valid"));
    environment.set_fuel(Some(FUEL));
    bounds::add_to(&mut environment);
    environment.add_function("raise_exception", |message: String| -> Result<Value, minijinja::Error> {
        Err(minijinja::Error::new(ErrorKind::InvalidOperation, message))
    });
    environment.add_function("strftime_now", |format: &str| clock::format(format, clock::now()));
    environment.add_filter("tojson", json::filter);
    // As in Python, `none` is not iterable.
    environment.add_test("iterable", |value: &Value| {
        !value.is_none() && !value.is_undefined() && value.try_iter().is_ok()
    });
    environment
}

fn fault(error: &minijinja::Error) -> Error {
    let line = error.line().map(|line| format!(" (line {line})")).unwrap_or_default();
    // The cause says more than that writing failed.
    let cause = std::error::Error::source(error).filter(|_| error.kind() == ErrorKind::WriteFailure);
    let detail = cause.map(ToString::to_string).or_else(|| error.detail().map(str::to_owned));
    let detail = detail.unwrap_or_else(|| error.kind().to_string());
    Error::ChatTemplate(format!("{detail}{line}"))
}

#[cfg(test)]
mod tests;
