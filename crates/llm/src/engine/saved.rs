//! Sequences on disk: tokens, cache rows and states of one sequence, as a GGUF file.
//!
//! The file holds tensors under the names of the caches, the tokens and what the rows depend on as metadata, and a SHA-256
//! checksum of all that as its last tensor. Everything is checked before the engine changes.

use std::cell::RefCell;
use std::io;
use std::path::Path;

use orlop_backend::StoredTensor;
use orlop_gguf::{Array, GgufPart, Metadata, TensorInfo, Writer};
use orlop_graph::{DType, SharedBytes, TensorDesc};
use sha2::{Digest, Sha256};

use super::Engine;
use crate::cache_rotation::is_rotated;
use crate::draft::{GraphWeight, WeightContent};
use crate::pages::PAGE_ROWS;
use crate::{Error, Model, SequenceId};

const KIND: &str = "orlop-state";
const VERSION: u32 = 1;
const CHECKSUM: &str = "checksum";
/// The key of the tokens in the cache.
pub(crate) const TOKENS: &str = "state.tokens";

/// What is wrong with the file of a saved sequence.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// It cannot be read or written, or is damaged.
    #[error(transparent)]
    File(#[from] orlop_gguf::Error),
    /// Another kind of file.
    #[error("it is a file of `{found}`, and not of `{KIND}`")]
    OtherKind {
        /// Its `general.architecture`.
        found: String,
    },
    /// A version that is not known.
    #[error("it has version {found}, and {VERSION} is known")]
    OtherVersion {
        /// Its version.
        found: u32,
    },
    /// It belongs to another model.
    #[error("it belongs to the model with digest {found}, and this one has {expected}")]
    OtherModel {
        /// The digest in the file.
        found: String,
        /// This model's.
        expected: String,
    },
    /// The rows were computed with other settings.
    #[error("it was made with {found}, and the settings here are {expected}")]
    OtherSettings {
        /// Those of the file.
        found: String,
        /// Those of the engine.
        expected: String,
    },
    /// Contents that do not match the checksum.
    #[error("it is damaged: its checksum is {found}, and its contents have {expected}")]
    Damaged {
        /// In the file.
        found: String,
        /// Of what was read.
        expected: String,
    },
    /// A tensor is missing, or has another type or other extents.
    #[error("it has {found} tensors where {expected} of this model's are expected, or `{tensor}` differs")]
    OtherTensors {
        /// The first that is not as expected.
        tensor: String,
        /// Tensors in the file.
        found: usize,
        /// Tensors that a sequence of this model has.
        expected: usize,
    },
    /// There is no chat in it, or one that contradicts itself.
    #[error("its chat of {messages} messages and {tokens} tokens does not fit together: {why}")]
    BadChat {
        /// Messages of the chat.
        messages: usize,
        /// Tokens of the chat.
        tokens: usize,
        /// What does not fit.
        why: &'static str,
    },
    /// The tokens given are not as many as those in the cache.
    #[error("{given} tokens were given, and the sequence has {cached}")]
    OtherTokens {
        /// Given to be saved.
        given: usize,
        /// In the cache.
        cached: usize,
    },
}

impl From<StateError> for Error {
    fn from(error: StateError) -> Error {
        Error::State(Box::new(error))
    }
}

/// A tensor of a cache, and what it holds of one sequence.
struct Kept<'a> {
    cache: &'a StoredTensor,
    desc: TensorDesc,
    /// Offsets in the cache and lengths, in the order of the file.
    pieces: Vec<(u64, u64)>,
}

impl Engine {
    /// Writes a sequence to a file: its tokens, which the caller knows, and what the cache holds of them. The file appears
    /// complete under its name, or not at all.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`]; [`Error::State`] if the tokens are not as many as those in the cache or the file cannot be
    /// written; what a device meets.
    pub fn save_sequence(&self, id: SequenceId, tokens: &[u32], path: &Path) -> Result<u64, Error> {
        self.write_sequence(id, tokens, &Metadata::new(), |writer| writer.create(path))
    }

