//! Many tensors in as few buffers as the limits of their type allow.

use std::ops::Range;
use std::sync::Arc;

use orlop_backend::{Buffer, BufferType, DeviceError, MemoryLayout, Slot, StoredTensor};
use orlop_graph::TensorDesc;

use super::linear::{check_alignment, new_buffer};
use crate::{Error, LinearAllocator};

/// Many tensors in as few buffers of one type as its limit allows: weights, caches, persistent inputs.
#[derive(Clone, Debug)]
pub struct TensorSet {
    buffers: Vec<Arc<dyn Buffer>>,
    tensors: Vec<StoredTensor>,
}

/// A tensor to be in a set.
#[derive(Clone, Debug)]
pub struct SetTensor {
    /// Its name.
    pub name: Arc<str>,
    /// Element type, extents, strides.
    pub desc: TensorDesc,
    /// Where it lies.
    pub place: SetPlace,
}

/// Where a tensor of a set lies.
#[derive(Clone, Debug)]
pub enum SetPlace {
    /// In memory that the set allocates.
    New,
    /// In another tensor of the set.
    ViewOf {
        /// That tensor, by position.
        tensor: usize,
        /// Bytes from its beginning.
        offset: u64,
    },
    /// In memory that is there already.
    Stored(Slot),
}

impl SetTensor {
    /// A tensor in memory that the set allocates.
    pub fn new(name: impl Into<Arc<str>>, desc: TensorDesc) -> SetTensor {
        SetTensor { name: name.into(), desc, place: SetPlace::New }
    }
}

impl TensorSet {
    /// Allocates tensors, in order, in buffers filled one after the other.
    ///
    /// # Errors
    /// [`Error::TooLarge`] for a tensor that no buffer of the type can hold, before anything is allocated;
    /// [`Error::AllocFailed`], then what was allocated is freed again; [`Error::ViewSourceUnallocated`],
    /// [`Error::ViewOutside`], [`Error::UnknownValue`] for views that cannot be.
    pub fn allocate(buffer_type: &Arc<dyn BufferType>, tensors: &[SetTensor]) -> Result<TensorSet, Error> {
        check_views(tensors)?;
        let mut buffers = Vec::new();
        let mut stored: Vec<Option<StoredTensor>> = vec![None; tensors.len()];
        for (range, bytes) in ranges(&**buffer_type, tensors)? {
            let failed = |source| Error::AllocFailed {
                buffer_type: buffer_type.name().to_owned(),
                bytes,
                source: Box::new(source),
            };
            let buffer = new_buffer(buffer_type, bytes).map_err(failed)?;
            let mut linear = LinearAllocator::new(Arc::clone(&buffer));
            for index in range {
                if matches!(tensors[index].place, SetPlace::New) {
                    stored[index] =
                        Some(linear.alloc(Arc::clone(&tensors[index].name), tensors[index].desc)?);
                }
            }
            buffers.push(buffer);
        }
        for (index, tensor) in tensors.iter().enumerate() {
            if let SetPlace::Stored(slot) = &tensor.place {
                let name = Arc::clone(&tensor.name);
                stored[index] = Some(StoredTensor::new(name, tensor.desc, slot.clone())?);
            }
        }
        for (index, tensor) in tensors.iter().enumerate() {
            if let SetPlace::ViewOf { tensor: of, offset } = &tensor.place {
                let root = stored[*of].as_ref().ok_or_else(|| Error::ViewSourceUnallocated {
                    tensor: tensor.name.to_string(),
                    root: tensors[*of].name.to_string(),
                })?;
                stored[index] = Some(view(tensor, root, *offset)?);
            }
        }
        let tensors = stored.into_iter().flatten().collect();
        Ok(TensorSet { buffers, tensors })
    }

    /// The sizes of the buffers that [`TensorSet::allocate`] would allocate.
    ///
    /// # Errors
    /// As there, but for allocation.
    pub fn sizes(buffer_type: &dyn BufferType, tensors: &[SetTensor]) -> Result<Vec<u64>, Error> {
        check_views(tensors)?;
        Ok(ranges(buffer_type, tensors)?.into_iter().map(|(_, bytes)| bytes).collect())
    }

