//! `--trace`: a timeline of devices and memory in Chrome's [trace event format].
//!
//! [trace event format]: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU

use std::fmt::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use orlop::llm::{DeviceMemory, Engine, Forecast, RecordedRun};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::load::{MemoryReport, failure, process_bytes};
use crate::output::Output;
use crate::quantity::short_bytes;

/// A trace in progress: device activity, and the resident memory of this process.
pub(super) struct Trace {
    began: Instant,
    output: Output,
    path: String,
    resident: ResidentSampler,
}

impl Trace {
    /// Creates the file and starts the clock.
    pub(super) fn begin(path: &Path) -> Result<Trace, Failure> {
        let output = Output::create(path)?;
        let began = Instant::now();
        Ok(Trace { began, output, path: path.display().to_string(), resident: ResidentSampler::start(began) })
    }

    /// Writes the trace, and compares planned with measured memory.
    pub(super) fn finish(self, engine: &Engine) -> Result<String, Failure> {
        let Trace { began, mut output, path, resident } = self;
        let resident = resident.stop();
        let planned = engine.blueprint().forecast().map_err(failure)?;
        let allocated = engine.memory();
        let runs = engine.recorded();
        let mut events: Vec<String> = Vec::new();
        for run in runs {
            events.extend(run.timeline.chrome_events(run.began.saturating_duration_since(began)));
        }
        let mut counters = Vec::new();
        let last = began.elapsed();
        let loaded = runs.first().map_or(last, |run| run.began.saturating_duration_since(began));
        for (plan, real) in planned.devices.iter().zip(&allocated.devices) {
            for at in [loaded, last] {
                counters.push(counter(&format!("{}: allocated", real.name), at, parts(real)));
                let both = json!({"planned": plan.total(), "allocated": real.total()});
                counters.push(counter(&format!("{}: planned and allocated", real.name), at, both));
            }
        }
        counters.extend(runs.iter().flat_map(|run| filled(run, began, &allocated)));
        for (at, bytes) in &resident {
            counters.push(counter("process: resident, measured", *at, json!({"bytes": bytes})));
        }
        events.extend(counters.iter().map(Value::to_string));
        let most = resident.iter().map(|(_, bytes)| *bytes).max();
        let other = json!({
            "planned": MemoryReport::new(&planned),
            "allocated": MemoryReport::new(&allocated),
            "resident_at_most": most,
        });
        output.write("{\"displayTimeUnit\":\"ms\",\"otherData\":")?;
        output.write(&other.to_string())?;
        output.write(",\"traceEvents\":[")?;
        output.write(&events.join(",\n"))?;
        output.write("]}\n")?;
        output.finish()?;
        Ok(summary(&path, engine, &planned, &allocated, most))
    }
}

fn counter(name: &str, at: Duration, args: Value) -> Value {
    json!({"ph": "C", "name": name, "pid": 0, "ts": at.as_nanos() as f64 / 1e3, "args": args})
}

fn parts(share: &DeviceMemory) -> Value {
    let DeviceMemory { weights, repacked, kv, compute, .. } = share;
    json!({"weights": weights, "repacked": repacked, "kv": kv, "arena": compute})
}

/// The filled part of the KV caches before and after a run.
fn filled(run: &RecordedRun, began: Instant, memory: &Forecast) -> Vec<Value> {
    let at = run.began.saturating_duration_since(began);
    let points = [(at, run.past), (at + run.timeline.total(), run.past + run.tokens)];
    let mut counters = Vec::new();
    for share in memory.devices.iter().filter(|share| share.kv > 0) {
        for (at, tokens) in points {
            let bytes = u128::from(share.kv) * tokens as u128 / u128::from(memory.context.max(1));
            counters.push(counter(
                &format!("{}: KV cache filled", share.name),
                at,
                json!({"bytes": bytes as u64}),
            ));
        }
    }
    counters
}

fn summary(
    path: &str,
    engine: &Engine,
    planned: &Forecast,
    allocated: &Forecast,
    most: Option<u64>,
) -> String {
    let machine = engine.blueprint().machine();
    let runs = engine.recorded();
    let mut text = format!("{path}: {} runs", runs.len());
    for ((plan, real), device) in planned.devices.iter().zip(&allocated.devices).zip(machine.indices()) {
        let in_use = runs.iter().map(|run| run.timeline.most_in_use(device)).max().unwrap_or(0);
        let _ = write!(
            text,
            "; {}: planned {}, allocated {}, arena {}, peak in use {}",
            plan.name,
            short_bytes(plan.total()),
            short_bytes(real.total()),
            short_bytes(real.compute),
            short_bytes(in_use)
        );
    }
    if let Some(most) = most {
        let _ = write!(text, "; peak resident memory {}", short_bytes(most));
    }
    text
}

/// Samples the resident memory of this process, if the system reports it.
struct ResidentSampler {
    stop: Arc<AtomicBool>,
    samples: Arc<Mutex<Vec<(Duration, u64)>>>,
    thread: Option<JoinHandle<()>>,
}

const EVERY: Duration = Duration::from_millis(5);

impl ResidentSampler {
    fn start(began: Instant) -> ResidentSampler {
        let stop = Arc::new(AtomicBool::new(false));
        let samples: Arc<Mutex<Vec<(Duration, u64)>>> = Arc::default();
        let (stopped, list) = (Arc::clone(&stop), Arc::clone(&samples));
        // Without a thread nothing is measured.
        let thread = std::thread::Builder::new().spawn(move || {
            while let Some(bytes) = process_bytes("VmRSS:") {
                list.lock().unwrap_or_else(PoisonError::into_inner).push((began.elapsed(), bytes));
                if stopped.load(Ordering::Acquire) {
                    return;
                }
                std::thread::sleep(EVERY);
            }
        });
        ResidentSampler { stop, samples, thread: thread.ok() }
    }

    fn stop(self) -> Vec<(Duration, u64)> {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread {
            let _ = thread.join();
        }
        std::mem::take(&mut self.samples.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
