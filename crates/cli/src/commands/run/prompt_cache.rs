//! `--prompt-cache`: a prompt that is not processed again.

use std::path::Path;

use orlop::llm::{Engine, Error, SequenceId};

use crate::failure::Failure;
use crate::load::{failure, state_failure};

/// Brings all of a prompt but its last token into an engine: what a file holds of its beginning, and the rest by feeding it.
/// The file then holds these tokens, unless it did already. Returns how many tokens came from the file. `fed` hears how many
/// tokens are in the engine.
pub(super) fn feed_cached(
    engine: &mut Engine,
    prompt: &[u32],
    file: &Path,
    fed: &dyn Fn(usize),
) -> Result<usize, Failure> {
    let Some((_, before)) = prompt.split_last() else { return Ok(0) };
    if file.try_exists().unwrap_or(true) {
        let saved = engine.load_sequence(SequenceId::FIRST, file);
        let saved = saved.map_err(|error| state_failure(file, error, "--prompt-cache"))?;
        engine.truncate(saved.iter().zip(before).take_while(|(saved, token)| saved == token).count());
    }
    let kept = engine.len();
    fed(kept);
    for batch in before[kept..].chunks(engine.blueprint().batch().max(1) as usize) {
        engine.feed(batch).map_err(failure)?;
        fed(engine.len());
    }
    if kept < before.len() {
        let saved = engine.save_sequence(SequenceId::FIRST, before, file);
        saved.map_err(|error| state_failure(file, error, "--prompt-cache"))?;
    }
    Ok(kept)
}

/// Refuses a prompt that does not fit, before a file is read or written.
pub(super) fn check_room(engine: &Engine, prompt: &[u32]) -> Result<(), Error> {
    let (tokens, context) = (prompt.len(), engine.blueprint().context());
    match tokens as u64 > context {
        true => Err(Error::ContextFull { tokens, context, used: 0 }),
        false => Ok(()),
    }
}
