//! Errors as exceptions, with the same messages.

use std::fmt::Display;

use orlop::default_model::FetchError;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;

pyo3::create_exception!(orlop, OrlopError, PyException, "What Orlop refuses, or what a device meets.");
pyo3::create_exception!(orlop, BusyError, OrlopError, "A stream of the model has not ended.");
pyo3::create_exception!(orlop, ClosedError, OrlopError, "The model, sequence or session was closed.");
pyo3::create_exception!(orlop, ForkedError, OrlopError, "It was made before this process was forked.");

pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("OrlopError", py.get_type::<OrlopError>())?;
    module.add("BusyError", py.get_type::<BusyError>())?;
    module.add("ClosedError", py.get_type::<ClosedError>())?;
    module.add("ForkedError", py.get_type::<ForkedError>())
}

/// An error of the library.
pub(crate) fn raised(error: impl Display) -> PyErr {
    OrlopError::new_err(error.to_string())
}

/// A value that is not one of those that are known.
pub(crate) fn bad_value(message: impl Display) -> PyErr {
    PyValueError::new_err(message.to_string())
}

/// JSON that the package and this module do not agree about.
pub(crate) fn json_error(error: serde_json::Error) -> PyErr {
    bad_value(error)
}

pub(crate) fn fetch_error(error: FetchError) -> PyErr {
    let advice = match error.is_about_cache() {
        true => "set ORLOP_CACHE to another folder",
        false => "try again, or use a model file",
    };
    OrlopError::new_err(format!("{error}; {advice}"))
}