    /// As [`Engine::save_sequence`], to memory.
    ///
    /// # Errors
    /// As [`Engine::save_sequence`].
    pub fn sequence_bytes(&self, id: SequenceId, tokens: &[u32]) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        self.write_sequence(id, tokens, &Metadata::new(), |writer| writer.write(&mut bytes))?;
        Ok(bytes)
    }

    /// Writes a sequence and what else belongs to it.
    pub(crate) fn write_sequence(
        &self,
        id: SequenceId,
        tokens: &[u32],
        more: &Metadata,
        write: impl FnOnce(Writer<'_>) -> Result<u64, orlop_gguf::Error>,
    ) -> Result<u64, Error> {
        let slot = self.sequences.slot(id)?;
        let cached = self.sequences.len(slot);
        if tokens.len() != cached {
            return Err(StateError::OtherTokens { given: tokens.len(), cached }.into());
        }
        let mut metadata = more.clone();
        let model = digest(&self.blueprint.model)?;
        let mut set = || {
            metadata.set("general.architecture", KIND)?;
            metadata.set("state.version", VERSION)?;
            metadata.set("state.model", model.as_str())?;
            metadata.set("state.settings", self.state_settings().as_str())?;
            metadata.set(TOKENS, Array::U32(tokens.to_vec()))?;
            Sum::new(&metadata)
        };
        let sum = RefCell::new(set().map_err(StateError::File)?);
        let mut writer = Writer::with_metadata(metadata);
        let mut add = || {
            for Kept { cache, desc, pieces } in self.kept(slot, cached)? {
                let sum = &sum;
                writer.tensor_with(cache.name(), desc.dtype, &desc.extents[..3], move |out| {
                    sum.borrow_mut().0.update(cache.name().as_bytes());
                    let mut bytes = Vec::new();
                    for (offset, count) in pieces {
                        bytes.resize(count as usize, 0);
                        cache.get(offset, &mut bytes).map_err(io::Error::other)?;
                        sum.borrow_mut().0.update(&bytes);
                        out.write_all(&bytes)?;
                    }
                    Ok(())
                })?;
            }
            writer.tensor_with(CHECKSUM, DType::I8, &[32], |out| out.write_all(&sum.borrow().finish()))
        };
        add().map_err(StateError::File)?;
        Ok(write(writer).map_err(StateError::File)?)
    }

    /// Reads a sequence from a file into one that exists, in place of what that held, and returns its tokens. There are no
    /// logits then: the next token is fed, or the last one again after [`Engine::truncate_sequence`].
    ///
    /// # Errors
    /// [`Error::UnknownSequence`]; [`Error::State`] for a file that is damaged, or of another model or other settings;
    /// [`Error::ContextFull`], [`Error::NoPages`]. All of these change nothing. [`Error::RunFailed`] if a device fails while
    /// rows are written: the sequence is empty then.
    pub fn load_sequence(&mut self, id: SequenceId, path: &Path) -> Result<Vec<u32>, Error> {
        self.load_part(id, &open(path)?)
    }

    /// As [`Engine::load_sequence`], from memory.
    ///
    /// # Errors
    /// As [`Engine::load_sequence`].
    pub fn load_sequence_bytes(&mut self, id: SequenceId, bytes: SharedBytes) -> Result<Vec<u32>, Error> {
        self.load_part(id, &open_bytes(bytes)?)
    }

    pub(crate) fn load_part(&mut self, id: SequenceId, file: &GgufPart) -> Result<Vec<u32>, Error> {
        let slot = self.sequences.slot(id)?;
        let tokens = self.checked_tokens(file)?;
        self.sequences.trim();
        self.sequences.check_restore(slot, tokens.len())?;
        self.check_contents(file, &tokens)?;
        let before = self.sequences.len(slot);
        self.left = None;
        self.sequences.restore(slot, tokens.len())?;
        let written =
            self.kept(slot, tokens.len()).map_err(StateError::File)?.into_iter().try_for_each(|kept| {
                let mut bytes =
                    file.tensor(kept.cache.name()).map_or(&[][..], |tensor| file.bytes_of(tensor));
                for (offset, count) in kept.pieces {
                    let (piece, rest) = bytes.split_at(count as usize);
                    kept.cache.set(offset, piece)?;
                    bytes = rest;
                }
                Ok::<(), Error>(())
            });
        match written {
            Ok(()) => Ok(tokens),
            Err(cause) => {
                self.sequences.truncate(slot, 0);
                let sequences = vec![super::SequenceLeft { sequence: id, before, tokens: 0 }];
                Err(Error::RunFailed(Box::new(super::RunFailure { cause, sequences })))
            }
        }
    }

    /// The tokens of a file that is of this model, with these settings.
    fn checked_tokens(&self, file: &GgufPart) -> Result<Vec<u32>, Error> {
        let metadata = file.metadata();
        let found = metadata.string("state.model").map_err(StateError::File)?.to_owned();
        let expected = digest(&self.blueprint.model).map_err(StateError::File)?;
        if found != expected {
            return Err(StateError::OtherModel { found, expected }.into());
        }
        let found = metadata.string("state.settings").map_err(StateError::File)?.to_owned();
        let expected = self.state_settings();
        if found != expected {
            return Err(StateError::OtherSettings { found, expected }.into());
        }
        let tokens = metadata.u32s(TOKENS).map_err(StateError::File)?;
        let vocabulary = self.config().vocabulary;
        match tokens.iter().find(|token| u64::from(**token) >= vocabulary) {
            Some(token) => Err(Error::UnknownToken { token: *token, vocabulary }),
            None => Ok(tokens),
        }
    }

    /// Checks the tensors of a file, and that they are as they were written.
    fn check_contents(&self, file: &GgufPart, tokens: &[u32]) -> Result<(), Error> {
        let caches: Vec<(&StoredTensor, TensorDesc)> =
            self.kept_descs(tokens.len()).collect::<Result<_, _>>().map_err(StateError::File)?;
        let (found, expected) = (file.tensors().len(), caches.len() + 1);
        let other = |name: &str| StateError::OtherTensors { tensor: name.to_owned(), found, expected };
        let sum = file.tensor(CHECKSUM).filter(|sum| sum.desc.bytes() == 32);
        let sum: &TensorInfo = sum.filter(|_| found == expected).ok_or_else(|| other(CHECKSUM))?;
        let mut expected = Sum::new(file.metadata()).map_err(StateError::File)?;
        for (cache, desc) in caches {
            let tensor = file.tensor(cache.name()).filter(|tensor| tensor.desc == desc);
            let tensor = tensor.ok_or_else(|| other(cache.name()))?;
            expected.0.update(cache.name().as_bytes());
            expected.0.update(file.bytes_of(tensor));
        }
        let (found, expected) = (hex(file.bytes_of(sum)), hex(&expected.finish()));
        match found == expected {
            true => Ok(()),
            false => Err(StateError::Damaged { found, expected }.into()),
        }
    }

    /// What cache rows depend on, beside the model and the tokens.
    fn state_settings(&self) -> String {
        let settings = &self.blueprint.settings;
        // LongRoPE turns by other factors in long contexts.
        let rope = self.config().layers.iter().find_map(|layer| layer.rope);
        let long = rope.is_some_and(|rope| self.blueprint.context > u64::from(rope.original_context));
        let long = long && self.blueprint.model.file().tensor("rope_factors_long.weight").is_some();
        let cached = |dtype| format!("{dtype}{}", if is_rotated(dtype) { " rotated" } else { "" });
        let (k, v, precision) = (cached(settings.cache.k), cached(settings.cache.v), settings.precision);
        let is_bias = |weight: &GraphWeight| matches!(weight.content, WeightContent::KeyBias(..));
        let balanced = self.blueprint.decode.graph.weights.iter().any(is_bias);
        let k = format!("{k}{}", if balanced { " balanced" } else { "" });
        let base = format!("keys {k}, values {v}, precision {precision:?}, long context {long}");
        match self.blueprint.model.adapters() {
            [] => base,
            adapters => format!("{base}, adapters {adapters:?} times {:?}", self.adapter_scales),
        }
    }

    /// Every cache tensor, and the description of what it holds of a sequence of `len` tokens.
    fn kept_descs(
        &self,
        len: usize,
    ) -> impl Iterator<Item = Result<(&StoredTensor, TensorDesc), orlop_gguf::Error>> {
        let described = |cache: &StoredTensor, extents: [u64; 3]| {
            let (name, dtype) = (cache.name().to_owned(), cache.desc().dtype);
            let desc = TensorDesc::contiguous(dtype, &extents);
            desc.map_err(|source| orlop_gguf::Error::Tensor { tensor: name, source })
        };
        let groups = self.sequences.first_rows(len).enumerate().flat_map(move |(group, first)| {
            self.cached(Some(group)).map(move |cache| {
                let [head, _, heads, _] = cache.desc().extents;
                Ok((cache, described(cache, [head, len as u64 - first, heads])?))
            })
        });
        let states = self
            .states()
            .map(move |(cache, _)| Ok((cache, described(cache, [cache.desc().extents[0], 1, 1])?)));
        groups.chain(states).filter(move |_| len > 0)
    }

    /// Where the caches hold a sequence.
    fn kept(&self, slot: usize, len: usize) -> Result<Vec<Kept<'_>>, orlop_gguf::Error> {
        let state_bytes = |cache: &StoredTensor| cache.desc().bytes() / self.blueprint.settings.sequences;
        let groups: Vec<u64> = self.sequences.first_rows(len).collect();
        let group_of = |cache: &StoredTensor| {
            (0..groups.len())
                .find(|group| self.cached(Some(*group)).any(|known| known.name() == cache.name()))
        };
        self.kept_descs(len)
            .map(|kept| {
                let (cache, desc) = kept?;
                let mut pieces = Vec::new();
                match group_of(cache) {
                    None => pieces.push((slot as u64 * state_bytes(cache), state_bytes(cache))),
                    Some(group) => {
                        let [_, row, head, _] = cache.desc().strides;
                        for number in 0..cache.desc().extents[2] {
                            for first in (groups[group]..len as u64).step_by(PAGE_ROWS as usize) {
                                let rows = PAGE_ROWS.min(len as u64 - first);
                                let place = u64::from(self.sequences.row(slot, group, first as u32));
                                pieces.push((number * head + place * row, rows * row));
                            }
                        }
                    }
                }
                Ok(Kept { cache, desc, pieces })
            })
            .collect()
    }
}

