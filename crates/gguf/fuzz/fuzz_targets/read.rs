//! Reads whatever comes; what is read has to survive being written and read again.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use orlop_gguf::{File, Writer};

fuzz_target!(|bytes: &[u8]| {
    let Ok(file) = File::from_bytes(Arc::new(bytes.to_vec())) else { return };
    let data: usize = file.tensors().iter().map(|tensor| file.bytes_of(tensor).len()).sum();
    assert!(data <= bytes.len(), "tensors share bytes");
    for tensor in file.tensors() {
        assert_eq!(file.tensor(&tensor.name), Some(tensor));
    }
    // A file of a few bytes may ask for gigabytes of padding.
    if file.alignment() > 4096 {
        return;
    }
    let copy = write(&file);
    let again = File::from_bytes(Arc::new(copy.clone())).expect("what is written can be read");
    assert_eq!(again.tensors().len(), file.tensors().len());
    assert_eq!(write(&again), copy);
});

fn write(file: &File) -> Vec<u8> {
    let mut bytes = Vec::new();
    let writer = Writer::copy_of(file).expect("what is read can be written");
    writer.write(&mut bytes).expect("memory takes everything");
    bytes
}
