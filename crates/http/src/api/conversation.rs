//! Messages of a chat in OpenAI's form, and the prompt that they make.

use orlop_llm::{AnswerFormat, ChatPrompt, Content, Message, RenderOptions, TemplateSource, ToolCall};
use serde_json::{Map, Value as Json};

use super::answer::ChatForm;
use super::fields::Fields;
use crate::api_error::ApiError;
use crate::bounds;
use crate::engine::generation::Generation;
use crate::front::Ready;

/// A chat that is to be continued.
#[derive(Clone, Debug, Default)]
pub(crate) struct Conversation {
    pub(crate) messages: Vec<Message>,
    pub(crate) options: RenderOptions,
    /// At most one tool is called.
    pub(crate) one_call: bool,
}

/// What ends an answer where the model has no template.
const PLAIN_MARK: &str = "\nUser:";

impl Conversation {
    /// The chat of a request in OpenAI's form.
    pub(crate) fn of(fields: Fields<'_>) -> Result<Conversation, ApiError> {
        let list = fields.list(bounds::MESSAGES)?;
        let list = list.filter(|list| !list.is_empty());
        let list =
            list.ok_or_else(|| ApiError::field("messages", "`messages` must be a list with a message"))?;
        let messages = list.iter().enumerate().map(|(place, message)| read_message(message, place));
        let messages = messages.collect::<Result<Vec<Message>, ApiError>>()?;
        let (tools, one_call) = tools(fields)?;
        let variables = variables(fields)?;
        let prompt = match (fields.flag("add_generation_prompt")?, fields.flag("continue_final_message")?) {
            (_, Some(true)) => ChatPrompt::Continue,
            (Some(false), _) => ChatPrompt::Nothing,
            (Some(true), _) | (_, Some(false)) => ChatPrompt::Answer,
            (None, None) => continued(&messages),
        };
        let options = RenderOptions { prompt, tools, variables };
        Ok(Conversation { messages, options, one_call })
    }

    /// The text of the prompt.
    pub(crate) fn text(&self, ready: &Ready) -> Result<String, ApiError> {
        let refused = |error: orlop_llm::Error| ApiError::field("messages", error.to_string());
        ready.template.render(&self.messages, &self.options).map_err(refused)
    }

    /// The tokens of the prompt.
    pub(crate) fn tokens(&self, ready: &Ready) -> Result<Vec<u32>, ApiError> {
        Ok(ready.tokenizer.chat(&self.text(ready)?))
    }

    /// Adds the prompt to a generation, and says how its answers are read.
    pub(crate) fn prepare(&self, ready: &Ready, generation: &mut Generation) -> Result<ChatForm, ApiError> {
        let text = self.text(ready)?;
        let format =
            AnswerFormat::of_template(ready.template.text(), &self.options.tools).after_prompt(&text);
        generation.prompts = vec![ready.tokenizer.chat(&text)];
        // Marks may be control tokens.
        generation.writes_control = format != AnswerFormat::default();
        if ready.template.source() != TemplateSource::File {
            generation.turn_mark = Some(PLAIN_MARK.to_owned());
        }
        Ok(ChatForm { format, one_call: self.one_call })
    }
}

/// An answer that is last in a chat is continued, as llama.cpp's server does.
pub(crate) fn continued(messages: &[Message]) -> ChatPrompt {
    match messages.last() {
        Some(last)
            if last.role == "assistant" && last.tool_calls.is_empty() && last.content != Content::Nothing =>
        {
            ChatPrompt::Continue
        }
        _ => ChatPrompt::Answer,
    }
}

fn read_message(json: &Json, place: usize) -> Result<Message, ApiError> {
    let at = format!("messages[{place}]");
    let fields = Fields::within(json, &at)?;
    let inside = |error: ApiError| match error.param.clone() {
        Some(param) => error.with_param(format!("{at}.{param}")),
        None => error,
    };
    let role = fields.text("role").map_err(inside)?;
    let role = role.ok_or_else(|| ApiError::field(format!("{at}.role"), "each message must have a role"))?;
    let role = match role {
        "developer" => "system",
        "function" => "tool",
        role => role,
    };
    let calls = match fields.get("tool_calls") {
        None => Vec::new(),
        Some(calls) => {
            let calls = calls
                .as_array()
                .ok_or_else(|| ApiError::field(format!("{at}.tool_calls"), "`tool_calls` must be a list"))?;
            calls.iter().map(|call| read_call(call, &at)).collect::<Result<Vec<ToolCall>, ApiError>>()?
        }
    };
    let reasoning = match fields.text("reasoning_content").map_err(inside)? {
        Some(text) => Some(text),
        None => fields.text("reasoning").map_err(inside)?,
    };
    let owned = |text: Option<&str>| text.map(str::to_owned);
    Ok(Message {
        role: role.to_owned(),
        content: content(fields.get("content"), &at)?,
        reasoning: owned(reasoning),
        tool_calls: calls,
        tool_call_id: owned(fields.text("tool_call_id").map_err(inside)?),
        name: owned(fields.text("name").map_err(inside)?),
    })
}

