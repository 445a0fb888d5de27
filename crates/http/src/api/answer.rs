//! Answers as the APIs write them: the engine's events with text, reasoning and tool calls told apart.

use std::collections::VecDeque;

use axum::http::StatusCode;
use orlop_llm::{AnswerFormat, AnswerParser, AnswerPart, ToolCall};
use orlop_serve::{RequestEnd, RequestUsage};

use crate::api_error::ApiError;
use crate::bounds;
use crate::engine::ring::{Ended, Event, Generated, Score, Ticket, Times};

/// More of one of the answers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Piece {
    /// Its prompt is about to be processed; this many tokens of it were in the cache.
    Admitted { cached: usize },
    /// More text.
    Text { text: String, scores: Vec<Score> },
    /// More of what the model thinks.
    Reasoning(String),
    /// A tool call begins, with the id that the model gave it, if it did.
    CallBegins { id: String, name: String },
    /// More of the arguments of the call that has begun.
    CallArguments(String),
    /// A tool call is complete, whether it was seen to begin or not.
    Call(ToolCall),
    /// The answer is complete.
    End(Finished),
}

impl Piece {
    /// Its bytes as JSON, roughly.
    fn bytes(&self) -> usize {
        const EACH: usize = 256;
        match self {
            Piece::Text { text, scores } => {
                text.len() + scores.iter().map(|score| EACH * (1 + score.top.len())).sum::<usize>()
            }
            Piece::Reasoning(text) | Piece::CallArguments(text) => text.len(),
            Piece::Call(call) => EACH + call.name.len() + call.arguments.len(),
            Piece::Admitted { .. } | Piece::CallBegins { .. } | Piece::End(_) => EACH,
        }
    }
}

/// How an answer ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Finished {
    pub(crate) finish: Finish,
    pub(crate) usage: RequestUsage,
    pub(crate) reasoning_tokens: usize,
    /// The text that ended it.
    pub(crate) stopped_by: Option<String>,
    pub(crate) times: Times,
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finish {
    Stop,
    Length,
    Calls,
}

/// The answers to a request, piece by piece.
#[derive(Debug)]
pub(crate) struct Answers {
    ticket: Ticket,
    states: Vec<State>,
    pieces: VecDeque<(usize, Piece)>,
}

/// What is known of one answer.
#[derive(Clone, Debug, Default)]
struct State {
    /// Of chats.
    parser: Option<AnswerParser>,
    /// Of tokens whose text is held back.
    scores: Vec<Score>,
    calls: usize,
    /// Only the first call counts.
    one_call: bool,
    reasoning_tokens: usize,
}

/// How the answers of a chat are read.
#[derive(Clone, Debug)]
pub(crate) struct ChatForm {
    pub(crate) format: AnswerFormat,
    /// Further calls are left out.
    pub(crate) one_call: bool,
}

impl Answers {
    /// Answers that are text and nothing else.
    pub(crate) fn text(ticket: Ticket, choices: usize) -> Answers {
        Answers { ticket, states: vec![State::default(); choices], pieces: VecDeque::new() }
    }

    /// Answers of a chat.
    pub(crate) fn chat(ticket: Ticket, choices: usize, form: &ChatForm) -> Answers {
        let parser = (form.format != AnswerFormat::default()).then(|| AnswerParser::new(form.format.clone()));
        let state = State { parser, one_call: form.one_call, ..State::default() };
        Answers { ticket, states: vec![state; choices], pieces: VecDeque::new() }
    }

