//! Sequences beside the one of texts, and samplers for their tokens.

use std::sync::{Mutex, MutexGuard, PoisonError};

use orlop::llm::SequenceId;
use orlop::{Sampler as TokenSampler, SamplingOptions};
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;

use crate::error::{ClosedError, bad_value, json_error};
use crate::model::{LoadedModel, SamplingRequest};

pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Sequence>()?;
    module.add_class::<Sampling>()
}

/// Tokens in a model's cache. It ends when the object is gone.
#[pyclass(frozen, module = "orlop._orlop")]
pub(crate) struct Sequence {
    model: Py<LoadedModel>,
    id: Mutex<Option<SequenceId>>,
}

impl Sequence {
    pub(crate) fn new(model: Py<LoadedModel>, id: SequenceId) -> Sequence {
        Sequence { model, id: Mutex::new(Some(id)) }
    }

    fn lock(&self) -> MutexGuard<'_, Option<SequenceId>> {
        self.id.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn id(&self) -> PyResult<SequenceId> {
        let id = *self.lock();
        id.ok_or_else(|| ClosedError::new_err("the sequence is closed"))
    }
}

#[pymethods]
impl Sequence {
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let id = self.id()?;
        self.model.get().with_sequences(py, |engine| engine.sequence_len(id))
    }

    /// A sequence that begins as this one, with its first tokens or all of them.
    fn fork(&self, py: Python<'_>, length: Option<usize>) -> PyResult<Sequence> {
        let id = self.id()?;
        let most = length.unwrap_or(usize::MAX);
        let fork = self.model.get().with_sequences(py, |engine| engine.fork_sequence(id, most))?;
        Ok(Sequence::new(self.model.clone_ref(py), fork))
    }

    /// Forgets all tokens but the first `length`, and says how many are left.
    fn truncate(&self, py: Python<'_>, length: usize) -> PyResult<usize> {
        let id = self.id()?;
        self.model.get().with_sequences(py, |engine| engine.truncate_sequence(id, length))
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(id) = self.lock().take() else { return Ok(()) };
        match self.model.get().with_sequences(py, |engine| engine.end_sequence(id)) {
            Err(error) if !error.is_instance_of::<ClosedError>(py) => {
                *self.lock() = Some(id);
                Err(error)
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Sequence {
    fn drop(&mut self) {
        let id = self.id.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        self.model.get().dropped.lock().unwrap_or_else(PoisonError::into_inner).extend(id);
    }
}

/// Chooses tokens from logits.
#[pyclass(module = "orlop._orlop")]
pub(crate) struct Sampling {
    sampler: TokenSampler,
}

#[pymethods]
impl Sampling {
    #[staticmethod]
    fn open(options: &str, seed: u64, bias: Vec<(u32, f32)>) -> PyResult<Sampling> {
        let request: SamplingRequest = serde_json::from_str(options).map_err(json_error)?;
        let options = request.over(SamplingOptions::default());
        Ok(Sampling { sampler: TokenSampler::new(options, seed).with_bias(bias) })
    }

    /// A token from a row of F32 logits, which must be contiguous.
    fn sample(&mut self, py: Python<'_>, logits: PyBuffer<f32>) -> PyResult<u32> {
        if logits.dimensions() != 1 {
            return Err(bad_value(format!(
                "the logits have {} dimensions instead of 1",
                logits.dimensions()
            )));
        }
        let logits = logits.to_vec(py)?;
        let sampler = &mut self.sampler;
        Ok(py.detach(|| sampler.sample(&logits)))
    }

    /// Counts a token as recent, for penalties.
    fn accept(&mut self, token: u32) {
        self.sampler.accept(token);
    }
}
