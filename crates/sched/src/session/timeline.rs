//! What each device did when, in one run.

use std::collections::HashMap;
use std::fmt::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use orlop_alloc::MemoryPlan;
use orlop_backend::CopyRoute;
use orlop_graph::Graph;

use crate::session::marks::Piece;
use crate::{DeviceId, Machine, Planned, SplitId, TransferId};

/// What each device did when, in one run. A plain value.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// Names of the devices, by position.
    pub devices: Vec<String>,
    /// Pieces of work, in the order in which they were given to their devices.
    pub spans: Vec<TimelineSpan>,
    /// Bytes of each arena that the plan has in use, as its steps began. Where a device does not say when that was, its
    /// steps are spread evenly over their split.
    pub memory: Vec<MemorySample>,
}

/// An arena at one moment of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemorySample {
    /// The device, or the first of those that share the arena.
    pub device: DeviceId,
    /// Counted from the beginning of the run.
    pub at: Duration,
    /// Bytes that are planned to be in use from then on.
    pub bytes: u64,
}

/// A piece of work: from when its device could begin it to when it was done.
#[derive(Clone, Debug, PartialEq)]
pub struct TimelineSpan {
    /// The device.
    pub device: DeviceId,
    /// The split it belongs to.
    pub split: SplitId,
    /// What was done.
    pub work: SpanWork,
    /// When it began, counted from the beginning of the run.
    pub begin: Duration,
    /// When it was done.
    pub end: Duration,
}

/// What a device did.
#[derive(Clone, Debug, PartialEq)]
pub enum SpanWork {
    /// It made a transfer.
    Transfer {
        /// Name of the transfer.
        name: String,
        /// Bytes.
        bytes: u64,
        /// The way they took.
        route: Option<CopyRoute>,
    },
    /// It computed.
    Compute {
        /// How many nodes.
        nodes: usize,
        /// The first result.
        first: String,
    },
}

/// What one device did in a run, in sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceTime {
    /// Time of transfers to it.
    pub transfer: Duration,
    /// Time of computing.
    pub compute: Duration,
    /// How many transfers.
    pub transfers: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Of those, bytes that went through host memory.
    pub bounced: u64,
    /// How many splits.
    pub splits: usize,
}

impl Timeline {
    pub(crate) fn new(
        pieces: &[Piece],
        graph: &Graph,
        machine: &Machine,
        planned: &Planned,
        routes: Option<&[Option<CopyRoute>]>,
    ) -> Timeline {
        let devices = machine.devices().iter().map(|device| device.name().to_owned()).collect();
        let Some(start) = pieces.iter().map(|piece| piece.begin.time()).min() else {
            return Timeline { devices, spans: Vec::new(), memory: Vec::new() };
        };
        let schedule = &planned.schedule;
        let span = |piece: &Piece| {
            let split = &schedule[piece.split];
            let work = match piece.transfer {
                Some(transfer) => SpanWork::Transfer {
                    name: schedule[transfer].name.clone(),
                    bytes: schedule[transfer].bytes(),
                    route: routes.and_then(|routes| routes[transfer.index()]),
                },
                None => {
                    let first = split.nodes.first().map(|node| graph.node(*node).output);
                    let first = first.map(|id| graph.tensor(id).name.clone()).unwrap_or_default();
                    SpanWork::Compute { nodes: split.nodes.len(), first }
                }
            };
            let begin = piece.begin.time().saturating_duration_since(start);
            let end = piece.end.time().saturating_duration_since(start);
            TimelineSpan { device: split.device, split: piece.split, work, begin, end: end.max(begin) }
        };
        let spans: Vec<TimelineSpan> = pieces.iter().map(span).collect();
        let memory = memory_samples(machine, planned, pieces, &spans, start);
        Timeline { devices, spans, memory }
    }

    /// From the beginning to the last completion.
    pub fn total(&self) -> Duration {
        self.spans.iter().map(|span| span.end).max().unwrap_or_default()
    }

    /// The sums of each device, by position.
    pub fn device_times(&self) -> Vec<DeviceTime> {
        let mut times = vec![DeviceTime::default(); self.devices.len()];
        for span in &self.spans {
            let own = &mut times[span.device.index()];
            let took = span.end - span.begin;
            match &span.work {
                SpanWork::Transfer { bytes, route, .. } => {
                    own.transfer += took;
                    own.transfers += 1;
                    own.bytes += bytes;
                    own.bounced += if *route == Some(CopyRoute::Bounced) { *bytes } else { 0 };
                }
                SpanWork::Compute { .. } => {
                    own.compute += took;
                    own.splits += 1;
                }
            }
        }
        times
    }

    /// Most bytes of a device's arena that were planned to be in use at once.
    pub fn most_in_use(&self, device: DeviceId) -> u64 {
        self.memory
            .iter()
            .filter(|sample| sample.device == device)
            .map(|sample| sample.bytes)
            .max()
            .unwrap_or(0)
    }

    /// The run in the format of Chrome's trace viewer: a process with a thread for each device, and a counter for each
    /// arena.
    pub fn chrome_trace(&self) -> String {
        format!(
            "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[{}]}}",
            self.chrome_events(Duration::ZERO).join(",\n")
        )
    }