fn read_call(json: &Json, at: &str) -> Result<ToolCall, ApiError> {
    let text = |value: &Json| value.as_str().map(str::to_owned);
    let function = json.get("function").unwrap_or(&Json::Null);
    let name = text(function.get("name").unwrap_or(&Json::Null));
    let name = name.ok_or_else(|| {
        ApiError::field(format!("{at}.tool_calls"), "each tool call must have a `function` with a `name`")
    })?;
    let arguments = match function.get("arguments") {
        None | Some(Json::Null) => "{}".to_owned(),
        Some(Json::String(text)) => text.clone(),
        Some(json) => json.to_string(),
    };
    Ok(ToolCall { id: json.get("id").and_then(text).unwrap_or_default(), name, arguments })
}

/// The content of a message: a text, or a list of parts that are texts.
pub(crate) fn content(json: Option<&Json>, at: &str) -> Result<Content, ApiError> {
    let field = || format!("{at}.content");
    match json {
        None => Ok(Content::Nothing),
        Some(Json::String(text)) => Ok(Content::Text(text.clone())),
        Some(Json::Array(parts)) => {
            let parts = parts.iter().map(|part| part_text(part, &field()));
            Ok(Content::Parts(parts.collect::<Result<Vec<String>, ApiError>>()?))
        }
        Some(_) => Err(ApiError::field(field(), "`content` must be a text or a list of parts")),
    }
}

/// The text of a part of a message.
pub(crate) fn part_text(part: &Json, field: &str) -> Result<String, ApiError> {
    let kind = part.get("type").and_then(Json::as_str);
    if let Some(
        "image_url" | "input_image" | "image" | "input_audio" | "audio" | "video_url" | "file" | "input_file"
        | "document",
    ) = kind
    {
        let what = format!("parts of type `{}` are", kind.unwrap_or_default());
        return Err(ApiError::unsupported(
            field,
            &format!("{what} images, sound or files, and models here read text only: this is"),
        ));
    }
    let text = part.as_str().or_else(|| part.get("text").or(part.get("refusal")).and_then(Json::as_str));
    text.map(str::to_owned).ok_or_else(|| ApiError::field(field, "each part of a content must have a `text`"))
}

/// The tools that may be called, and whether at most one is.
fn tools(fields: Fields<'_>) -> Result<(Vec<Json>, bool), ApiError> {
    let tools = fields.list(bounds::TOOLS)?.unwrap_or_default();
    for tool in tools {
        if tool.pointer("/function/name").and_then(Json::as_str).is_none_or(str::is_empty) {
            return Err(ApiError::field("tools", "each tool must have a `function` with a `name`"));
        }
    }
    let one_call = fields.flag("parallel_tool_calls")? == Some(false);
    match fields.get("tool_choice") {
        None => Ok((tools.to_vec(), one_call)),
        Some(Json::String(choice)) if choice == "auto" => Ok((tools.to_vec(), one_call)),
        Some(Json::String(choice)) if choice == "none" => Ok((Vec::new(), one_call)),
        Some(_) => Err(ApiError::unsupported("tool_choice", "a tool choice other than `auto` and `none` is")),
    }
}

/// Variables of the template.
fn variables(fields: Fields<'_>) -> Result<Map<String, Json>, ApiError> {
    let mut variables = fields.object("chat_template_kwargs")?.cloned().unwrap_or_default();
    if let Some(effort) = fields.text("reasoning_effort")? {
        variables.entry("reasoning_effort").or_insert_with(|| effort.into());
        if effort == "none" {
            variables.entry("enable_thinking").or_insert(Json::Bool(false));
        }
    }
    Ok(variables)
}
