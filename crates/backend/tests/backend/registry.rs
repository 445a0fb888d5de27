use orlop_backend::{DeviceError, Registry};

use crate::fixtures::Idle;

#[test]
fn devices_keep_the_order_they_came_in() {
    let mut registry = Registry::new();
    let [gpu, cpu] = ["gpu", "cpu"].map(|name| registry.register(Idle::named(name)).unwrap());
    assert_eq!((gpu.index(), cpu.index(), format!("{cpu:?}")), (0, 1, "d1".to_owned()));
    assert_eq!((registry.find("gpu"), registry.find("cpu")), (Ok(gpu), Ok(cpu)));
    let names: Vec<&str> = registry.devices().iter().map(|device| device.name()).collect();
    assert_eq!(names, ["gpu", "cpu"]);
}

#[test]
fn a_name_is_taken_once() {
    let mut registry = Registry::new();
    registry.register(Idle::named("cpu")).unwrap();
    let refused = registry.register(Idle::named("cpu")).unwrap_err();
    assert_eq!(refused, DeviceError::DuplicateDevice("cpu".to_owned()));
    assert_eq!(registry.devices().len(), 1);
    assert!(registry.register(Idle::named("CPU")).is_ok());
}

#[test]
fn an_unknown_name_is_answered_with_those_there_are() {
    let mut registry = Registry::new();
    for name in ["cuda0", "cpu"] {
        registry.register(Idle::named(name)).unwrap();
    }
    let unknown = registry.find("wgpu").unwrap_err();
    assert_eq!(unknown.to_string(), "no device is named wgpu; there are: cuda0, cpu");
}