    /// The next piece, and the number of its answer; `None` when all are complete.
    pub(crate) async fn next(&mut self) -> Option<Result<(usize, Piece), ApiError>> {
        loop {
            if let Some(piece) = self.pieces.pop_front() {
                return Some(Ok(piece));
            }
            let (choice, event) = self.ticket.next().await?;
            let Some(state) = self.states.get_mut(choice) else { continue };
            match state.pieces(event) {
                Ok(pieces) => self.pieces.extend(pieces.into_iter().map(|piece| (choice, piece))),
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// All answers, complete.
    pub(crate) async fn collect(mut self) -> Result<Vec<Collected>, ApiError> {
        let mut collected = vec![Collected::default(); self.states.len()];
        let mut bytes = 0;
        while let Some(next) = self.next().await {
            let (choice, piece) = next?;
            bytes += piece.bytes();
            if bytes > bounds::ANSWER_BYTES {
                let message = format!("the answer is larger than {} bytes; stream it", bounds::ANSWER_BYTES);
                return Err(ApiError::bad(message));
            }
            match (piece, &mut collected[choice]) {
                // The complete call comes later.
                (Piece::Admitted { .. } | Piece::CallBegins { .. } | Piece::CallArguments(_), _) => {}
                (Piece::Text { text, scores }, answer) => {
                    answer.text.push_str(&text);
                    answer.scores.extend(scores);
                }
                (Piece::Reasoning(text), answer) => answer.reasoning.push_str(&text),
                (Piece::Call(call), answer) => answer.calls.push(call),
                (Piece::End(finished), answer) => answer.finished = Some(finished),
            }
        }
        Ok(collected)
    }
}

impl State {
    fn pieces(&mut self, event: Event) -> Result<Vec<Piece>, ApiError> {
        match event {
            Event::Admitted { cached } => Ok(vec![Piece::Admitted { cached }]),
            Event::Text(Generated { text, tokens, scores }) => {
                let Some(parser) = &mut self.parser else { return Ok(vec![Piece::Text { text, scores }]) };
                self.scores.extend(scores);
                let parts = parser.push(&text);
                if parts.iter().any(|part| matches!(part, AnswerPart::Reasoning(_))) {
                    self.reasoning_tokens += tokens;
                }
                Ok(self.parts(parts))
            }
            Event::End(Ended { end, usage, stopped_by, times }) => {
                let rest = self.parser.as_mut().map(AnswerParser::finish).unwrap_or_default();
                let mut pieces = self.parts(rest);
                if !self.scores.is_empty() {
                    pieces
                        .push(Piece::Text { text: String::new(), scores: std::mem::take(&mut self.scores) });
                }
                let finish = match end {
                    RequestEnd::Done if self.calls > 0 => Finish::Calls,
                    RequestEnd::Done => Finish::Stop,
                    RequestEnd::Length => Finish::Length,
                    RequestEnd::Cancelled => {
                        let message = "The server is shutting down";
                        return Err(ApiError::busy(StatusCode::SERVICE_UNAVAILABLE, message, 5));
                    }
                    RequestEnd::Refused(message) => return Err(ApiError::bad(message)),
                    RequestEnd::Failed(message) => {
                        return Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message));
                    }
                };
                let reasoning_tokens = self.reasoning_tokens;
                pieces.push(Piece::End(Finished { finish, usage, reasoning_tokens, stopped_by, times }));
                Ok(pieces)
            }
        }
    }

    fn parts(&mut self, parts: Vec<AnswerPart>) -> Vec<Piece> {
        let mut pieces = Vec::with_capacity(parts.len());
        for part in parts {
            match part {
                AnswerPart::Text(text) => {
                    pieces.push(Piece::Text { text, scores: std::mem::take(&mut self.scores) });
                }
                AnswerPart::Reasoning(text) => pieces.push(Piece::Reasoning(text)),
                AnswerPart::CallBegins { .. } | AnswerPart::CallArguments(_) | AnswerPart::Call(_)
                    if self.one_call && self.calls > 0 => {}
                AnswerPart::CallBegins { id, name } => pieces.push(Piece::CallBegins { id, name }),
                AnswerPart::CallArguments(text) => pieces.push(Piece::CallArguments(text)),
                AnswerPart::Call(call) => {
                    self.calls += 1;
                    pieces.push(Piece::Call(call));
                }
            }
        }
        pieces
    }
}

/// A complete answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Collected {
    pub(crate) text: String,
    pub(crate) reasoning: String,
    pub(crate) calls: Vec<ToolCall>,
    pub(crate) scores: Vec<Score>,
    pub(crate) finished: Option<Finished>,
}

/// Tokens of all answers to a request. A prompt counts once, however many answers it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) prompt: usize,
    pub(crate) cached: usize,
    pub(crate) generated: usize,
    pub(crate) reasoning: usize,
}

impl Totals {
    /// With those of one of `each` answers to each prompt.
    #[must_use]
    pub(crate) fn with(mut self, choice: usize, each: usize, finished: &Finished) -> Totals {
        if choice.is_multiple_of(each.max(1)) {
            self.prompt += finished.usage.prompt;
            self.cached += finished.usage.cached;
        }
        self.generated += finished.usage.generated;
        self.reasoning += finished.reasoning_tokens;
        self
    }

    /// Of complete answers.
    pub(crate) fn of(answers: &[Collected], each: usize) -> Totals {
        let finished = answers
            .iter()
            .enumerate()
            .filter_map(|(choice, answer)| Some((choice, answer.finished.as_ref()?)));
        finished.fold(Totals::default(), |totals, (choice, finished)| totals.with(choice, each, finished))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::engine::generation::Generation;
    use crate::engine::mailbox::{Mailbox, Room};
    use crate::engine::ring::Ring;

    #[test]
    fn an_answer_that_is_not_streamed_is_bounded() {
        let mailbox = Arc::<Mailbox>::default();
        let ring = Arc::new(Ring::new(1, Arc::clone(&mailbox)));
        let room = Room { requests: 1, tokens: 1 };
        let key = mailbox.submit(0, Generation::default(), Arc::clone(&ring), room).unwrap();
        let score = Score { token: 0, log_probability: 0.0, top: vec![(0, 0.0); 20] };
        let scores = vec![score; 1000];
        for _ in 0..60 {
            ring.push(0, Event::Text(Generated { text: "a".to_owned(), tokens: 1, scores: scores.clone() }));
        }
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let answers = Answers::text(Ticket::new(key, ring), 1);
        let error = runtime.block_on(answers.collect()).unwrap_err();
        assert_eq!(error.status, StatusCode::BAD_REQUEST);
        assert!(error.message.contains("stream it"), "{}", error.message);
    }
}
