"""Numpy arrays over the memory of results, and contents of tensors from arrays of any library."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from orlop._orlop import Numbers

Array = npt.NDArray[Any]

_NUMPY: dict[str, type[np.generic]] = {
    "f32": np.float32,
    "f16": np.float16,
    "f64": np.float64,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
}
_NAMES = {np.dtype(dtype): name for name, dtype in _NUMPY.items()}


def to_numpy(numbers: Numbers) -> Array:
    """The numbers without a copy. Types that numpy does not know are bytes."""
    dtype = _NUMPY.get(numbers.dtype)
    if dtype is None:
        return np.frombuffer(memoryview(numbers), dtype=np.uint8)
    return np.frombuffer(memoryview(numbers), dtype=dtype).reshape(numbers.shape)


def to_floats(numbers: Numbers) -> npt.NDArray[np.float32]:
    """F32 numbers without a copy."""
    return np.frombuffer(memoryview(numbers), dtype=np.float32).reshape(numbers.shape)


def to_contents(array: Any) -> tuple[str, tuple[int, ...], memoryview]:
    """The element type, shape and bytes of an array of numpy, of a library with DLPack, or of a list of numbers."""
    if not isinstance(array, np.ndarray) and hasattr(array, "__dlpack__"):
        array = np.from_dlpack(array)
    array = np.asarray(array)
    name = _NAMES.get(array.dtype.newbyteorder("="), str(array.dtype))
    if array.dtype == np.uint8:
        name = "u8"
    shape = array.shape
    flat = np.ascontiguousarray(array).reshape(-1)
    if not flat.dtype.isnative:
        flat = flat.astype(flat.dtype.newbyteorder("="))
    return name, shape, flat.view(np.uint8).data
