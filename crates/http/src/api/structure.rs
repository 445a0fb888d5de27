//! What an answer has to match: the formats, schemas and grammars that a request names, and calls of its tools.

use axum::http::StatusCode;
use orlop_llm::{AnswerFormat, Grammar, GrammarError, GrammarMatcher, ToolChoice};
use serde_json::{Map, Value as Json};

use super::fields::Fields;
use crate::api_error::ApiError;
use crate::front::Ready;

/// What an answer has to match, and the field that says so.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Structure {
    field: &'static str,
    grammar: Grammar,
}

impl Structure {
    /// What the fields say that OpenAI's older APIs and the native one share.
    pub(crate) fn of(fields: Fields<'_>) -> Result<Option<Structure>, ApiError> {
        let format = match fields.object("response_format")? {
            None => None,
            Some(format) => {
                let schema = format.get("json_schema").and_then(|named| named.get("schema"));
                of_format("response_format", format, schema.or(format.get("schema")))?
            }
        };
        let outputs = fields.object("structured_outputs")?;
        let output =
            |key: &str| outputs.and_then(|outputs| outputs.get(key)).filter(|value| !value.is_null());
        let found = [
            format,
            schema("json_schema", fields.get("json_schema"))?,
            text("grammar", fields.get("grammar"), Grammar::of_text)?,
            schema("guided_json", fields.get("guided_json"))?,
            text("guided_regex", fields.get("guided_regex"), |text| Grammar::Regex(text.to_owned()))?,
            text("guided_grammar", fields.get("guided_grammar"), Grammar::of_text)?,
            schema("structured_outputs", output("json"))?,
            text("structured_outputs", output("regex"), |text| Grammar::Regex(text.to_owned()))?,
            text("structured_outputs", output("grammar"), Grammar::of_text)?,
        ];
        let mut found = found.into_iter().flatten();
        match (found.next(), found.next()) {
            (Some(first), Some(second)) => {
                let message = format!("`{}` says what the answer has to match already", first.field);
                Err(ApiError::field(second.field, message))
            }
            (first, _) => Ok(first),
        }
    }

    /// What `text.format` of the Responses API says.
    pub(crate) fn of_text_format(fields: Fields<'_>) -> Result<Option<Structure>, ApiError> {
        let format = fields.object("text")?.and_then(|text| text.get("format")?.as_object());
        format.map_or(Ok(None), |format| of_format("text.format", format, format.get("schema")))
    }

    /// A matcher of answers in this format.
    pub(crate) fn compile(&self, ready: &Ready, format: &AnswerFormat) -> Result<GrammarMatcher, ApiError> {
        let compiled = ready.grammars().and_then(|compiler| compiler.compile(&self.grammar));
        let matcher = compiled.map_err(|error| refused(self.field, &error))?;
        Ok(match format.reasoning_end() {
            Some(mark) => matcher.after(mark),
            None => matcher,
        })
    }

    /// The error where tools are there, too.
    pub(crate) fn beside_tools(&self) -> ApiError {
        ApiError::unsupported(self.field, &format!("`{}` together with tools is", self.field))
    }
}

fn of_format(
    field: &'static str,
    format: &Map<String, Json>,
    schema: Option<&Json>,
) -> Result<Option<Structure>, ApiError> {
    let schema = schema.filter(|schema| !schema.is_null());
    let grammar = match (format.get("type").and_then(Json::as_str), schema) {
        (None | Some("text"), _) => return Ok(None),
        (Some("json_object"), None) => Grammar::JsonObject,
        (Some("json_object" | "json_schema"), Some(schema)) => Grammar::JsonSchema(schema.clone()),
        (Some("json_schema"), None) => {
            return Err(ApiError::field(field, format!("`{field}` has no `schema`")));
        }
        (Some(_), _) => {
            let known = "a format other than `text`, `json_object` and `json_schema` is";
            return Err(ApiError::unsupported(field, known));
        }
    };
    Ok(Some(Structure { field, grammar }))
}

/// A schema in a field: as JSON, or as a text of JSON.
fn schema(field: &'static str, value: Option<&Json>) -> Result<Option<Structure>, ApiError> {
    let Some(value) = value else { return Ok(None) };
    let schema = match value {
        Json::String(text) => serde_json::from_str(text)
            .map_err(|error| ApiError::field(field, format!("`{field}` is not valid JSON: {error}")))?,
        value => value.clone(),
    };
    Ok(Some(Structure { field, grammar: Grammar::JsonSchema(schema) }))
}

fn text(
    field: &'static str,
    value: Option<&Json>,
    grammar: impl FnOnce(&str) -> Grammar,
) -> Result<Option<Structure>, ApiError> {
    let wrong = || ApiError::field(field, format!("`{field}` must be a text"));
    // Clients of llama.cpp send an empty one for none.
    let text =
        value.map(|value| value.as_str().ok_or_else(wrong)).transpose()?.filter(|text| !text.is_empty());
    Ok(text.map(|text| Structure { field, grammar: grammar(text) }))
}

/// A matcher of answers that call tools; `None` if any answer will do.
pub(crate) fn of_calls(
    ready: &Ready,
    format: &AnswerFormat,
    tools: &[Json],
    choice: &ToolChoice,
    parallel: bool,
) -> Result<Option<GrammarMatcher>, ApiError> {
    let automatic = *choice == ToolChoice::Auto;
    if automatic && tools.is_empty() {
        return Ok(None);
    }
    let is_strict = |tool: &Json| tool.pointer("/function/strict") == Some(&Json::Bool(true));
    let compiled =
        ready.grammars().and_then(|compiler| compiler.compile_calls(format, tools, choice, parallel));
    match compiled {
        // What a schema says may be more than a grammar can; the model is trusted with it.
        Err(GrammarError::Invalid { .. }) if automatic && !tools.iter().any(is_strict) => Ok(None),
        Err(error @ GrammarError::NoCalls(_)) => Err(refused("tool_choice", &error)),
        compiled => compiled.map_err(|error| refused("tools", &error)),
    }
}

fn refused(field: &'static str, error: &GrammarError) -> ApiError {
    match error {
        GrammarError::NoThread(_) => ApiError::busy(StatusCode::SERVICE_UNAVAILABLE, error.to_string(), 1),
        error => ApiError::field(field, error.to_string()),
    }
}
