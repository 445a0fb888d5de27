//! What must hold for any bytes: they are refused, or they survive being written and read again. The fuzz target and the
//! bounded test `hostile` share it.

use std::sync::Arc;

use orlop_gguf::{Error, GgufPart, Writer};

/// Reads bytes as a file, and checks what was read.
///
/// # Panics
/// If the reader or the writer is wrong.
pub(crate) fn read(bytes: &[u8]) -> Result<(), Error> {
    let file = GgufPart::from_bytes(Arc::new(bytes.to_vec()))?;
    let data: usize = file.tensors().iter().map(|tensor| file.bytes_of(tensor).len()).sum();
    assert!(data <= bytes.len(), "tensors share bytes");
    for tensor in file.tensors() {
        assert_eq!(file.tensor(&tensor.name), Some(tensor));
    }
    // A file of a few bytes may ask for gigabytes of padding.
    if file.alignment() > 4096 {
        return Ok(());
    }
    let copy = write(&file);
    let again = GgufPart::from_bytes(Arc::new(copy.clone())).expect("what is written can be read");
    assert_eq!(again.tensors().len(), file.tensors().len());
    assert_eq!(write(&again), copy);
    Ok(())
}

fn write(file: &GgufPart) -> Vec<u8> {
    let mut bytes = Vec::new();
    let writer = Writer::copy_of(file).expect("what is read can be written");
    writer.write(&mut bytes).expect("memory takes everything");
    bytes
}
