//! Kernels: sources in this crate, compiled by [NVRTC](https://docs.nvidia.com/cuda/nvrtc/) for the GPU's architecture when
//! they are first used, and kept on disk by content.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::{self, Write as _};
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use orlop_backend::DeviceError;
use sha2::{Digest, Sha256};

use crate::context::Context;
use crate::kernels::{numbers_header, structures};
use crate::sys::{Function, Module, Nvrtc};
use crate::{CudaOptions, Error, types_header};

/// A file of the sources: its name, and its text.
macro_rules! file {
    ($name:literal) => {
        ($name, include_str!(concat!("kernels/cu/", $name)))
    };
}

/// What every source begins with, behind what is generated.
const HEADERS: [(&str, &str); 2] = [file!("common.cuh"), file!("planes.cuh")];

/// A file of kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Source {
    /// Every op on every layout, one way.
    General,
    /// Norms, rotations, rounding: what lies between products.
    Rows,
    /// Products with one row of activations.
    Vector,
    /// Products with many, in F16.
    Tiles,
    /// The same, by warps in groups.
    Groups,
    /// Products with many, in int8.
    Int8Tiles,
    /// What lies around the products of experts.
    Experts,
    /// Products with matrices of F32.
    Floats,
    /// Attention of one token.
    Decode,
    /// Attention of many.
    Prompt,
}

impl Source {
    #[cfg(test)]
    pub(crate) const ALL: [Source; 10] = [
        Source::General,
        Source::Rows,
        Source::Vector,
        Source::Tiles,
        Source::Groups,
        Source::Int8Tiles,
        Source::Experts,
        Source::Floats,
        Source::Decode,
        Source::Prompt,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Source::General => "general",
            Source::Rows => "rows",
            Source::Vector => "vector",
            Source::Tiles => "tiles",
            Source::Groups => "groups",
            Source::Int8Tiles => "int8_tiles",
            Source::Experts => "experts",
            Source::Floats => "floats",
            Source::Decode => "decode",
            Source::Prompt => "prompt",
        }
    }

    /// Its files behind the headers.
    fn files(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Source::General => &[file!("general.cu")],
            Source::Rows => &[file!("rows.cu")],
            Source::Vector => &[file!("vector.cu")],
            Source::Tiles => &[file!("tiles.cu")],
            Source::Groups => &[file!("groups.cu")],
            Source::Int8Tiles => &[file!("int8_tiles.cu")],
            Source::Experts => &[file!("experts.cu")],
            Source::Floats => &[file!("floats.cu")],
            Source::Decode => &[
                file!("cache_blocks.cuh"),
                file!("decode_parts.cuh"),
                file!("decode_floats.cuh"),
                file!("decode_blocks.cuh"),
                file!("decode.cu"),
            ],
            Source::Prompt => &[file!("cache_blocks.cuh"), file!("prompt.cu")],
        }
    }

    /// Its text behind the headers that it includes; files in a folder take the place of this crate's.
    pub(crate) fn text(self, folder: Option<&Path>) -> String {
        let text = |(name, text): &(&str, &str)| {
            let other = folder.and_then(|folder| fs::read_to_string(folder.join(name)).ok());
            other.unwrap_or_else(|| (*text).to_owned())
        };
        let files = HEADERS.iter().chain(self.files()).map(text);
        let generated = [numbers_header(), types_header::text()];
        let parts = generated.into_iter().chain(files);
        let assertions = types_header::size_assertions(&structures(self));
        parts.chain([assertions]).collect::<Vec<_>>().join("\n")
    }
}

/// A source and the numbers it is compiled with, such as `WTYPE=2`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Variant {
    pub(crate) source: Source,
    pub(crate) defines: Vec<String>,
}

impl Variant {
    pub(crate) fn plain(source: Source) -> Variant {
        Variant { source, defines: Vec::new() }
    }
}

/// Shared memory that every kernel may use without `limit_shared`.
const ALLOWED_SHARED: u32 = 48 << 10;

/// Machine code on the GPU.
struct LoadedModule {
    module: Arc<Module>,
    /// Shared memory that kernels are allowed, by name: what a launch of any program asks for, so it only ever grows.
    shared: HashMap<String, u32>,
}

