//! Embeddings of texts, and scores of pairs of texts: whole texts are fed together, without a cache.

use std::fmt;

use orlop_backend::Cancel;
use orlop_sched::{Machine, Session};

use crate::planned_graph::session_options;
use crate::weights::{self, LoadedTensors, Progress};
use crate::{
    Blueprint, Error, Forecast, Model, Outputs, Pooling, Settings, Special, Tokenizer, TokenizerError,
};

mod runs;

use runs::ReadyTexts;

/// Tokens of a run, at most, where no context was asked for.
const TOKENS: u64 = 2048;
/// Texts of a run, at most.
const TEXTS: u64 = 64;

/// The key of how a query and a document become one text, with `{query}` and `{document}`.
const PAIR_TEMPLATE: &str = "tokenizer.chat_template.rerank";

/// A loaded model that makes embeddings of texts, or scores documents for a query.
///
/// ```no_run
/// use orlop_cpu::{CpuDevice, ThreadPool};
/// use orlop_llm::{Embedder, Model, Settings};
/// use orlop_sched::Machine;
///
/// let model = Model::open("all-minilm-l6-v2.gguf")?;
/// let pool = ThreadPool::for_machine()?;
/// let settings = Settings { threads: pool.threads(), ..Settings::default() };
/// let machine = Machine::new(vec![CpuDevice::new(pool) as _])?;
/// let blueprint = Embedder::plan(&model, &machine, &settings, None)?;
/// println!("{} bytes", blueprint.forecast()?.devices[0].total());
/// let mut embedder = Embedder::load(blueprint, &mut |_, _| ())?;
/// let embeddings = embedder.embed(&["A cat sat on the mat.", "A dog lay on the rug."])?;
/// let similarity: f32 = embeddings.rows[0].iter().zip(&embeddings.rows[1]).map(|(a, b)| a * b).sum();
/// println!("{similarity}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A text's last bits may depend on the texts that are embedded with it, because they share runs.
pub struct Embedder {
    blueprint: Blueprint,
    session: Session,
    /// Weights, which the graphs use.
    loaded: LoadedTensors,
    /// Smallest first.
    ready: Vec<ReadyTexts>,
    pooling: Pooling,
    tokenizer: Option<Tokenizer>,
    cancel: Option<Cancel>,
    numbers: Vec<u8>,
}

/// Embeddings of texts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Embeddings {
    /// One for each text: of length 1, but for those of [`Embedder::embed_unscaled`].
    pub rows: Vec<Vec<f32>>,
    /// Tokens of all texts.
    pub tokens: usize,
}

impl Embedder {
    /// Decides where the weights of a model go, and plans the graphs of whole texts. A text may have as many tokens as the
    /// context; without one, as many as the model was trained for, up to 2048. Without `pooling`, it is what the file says
    /// ([`Pooling::of`]).
    ///
    /// # Errors
    /// [`Error::MakesNoEmbeddings`] for models that keep a state; [`Error::MissingTensor`] if a classifier is asked for that
    /// the file does not have; and as [`Blueprint::plan`].
    pub fn plan(
        model: &Model,
        machine: &Machine,
        settings: &Settings,
        pooling: Option<Pooling>,
    ) -> Result<Blueprint, Error> {
        let pooling = pooling.unwrap_or_else(|| Pooling::of(model.config(), model.file()));
        let batch = settings.context.unwrap_or(TOKENS);
        let outputs = Outputs::Texts(pooling);
        let settings =
            Settings { batch, sequences: TEXTS, draft: 0, outputs, expert_counter: None, ..settings.clone() };
        Blueprint::plan(model, machine, &settings)
    }

    /// Loads a model as a blueprint says, which must be one of [`Embedder::plan`].
    ///
    /// # Errors
    /// What devices refuse; memory that cannot be had; a tokenizer that cannot be used.
    pub fn load(blueprint: Blueprint, progress: Progress<'_>) -> Result<Embedder, Error> {
        let Outputs::Texts(pooling) = blueprint.settings.outputs else {
            let rule = "an embedder needs those of Embedder::plan";
            return Err(Error::BadSetting { setting: "the outputs", value: "logits".to_owned(), rule });
        };
        let tokenizer = match Tokenizer::from_metadata(blueprint.model.file().metadata()) {
            Err(Error::Tokenizer(TokenizerError::Missing)) => None,
            tokenizer => Some(tokenizer?),
        };
        let mut loaded = weights::load(&blueprint, progress)?;
        while !loaded.pending.is_empty() {
            loaded.load_one(&blueprint)?;
        }
        let session = Session::new(blueprint.machine.clone(), session_options(&blueprint.settings))?;
        let (ready, cancel, numbers) = (Vec::new(), None, Vec::new());
        let mut embedder =
            Embedder { blueprint, session, loaded, ready, pooling, tokenizer, cancel, numbers };
        embedder.ready_shapes()?;
        Ok(embedder)
    }

    /// The blueprint it was made by.
    pub fn blueprint(&self) -> &Blueprint {
        &self.blueprint
    }

    /// What stands for a text.
    pub fn pooling(&self) -> Pooling {
        self.pooling
    }

    /// The tokenizer.
    ///
    /// # Errors
    /// [`TokenizerError::Missing`].
    pub fn tokenizer(&self) -> Result<&Tokenizer, Error> {
        Ok(self.tokenizer.as_ref().ok_or(TokenizerError::Missing)?)
    }

