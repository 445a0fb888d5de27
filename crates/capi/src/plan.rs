//! Plans of buffers, and of models.

use std::ffi::c_char;

use orlop::{BufferSpec, Model, Problem, SolveOptions, solve};

use crate::error::{Refusal, check_version, orlop_error, orlop_status, run};
use crate::model::{ORLOP_STRUCT_VERSION, orlop_model_options};
use crate::pointer;

/// A buffer to place.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct orlop_buffer {
    /// ORLOP_STRUCT_VERSION.
    pub version: u32,
    /// Bytes.
    pub size: u64,
    /// Alignment of its offset, a power of two.
    pub align: u64,
    /// The first step at which it is live.
    pub lower: u64,
    /// The step after the last one at which it is live.
    pub upper: u64,
}

/// How good a plan is.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct orlop_plan_summary {
    /// ORLOP_STRUCT_VERSION.
    pub version: u32,
    /// The peak is proven minimal.
    pub optimal: bool,
    /// Bytes of the arena.
    pub peak: u64,
    /// No plan is smaller.
    pub bound: u64,
}

/// What a model takes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct orlop_model_plan {
    /// ORLOP_STRUCT_VERSION.
    pub version: u32,
    /// It fits on every device.
    pub fits: bool,
    /// Tokens that the cache holds.
    pub context: u64,
    /// The largest context that fits; 0 if none does.
    pub largest_context: u64,
    /// Bytes on all devices: weights in the file's layout, weights in a device's layout, keys and values, arenas.
    pub weights: u64,
    /// As weights.
    pub repacked: u64,
    /// As weights.
    pub kv: u64,
    /// As weights.
    pub compute: u64,
}

/// Places buffers in as little memory as it finds. `offsets` gets one offset for each of `count` buffers; `capacity` is the most
/// bytes, or 0. `summary` is NULL, or says which version is wanted.
///
/// # Safety
/// As the rules of the header say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orlop_plan_buffers(
    buffers: *const orlop_buffer,
    count: usize,
    capacity: u64,
    offsets: *mut u64,
    summary: *mut orlop_plan_summary,
    error: *mut *mut orlop_error,
) -> orlop_status {
    let work = || {
        // SAFETY: the caller promises it.
        let buffers = unsafe { pointer::array(buffers, count, "buffers") }?;
        // SAFETY: the caller promises it.
        let offsets = unsafe { pointer::array_mut(offsets, count, "offsets") }?;
        let mut problem = Problem { capacity: (capacity > 0).then_some(capacity), ..Problem::default() };
        // SAFETY: the caller promises it.
        if let Some(summary) = unsafe { summary.as_ref() } {
            check_version("orlop_plan_summary", summary.version, ORLOP_STRUCT_VERSION)?;
        }
        for buffer in buffers {
            check_version("orlop_buffer", buffer.version, ORLOP_STRUCT_VERSION)?;
            let spec = BufferSpec::new(buffer.size, buffer.align, buffer.lower..buffer.upper);
            problem.push(spec).map_err(Refusal::failed)?;
        }
        let plan = solve(&problem, &SolveOptions::default()).map_err(Refusal::failed)?;
        for (offset, place) in offsets.iter_mut().zip(&plan.places) {
            *offset = place.offset;
        }
        let (version, optimal) = (ORLOP_STRUCT_VERSION, plan.optimal);
        let made = orlop_plan_summary { version, optimal, peak: plan.peak, bound: plan.bound };
        // SAFETY: the caller promises it.
        unsafe { pointer::give(summary, made) };
        Ok(())
    };
    // SAFETY: the caller promises it.
    unsafe { run(error, work) }
}

/// What a model file takes with these options, before anything is allocated. `plan` says which version is wanted.
///
/// # Safety
/// As the rules of the header say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orlop_plan_model(
    path: *const c_char,
    options: *const orlop_model_options,
    plan: *mut orlop_model_plan,
    error: *mut *mut orlop_error,
) -> orlop_status {
    let work = || {
        // SAFETY: the caller promises it.
        let path = unsafe { pointer::text(path, "path") }?;
        // SAFETY: the caller promises it.
        let options = unsafe { pointer::object(options, "options") }?;
        // SAFETY: the caller promises it.
        let options = unsafe { options.read() }?;
        let file = Model::open(path).map_err(|error| Refusal::failed(format!("{path}: {error}")))?;
        let planned = options.plan(&file).map_err(Refusal::failed)?;
        let forecast = &planned.forecast;
        // SAFETY: the caller promises it.
        let wanted = unsafe { pointer::object(plan, "plan") }?.version;
        check_version("orlop_model_plan", wanted, ORLOP_STRUCT_VERSION)?;
        let mut made = orlop_model_plan {
            version: ORLOP_STRUCT_VERSION,
            fits: forecast.fits(),
            context: forecast.context,
            largest_context: planned.largest_context.unwrap_or(0),
            ..orlop_model_plan::default()
        };
        for device in &forecast.devices {
            made.weights += device.weights;
            made.repacked += device.repacked;
            made.kv += device.kv;
            made.compute += device.compute;
        }
        // SAFETY: the caller promises it.
        unsafe { pointer::give(plan, made) };
        Ok(())
    };
    // SAFETY: the caller promises it.
    unsafe { run(error, work) }
}
