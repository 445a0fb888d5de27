//! What is counted and reported: counters and histograms for Prometheus, and answers for the observer.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use orlop_llm::Forecast;
use orlop_serve::{RequestEnd, RequestUsage, SchedulerCounts, StepReport};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::engine::ring::Times;
use crate::event_log::EventLog;
use crate::options::ServerEvent;

type Labels = [(&'static str, String); 1];
type DeviceLabels = [(&'static str, String); 2];

/// What the server counts.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    running: Gauge,
    waiting: Gauge,
    connections: Gauge,
    prompt_tokens: Counter,
    generated_tokens: Counter,
    cached_tokens: Counter,
    parked: Counter,
    evicted_pages: Counter,
    steps: Counter,
    drafted_tokens: Counter,
    accepted_tokens: Counter,
    ends: Family<Labels, Counter>,
    responses: Family<Labels, Counter>,
    first_token: Histogram,
    between_tokens: Histogram,
    queue: Histogram,
    request: Histogram,
    step: Histogram,
    planned: Family<DeviceLabels, Gauge>,
    used: Family<DeviceLabels, Gauge>,
    cache_usage: Gauge<f64, AtomicU64>,
    /// The counts of each model's scheduler as they were last added.
    last: Mutex<HashMap<String, SchedulerCounts>>,
    log: Arc<EventLog>,
}

impl Metrics {
    pub(crate) fn new(log: Arc<EventLog>) -> Metrics {
        let times = |least: f64| Histogram::new(exponential_buckets(least, 2.0, 18));
        let mut metrics = Metrics {
            registry: Registry::with_prefix("orlop"),
            running: Gauge::default(),
            waiting: Gauge::default(),
            connections: Gauge::default(),
            prompt_tokens: Counter::default(),
            generated_tokens: Counter::default(),
            cached_tokens: Counter::default(),
            parked: Counter::default(),
            evicted_pages: Counter::default(),
            steps: Counter::default(),
            drafted_tokens: Counter::default(),
            accepted_tokens: Counter::default(),
            ends: Family::default(),
            responses: Family::default(),
            first_token: times(0.001),
            between_tokens: times(0.0005),
            queue: times(0.001),
            request: times(0.005),
            step: times(0.0005),
            planned: Family::default(),
            used: Family::default(),
            cache_usage: Gauge::default(),
            last: Mutex::default(),
            log,
        };
        metrics.register();
        metrics
    }

    fn register(&mut self) {
        let registry = &mut self.registry;
        let mut gauge = |name: &str, help: &str, gauge: &Gauge| registry.register(name, help, gauge.clone());
        gauge("num_requests_running", "Requests that have a sequence", &self.running);
        gauge("num_requests_waiting", "Requests in the queue", &self.waiting);
        gauge("connections", "Open connections", &self.connections);
        let mut counter =
            |name: &str, help: &str, counter: &Counter| registry.register(name, help, counter.clone());
        counter("prompt_tokens", "Tokens of prompts that were processed", &self.prompt_tokens);
        counter("generation_tokens", "Tokens that were generated", &self.generated_tokens);
        counter("prefix_cache_hits", "Tokens of prompts that were found in the cache", &self.cached_tokens);
        counter("num_preemptions", "Sequences that were parked", &self.parked);
        counter("evicted_pages", "Pages of the cache that were evicted", &self.evicted_pages);
        counter("steps", "Steps of the engine", &self.steps);
        counter(
            "spec_decode_num_draft_tokens",
            "Tokens that were drafted and verified",
            &self.drafted_tokens,
        );
        counter(
            "spec_decode_num_accepted_tokens",
            "Drafted tokens that were accepted",
            &self.accepted_tokens,
        );
        registry.register("request_success", "Requests by how they ended", self.ends.clone());
        registry.register("http_responses", "Responses by status", self.responses.clone());
        let mut time = |name: &str, help: &str, histogram: &Histogram| {
            registry.register_with_unit(name, help, Unit::Seconds, histogram.clone());
        };
        time("time_to_first_token", "From the request to its first token", &self.first_token);
        time("inter_token_latency", "Between two tokens of a request", &self.between_tokens);
        time("request_queue_time", "In the queue", &self.queue);
        time("e2e_request_latency", "From the request to its last token", &self.request);
        time("step_time", "Of a step of the engine", &self.step);
        registry.register_with_unit("planned", "Planned memory", Unit::Bytes, self.planned.clone());
        registry.register_with_unit("allocated", "Allocated memory", Unit::Bytes, self.used.clone());
        registry.register(
            "kv_cache_usage_perc",
            "Part of the cache's pages in use",
            self.cache_usage.clone(),
        );
    }

    /// The memory of a model that is loaded.
    pub(crate) fn loaded(&self, model: &str, planned: &Forecast, allocated: &Forecast) {
        for (planned, used) in planned.devices.iter().zip(&allocated.devices) {
            let labels = device_labels(model, &planned.name);
            self.planned.get_or_create(&labels).set(planned.total() as i64);
            self.used.get_or_create(&labels).set(used.total() as i64);
        }
    }

    /// A model has left memory.
    pub(crate) fn unloaded(&self, model: &str, planned: &Forecast) {
        for device in &planned.devices {
            let labels = device_labels(model, &device.name);
            self.planned.remove(&labels);
            self.used.remove(&labels);
        }
    }

    pub(crate) fn first_token(&self, time: Duration) {
        self.first_token.observe(time.as_secs_f64());
    }

    pub(crate) fn token(&self, after: Duration) {
        self.between_tokens.observe(after.as_secs_f64());
    }

    pub(crate) fn admitted(&self, after: Duration) {
        self.queue.observe(after.as_secs_f64());
    }

    pub(crate) fn step(&self, report: &StepReport) {
        self.step.observe(report.time.as_secs_f64());
    }

    pub(crate) fn ended(&self, end: &RequestEnd, usage: RequestUsage, times: Times, time: Duration) {
        let reason = match end {
            RequestEnd::Done => "stop",
            RequestEnd::Length => "length",
            RequestEnd::Cancelled => "cancelled",
            RequestEnd::Refused(_) => "refused",
            RequestEnd::Failed(_) => "failed",
        };
        self.ends.get_or_create(&[("finished_reason", reason.to_owned())]).inc();
        self.request.observe(time.as_secs_f64());
        let Times { queued, prompt, generation } = times;
        self.log.see(|| ServerEvent::Answer { end: reason, usage, queued, prompt, generation });
    }

    pub(crate) fn responded(&self, status: u16) {
        self.responses.get_or_create(&[("status", status.to_string())]).inc();
    }

    pub(crate) fn connected(&self, connections: usize) {
        self.connections.set(connections as i64);
    }

    /// Requests of all models.
    pub(crate) fn requests(&self, running: usize, waiting: usize) {
        self.running.set(running as i64);
        self.waiting.set(waiting as i64);
    }

    /// The counts of a model's scheduler now.
    pub(crate) fn counts(&self, model: &str, now: SchedulerCounts) {
        let mut all = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let last = all.entry(model.to_owned()).or_default();
        let SchedulerCounts {
            steps,
            parked,
            evicted_pages,
            cached_tokens,
            prompt_tokens,
            generated_tokens,
            drafted_tokens,
            accepted_tokens,
            ..
        } = now;
        self.steps.inc_by(steps - last.steps);
        self.parked.inc_by(parked - last.parked);
        self.evicted_pages.inc_by(evicted_pages - last.evicted_pages);
        self.cached_tokens.inc_by(cached_tokens - last.cached_tokens);
        self.prompt_tokens.inc_by(prompt_tokens - last.prompt_tokens);
        self.generated_tokens.inc_by(generated_tokens - last.generated_tokens);
        self.drafted_tokens.inc_by(drafted_tokens - last.drafted_tokens);
        self.accepted_tokens.inc_by(accepted_tokens - last.accepted_tokens);
        *last = now;
    }

    /// Part of the pages that are in use.
    pub(crate) fn pages(&self, part: f64) {
        self.cache_usage.set(part);
    }

    /// All of it as text.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

fn device_labels(model: &str, device: &str) -> DeviceLabels {
    [("device", device.to_owned()), ("model", model.to_owned())]
}
