//! Sequences beside the one of texts.

use std::sync::Arc;

use orlop::llm::{Part, SequenceId};

use crate::error::{Refusal, orlop_error, orlop_status, run};
use crate::model::{Loaded, orlop_model};
use crate::pointer;

/// Tokens in a model's cache.
pub struct orlop_sequence {
    model: Arc<Loaded>,
    id: SequenceId,
}

/// An empty sequence.
///
/// # Safety
/// As the rules of the header say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orlop_sequence_start(
    model: *const orlop_model,
    sequence: *mut *mut orlop_sequence,
    error: *mut *mut orlop_error,
) -> orlop_status {
    let work = || {
        // SAFETY: the caller promises it.
        let model = unsafe { pointer::object(model, "model") }?;
        if sequence.is_null() {
            return Err(Refusal::null("sequence"));
        }
        let id = model.loaded.lock()?.engine_for_sequences().start_sequence().map_err(Refusal::failed)?;
        let made = orlop_sequence { model: Arc::clone(&model.loaded), id };
        // SAFETY: the caller promises it.
        unsafe { pointer::give_object(sequence, made, "sequence") }
    };
    // SAFETY: the caller promises it.
    unsafe { run(error, work) }
}

/// A sequence that begins with the first `length` tokens of another one. No token is processed again.
///
/// # Safety
/// As the rules of the header say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orlop_sequence_fork(
    sequence: *const orlop_sequence,
    length: usize,
    fork: *mut *mut orlop_sequence,
    error: *mut *mut orlop_error,
) -> orlop_status {
    let work = || {
        // SAFETY: the caller promises it.
        let sequence = unsafe { pointer::object(sequence, "sequence") }?;
        if fork.is_null() {
            return Err(Refusal::null("fork"));
        }
        let mut model = sequence.model.lock()?;
        let forked = model.engine_for_sequences().fork_sequence(sequence.id, length);
        let id = forked.map_err(Refusal::failed)?;
        drop(model);
        let made = orlop_sequence { model: Arc::clone(&sequence.model), id };
        // SAFETY: the caller promises it.
        unsafe { pointer::give_object(fork, made, "fork") }
    };
    // SAFETY: the caller promises it.
    unsafe { run(error, work) }
}

/// Ends a sequence, and frees its place in the cache.
///
/// # Safety
/// As the rules of the header say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orlop_sequence_free(sequence: *mut orlop_sequence) {
    // SAFETY: the caller promises it.
    unsafe { pointer::free(sequence) };
}

/// How many tokens a sequence has.
///
/// # Safety
/// As the rules of the header say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orlop_sequence_length(
    sequence: *const orlop_sequence,
    length: *mut usize,
    error: *mut *mut orlop_error,
) -> orlop_status {
    let work = || {
        // SAFETY: the caller promises it.
        let sequence = unsafe { pointer::object(sequence, "sequence") }?;
        let mut model = sequence.model.lock()?;
        let tokens = model.engine_for_sequences().sequence_len(sequence.id).map_err(Refusal::failed)?;
        // SAFETY: the caller promises it.
        unsafe { pointer::give(length, tokens) };
        Ok(())
    };
    // SAFETY: the caller promises it.
    unsafe { run(error, work) }
}

/// Adds tokens to a sequence. `logits` gets those behind the last one, one for each token of the vocabulary, unless it is NULL.
///
/// # Safety
/// As the rules of the header say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orlop_sequence_feed(
    sequence: *const orlop_sequence,
    tokens: *const u32,
    count: usize,
    logits: *mut f32,
    capacity: usize,
    error: *mut *mut orlop_error,
) -> orlop_status {
    let work = || {
        // SAFETY: the caller promises it.
        let sequence = unsafe { pointer::object(sequence, "sequence") }?;
        // SAFETY: the caller promises it.
        let tokens = unsafe { pointer::array(tokens, count, "tokens") }?;
        let needed = if logits.is_null() { 0 } else { sequence.model.vocabulary() };
        if capacity < needed {
            return Err(Refusal::too_small("logits", needed, capacity));
        }
        // SAFETY: the caller promises it.
        let logits = unsafe { pointer::array_mut(logits, needed, "logits") }?;
        let mut model = sequence.model.lock()?;
        let part = Part::last(sequence.id, tokens);
        let fed = model.engine_for_sequences().feed_parts(&[part], &mut |mut rows| match logits.is_empty() {
            true => Ok(()),
            false => rows.read_into(logits),
        });
        fed.map_err(Refusal::failed)
    };
    // SAFETY: the caller promises it.
    unsafe { run(error, work) }
}

/// Frees the sequence's place in the cache, now or when the call that uses the model ends.
impl Drop for orlop_sequence {
    fn drop(&mut self) {
        self.model.end(self.id);
    }
}
