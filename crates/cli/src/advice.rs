//! Suggests flags that fit when a model or a prompt does not.

use orlop::llm::{Engine, Error, LayerSplit};

use crate::failure::Failure;
use crate::quantity::short_bytes;

/// Describes what does not fit, and suggests flags that do.
pub(crate) fn does_not_fit(error: &Error) -> Option<(String, String)> {
    let Error::DoesNotFit { context, device, needed, available, largest, divided } = error else {
        return None;
    };
    let (needed, available) = (short_bytes(*needed), short_bytes(*available));
    let what = format!("a context of {context} needs {needed} on {device}, which has {available} available");
    Some((what, offers(*largest, *divided)))
}

/// Flags that fit.
pub(crate) fn offers(largest: Option<u64>, divided: Option<LayerSplit>) -> String {
    let context = largest.map(|largest| format!("-c {largest}"));
    let layers = divided.map(|LayerSplit { layers, context }| format!("-ngl {layers} -c {context}"));
    match context.into_iter().chain(layers).collect::<Vec<_>>().as_slice() {
        [] => "even a context of 1 does not fit: use a smaller model, smaller batches (-ub) or other devices (--device, \
               --budget)"
            .to_owned(),
        flags => format!("{} fits", flags.join(" or ")),
    }
}

/// The failure for a prompt that exceeds the context.
pub(crate) fn prompt_too_long(engine: &Engine, tokens: usize, limit: Option<usize>) -> Failure {
    let blueprint = engine.blueprint();
    let (context, trained) = (blueprint.context(), blueprint.trained_context());
    let wanted = tokens.saturating_add(limit.unwrap_or(tokens / 2).max(1)) as u64;
    let offer = match blueprint.largest_context_within(wanted) {
        Ok(Some(largest)) if largest >= wanted && wanted > trained => {
            format!("-c {wanted} fits, though the model was trained for {trained} tokens")
        }
        Ok(Some(largest)) if largest >= wanted => format!("-c {wanted} fits"),
        Ok(Some(largest)) if largest > context => {
            format!("shorten it: the largest context that fits is {largest} (-c {largest})")
        }
        Ok(_) => "shorten it: no larger context fits".to_owned(),
        Err(_) => "shorten it".to_owned(),
    };
    Failure::OverLimits(format!(
        "the prompt has {tokens} tokens and exceeds the context of {context}; {offer}"
    ))
}