    /// The events of [`Timeline::chrome_trace`], each an object of JSON, of a run that began so late.
    pub fn chrome_events(&self, began: Duration) -> Vec<String> {
        let micros = |time: Duration| time.as_nanos() as f64 / 1e3;
        let mut events: Vec<String> = Vec::with_capacity(self.devices.len() + self.spans.len());
        for (thread, name) in self.devices.iter().enumerate() {
            let name = quoted(name);
            events.push(format!(
                "{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":0,\"tid\":{thread},\"args\":{{\"name\":{name}}}}}"
            ));
        }
        for TimelineSpan { device, split, work, begin, end } in &self.spans {
            let (name, kind, more) = match work {
                SpanWork::Transfer { name, bytes, route } => {
                    let route =
                        route.map_or("unknown".to_owned(), |route| format!("{route:?}").to_lowercase());
                    (quoted(name), "transfer", format!("\"bytes\":{bytes},\"route\":\"{route}\""))
                }
                SpanWork::Compute { nodes, first } => {
                    (quoted(&format!("split {split}: {first}")), "compute", format!("\"nodes\":{nodes}"))
                }
            };
            let (at, took) = (micros(began + *begin), micros(*end - *begin));
            events.push(format!(
                "{{\"ph\":\"X\",\"name\":{name},\"cat\":\"{kind}\",\"pid\":0,\"tid\":{},\"ts\":{at},\"dur\":{took},\
                 \"args\":{{\"split\":{split},{more}}}}}",
                device.index()
            ));
        }
        for MemorySample { device, at, bytes } in &self.memory {
            let name = quoted(&format!("{}: arena in use, as planned", self.devices[device.index()]));
            events.push(format!(
                "{{\"ph\":\"C\",\"name\":{name},\"pid\":0,\"ts\":{},\"args\":{{\"bytes\":{bytes}}}}}",
                micros(began + *at)
            ));
        }
        events
    }
}

/// What each arena's plan has in use, when its steps began.
fn memory_samples(
    machine: &Machine,
    planned: &Planned,
    pieces: &[Piece],
    spans: &[TimelineSpan],
    start: Instant,
) -> Vec<MemorySample> {
    let mut samples: Vec<MemorySample> = Vec::new();
    let mut known: Vec<&Arc<MemoryPlan>> = Vec::new();
    let clocks: Vec<Vec<(usize, Instant)>> = pieces.iter().map(|piece| piece.clock.noted()).collect();
    let found: HashMap<(SplitId, Option<TransferId>), usize> =
        pieces.iter().enumerate().map(|(index, piece)| ((piece.split, piece.transfer), index)).collect();
    for device in machine.indices() {
        let plan = planned.memory_plan(machine, device);
        if known.iter().any(|known| Arc::ptr_eq(known, plan)) {
            continue;
        }
        known.push(plan);
        let mut own: Vec<MemorySample> = Vec::new();
        for (step, bytes) in planned.arena_steps(machine, device).into_iter().zip(in_use(plan)) {
            let Some(index) = found.get(&(step.split, step.transfer)).copied() else { continue };
            let TimelineSpan { begin, end, .. } = spans[index];
            let number = step.step.unwrap_or(0);
            let noted = &clocks[index][..clocks[index].partition_point(|(step, _)| *step <= number)];
            let at = match noted.last() {
                Some((_, time)) => time.saturating_duration_since(start),
                None => {
                    let steps = planned.steps[step.split.index()].steps.len().max(1);
                    begin + (end - begin).mul_f64(number as f64 / steps as f64)
                }
            };
            match own.last_mut().filter(|last| last.at >= at) {
                Some(last) => last.bytes = last.bytes.max(bytes),
                None => own.push(MemorySample { device, at, bytes }),
            }
        }
        let end = spans.iter().map(|span| span.end).max().unwrap_or_default();
        own.push(MemorySample { device, at: end, bytes: 0 });
        samples.append(&mut own);
    }
    samples
}

/// Bytes in use at each step of a plan.
fn in_use(plan: &MemoryPlan) -> Vec<u64> {
    let mut change = vec![0i128; plan.usage.step_count() + 1];
    for storage in &plan.storages {
        let last = change.len() - 1;
        change[storage.live.start.min(last)] += i128::from(storage.bytes);
        change[storage.live.end.min(last)] -= i128::from(storage.bytes);
    }
    let mut now = 0;
    let sums = change.iter().map(|change| {
        now += change;
        u64::try_from(now).unwrap_or(0)
    });
    sums.take(plan.usage.step_count()).collect()
}

/// A table of the devices' sums.
impl fmt::Display for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<16} {:>7} {:>14} {:>7} {:>14} {:>12} {:>12}",
            "device", "splits", "compute", "transfers", "transfer", "bytes", "via host"
        )?;
        for (name, time) in self.devices.iter().zip(self.device_times()) {
            let DeviceTime { transfer, compute, transfers, bytes, bounced, splits } = time;
            let ms = |time: Duration| format!("{:.3} ms", time.as_secs_f64() * 1e3);
            writeln!(
                f,
                "{name:<16} {splits:>7} {:>14} {transfers:>7} {:>14} {bytes:>12} {bounced:>12}",
                ms(compute),
                ms(transfer)
            )?;
        }
        writeln!(f, "total {:.3} ms", self.total().as_secs_f64() * 1e3)
    }
}

/// A string of JSON.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for char in text.chars() {
        match char {
            '"' | '\\' => {
                quoted.push('\\');
                quoted.push(char);
            }
            control if control < ' ' => {
                let _ = write!(quoted, "\\u{:04x}", control as u32);
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}
