//! Finding devices, on machines with and without a GPU.

use orlop_backend::Role;
use orlop_cuda::{CudaOptions, Error, devices};

#[test]
fn a_machine_has_devices_or_says_what_is_missing() {
    match devices(&CudaOptions::default()) {
        Ok(found) => {
            for (ordinal, device) in found.iter().enumerate() {
                let name = if ordinal == 0 { "cuda".to_owned() } else { format!("cuda{ordinal}") };
                assert_eq!(device.name(), name);
                assert!(!device.buffer_types(Role::Arena).is_empty());
            }
        }
        Err(error @ Error::NoLibrary { .. }) => {
            let text = error.to_string();
            assert!(text.contains("libcuda.so.1") || text.contains("libnvrtc.so"), "{text}");
        }
        Err(other) => assert!(!other.to_string().is_empty()),
    }
}

#[test]
fn versions_are_written_as_people_know_them() {
    let error = Error::OldDriver { found: 11080, needed: 12030 };
    assert_eq!(error.to_string(), "the driver is for CUDA 11.8, at least 12.3 is needed");
    assert_eq!(Error::OldGpu(61).to_string(), "the GPU has compute capability 6.1, at least 8.0 is needed");
}
