//! Numbers for numpy, without a copy.

use std::ffi::c_int;

use orlop::DType;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

/// Numbers in memory of their own, which numpy uses through the buffer protocol as bytes.
#[pyclass(module = "orlop._orlop")]
pub(crate) struct Numbers {
    data: Data,
    dtype: DType,
    /// Outermost first, as numpy's.
    shape: Vec<u64>,
}

enum Data {
    Floats(Vec<f32>),
    Bytes(Vec<u8>),
}

impl Numbers {
    pub(crate) fn floats(data: Vec<f32>, shape: Vec<u64>) -> Numbers {
        Numbers { data: Data::Floats(data), dtype: DType::F32, shape }
    }

    /// The contents of a tensor, whose extents are innermost first.
    pub(crate) fn tensor(data: Vec<u8>, dtype: DType, extents: &[u64]) -> Numbers {
        Numbers { data: Data::Bytes(data), dtype, shape: shape_of(extents) }
    }
}

/// A shape as numpy writes it: outermost first, without the outer extents of 1 that every tensor has.
pub(crate) fn shape_of(extents: &[u64]) -> Vec<u64> {
    let used = extents.iter().rposition(|extent| *extent != 1).map_or(1, |last| last + 1);
    extents[..used].iter().rev().copied().collect()
}

#[pymethods]
impl Numbers {
    /// The name of the element type.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.dtype.name()
    }

    #[getter]
    fn shape(&self) -> Vec<u64> {
        self.shape.clone()
    }

    /// Where the first number lies.
    #[getter]
    fn address(&self) -> usize {
        match &self.data {
            Data::Floats(floats) => floats.as_ptr().addr(),
            Data::Bytes(bytes) => bytes.as_ptr().addr(),
        }
    }

    /// # Safety
    /// As Python's buffer protocol says: `view` is a view to fill.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let (start, bytes) = {
            let mut numbers = slf.borrow_mut();
            let data: &mut [u8] = match &mut numbers.data {
                Data::Floats(floats) => bytemuck::cast_slice_mut(floats),
                Data::Bytes(bytes) => bytes,
            };
            (data.as_mut_ptr(), data.len())
        };
        let length = isize::try_from(bytes).map_err(|error| PyBufferError::new_err(error.to_string()))?;
        // SAFETY: the caller gives a view. The memory is that of a vector that neither moves nor shrinks while the object lives:
        // no method changes it, and the view holds a reference to the object.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start.cast(), length, 0, flags) };
        match filled {
            0 => Ok(()),
            _ => Err(PyErr::fetch(slf.py())),
        }
    }
}