/// Loaded kernels of one GPU.
pub(crate) struct Modules {
    context: Arc<Context>,
    nvrtc: Nvrtc,
    arch: String,
    options: CudaOptions,
    loaded: Mutex<HashMap<Variant, LoadedModule>>,
}

impl Modules {
    pub(crate) fn new(context: &Arc<Context>, nvrtc: Nvrtc, arch: String, options: &CudaOptions) -> Modules {
        let (context, options) = (Arc::clone(context), options.clone());
        Modules { context, nvrtc, arch, options, loaded: Mutex::new(HashMap::new()) }
    }

    /// Whether the GPU's tensor cores take warp-group instructions (`wgmma`).
    pub(crate) fn has_warp_groups(&self) -> bool {
        self.arch == "sm_90a"
    }

    /// A kernel that may use this much shared memory.
    pub(crate) fn function(
        &self,
        variant: &Variant,
        name: &str,
        shared_bytes: u32,
    ) -> Result<Function, DeviceError> {
        let context = self.context.enter()?;
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let LoadedModule { module, shared } = match loaded.entry(variant.clone()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(free) => {
                let cubin = self.context.note(self.cubin(variant))?;
                // SAFETY: `Module::load` asks for what NVRTC made: this is, or was read back from the cache folder, whose files
                // are named after the sources that they were compiled from.
                let module = self.context.note(unsafe { Module::load(context, &cubin) })?;
                free.insert(LoadedModule { module, shared: HashMap::new() })
            }
        };
        let function = self.context.note(module.function(name))?;
        if shared_bytes > shared.get(name).copied().unwrap_or(ALLOWED_SHARED) {
            self.context.note(function.limit_shared(shared_bytes))?;
            shared.insert(name.to_owned(), shared_bytes);
        }
        Ok(function)
    }

    /// Machine code, from disk if it was compiled before.
    fn cubin(&self, variant: &Variant) -> Result<Vec<u8>, Error> {
        let text = variant.source.text(self.options.sources.as_deref());
        let file =
            self.options.cache.as_deref().map(|folder| folder.join(file_name(variant, &text, &self.arch)));
        if let Some(known) =
            file.as_deref().and_then(|file| fs::read(file).ok()).filter(|known| !known.is_empty())
        {
            return Ok(known);
        }
        let cubin = self.nvrtc.compile(variant.source.name(), &text, &self.arch, &variant.defines)?;
        if let Some(file) = file {
            // A folder that cannot be written costs the next start a compilation, and nothing else.
            let _ = store(&file, &cubin);
        }
        Ok(cubin)
    }
}

impl fmt::Debug for Modules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kernels of {}", self.context.name)
    }
}

/// A name that no other content, architecture or choice of numbers has.
fn file_name(variant: &Variant, text: &str, arch: &str) -> String {
    let mut hash = Sha256::new();
    for part in [text, arch, &variant.defines.join(" ")] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let mut name = format!("{}-{arch}-", variant.source.name());
    for byte in &hash.finalize()[..16] {
        // Writing to a string cannot fail.
        let _ = write!(name, "{byte:02x}");
    }
    name + ".cubin"
}

/// Writes a file under another name first, so that no reader sees half of one.
fn store(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    let draft = file.with_extension(format!("{}.part", std::process::id()));
    fs::write(&draft, bytes)?;
    fs::rename(&draft, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_on_disk_is_told_apart_by_content_architecture_and_numbers() {
        let plain = Variant::plain(Source::Rows);
        let other = Variant { defines: vec!["WTYPE=2".to_owned()], ..plain.clone() };
        let name = file_name(&plain, "a", "sm_90a");
        assert_eq!(name, file_name(&plain, "a", "sm_90a"));
        assert_ne!(name, file_name(&plain, "b", "sm_90a"));
        assert_ne!(name, file_name(&plain, "a", "sm_80"));
        assert_ne!(name, file_name(&other, "a", "sm_90a"));
        assert!(name.starts_with("rows-sm_90a-") && name.ends_with(".cubin"));
    }

    #[test]
    fn every_source_says_what_it_is() {
        for source in Source::ALL {
            assert!(source.text(None).contains("__global__"), "{}", source.name());
        }
    }
}
