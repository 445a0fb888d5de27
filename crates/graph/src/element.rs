//! Rust types that are element types of tensors, for typed access to their contents.

use crate::DType;

/// A Rust number that a plain [`DType`] stores as it is, in little-endian order.
pub trait Element: Copy + sealed::Sealed {
    /// The element type.
    const DTYPE: DType;

    /// Appends the bytes of `values`.
    fn extend_bytes(values: &[Self], bytes: &mut Vec<u8>);

    /// The values of whole elements; bytes of a partial element at the end are left out.
    fn from_bytes(bytes: &[u8]) -> Vec<Self>;

    /// The bytes of `values`.
    fn to_bytes(values: &[Self]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(size_of_val(values));
        Self::extend_bytes(values, &mut bytes);
        bytes
    }
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident),*) => {
        $(
            impl Element for $rust {
                const DTYPE: DType = DType::$dtype;

                fn extend_bytes(values: &[$rust], bytes: &mut Vec<u8>) {
                    bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
                }

                fn from_bytes(bytes: &[u8]) -> Vec<$rust> {
                    bytes.as_chunks().0.iter().map(|bytes| <$rust>::from_le_bytes(*bytes)).collect()
                }
            }
        )*

        mod sealed {
            pub trait Sealed {}
            $(impl Sealed for $rust {})*
        }
    };
}

elements!(f32 => F32, f64 => F64, i8 => I8, i16 => I16, i32 => I32, i64 => I64);
