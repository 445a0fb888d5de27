//! Chats as text, by the template in a model file: a [Jinja](https://jinja.palletsprojects.com/) template in the key
//! `tokenizer.chat_template`, as Hugging Face's
//! [`apply_chat_template`](https://huggingface.co/docs/transformers/chat_templating) renders it.

mod bounds;
mod clock;
mod json;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{Environment, ErrorKind, context};
use orlop_gguf::Metadata;

use crate::{Error, Tokenizer};

/// The key of the template.
const KEY: &str = "tokenizer.chat_template";

/// Maximum of instructions that a template may execute; real templates need far fewer.
const FUEL: u64 = 10_000_000;

/// One message of a chat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who speaks: `system`, `user` or `assistant`.
    pub role: String,
    /// The text.
    pub content: String,
}

impl Message {
    /// A message of `role` that says `content`.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Message {
        Message { role: role.into(), content: content.into() }
    }
}

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChatPrompt {
    /// The beginning of an answer, for the model to go on.
    Answer,
    /// Nothing.
    Nothing,
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
        let (source, fault) = match template {
            Ok(None) => (TemplateSource::Missing, None),
            Err(error) => (TemplateSource::Broken, Some(error)),
            Ok(Some(text)) => match environment.add_template_owned(NAME, text) {
                Ok(()) => (TemplateSource::File, None),
                Err(error) => (TemplateSource::Broken, Some(fault(&error))),
            },
        };
        ChatTemplate { environment, source, fault, bos, eos }
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
    /// # Errors
    /// [`Error::ChatTemplate`] if the file's template refuses these messages, or fails over them;
    /// [`ChatTemplate::render_plain`] never does.
    pub fn render(&self, messages: &[Message], prompt: ChatPrompt) -> Result<String, Error> {
        if self.source != TemplateSource::File {
            return Ok(self.render_plain(messages, prompt));
        }
        let template = self.environment.get_template(NAME).map_err(|error| fault(&error))?;
        let message = |message: &Message| context! { role => message.role.as_str(), content => message.content.as_str() };
        let values = context! {
            messages => messages.iter().map(message).collect::<Vec<Value>>(),
            add_generation_prompt => prompt == ChatPrompt::Answer,
            bos_token => self.bos.as_str(),
            eos_token => self.eos.as_str(),
        };
        let mut text = bounds::Text::default();
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
            text.push_str(&message.content);
            text.push('\n');
        }
        if prompt == ChatPrompt::Answer {
            text.push_str("Assistant:");
        }
        text
    }
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