    /// Tokens that a text may have.
    pub fn longest_text(&self) -> u64 {
        self.blueprint.batch()
    }

    /// Elements of an embedding, or scores of a classifier.
    pub fn dimensions(&self) -> u64 {
        self.ready.first().map_or(0, |ready| ready.width)
    }

    /// Sets the switch that stops runs.
    pub fn cancel_with(&mut self, cancel: Option<Cancel>) {
        self.cancel = cancel;
    }

    /// Embeddings of texts, in their order, each of length 1.
    ///
    /// # Errors
    /// [`Error::TextTooLong`]; [`Error::EmptyPrompt`] for a text without tokens; [`Error::OtherRows`] if the model is a
    /// classifier; and what a device meets.
    pub fn embed(&mut self, texts: &[impl AsRef<str>]) -> Result<Embeddings, Error> {
        let tokenizer = self.tokenizer()?;
        let texts: Vec<Vec<u32>> =
            texts.iter().map(|text| tokenizer.prompt(text.as_ref(), Special::Parse)).collect();
        self.embed_tokens(&texts)
    }

    /// As [`Embedder::embed`], of tokens.
    ///
    /// # Errors
    /// As [`Embedder::embed`], and [`Error::UnknownToken`].
    pub fn embed_tokens(&mut self, texts: &[impl AsRef<[u32]>]) -> Result<Embeddings, Error> {
        let mut embeddings = self.embed_unscaled(texts)?;
        embeddings.rows.iter_mut().for_each(|row| normalize(row));
        Ok(embeddings)
    }

    /// As [`Embedder::embed_tokens`], but each row has the length that the model gave it.
    ///
    /// # Errors
    /// As [`Embedder::embed_tokens`].
    pub fn embed_unscaled(&mut self, texts: &[impl AsRef<[u32]>]) -> Result<Embeddings, Error> {
        if self.pooling == Pooling::Rank {
            return Err(Error::OtherRows { given: "scores of pairs", wanted: "embeddings" });
        }
        let rows = self.rows(texts)?;
        Ok(Embeddings { rows, tokens: texts.iter().map(|text| text.as_ref().len()).sum() })
    }

    /// A score of each document for a query, which is comparable with those of other documents for the same query.
    ///
    /// # Errors
    /// [`Error::OtherRows`] if the model is no classifier; and as [`Embedder::embed`].
    pub fn rerank(&mut self, query: &str, documents: &[impl AsRef<str>]) -> Result<Vec<f32>, Error> {
        let pairs = documents.iter().map(|document| self.pair(query, document.as_ref()));
        let pairs = pairs.collect::<Result<Vec<_>, Error>>()?;
        Ok(self.score_tokens(&pairs)?.into_iter().map(|row| row.first().copied().unwrap_or(0.0)).collect())
    }

    /// All scores that a classifier gives for texts of tokens.
    ///
    /// # Errors
    /// As [`Embedder::rerank`], and [`Error::UnknownToken`].
    pub fn score_tokens(&mut self, texts: &[impl AsRef<[u32]>]) -> Result<Vec<Vec<f32>>, Error> {
        match self.pooling {
            Pooling::Rank => self.rows(texts),
            Pooling::Mean | Pooling::Cls | Pooling::Last => {
                Err(Error::OtherRows { given: "embeddings", wanted: "scores of pairs" })
            }
        }
    }

    /// Bytes that are allocated on each device now.
    pub fn memory(&self) -> Forecast {
        self.loaded.memory(&self.blueprint, &self.session)
    }

    /// The tokens of a query and a document, together.
    fn pair(&self, query: &str, document: &str) -> Result<Vec<u32>, Error> {
        let tokenizer = self.tokenizer()?;
        let metadata = self.blueprint.model.file().metadata();
        Ok(match metadata.optional(PAIR_TEMPLATE, orlop_gguf::Metadata::string)? {
            Some(template) => tokenizer.encode(&filled(template, query, document), Special::Parse),
            None => tokenizer.pair(query, document),
        })
    }
}

impl fmt::Debug for Embedder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedder").field("pooling", &self.pooling).finish_non_exhaustive()
    }
}

/// Brings a row to length 1; zeros stay.
fn normalize(row: &mut [f32]) {
    let length = row.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
    if length > 0.0 {
        row.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
    }
}

/// A template with its parts. What stands in a query or a document is not looked at again.
fn filled(template: &str, query: &str, document: &str) -> String {
    let mut text = String::with_capacity(template.len() + query.len() + document.len());
    let mut rest = template;
    while let Some(at) = rest.find('{') {
        text.push_str(&rest[..at]);
        let part = &rest[at..];
        let (value, length) = match part {
            _ if part.starts_with("{query}") => (query, "{query}".len()),
            _ if part.starts_with("{document}") => (document, "{document}".len()),
            _ => ("{", 1),
        };
        text.push_str(value);
        rest = &part[length..];
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_template_are_filled_once() {
        let template = "<q>{query}</q>{x}<d>{document}</d>";
        assert_eq!(filled(template, "{document}", "b{query}"), "<q>{document}</q>{x}<d>b{query}</d>");
    }

    #[test]
    fn rows_get_length_one_and_zeros_stay() {
        let mut row = [3.0, 4.0];
        normalize(&mut row);
        assert_eq!(row, [0.6, 0.8]);
        let mut zeros = [0.0; 3];
        normalize(&mut zeros);
        assert_eq!(zeros, [0.0; 3]);
    }
}
