use std::fmt::{self, Write};
use std::time::Duration;

use orlop_backend::CopyRoute;
use orlop_graph::Graph;

use crate::marks::Piece;
use crate::{DeviceIx, Machine, Schedule};

/// What each device did when, in one run. A plain value.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// Names of the devices, by position.
    pub devices: Vec<String>,
    /// Pieces of work, in the order in which they were given to their devices.
    pub spans: Vec<Span>,
}

/// A piece of work: from when its device could begin it to when it was done.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// The device.
    pub device: DeviceIx,
    /// The split it belongs to.
    pub split: usize,
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
    /// It brought something over.
    Copy {
        /// Name of the copy.
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
    /// Time of copies to it.
    pub copy: Duration,
    /// Time of computing.
    pub compute: Duration,
    /// How many copies.
    pub copies: usize,
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
        schedule: &Schedule,
        routes: Option<&[Option<CopyRoute>]>,
    ) -> Timeline {
        let devices = machine.devices().iter().map(|device| device.name().to_owned()).collect();
        let Some(start) = pieces.iter().map(|piece| piece.begin.time()).min() else {
            return Timeline { devices, spans: Vec::new() };
        };
        let span = |piece: &Piece| {
            let part = &schedule.splits[piece.split];
            let work = match piece.copy {
                Some(copy) => SpanWork::Copy {
                    name: schedule.copies[copy].name.clone(),
                    bytes: schedule.copies[copy].range.end - schedule.copies[copy].range.start,
                    route: routes.and_then(|routes| routes[copy]),
                },
                None => {
                    let first = part.nodes.first().map(|node| graph.node(*node).output);
                    let first = first.map(|id| graph.tensor(id).name.clone()).unwrap_or_default();
                    SpanWork::Compute { nodes: part.nodes.len(), first }
                }
            };
            let begin = piece.begin.time().saturating_duration_since(start);
            let end = piece.end.time().saturating_duration_since(start);
            Span { device: part.device, split: piece.split, work, begin, end: end.max(begin) }
        };
        Timeline { devices, spans: pieces.iter().map(span).collect() }
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
                SpanWork::Copy { bytes, route, .. } => {
                    own.copy += took;
                    own.copies += 1;
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

    /// The run in the format of Chrome's trace viewer: a process with a thread for each device.
    pub fn chrome_trace(&self) -> String {
        let micros = |time: Duration| time.as_nanos() as f64 / 1e3;
        let mut events: Vec<String> = Vec::with_capacity(self.devices.len() + self.spans.len());
        for (thread, name) in self.devices.iter().enumerate() {
            let name = quoted(name);
            events.push(format!(
                "{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":0,\"tid\":{thread},\"args\":{{\"name\":{name}}}}}"
            ));
        }
        for Span { device, split, work, begin, end } in &self.spans {
            let (name, kind, more) = match work {
                SpanWork::Copy { name, bytes, route } => {
                    let route =
                        route.map_or("unknown".to_owned(), |route| format!("{route:?}").to_lowercase());
                    (quoted(name), "copy", format!("\"bytes\":{bytes},\"route\":\"{route}\""))
                }
                SpanWork::Compute { nodes, first } => {
                    (quoted(&format!("split {split}: {first}")), "compute", format!("\"nodes\":{nodes}"))
                }
            };
            let (at, took) = (micros(*begin), micros(*end - *begin));
            events.push(format!(
                "{{\"ph\":\"X\",\"name\":{name},\"cat\":\"{kind}\",\"pid\":0,\"tid\":{},\"ts\":{at},\"dur\":{took},\
                 \"args\":{{\"split\":{split},{more}}}}}",
                device.index()
            ));
        }
        format!("{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[{}]}}", events.join(",\n"))
    }
}

/// A table of the devices' sums.
impl fmt::Display for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<16} {:>7} {:>14} {:>7} {:>14} {:>12} {:>12}",
            "device", "splits", "compute", "copies", "copying", "bytes", "via host"
        )?;
        for (name, time) in self.devices.iter().zip(self.device_times()) {
            let DeviceTime { copy, compute, copies, bytes, bounced, splits } = time;
            let ms = |time: Duration| format!("{:.3} ms", time.as_secs_f64() * 1e3);
            writeln!(
                f,
                "{name:<16} {splits:>7} {:>14} {copies:>7} {:>14} {bytes:>12} {bounced:>12}",
                ms(compute),
                ms(copy)
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
