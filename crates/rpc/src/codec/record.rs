//! The record of a tensor: 296 bytes in which requests describe every tensor.

use orlop_graph::{DIMS, DType, TensorDesc};

use super::bytes::Fields;
use super::{CodecError, GgmlOp};

/// Bytes of a record.
pub const RECORD_BYTES: usize = 296;

/// Sources that a record has room for.
pub const SOURCES: usize = 10;

const NAME_BYTES: usize = 64;

/// Nodes without this flag are skipped by every backend.
const COMPUTE: i32 = 16;

/// A tensor as messages describe it. All fields are as they came; [`TensorRecord::desc`] checks the shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorRecord {
    /// Its number in the message, not 0.
    pub id: u64,
    /// The number of its element type, as in GGUF files.
    pub dtype: u32,
    /// The handle of its buffer; 0 for none.
    pub buffer: u64,
    /// Extents, innermost first.
    pub extents: [u32; DIMS],
    /// Strides in bytes.
    pub strides: [u32; DIMS],
    /// What computes it; op 0 for leaves and views.
    pub op: GgmlOp,
    /// Bits: 1 input, 2 output, 16 to be computed.
    pub flags: i32,
    /// Ids of what it is computed from; 0 for none.
    pub sources: [u64; SOURCES],
    /// The id of the tensor whose memory it lies in; 0 for none.
    pub view_source: u64,
    /// Its offset there.
    pub view_offset: u64,
    /// Its address: the base of its buffer and an offset.
    pub data: u64,
    /// Its name, ending with 0.
    pub name: [u8; NAME_BYTES],
    /// How many nodes read it, if the server may fuse it away; since 5.1.
    pub use_count: i32,
}

impl TensorRecord {
    /// A leaf without memory and name. `None` if an extent or a stride that matters does not fit 32 bits.
    pub fn leaf(id: u64, desc: &TensorDesc) -> Option<TensorRecord> {
        let mut extents = [0; DIMS];
        let mut strides = [0; DIMS];
        for dim in 0..DIMS {
            extents[dim] = u32::try_from(desc.extents[dim]).ok()?;
            // A stride over one element is never used.
            strides[dim] = match u32::try_from(desc.strides[dim]) {
                Ok(stride) => stride,
                Err(_) if desc.extents[dim] <= 1 => u32::MAX,
                Err(_) => return None,
            };
        }
        Some(TensorRecord {
            id,
            dtype: desc.dtype.gguf_id(),
            buffer: 0,
            extents,
            strides,
            op: GgmlOp::NONE,
            flags: 0,
            sources: [0; SOURCES],
            view_source: 0,
            view_offset: 0,
            data: 0,
            name: [0; NAME_BYTES],
            use_count: 0,
        })
    }

    /// The same, computed by an op from these sources.
    pub fn computed(self, op: GgmlOp, sources: [u64; SOURCES]) -> TensorRecord {
        TensorRecord { op, sources, flags: COMPUTE, ..self }
    }

    /// Whether it is to be computed.
    pub fn is_computed(&self) -> bool {
        self.flags & COMPUTE != 0
    }

    /// Its name as text, up to the first 0.
    pub fn name(&self) -> String {
        let end = self.name.iter().position(|byte| *byte == 0).unwrap_or(NAME_BYTES);
        String::from_utf8_lossy(&self.name[..end]).into_owned()
    }

    /// Its element type, extents and strides.
    ///
    /// # Errors
    /// [`CodecError::Field`] for a type that does not exist, rows that are not whole blocks, and sizes beyond 64 bits.
    pub fn desc(&self) -> Result<TensorDesc, CodecError> {
        let bad = |field, value: u32, rule| CodecError::Field {
            command: "a tensor",
            field,
            value: value.into(),
            rule,
        };
        let dtype = DType::from_gguf_id(self.dtype);
        let dtype = dtype.ok_or_else(|| bad("the type", self.dtype, "which is no element type"))?;
        let wide = |numbers: [u32; DIMS]| numbers.map(u64::from);
        TensorDesc::strided(dtype, wide(self.extents), wide(self.strides))
            .map_err(|_| bad("the innermost extent", self.extents[0], "and the sizes do not fit the type"))
    }

    pub(super) fn read(fields: &mut Fields<'_>) -> TensorRecord {
        TensorRecord {
            id: fields.u64(),
            dtype: fields.u32(),
            buffer: fields.u64(),
            extents: std::array::from_fn(|_| fields.u32()),
            strides: std::array::from_fn(|_| fields.u32()),
            op: GgmlOp { number: fields.u32(), params: std::array::from_fn(|_| fields.i32()) },
            flags: fields.i32(),
            sources: std::array::from_fn(|_| fields.u64()),
            view_source: fields.u64(),
            view_offset: fields.u64(),
            data: fields.u64(),
            name: fields.array(),
            use_count: fields.i32(),
        }
    }

    /// Appends its bytes.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.id.to_le_bytes());
        out.extend(self.dtype.to_le_bytes());
        out.extend(self.buffer.to_le_bytes());
        self.extents.iter().chain(&self.strides).for_each(|number| out.extend(number.to_le_bytes()));
        out.extend(self.op.number.to_le_bytes());
        self.op.params.iter().for_each(|number| out.extend(number.to_le_bytes()));
        out.extend(self.flags.to_le_bytes());
        self.sources.iter().for_each(|id| out.extend(id.to_le_bytes()));
        for number in [self.view_source, self.view_offset, self.data] {
            out.extend(number.to_le_bytes());
        }
        out.extend(self.name);
        out.extend(self.use_count.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_296_bytes_and_its_fields_stand_where_the_protocol_has_them() {
        let desc = TensorDesc::contiguous(DType::Q4_0, &[64, 3]).unwrap();
        let mut record = TensorRecord::leaf(7, &desc).unwrap();
        (record.buffer, record.data, record.use_count) = (5, 0x1000, 9);
        record.name[0] = b'w';
        let mut bytes = Vec::new();
        record.write(&mut bytes);
        assert_eq!(bytes.len(), RECORD_BYTES);
        assert_eq!((bytes[0], bytes[8], bytes[12], bytes[20], bytes[36]), (7, 2, 5, 64, 18));
        assert_eq!((&bytes[220..228], bytes[228], bytes[292]), (&0x1000u64.to_le_bytes()[..], b'w', 9));
        assert_eq!(TensorRecord::read(&mut Fields::new(&bytes)), record);
        assert_eq!((record.desc(), record.name()), (Ok(desc), "w".to_owned()));
    }

    #[test]
    fn strides_beyond_32_bits_are_refused_where_they_matter() {
        let strides = [4, 1 << 33, 1 << 33, 1 << 33];
        let column = TensorDesc { dtype: DType::F32, extents: [4, 1, 1, 1], strides };
        assert!(TensorRecord::leaf(1, &column).is_some());
        assert!(TensorRecord::leaf(1, &TensorDesc { extents: [4, 2, 1, 1], ..column }).is_none());
    }
}
