//! Chats on disk: the file of a sequence ([`Engine::save_sequence`]) with the conversation in its metadata.

use std::path::Path;

use orlop_gguf::{Array, GgufPart, Metadata};
use orlop_graph::SharedBytes;

use super::{Chat, Seam, saved_message};
use crate::engine::saved::{TOKENS, open, open_bytes};
use crate::{Engine, Error, Message, SequenceId, StateError};

const MESSAGES: &str = "chat.messages";
const TEXT: &str = "chat.text";
const CHAT_TOKENS: &str = "chat.tokens";
const SEAM_BYTES: &str = "chat.seams.bytes";
const SEAM_TOKENS: &str = "chat.seams.tokens";

/// A conversation as a file holds it.
struct Saved {
    messages: Vec<Message>,
    text: String,
    tokens: Vec<u32>,
    seams: Vec<Seam>,
}

impl Chat {
    /// Writes the conversation and what the engine's cache holds of it to a file, and returns its size. The file appears
    /// complete under its name, or not at all.
    ///
    /// # Errors
    /// As [`Engine::save_sequence`].
    pub fn save_state(&self, engine: &Engine, path: &Path) -> Result<u64, Error> {
        self.write_state(engine, |writer| writer.create(path))
    }

    /// As [`Chat::save_state`], to memory.
    ///
    /// # Errors
    /// As [`Engine::save_sequence`].
    pub fn state_bytes(&self, engine: &Engine) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        self.write_state(engine, |writer| writer.write(&mut bytes))?;
        Ok(bytes)
    }

    /// Reads a conversation and the engine's cache from a file, in place of this one, and returns how many tokens are in the
    /// cache. The next turn goes on as it would have where it was saved.
    ///
    /// # Errors
    /// As [`Engine::load_sequence`], and [`Error::State`] for a file without a chat; the conversation stays as it was.
    pub fn load_state(&mut self, engine: &mut Engine, path: &Path) -> Result<usize, Error> {
        self.read_state(engine, &open(path)?)
    }

    /// As [`Chat::load_state`], from memory.
    ///
    /// # Errors
    /// As [`Chat::load_state`].
    pub fn load_state_bytes(&mut self, engine: &mut Engine, bytes: SharedBytes) -> Result<usize, Error> {
        self.read_state(engine, &open_bytes(bytes)?)
    }

    fn write_state(
        &self,
        engine: &Engine,
        write: impl FnOnce(orlop_gguf::Writer<'_>) -> Result<u64, orlop_gguf::Error>,
    ) -> Result<u64, Error> {
        let cached = self.tokens.get(..engine.len());
        let cached = cached
            .ok_or(StateError::OtherTokens { given: self.tokens.len(), cached: engine.len() })
            .map_err(Error::from)?;
        let metadata = self.metadata().map_err(StateError::File)?;
        engine.write_sequence(SequenceId::FIRST, cached, &metadata, write)
    }

    fn read_state(&mut self, engine: &mut Engine, file: &GgufPart) -> Result<usize, Error> {
        let Saved { messages, text, tokens, seams } = Saved::read(file.metadata())?;
        let cached = engine.load_part(SequenceId::FIRST, file)?.len();
        // Another conversation may not suit the template, and this one may.
        self.fault = None;
        (self.messages, self.text, self.tokens, self.seams) = (messages, text, tokens, seams);
        Ok(cached)
    }

    fn metadata(&self) -> Result<Metadata, orlop_gguf::Error> {
        let mut metadata = Metadata::new();
        metadata.set(MESSAGES, Array::String(self.messages.iter().map(saved_message::write).collect()))?;
        metadata.set(TEXT, self.text.as_str())?;
        metadata.set(CHAT_TOKENS, Array::U32(self.tokens.clone()))?;
        metadata.set(SEAM_BYTES, Array::U64(self.seams.iter().map(|seam| seam.bytes as u64).collect()))?;
        metadata.set(SEAM_TOKENS, Array::U64(self.seams.iter().map(|seam| seam.tokens as u64).collect()))?;
        Ok(metadata)
    }
}

impl Saved {
    fn read(metadata: &Metadata) -> Result<Saved, Error> {
        let written = metadata.strs(MESSAGES).map_err(StateError::File)?;
        let messages: Vec<Message> =
            written.iter().map_while(|message| saved_message::read(message)).collect();
        let text = metadata.string(TEXT).map_err(StateError::File)?.to_owned();
        let tokens = metadata.u32s(CHAT_TOKENS).map_err(StateError::File)?;
        let cached = metadata.u32s(TOKENS).map_err(StateError::File)?;
        let [bytes, places] = [SEAM_BYTES, SEAM_TOKENS].map(|key| metadata.u32s(key));
        let (bytes, places) = (bytes.map_err(StateError::File)?, places.map_err(StateError::File)?);
        let seams = bytes.iter().zip(&places);
        let seams = seams.map(|(bytes, tokens)| Seam { bytes: *bytes as usize, tokens: *tokens as usize });
        let seams: Vec<Seam> = seams.collect();
        let is_seam = |seam: &Seam| text.is_char_boundary(seam.bytes) && seam.tokens <= tokens.len();
        let why = if messages.len() != written.len() {
            Some("a message is not one")
        } else if bytes.len() != places.len() || !seams.iter().all(is_seam) {
            Some("an answer ends outside of the text")
        } else if !tokens.starts_with(&cached) {
            Some("the cache holds other tokens")
        } else {
            None
        };
        if let Some(why) = why {
            return Err(StateError::BadChat { messages: written.len(), tokens: tokens.len(), why }.into());
        }
        Ok(Saved { messages, text, tokens, seams })
    }
}
