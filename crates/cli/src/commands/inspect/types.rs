//! The tensors of a model file by their types.

use std::collections::BTreeMap;
use std::fmt::{self, Display};

use orlop::gguf::{GgufFile, TensorInfo};
use orlop::graph::DType;
use serde::Serialize;

/// The tensors of one type.
#[derive(Clone, Copy, Serialize)]
pub(super) struct TypeSum {
    r#type: &'static str,
    tensors: u64,
    parameters: u64,
    bytes: u64,
}

impl TypeSum {
    fn new(r#type: &'static str) -> TypeSum {
        TypeSum { r#type, tensors: 0, parameters: 0, bytes: 0 }
    }

    fn with(self, tensor: &TensorInfo) -> TypeSum {
        TypeSum {
            tensors: self.tensors + 1,
            parameters: self.parameters.saturating_add(tensor.desc.elements()),
            bytes: self.bytes.saturating_add(tensor.bytes),
            ..self
        }
    }
}

impl Display for TypeSum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TypeSum { r#type, tensors, parameters, bytes } = self;
        write!(f, "  {type:8} {tensors:>8} {parameters:>16} {bytes:>16}")
    }
}

/// A sum for each type, and one for all.
pub(super) struct TypeSums {
    /// In the order of types.
    pub(super) each: Vec<TypeSum>,
    total: TypeSum,
}

impl TypeSums {
    pub(super) fn of(model: &GgufFile) -> TypeSums {
        let mut by_type = BTreeMap::<DType, TypeSum>::new();
        for tensor in model.tensors() {
            let sum = by_type.entry(tensor.desc.dtype).or_insert(TypeSum::new(tensor.desc.dtype.name()));
            *sum = sum.with(tensor);
        }
        let total = model.tensors().iter().fold(TypeSum::new("total"), TypeSum::with);
        TypeSums { each: by_type.into_values().collect(), total }
    }
}

impl Display for TypeSums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "tensors: {}, {} parameters", self.total.tensors, self.total.parameters)?;
        writeln!(f, "  {:8} {:>8} {:>16} {:>16}", "type", "tensors", "parameters", "bytes")?;
        self.each.iter().try_for_each(|sum| writeln!(f, "{sum}"))?;
        write!(f, "{}", self.total)
    }
}
