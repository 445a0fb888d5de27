//! Quantizing a model: writing it in other element types.

use std::cell::RefCell;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use orlop_gguf::{GgufFile as File, GgufPart, Metadata, MetadataValue, TensorInfo, Writer};
use orlop_graph::DType;
use orlop_quant::{supports_decode, supports_encode};

use crate::importance::Importance;
use crate::mixture::{Candidate, FileType, MixturePolicy, Traits, mixture};
use crate::{Error, Progress};

mod transcode;

use transcode::{Transcode, Weights};

/// The version of the quantized types' layouts that is written, the value of `general.quantization_version`.
const QUANTIZATION_VERSION: u32 = 2;

/// What a model is quantized to.
#[derive(Clone, Copy, Debug)]
pub struct Quantization<'a> {
    /// What the file is to be stored as.
    pub file_type: FileType,
    /// How types are spread over the matrices.
    pub spread: MixturePolicy,
    /// Threads that work on it, at least one.
    pub threads: usize,
    /// What matters most in each matrix.
    pub importance: Option<&'a Importance>,
}

/// The result of quantizing a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quantized {
    /// Bytes of the files that were read.
    pub from: u64,
    /// Bytes of the file that was written.
    pub to: u64,
    /// Tensors that stayed as they were.
    pub kept: usize,
    /// Tensors of another type than before.
    pub changed: usize,
    /// Among those, the ones that were quantized before, and have lost precision twice.
    pub again: usize,
    /// Among those that changed, the ones of a type that needs importance data and has none.
    pub unweighted: usize,
}

/// Writes a model as one file in other element types; [`mixture`] says which tensor gets which.
///
/// Metadata stays, but for what it says of types and parts. The file gets its name when it is whole, memory is
/// bounded whatever the model's size, and equal input gives equal bytes with any number of threads.
///
/// # Errors
/// [`Error::SameFile`] if `out` is where the model is, [`Error::NoCodec`] for what cannot be read or made,
/// [`Error::Importance`] for importance data of another model,
/// [`Error::File`] for what the files say, and for a value that is not finite.
pub fn quantize(
    model: &File,
    out: &Path,
    quantization: &Quantization<'_>,
    progress: Progress<'_>,
) -> Result<Quantized, Error> {
    if let Some(path) = model.paths().iter().find(|path| is_same(path, out)) {
        return Err(Error::SameFile(path.clone()));
    }
    let types = types(model, quantization)?;
    let all = model.tensors().iter().map(|tensor| tensor.bytes).sum();
    let progress = RefCell::new((0, progress));
    let report = |bytes| {
        let (done, progress) = &mut *progress.borrow_mut();
        *done += bytes;
        progress(*done, all);
    };
    let mut writer = Writer::with_metadata(metadata(model, quantization.file_type)?);
    let mut quantized =
        Quantized { from: model.bytes(), to: 0, kept: 0, changed: 0, again: 0, unweighted: 0 };
    for (tensor, to) in model.tensors().iter().zip(types) {
        let from = tensor.desc.dtype;
        let weights = match quantization.importance {
            Some(importance) if from != to => importance.of(&tensor.name, tensor.extents())?,
            _ => None,
        };
        if from == to {
            quantized.kept += 1;
        } else {
            quantized.changed += 1;
            quantized.again += usize::from(from.is_quantized());
            quantized.unweighted += usize::from(weights.is_none() && needs_importance(to));
        }
        let columns = tensor.extents()[0] as usize;
        let matrix = columns * tensor.extents().get(1).copied().unwrap_or(1) as usize;
        let weights = weights.map(|values| Weights { values, columns, matrix });
        let job = Transcode { from, to, threads: quantization.threads, weights };
        let report = &report;
        writer.tensor_with(&tensor.name, to, tensor.extents(), move |out| {
            job.run(model.bytes_of(tensor), out, report)?;
            model.check_readable().map_err(io::Error::other)?;
            model.release(tensor);
            Ok(())
        })?;
    }
    quantized.to = writer.create(out)?;
    Ok(quantized)
}

/// Types of two bits and less, which lose most without importance data.
fn needs_importance(dtype: DType) -> bool {
    use DType::{IQ1_M, IQ1_S, IQ2_S, IQ2_XS, IQ2_XXS, IQ3_XXS};
    matches!(dtype, IQ1_S | IQ1_M | IQ2_XXS | IQ2_XS | IQ2_S | IQ3_XXS)
}

/// The type that each tensor gets; all can be read and written.
fn types(model: &File, quantization: &Quantization<'_>) -> Result<Vec<DType>, Error> {
    let tensors: Vec<Candidate<'_>> = model.tensors().iter().map(candidate).collect();
    let traits = Traits { importance: quantization.importance.is_some(), ..traits(model.metadata())? };
    let types = mixture(quantization.file_type, quantization.spread, &traits, &tensors);
    for (tensor, to) in tensors.iter().zip(&types).filter(|(tensor, to)| tensor.dtype != **to) {
        let codec = |dtype, known: bool| {
            let tensor = tensor.name.to_owned();
            if known { Ok(()) } else { Err(Error::NoCodec { tensor, dtype }) }
        };
        codec(tensor.dtype, supports_decode(tensor.dtype))?;
        codec(*to, supports_encode(*to))?;
    }
    Ok(types)
}

/// A model in other element types with zeros for weights, which take no memory: what is planned and never run.
pub(crate) fn outline(model: &File, quantization: &Quantization<'_>) -> Result<GgufPart, Error> {
    let types = types(model, quantization)?;
    let mut writer = Writer::with_metadata(metadata(model, quantization.file_type)?);
    for (tensor, to) in model.tensors().iter().zip(types) {
        writer.tensor_with(&tensor.name, to, tensor.extents(), |_| Ok(()))?;
    }
    Ok(writer.outline()?)
}

fn candidate(tensor: &TensorInfo) -> Candidate<'_> {
    Candidate { name: &tensor.name, extents: tensor.extents(), dtype: tensor.desc.dtype }
}

/// What the metadata says. A file of an unknown architecture can be quantized, too.
fn traits(metadata: &Metadata) -> Result<Traits<'_>, Error> {
    let architecture = metadata.optional("general.architecture", Metadata::string)?.unwrap_or("");
    // Where there is a number for each layer, the first one counts.
    let number = |key: &str| {
        let first = match metadata.get(&format!("{architecture}.{key}"))? {
            MetadataValue::Array(array) => array.integers()?.next(),
            value => value.integer(),
        };
        first.and_then(|number| u64::try_from(number).ok())
    };
    let heads = number("attention.head_count").unwrap_or(1);
    let kv_heads = number("attention.head_count_kv").unwrap_or(heads);
    Ok(Traits {
        architecture,
        layers: number("block_count").unwrap_or(0),
        sharing: heads.checked_div(kv_heads).unwrap_or(0),
        experts: number("expert_count").unwrap_or(0),
        importance: false,
    })
}

fn metadata(model: &File, file_type: FileType) -> Result<Metadata, Error> {
    let mut metadata = model.metadata().clone();
    for key in ["split.no", "split.count", "split.tensors.count"] {
        metadata.remove(key);
    }
    metadata.set("general.file_type", file_type.id())?;
    metadata.set("general.quantization_version", QUANTIZATION_VERSION)?;
    Ok(metadata)
}

/// Whether both paths lead to the same file, links included.
fn is_same(path: &Path, out: &Path) -> bool {
    let real = |path: &Path| -> Option<PathBuf> { fs::canonicalize(path).ok() };
    path == out || real(path).is_some_and(|path| real(out) == Some(path))
}

#[cfg(test)]
mod tests;
