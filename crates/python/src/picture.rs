//! Plans as pictures.

use orlop::view::{Difference, Picture, page, page_beside, svg};
use pyo3::prelude::*;

use crate::error::raised;

/// Pictures of one plan, the one to show first in front.
pub(crate) struct Pictures(pub(crate) Vec<Picture>);

impl Pictures {
    pub(crate) fn html(&self) -> PyResult<String> {
        page(&self.0).map_err(raised)
    }

    pub(crate) fn svg(&self) -> PyResult<String> {
        self.0.first().map_or_else(|| Ok(String::new()), |first| svg(first).map_err(raised))
    }

    /// The first pictures of both as one page, and what differs as text.
    pub(crate) fn beside(&self, other: &Pictures) -> PyResult<(String, String)> {
        let (Some(before), Some(after)) = (self.0.first(), other.0.first()) else {
            return Err(raised("there is no plan to compare"));
        };
        let html = page_beside(before, after).map_err(raised)?;
        Ok((html, Difference::between(before, after).to_string()))
    }
}