/// Opens a file that holds a sequence.
pub(crate) fn open(path: &Path) -> Result<GgufPart, Error> {
    check_kind(GgufPart::open(path))
}

/// As [`open`], in memory.
pub(crate) fn open_bytes(bytes: SharedBytes) -> Result<GgufPart, Error> {
    check_kind(GgufPart::from_bytes(bytes))
}

fn check_kind(file: Result<GgufPart, orlop_gguf::Error>) -> Result<GgufPart, Error> {
    let file = file.map_err(StateError::File)?;
    let found = file.metadata().string("general.architecture").map_err(StateError::File)?;
    if found != KIND {
        return Err(StateError::OtherKind { found: found.to_owned() }.into());
    }
    let found = file.metadata().u32("state.version").map_err(StateError::File)?;
    if found != VERSION {
        return Err(StateError::OtherVersion { found }.into());
    }
    Ok(file)
}

/// The checksum of a sequence, in the making.
struct Sum(Sha256);

impl Sum {
    fn new(metadata: &Metadata) -> Result<Sum, orlop_gguf::Error> {
        let mut bytes = Vec::new();
        Writer::with_metadata(metadata.clone()).write(&mut bytes)?;
        Ok(Sum(Sha256::new_with_prefix(bytes)))
    }

    fn finish(&self) -> [u8; 32] {
        self.0.clone().finalize().into()
    }
}

/// Bytes at each end of a tensor that count for a model's digest: reading all of a model takes as long as loading it.
const SAMPLE: usize = 1024;

/// The digest of a model: its metadata, the list of its tensors, and the ends of each one's data.
fn digest(model: &Model) -> Result<String, orlop_gguf::Error> {
    let file = model.file();
    let Sum(mut digest) = Sum::new(file.metadata())?;
    for tensor in file.tensors() {
        let data = file.bytes_of(tensor);
        digest.update(tensor.name.as_bytes());
        digest.update(format!("{:?}", tensor.desc));
        digest.update(&data[..SAMPLE.min(data.len())]);
        digest.update(&data[data.len().saturating_sub(SAMPLE)..]);
    }
    Ok(hex(&digest.finalize()[..16]))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
