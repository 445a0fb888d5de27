//! Test devices are what they say: as right as the device inside, and as limited, late and faulty as ordered.

mod clock;
mod faults;
mod memory;
mod queues;
mod runs;
mod support;
