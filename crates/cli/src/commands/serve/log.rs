//! The log of a server, on standard error.

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::ValueEnum;
use orlop::http::{ServerEvent, ServerObserver};
use serde_json::{Value, json};

/// Forms of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogForm {
    /// A sentence on each line.
    Text,
    /// A JSON object on each line.
    Json,
    /// Nothing but where the server listens.
    Off,
}

/// Writes the log, and tells systemd that the server is ready.
pub(crate) fn observer(form: LogForm) -> ServerObserver {
    ServerObserver::new(move |event| {
        let line = match form {
            LogForm::Json => Some(object(event).to_string()),
            LogForm::Off if !matches!(event, ServerEvent::Ready { .. }) => None,
            LogForm::Text | LogForm::Off => Some(sentence(event)),
        };
        if let Some(line) = line {
            // A log that cannot be written must not end the server.
            let _ = writeln!(std::io::stderr(), "{line}");
        }
        if let ServerEvent::Ready { .. } = event {
            notify_ready();
        }
    })
}

fn ms(time: &Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

fn sentence(event: &ServerEvent) -> String {
    match event {
        ServerEvent::Ready { address } => format!("orlop: listening on http://{address}"),
        ServerEvent::Signal => "orlop: ending; a second signal ends at once".to_owned(),
        ServerEvent::Response { request, method, path, status, time } => {
            format!("{request}: {method} {path}: {status} in {:.1} ms", ms(time))
        }
        ServerEvent::Answer { end, usage, queued, prompt, generation } => format!(
            "{end}: {} tokens ({} cached) and {} generated; queue {:.1} ms, prompt {:.1} ms, generation {:.1} ms",
            usage.prompt,
            usage.cached,
            usage.generated,
            ms(queued),
            ms(prompt),
            ms(generation)
        ),
        ServerEvent::Dropped { events } => format!("orlop: the log was slow; {events} lines are missing"),
        ServerEvent::NotAccepted { error } => format!("orlop: a connection was not accepted ({error})"),
        _ => String::new(),
    }
}

fn object(event: &ServerEvent) -> Value {
    let mut object = match event {
        ServerEvent::Ready { address } => json!({ "event": "ready", "address": address.to_string() }),
        ServerEvent::Signal => json!({ "event": "signal" }),
        ServerEvent::Response { request, method, path, status, time } => json!({
            "event": "response", "request": request, "method": method, "path": path, "status": status, "ms": ms(time),
        }),
        ServerEvent::Answer { end, usage, queued, prompt, generation } => json!({
            "event": "answer", "end": end,
            "prompt_tokens": usage.prompt, "cached_tokens": usage.cached, "completion_tokens": usage.generated,
            "queue_ms": ms(queued), "prompt_ms": ms(prompt), "generation_ms": ms(generation),
        }),
        ServerEvent::Dropped { events } => json!({ "event": "dropped", "events": events }),
        ServerEvent::NotAccepted { error } => json!({ "event": "not_accepted", "error": error }),
        _ => json!({ "event": "other" }),
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    object["time"] = now.as_secs_f64().into();
    object
}

/// Tells systemd, if it has started this process as a service that tells
/// ([sd_notify](https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html)).
#[cfg(unix)]
fn notify_ready() {
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let Ok(socket) = UnixDatagram::unbound() else { return };
    // A service manager that is gone needs no message.
    let _ = match path.to_str().and_then(|path| path.strip_prefix('@')) {
        #[cfg(target_os = "linux")]
        Some(name) => {
            use std::os::linux::net::SocketAddrExt;
            SocketAddr::from_abstract_name(name).and_then(|address| socket.send_to_addr(b"READY=1", &address))
        }
        _ => SocketAddr::from_pathname(&path).and_then(|address| socket.send_to_addr(b"READY=1", &address)),
    };
}

#[cfg(not(unix))]
fn notify_ready() {}
