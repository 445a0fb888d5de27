//! A test device's program: one of the inner device, and what it costs.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

use orlop_backend::{Bindings, Buffer, DeviceError, Gate, Program, Touch};

use super::ledger::Ledger;

/// The inner device's program, at the places behind the device's own.
#[derive(Debug)]
pub(super) struct TestProgram {
    /// The same object in all that is one device's.
    ledger: Arc<Ledger>,
    pub(super) inner: Arc<dyn Program>,
    pub(super) steps: u32,
    /// What a run takes on the virtual clock.
    pub(super) seconds: f64,
    touches: Vec<Touch>,
}

impl TestProgram {
    /// `bindings` are the places that the caller knows.
    pub(super) fn new(
        ledger: &Arc<Ledger>,
        inner: Arc<dyn Program>,
        bindings: &Bindings,
        steps: usize,
        seconds: f64,
    ) -> TestProgram {
        let slots = bindings.tensors.values().chain(&bindings.temporaries);
        let outer: HashMap<*const Gate, &Arc<dyn Buffer>> =
            slots.map(|slot| (Arc::as_ptr(slot.buffer.gate()), &slot.buffer)).collect();
        // What the inner device allocated for itself is not in the bindings, and its own to name.
        let named = |(buffer, kind): &Touch| {
            let known = outer.get(&Arc::as_ptr(buffer.gate()));
            (Arc::clone(known.copied().unwrap_or(buffer)), *kind)
        };
        let touches = inner.touches().iter().map(named).collect();
        let steps = u32::try_from(steps).unwrap_or(u32::MAX);
        TestProgram { ledger: Arc::clone(ledger), inner, steps, seconds, touches }
    }

    /// The program as one of the device whose ledger this is.
    pub(super) fn of<'a>(
        program: &'a Arc<dyn Program>,
        ledger: &Arc<Ledger>,
        device: &str,
    ) -> Result<&'a TestProgram, DeviceError> {
        match program.as_any().downcast_ref::<TestProgram>() {
            Some(program) if Arc::ptr_eq(&program.ledger, ledger) => Ok(program),
            other => Err(DeviceError::Foreign {
                what: "a program",
                owner: other.map_or("another kind of device", |_| "another test device").to_owned(),
                device: device.to_owned(),
            }),
        }
    }
}

impl Program for TestProgram {
    fn touches(&self) -> &[Touch] {
        &self.touches
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
