use std::sync::Arc;

use crate::{Device, DeviceError};

/// Devices by name, most preferred first.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    devices: Vec<Arc<dyn Device>>,
}

/// A device of one registry; prints as `d1`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(u32);

impl DeviceId {
    /// Index for side tables with one entry a device.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl std::fmt::Debug for DeviceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "d{}", self.0)
    }
}

impl Registry {
    /// No devices yet.
    pub fn new() -> Registry {
        Registry::default()
    }

    /// Adds a device after those there are.
    ///
    /// # Errors
    /// [`DeviceError::DuplicateDevice`] if one has its name already.
    pub fn register(&mut self, device: Arc<dyn Device>) -> Result<DeviceId, DeviceError> {
        if self.devices.iter().any(|known| known.name() == device.name()) {
            return Err(DeviceError::DuplicateDevice(device.name().to_owned()));
        }
        self.devices.push(device);
        Ok(DeviceId((self.devices.len() - 1) as u32))
    }

    /// All devices; a [`DeviceId`] is a position here.
    pub fn devices(&self) -> &[Arc<dyn Device>] {
        &self.devices
    }

    /// The device with a name.
    ///
    /// # Errors
    /// [`DeviceError::UnknownDevice`] with the names there are.
    pub fn find(&self, name: &str) -> Result<DeviceId, DeviceError> {
        let position = self.devices.iter().position(|device| device.name() == name);
        position.map(|index| DeviceId(index as u32)).ok_or_else(|| DeviceError::UnknownDevice {
            name: name.to_owned(),
            known: self.devices.iter().map(|device| device.name().to_owned()).collect(),
        })
    }
}
