//! Generates and prints one answer.

use std::io::Write;
use std::ops::ControlFlow;
use std::time::Instant;

use indicatif::ProgressBar;
use orlop::llm::{ChatEvent, End, Error, Turn};

use super::Session;
use crate::failure::Failure;
use crate::load::token_bar;
use crate::style::note;
use crate::timings::Timings;

/// Why an answer failed.
pub(super) enum AnswerError {
    /// Ctrl-C before the first token.
    Stopped,
    Model(Error),
    Failure(Failure),
}

impl Session {
    /// Generates an answer.
    pub(super) fn answer(&mut self) -> Result<(), AnswerError> {
        let watch = self.interrupt.watch();
        self.loaded.engine.cancel_with(Some(watch.cancel().clone()));
        let begin = Instant::now();
        let (mut first, mut broken, mut blank) = (None, None, true);
        let mut bar = ProgressBar::hidden();
        let batch = self.loaded.engine.blueprint().batch() as usize;
        let mut out = std::io::stdout().lock();
        let turn = self.chat.answer(
            &mut self.loaded.engine,
            &self.tokenizer,
            &mut self.sampler,
            self.limit,
            &mut |event| {
                match event {
                    ChatEvent::Prompt { done: 0, all } => bar = token_bar(all, batch),
                    ChatEvent::Prompt { done, .. } => bar.set_position(done as u64),
                    ChatEvent::Text(text) => {
                        // Skip the blank lines that some models start with.
                        let text = if blank { text.trim_start() } else { text };
                        blank &= text.is_empty();
                        first.get_or_insert_with(|| begin.elapsed());
                        bar.finish_and_clear();
                        broken = out.write_all(text.as_bytes()).and_then(|()| out.flush()).err();
                    }
                }
                let stop = broken.is_some() || watch.cancel().is_cancelled();
                if stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            },
        );
        bar.finish_and_clear();
        self.loaded.engine.cancel_with(None);
        let stopped = watch.cancel().is_cancelled();
        drop(watch);
        if let Some(error) = broken {
            return Err(AnswerError::Failure(Failure::printing(error)));
        }
        let turn = match turn {
            Err(_) if stopped => return Err(AnswerError::Stopped),
            turn => turn.map_err(AnswerError::Model)?,
        };
        writeln!(out).map_err(|error| AnswerError::Failure(Failure::printing(error)))?;
        drop(out);
        let all = begin.elapsed();
        let timings = Timings::new(self.loaded.took, turn.fed, first.unwrap_or(all), turn.answered, all);
        self.print_notes(&turn, &timings);
        Ok(())
    }

    /// Prints notes after an answer.
    fn print_notes(&mut self, turn: &Turn, timings: &Timings) {
        let (used, context) = (self.loaded.engine.len(), self.loaded.engine.blueprint().context());
        self.warn();
        match turn.end {
            End::Stopped => note("stopped"),
            End::ContextFull => {
                note(format_args!(
                    "the context of {context} tokens is full and the answer is cut off; the next message can drop the \
                     oldest turns"
                ));
            }
            End::Limit | End::Token => {}
        }
        if self.verbose {
            let Turn { kept, fed, answered, drafts, .. } = turn;
            let accepted = match drafts.drafted {
                0 => String::new(),
                drafted => format!("accepted {} of {drafted} drafted tokens; ", drafts.accepted),
            };
            note(format_args!(
                "{kept} tokens cached, {fed} new in {:.2} s ({:.1} tokens/s); {answered} generated in {:.2} s ({:.1} \
                 tokens/s); {accepted}{used} of {context} in use",
                timings.prompt_s,
                timings.prompt_tokens_per_second,
                timings.generate_s,
                timings.generate_tokens_per_second,
            ));
        }
    }
}
