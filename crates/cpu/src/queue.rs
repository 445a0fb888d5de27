use std::sync::Arc;

use orlop_backend::{Claims, DeviceError, Program, Queue, RunOptions};

use crate::pool::ThreadPool;
use crate::program::CpuProgram;

/// Work for the processor, done as it is given.
#[derive(Debug)]
pub(crate) struct CpuQueue {
    device: Arc<str>,
    pool: Arc<ThreadPool>,
}

impl CpuQueue {
    pub(crate) fn new(device: Arc<str>, pool: Arc<ThreadPool>) -> CpuQueue {
        CpuQueue { device, pool }
    }
}

impl Queue for CpuQueue {
    unsafe fn submit(
        &mut self,
        program: &Arc<dyn Program>,
        claims: &Claims,
        options: &RunOptions,
    ) -> Result<(), DeviceError> {
        let foreign = |owner: &str| DeviceError::Foreign {
            what: "a program",
            owner: owner.to_owned(),
            device: self.device.to_string(),
        };
        let cpu = program.as_any().downcast_ref::<CpuProgram>();
        let cpu = cpu.ok_or_else(|| foreign("another kind of device"))?;
        if !Arc::ptr_eq(cpu.device(), &self.device) {
            return Err(foreign(cpu.device()));
        }
        let max = cpu.max_threads().min(self.pool.threads());
        let threads = options.threads.unwrap_or(max);
        if threads == 0 || threads > max {
            return Err(DeviceError::BadThreads { asked: threads, max });
        }
        for (buffer, kind) in program.touches() {
            claims.check(&**buffer, *kind)?;
        }
        // SAFETY: `run` asks for claims to all that the program touches, checked above, and that no other work touches it
        // meanwhile: `submit`'s contract, and the run is over when this returns.
        unsafe { cpu.run(&self.pool, threads, options) }
    }
}
