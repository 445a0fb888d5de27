//! The engine's thread of a model that makes embeddings or scores: it answers one request after the other.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use orlop_llm::{Embedder, Error};
use tokio::sync::oneshot;

use super::mailbox::Mailbox;

/// Texts that are to be embedded or scored, and where the result goes.
#[derive(Debug)]
pub(crate) struct EmbedAsk {
    pub(crate) texts: EmbedTexts,
    pub(crate) reply: oneshot::Sender<Result<Vec<Vec<f32>>, Error>>,
}

/// What is asked of an embedder.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum EmbedTexts {
    /// Embeddings of tokens.
    Tokens(Vec<Vec<u32>>),
    /// Scores of documents for a query.
    Pairs { query: String, documents: Vec<String> },
}

/// Time between two looks for the end of the server.
const LOOK: Duration = Duration::from_millis(100);

/// A loaded model and what it is asked.
#[derive(Debug)]
pub(crate) struct AskedEmbedder {
    pub(crate) embedder: Embedder,
    pub(crate) asked: Receiver<EmbedAsk>,
}

impl AskedEmbedder {
    /// Answers until the mailbox says that everything ends and everything has. Those that still wait then are told so.
    pub(crate) fn answer(mut self, mailbox: &Mailbox) {
        loop {
            let ends = mailbox.ends();
            if ends.is_some_and(|ends| Instant::now() >= ends) {
                return;
            }
            match self.asked.recv_timeout(LOOK) {
                // A client that has gone away needs no answer.
                Ok(EmbedAsk { reply, .. }) if reply.is_closed() => {}
                Ok(EmbedAsk { texts, reply }) => drop(reply.send(answer(&mut self.embedder, texts))),
                Err(RecvTimeoutError::Timeout) if ends.is_none() => {}
                Err(_) => return,
            }
        }
    }
}

fn answer(embedder: &mut Embedder, texts: EmbedTexts) -> Result<Vec<Vec<f32>>, Error> {
    match texts {
        EmbedTexts::Tokens(texts) => Ok(embedder.embed_tokens(&texts)?.rows),
        EmbedTexts::Pairs { query, documents } => {
            Ok(embedder.rerank(&query, &documents)?.into_iter().map(|score| vec![score]).collect())
        }
    }
}
