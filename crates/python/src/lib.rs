//! The extension module `orlop._orlop`: models, graphs and plans for Python. The package around it, in
//! `crates/python/python/orlop`, has the types that users see; what passes between both is numbers, bytes and JSON.
//!
//! - A model or session is used by one call at a time (`Shared`); the GIL is released meanwhile, and Ctrl-C stops the
//!   work.
//! - A process that was forked has none of the threads of its parent, so everything that computes refuses to work there.

#![warn(clippy::unwrap_used)]

mod array;
mod embed;
mod error;
mod graph;
mod model;
mod picture;
mod plan;
mod sequence;
mod session;
mod shared;
mod stream;

use std::path::PathBuf;

use orlop::default_model;
use pyo3::prelude::*;

use crate::error::{fetch_error, json_error, raised};

/// The devices of this machine, as JSON.
#[pyfunction]
fn devices(py: Python<'_>) -> PyResult<String> {
    let known = py.detach(|| orlop::devices::all(&orlop::devices::DeviceOptions::default()));
    let describe = |device: &std::sync::Arc<dyn orlop::Device>| {
        let facts = device.facts();
        serde_json::json!({
            "name": device.name(),
            "kind": format!("{:?}", facts.class).to_lowercase(),
            "description": facts.description,
            "total": facts.memory.map(|memory| memory.total),
            "free": facts.memory.map(|memory| memory.free),
        })
    };
    let known: Vec<_> = known.map_err(raised)?.iter().map(describe).collect();
    serde_json::to_string(&known).map_err(json_error)
}

/// The default model's file, downloaded if necessary; `environment` has the variables that say where the cache is.
#[pyfunction]
fn default_model_file(
    py: Python<'_>,
    environment: std::collections::HashMap<String, String>,
) -> PyResult<PathBuf> {
    let folder = default_model::cache_folder(&|name| environment.get(name).map(Into::into));
    py.detach(|| match folder {
        Some(folder) => default_model::fetch(&folder, &mut |_, _, _| ()).map_err(fetch_error),
        None => Err(error::OrlopError::new_err("no cache folder for the default model; set ORLOP_CACHE")),
    })
}

/// The extension module.
#[pymodule]
fn _orlop(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    error::add(module)?;
    module.add_function(wrap_pyfunction!(devices, module)?)?;
    module.add_function(wrap_pyfunction!(default_model_file, module)?)?;
    module.add_class::<array::Numbers>()?;
    model::add(module)?;
    module.add_class::<stream::TextStreaming>()?;
    module.add_class::<embed::TextEmbedder>()?;
    sequence::add(module)?;
    graph::add(module)?;
    session::add(module)?;
    plan::add(module)
}