    /// Where each tensor would lie: which buffer, bytes from its beginning, and bytes that it takes. Tensors that the set
    /// does not allocate are left out.
    ///
    /// # Errors
    /// As [`TensorSet::sizes`].
    pub fn places(
        buffer_type: &dyn BufferType,
        tensors: &[SetTensor],
    ) -> Result<Vec<(usize, u64, u64)>, Error> {
        check_views(tensors)?;
        let mut places = Vec::with_capacity(tensors.len());
        for (buffer, (range, _)) in ranges(buffer_type, tensors)?.into_iter().enumerate() {
            let mut offset = 0;
            for tensor in tensors[range].iter().filter(|tensor| matches!(tensor.place, SetPlace::New)) {
                let bytes = buffer_type.alloc_bytes(&tensor.desc).next_multiple_of(buffer_type.alignment());
                places.push((buffer, offset, bytes));
                offset += bytes;
            }
        }
        Ok(places)
    }

    /// The tensors, in the order they were given.
    pub fn tensors(&self) -> &[StoredTensor] {
        &self.tensors
    }

    /// The buffers that were allocated.
    pub fn buffers(&self) -> &[Arc<dyn Buffer>] {
        &self.buffers
    }

    /// Bytes that were allocated.
    pub fn bytes(&self) -> u64 {
        self.buffers.iter().fold(0, |sum, buffer| sum.saturating_add(buffer.bytes()))
    }
}

/// A view at an offset of a tensor that holds it.
fn view(tensor: &SetTensor, root: &StoredTensor, offset: u64) -> Result<StoredTensor, Error> {
    let slot = root.slot();
    let buffer_type = slot.buffer.buffer_type();
    if buffer_type.layout() == MemoryLayout::Private {
        return Err(Error::Device(DeviceError::PrivateLayout {
            tensor: tensor.name.to_string(),
            buffer_type: buffer_type.name().to_owned(),
            rule: "views are not possible",
        }));
    }
    let slot = Slot { offset: slot.offset + offset, buffer: Arc::clone(&slot.buffer) };
    let stored = StoredTensor::new(Arc::clone(&tensor.name), tensor.desc, slot)?;
    stored.slot().buffer.init_tensor(&tensor.desc, stored.slot().offset)?;
    Ok(stored)
}

/// Neighbours that share a buffer, and its size: as many as fit, then the next.
fn ranges(buffer_type: &dyn BufferType, tensors: &[SetTensor]) -> Result<Vec<(Range<usize>, u64)>, Error> {
    check_alignment(buffer_type.name(), buffer_type.alignment())?;
    let max = buffer_type.max_bytes();
    let mut ranges = Vec::new();
    let (mut start, mut bytes) = (0, 0u64);
    let mut any = false;
    for (index, tensor) in tensors.iter().enumerate() {
        if !matches!(tensor.place, SetPlace::New) {
            continue;
        }
        let need = buffer_type.alloc_bytes(&tensor.desc).checked_next_multiple_of(buffer_type.alignment());
        let Some(need) = need.filter(|need| *need <= max) else {
            return Err(Error::TooLarge {
                tensor: tensor.name.to_string(),
                bytes: need.unwrap_or(u64::MAX),
                max,
                buffer_type: buffer_type.name().to_owned(),
            });
        };
        match bytes.checked_add(need).filter(|sum| *sum <= max) {
            Some(sum) => bytes = sum,
            None => {
                ranges.push((start..index, bytes));
                (start, bytes) = (index, need);
            }
        }
        any = true;
    }
    if any {
        ranges.push((start..tensors.len(), bytes));
    }
    Ok(ranges)
}

fn check_views(tensors: &[SetTensor]) -> Result<(), Error> {
    for tensor in tensors {
        let SetPlace::ViewOf { tensor: of, offset } = tensor.place else { continue };
        let user = || format!("view `{}`", tensor.name);
        let Some(root) = tensors.get(of) else {
            return Err(Error::UnknownValue { value: of, values: tensors.len(), user: user() });
        };
        let (view, root_name) = (tensor.name.to_string(), root.name.to_string());
        if matches!(root.place, SetPlace::ViewOf { .. }) {
            return Err(Error::ViewOfView { view, of: root_name });
        }
        let end = offset.checked_add(tensor.desc.bytes());
        if end.is_none_or(|end| end > root.desc.bytes()) {
            let (end, bytes) = (end.unwrap_or(u64::MAX), root.desc.bytes());
            return Err(Error::ViewOutside { view, end, root: root_name, bytes });
        }
    }
    Ok(())
}
