//! Messages of a chat in OpenAI's form, and the prompt that they make.

use orlop_llm::{
    AnswerFormat, ChatPrompt, Content, Message, RenderOptions, TemplateSource, ToolCall, ToolChoice,
};
use serde_json::{Map, Value as Json};

use super::answer::ChatForm;
use super::fields::Fields;
use super::generic_tools::{self, Place};
use super::structure::{self, Structure};
use crate::api_error::ApiError;
use crate::bounds;
use crate::engine::generation::Generation;
use crate::front::Ready;

/// A chat that is to be continued.
#[derive(Clone, Debug)]
pub(crate) struct Conversation {
    pub(crate) messages: Vec<Message>,
    pub(crate) options: RenderOptions,
    pub(crate) calls: CallRules,
}

/// Which tools an answer may or has to call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CallRules {
    pub(crate) choice: ToolChoice,
    /// At most one is called.
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
        let (tools, calls) = tools(fields)?;
        let variables = variables(fields)?;
        let prompt = match (fields.flag("add_generation_prompt")?, fields.flag("continue_final_message")?) {
            (_, Some(true)) => ChatPrompt::Continue,
            (Some(false), _) => ChatPrompt::Nothing,
            (Some(true), _) | (_, Some(false)) => ChatPrompt::Answer,
            (None, None) => continued(&messages),
        };
        let options = RenderOptions { prompt, tools, variables };
        Ok(Conversation { messages, options, calls })
    }

    /// The text of the prompt.
    pub(crate) fn text(&self, ready: &Ready) -> Result<String, ApiError> {
        let refused = |error: orlop_llm::Error| ApiError::field("messages", error.to_string());
        let tools = &self.options.tools;
        if !generic_tools::are_needed(ready, tools) {
            return ready.template.render(&self.messages, &self.options).map_err(refused);
        }
        let options = RenderOptions { tools: Vec::new(), ..self.options.clone() };
        let render =
            |place| ready.template.render(&generic_tools::messages(&self.messages, tools, place), &options);
        render(Place::System).or_else(|_| render(Place::User)).map_err(refused)
    }

    /// The tokens of the prompt.
    pub(crate) fn tokens(&self, ready: &Ready) -> Result<Vec<u32>, ApiError> {
        Ok(ready.tokenizer.chat(&self.text(ready)?))
    }

    /// Adds the prompt to a generation, with what its answers have to match, and says how they are read.
    pub(crate) fn prepare(
        &self,
        ready: &Ready,
        generation: &mut Generation,
        wanted: Option<&Structure>,
    ) -> Result<ChatForm, ApiError> {
        let text = self.text(ready)?;
        let tools = self.options.tools.as_slice();
        let format = match generic_tools::are_needed(ready, tools) {
            true => generic_tools::format(ready, tools),
            false => AnswerFormat::of_template(ready.template.text(), tools),
        };
        let format = format.after_prompt(&text);
        let CallRules { choice, one_call } = &self.calls;
        generation.grammar = match wanted {
            Some(wanted) if tools.is_empty() => Some(wanted.compile(ready, &format)?),
            Some(wanted) => return Err(wanted.beside_tools()),
            None => structure::of_calls(ready, &format, tools, choice, !one_call)?,
        };
        generation.prompts = vec![ready.tokenizer.chat(&text)];
        // Marks may be control tokens.
        generation.writes_control = format != AnswerFormat::default();
        if ready.template.source() != TemplateSource::File {
            generation.turn_mark = Some(PLAIN_MARK.to_owned());
        }
        Ok(ChatForm { format, one_call: *one_call })
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

/// The tools that may be called, and which have to be.
fn tools(fields: Fields<'_>) -> Result<(Vec<Json>, CallRules), ApiError> {
    let tools = fields.list(bounds::TOOLS)?.unwrap_or_default();
    for tool in tools {
        if tool.pointer("/function/name").and_then(Json::as_str).is_none_or(str::is_empty) {
            return Err(ApiError::field("tools", "each tool must have a `function` with a `name`"));
        }
    }
    let one_call = fields.flag("parallel_tool_calls")? == Some(false);
    let name_of: fn(&Json) -> Option<&str> = |tool| tool.pointer("/function/name")?.as_str();
    choose(fields.get("tool_choice"), name_of, tools.to_vec(), one_call)
}

/// The tools that may be called by a choice in OpenAI's form, and which have to be; `name_of` is the name of a function in the
/// form of the API.
pub(crate) fn choose(
    choice: Option<&Json>,
    name_of: fn(&Json) -> Option<&str>,
    tools: Vec<Json>,
    one_call: bool,
) -> Result<(Vec<Json>, CallRules), ApiError> {
    let rules = |choice| CallRules { choice, one_call };
    let Some(choice) = choice else { return Ok((tools, rules(ToolChoice::Auto))) };
    if let Some(allowed) = AllowedTools::of(choice, name_of)? {
        return choose(Some(allowed.mode), name_of, allowed.of_all(tools)?, one_call);
    }
    match (choice.as_str(), name_of(choice)) {
        (Some("auto"), _) => Ok((tools, rules(ToolChoice::Auto))),
        (Some("none"), _) => Ok((Vec::new(), rules(ToolChoice::Auto))),
        (Some("required"), _) => Ok((tools, rules(ToolChoice::Required))),
        (_, Some(name)) => Ok((tools, rules(ToolChoice::Function(name.to_owned())))),
        (_, None) => {
            let known =
                "a tool choice other than `auto`, `none`, `required`, `allowed_tools` and a function is";
            Err(ApiError::unsupported("tool_choice", known))
        }
    }
}

/// A tool choice that leaves some of the tools: `{"type": "allowed_tools", "mode": …, "tools": […]}`.
struct AllowedTools<'a> {
    /// `auto` or `required`.
    mode: &'a Json,
    names: Vec<&'a str>,
}

impl<'a> AllowedTools<'a> {
    fn of(
        choice: &'a Json,
        name_of: fn(&Json) -> Option<&str>,
    ) -> Result<Option<AllowedTools<'a>>, ApiError> {
        if choice["type"] != "allowed_tools" {
            return Ok(None);
        }
        // Chats have an object of the same name around the rest.
        let rest = choice.get("allowed_tools").unwrap_or(choice);
        let wrong = || {
            let message = "`tool_choice` must have a `mode`, `auto` or `required`, and a list of `tools`";
            ApiError::field("tool_choice", message)
        };
        let mode = &rest["mode"];
        let is_known = ["auto", "required"].iter().any(|known| mode == known);
        let tools = rest["tools"].as_array().filter(|tools| is_known && !tools.is_empty());
        let names = tools.ok_or_else(wrong)?.iter().map(|tool| name_of(tool).ok_or_else(wrong));
        Ok(Some(AllowedTools { mode, names: names.collect::<Result<_, ApiError>>()? }))
    }

    /// Those of all tools that are allowed.
    fn of_all(&self, tools: Vec<Json>) -> Result<Vec<Json>, ApiError> {
        let has = |tool: &Json, name: &str| tool["function"]["name"] == name;
        if let Some(name) = self.names.iter().find(|name| !tools.iter().any(|tool| has(tool, name))) {
            let message = format!("`tool_choice` allows `{name}`, which is not one of the tools");
            return Err(ApiError::field("tool_choice", message));
        }
        let is_allowed = |tool: &Json| self.names.iter().any(|name| has(tool, name));
        Ok(tools.into_iter().filter(is_allowed).collect())
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
