//! Fields of a request's JSON, read within their bounds. A field that is `null` is not there.

use serde_json::{Map, Value as Json};

use crate::api_error::ApiError;
use crate::bounds::{LengthBound, NumberBound};

/// An object of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a>(&'a Map<String, Json>);

impl<'a> Fields<'a> {
    /// The fields of the whole request.
    pub(crate) fn of(json: &'a Json) -> Result<Fields<'a>, ApiError> {
        json.as_object().map(Fields).ok_or_else(|| ApiError::bad("the body must be a JSON object"))
    }

    /// The fields of an object within the request, which is at `place`.
    pub(crate) fn within(json: &'a Json, place: &str) -> Result<Fields<'a>, ApiError> {
        json.as_object()
            .map(Fields)
            .ok_or_else(|| ApiError::field(place, format!("`{place}` must be an object")))
    }

    pub(crate) fn get(&self, field: &str) -> Option<&'a Json> {
        self.0.get(field).filter(|value| !value.is_null())
    }

    pub(crate) fn number(&self, bound: NumberBound) -> Result<Option<f64>, ApiError> {
        self.get(bound.field).map(|value| bounded(value, bound)).transpose()
    }

    /// A number that is not negative; of others, none.
    pub(crate) fn count(&self, bound: NumberBound) -> Result<Option<usize>, ApiError> {
        let number = self.number(bound)?;
        Ok(number.filter(|number| *number >= 0.0).map(|number| number as usize))
    }

    pub(crate) fn flag(&self, field: &str) -> Result<Option<bool>, ApiError> {
        let wrong = || ApiError::field(field, format!("`{field}` must be true or false"));
        self.get(field).map(|value| value.as_bool().ok_or_else(wrong)).transpose()
    }

    pub(crate) fn text(&self, field: &str) -> Result<Option<&'a str>, ApiError> {
        let wrong = || ApiError::field(field, format!("`{field}` must be a text"));
        self.get(field).map(|value| value.as_str().ok_or_else(wrong)).transpose()
    }

    pub(crate) fn list(&self, bound: LengthBound) -> Result<Option<&'a [Json]>, ApiError> {
        let LengthBound { field, .. } = bound;
        let Some(value) = self.get(field) else { return Ok(None) };
        let list =
            value.as_array().ok_or_else(|| ApiError::field(field, format!("`{field}` must be a list")))?;
        within(list.len(), bound)?;
        Ok(Some(list))
    }

    pub(crate) fn object(&self, field: &str) -> Result<Option<&'a Map<String, Json>>, ApiError> {
        let wrong = || ApiError::field(field, format!("`{field}` must be an object"));
        self.get(field).map(|value| value.as_object().ok_or_else(wrong)).transpose()
    }

    /// A text, or a list of texts.
    pub(crate) fn texts(&self, bound: LengthBound, each: LengthBound) -> Result<Vec<String>, ApiError> {
        let field = bound.field;
        let texts = match self.get(field) {
            None => Vec::new(),
            Some(Json::String(text)) => vec![text.clone()],
            Some(Json::Array(list)) => {
                within(list.len(), bound)?;
                let texts: Option<Vec<String>> =
                    list.iter().map(|text| text.as_str().map(str::to_owned)).collect();
                texts.ok_or_else(|| {
                    ApiError::field(field, format!("`{field}` must be a text or a list of texts"))
                })?
            }
            Some(_) => {
                return Err(ApiError::field(field, format!("`{field}` must be a text or a list of texts")));
            }
        };
        texts.iter().try_for_each(|text| within(text.len(), each))?;
        Ok(texts)
    }
}

/// Whether a length is within its bound.
pub(crate) fn within(length: usize, LengthBound { field, most, unit }: LengthBound) -> Result<(), ApiError> {
    match length <= most {
        true => Ok(()),
        false => Err(ApiError::field(field, format!("`{field}` has {length} {unit}, of at most {most}"))),
    }
}

/// A number within its bound.
pub(crate) fn bounded(value: &Json, bound: NumberBound) -> Result<f64, ApiError> {
    let NumberBound { field, least, most, whole } = bound;
    let number = value.as_f64().filter(|number| !whole || number.fract() == 0.0);
    match number {
        Some(number) if (least..=most).contains(&number) => Ok(number),
        _ => {
            let kind = if whole { "a whole number" } else { "a number" };
            Err(ApiError::field(field, format!("`{field}` must be {kind} from {least} to {most}")))
        }
    }
}
