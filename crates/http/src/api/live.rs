//! `/orlop/live`: what the server does now, as a stream of snapshots for the page.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::response::Response;
use futures_util::stream::unfold;
use orlop_llm::DeviceMemory;
use orlop_serve::{PageUse, QueuedView, RunningView, SchedulerCounts, Snapshot, WaitReason};
use serde_json::{Value as Json, json};
use tokio::sync::watch;

use super::stream;
use crate::bounds;
use crate::engine::live::INTERVAL;
use crate::front::{Front, Ready};

/// A stream of snapshots: the plan first, then at most four a second, only when something has changed.
pub(crate) fn watch(front: &Front, ready: &Ready) -> Response {
    let mut snapshots = ready.live.watch();
    // What was published for others may be old.
    snapshots.mark_unchanged();
    front.mailbox.ring();
    let plan = Bytes::from(format!("event: plan\ndata: {}\n\n", plan(ready)));
    let bodies = unfold(Watcher { plan: Some(plan), snapshots, sent: false }, |mut watcher| async move {
        let bytes = watcher.next().await?;
        Some((Ok::<_, Infallible>(bytes), watcher))
    });
    stream::events(Body::from_stream(bodies))
}

struct Watcher {
    plan: Option<Bytes>,
    snapshots: watch::Receiver<Option<Arc<Snapshot>>>,
    sent: bool,
}

impl Watcher {
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(plan) = self.plan.take() {
            return Some(plan);
        }
        if std::mem::replace(&mut self.sent, true) {
            tokio::time::sleep(INTERVAL).await;
        }
        match tokio::time::timeout(bounds::KEEP_ALIVE, self.snapshots.changed()).await {
            Err(_) => Some(stream::COMMENT),
            Ok(Err(_)) => None,
            Ok(Ok(())) => {
                let snapshot = self.snapshots.borrow_and_update().clone()?;
                Some(Bytes::from(format!("event: snapshot\ndata: {}\n\n", state(&snapshot))))
            }
        }
    }
}

/// What is planned on each device, and how much a server can do.
fn plan(ready: &Ready) -> Json {
    let device = |device: &DeviceMemory| {
        json!({
            "name": device.name,
            "weights": device.weights,
            "repacked": device.repacked,
            "streamed": device.streamed,
            "kv": device.kv,
            "compute": device.compute,
            "total": device.total(),
            "free": device.free,
        })
    };
    json!({
        "devices": ready.planned.devices.iter().map(device).collect::<Vec<Json>>(),
        "pages": ready.limits.pages,
        "page_rows": ready.limits.page_rows,
        "context": ready.limits.context,
        "parallel": ready.limits.parallel,
        "batch": ready.limits.batch(),
    })
}

/// A snapshot. Neighboring pages of the same requests are one entry.
fn state(snapshot: &Snapshot) -> Json {
    let uses = snapshot.uses.chunk_by(|a, b| a.requests == b.requests).map(|same: &[PageUse]| {
        let requests: Vec<u64> = same[0].requests.iter().map(|id| id.0).collect();
        let rows: usize = same.iter().map(|page| page.rows).sum();
        json!({ "requests": requests, "pages": same.len(), "rows": rows })
    });
    let running = |view: &RunningView| {
        json!({
            "id": view.id.0,
            "prompt": view.prompt,
            "cached": view.cached,
            "fed": view.fed,
            "generated": view.generated,
            "most": view.most,
            "elastic": view.elastic,
        })
    };
    let queued = |view: &QueuedView| {
        json!({
            "id": view.id.0,
            "prompt": view.prompt,
            "generated": view.generated,
            "reason": reason(view.reason),
            "wait": view.wait,
        })
    };
    let SchedulerCounts {
        steps, parked, evicted_pages, cached_tokens, prompt_tokens, generated_tokens, ..
    } = snapshot.counts;
    json!({
        "counts": {
            "steps": steps,
            "parked": parked,
            "evicted_pages": evicted_pages,
            "cached_tokens": cached_tokens,
            "prompt_tokens": prompt_tokens,
            "generated_tokens": generated_tokens,
        },
        "pages": snapshot.pages,
        "free": snapshot.free,
        "evictable": snapshot.evictable,
        "uses": uses.collect::<Vec<Json>>(),
        "running": snapshot.running.iter().map(running).collect::<Vec<Json>>(),
        "queue": snapshot.queue.iter().map(queued).collect::<Vec<Json>>(),
        "waiting": snapshot.waiting,
    })
}

fn reason(reason: WaitReason) -> Json {
    match reason {
        WaitReason::New => json!({ "kind": "new" }),
        WaitReason::Parked => json!({ "kind": "parked" }),
        WaitReason::Sequences { running, parallel } => {
            json!({ "kind": "sequences", "running": running, "parallel": parallel })
        }
        WaitReason::Pages { needed, available } => {
            json!({ "kind": "pages", "needed": needed, "available": available })
        }
        WaitReason::Prefix => json!({ "kind": "prefix" }),
        WaitReason::Behind => json!({ "kind": "behind" }),
    }
}
