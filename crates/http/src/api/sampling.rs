//! How a request wants its tokens to be chosen: the fields that all APIs share.

use orlop_llm::{SamplingOptions, Tokenizer};
use serde_json::Value as Json;

use super::fields::{Fields, bounded, within};
use crate::api_error::ApiError;
use crate::bounds;
use crate::engine::generation::Generation;
use crate::front::{Front, Ready};
use crate::net::guard::Caller;

/// A generation without prompts, as the fields say.
pub(crate) fn generation(
    fields: Fields<'_>,
    front: &Front,
    ready: &Ready,
    caller: Caller,
) -> Result<Generation, ApiError> {
    let seed = fields.number(bounds::SEED)?.filter(|seed| *seed >= 0.0).map(|seed| seed as u64);
    Ok(Generation {
        prompts: Vec::new(),
        answers: fields.count(bounds::ANSWERS)?.unwrap_or(1),
        max_tokens: max_tokens(fields)?,
        sampling: options(fields, ready.sampling)?,
        seed: seed.unwrap_or_else(|| front.random()),
        bias: bias(fields, &ready.tokenizer)?,
        stops: fields.texts(bounds::STOPS, bounds::STOP_BYTES)?,
        turn_mark: None,
        grammar: None,
        top: None,
        ignores_end: fields.flag("ignore_eos")?.unwrap_or(false),
        writes_control: false,
        salt: if front.options.isolate_keys { caller.0 } else { 0 },
    })
}

/// The limit on new tokens, under any of its names.
fn max_tokens(fields: Fields<'_>) -> Result<usize, ApiError> {
    let names =
        [bounds::MAX_COMPLETION_TOKENS, bounds::MAX_OUTPUT_TOKENS, bounds::MAX_TOKENS, bounds::N_PREDICT];
    let mut most = None;
    for name in names {
        most = fields.number(name)?.or(most);
    }
    Ok(most.filter(|most| *most >= 0.0).map_or(usize::MAX, |most| most as usize))
}

fn options(fields: Fields<'_>, usual: SamplingOptions) -> Result<SamplingOptions, ApiError> {
    let float = |bound| Ok::<_, ApiError>(fields.number(bound)?.map(|value| value as f32));
    // Less than 0 stands for all tokens.
    let all = |bound, all: usize| {
        let number = fields.number(bound)?;
        Ok::<_, ApiError>(number.map(|number| if number < 0.0 { all } else { number as usize }))
    };
    let repeat = float(bounds::REPEAT_PENALTY)?.or(float(bounds::REPETITION_PENALTY)?);
    Ok(SamplingOptions {
        repeat_penalty: repeat.unwrap_or(usual.repeat_penalty),
        frequency_penalty: float(bounds::FREQUENCY_PENALTY)?.unwrap_or(usual.frequency_penalty),
        presence_penalty: float(bounds::PRESENCE_PENALTY)?.unwrap_or(usual.presence_penalty),
        repeat_last: all(bounds::REPEAT_LAST, usize::MAX)?.unwrap_or(usual.repeat_last),
        top_k: all(bounds::TOP_K, 0)?.unwrap_or(usual.top_k),
        top_p: float(bounds::TOP_P)?.unwrap_or(usual.top_p),
        min_p: float(bounds::MIN_P)?.unwrap_or(usual.min_p),
        temperature: float(bounds::TEMPERATURE)?.unwrap_or(usual.temperature),
    })
}

/// Biases: an object from tokens to numbers, or a list of pairs. A token is an id or, in a list, a text; `false` forbids it.
fn bias(fields: Fields<'_>, tokenizer: &Tokenizer) -> Result<Vec<(u32, f32)>, ApiError> {
    let field = bounds::BIASES.field;
    let wrong = || {
        let message = format!("`{field}` must be an object from token ids to numbers, or a list of pairs");
        ApiError::field(field, message)
    };
    let id = |id: u64| match id < tokenizer.vocabulary_size() as u64 {
        true => Ok(vec![id as u32]),
        false => {
            let message = format!("token {id} is not one of the model's {}", tokenizer.vocabulary_size());
            Err(ApiError::field(field, message))
        }
    };
    let number = |value: &Json| match value {
        Json::Bool(false) => Ok(f32::NEG_INFINITY),
        value => bounded(value, bounds::BIAS).map(|bias| bias as f32),
    };
    let mut biases = Vec::new();
    match fields.get(field) {
        None => {}
        Some(Json::Object(object)) => {
            within(object.len(), bounds::BIASES)?;
            for (token, value) in object {
                let tokens = id(token.parse().map_err(|_| wrong())?)?;
                let value = number(value)?;
                biases.extend(tokens.into_iter().map(|token| (token, value)));
            }
        }
        Some(Json::Array(list)) => {
            within(list.len(), bounds::BIASES)?;
            for pair in list {
                let [token, value] = pair.as_array().map(Vec::as_slice).unwrap_or_default() else {
                    return Err(wrong());
                };
                let tokens = match token {
                    Json::String(text) => {
                        within(text.len(), bounds::BIAS_BYTES)?;
                        tokenizer.encode(text, orlop_llm::Special::Parse)
                    }
                    token => id(token.as_u64().ok_or_else(wrong)?)?,
                };
                let value = number(value)?;
                // A text may be many tokens.
                within(biases.len() + tokens.len(), bounds::BIASES)?;
                biases.extend(tokens.into_iter().map(|token| (token, value)));
            }
        }
        Some(_) => return Err(wrong()),
    }
    Ok(biases)
}
