//! Headless Chromium, controlled by its DevTools protocol.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::Folder;

/// A browser with one page, closed on drop.
pub(crate) struct Browser {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    session: Option<String>,
    next: u64,
    /// The page's requests, and its errors: of scripts, and in the console.
    pub(crate) requests: Vec<String>,
    pub(crate) complaints: Vec<String>,
    _profile: Folder,
}

const FLAGS: [&str; 12] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--window-size=1500,900",
    "--remote-debugging-pipe",
];

impl Browser {
    /// Starts it, with an empty page.
    pub(crate) fn start() -> Browser {
        let profile = Folder::new();
        // The browser reads commands from its third stream and answers on its fourth.
        let mut child = Command::new("sh")
            .args(["-c", "exec chromium \"$@\" 3<&0 4>&1 0</dev/null 1>/dev/null", "sh"])
            .args(FLAGS)
            .arg(format!("--user-data-dir={}", profile.path("profile")))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (to, from) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut browser = Browser {
            child,
            to,
            from,
            session: None,
            next: 0,
            requests: Vec::new(),
            complaints: Vec::new(),
            _profile: profile,
        };
        let target = browser.ask("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = browser.ask("Target.attachToTarget", attach);
        browser.session = Some(session["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page.enable", "Network.enable", "Runtime.enable", "Log.enable"] {
            browser.ask(domain, json!({}));
        }
        let size = json!({"width": 1500, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        browser.ask("Emulation.setDeviceMetricsOverride", size);
        browser
    }

    /// Sends a command and returns its result.
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let mut message = json!({"id": self.next, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        self.to.write_all(format!("{message}\0").as_bytes()).unwrap();
        self.to.flush().unwrap();
        loop {
            let mut bytes = Vec::new();
            let read = self.from.read_until(0, &mut bytes);
            assert!(
                read.is_ok_and(|read| read > 0),
                "chromium ended: is it installed? `cargo xtask test` does that"
            );
            bytes.pop();
            let answer: Value = serde_json::from_slice(&bytes).unwrap();
            if answer["id"] == self.next {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
            self.note(&answer);
        }
    }

    fn note(&mut self, event: &Value) {
        let params = &event["params"];
        match event["method"].as_str() {
            Some("Network.requestWillBeSent") => {
                self.requests.push(params["request"]["url"].as_str().unwrap_or_default().to_owned());
            }
            Some("Runtime.exceptionThrown") => self.complaints.push(params["exceptionDetails"].to_string()),
            Some("Runtime.consoleAPICalled") if params["type"] == "error" => {
                self.complaints.push(params["args"].to_string());
            }
            Some("Log.entryAdded") if params["entry"]["level"] == "error" => {
                self.complaints.push(params["entry"].to_string());
            }
            _ => {}
        }
    }

    /// Opens a file and waits until it is ready.
    pub(crate) fn open(&mut self, path: &str) {
        self.ask("Page.navigate", json!({"url": format!("file://{path}")}));
        let begin = Instant::now();
        while self.run("!!(window.orlop && window.orlop.lastDrawMs)") != json!(true) {
            assert!(self.complaints.is_empty(), "{:?}", self.complaints);
            assert!(begin.elapsed() < Duration::from_secs(60), "{path} does not show itself");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Opens the page of a server, and waits until it is ready.
    pub(crate) fn visit(&mut self, address: SocketAddr) {
        self.ask("Page.navigate", json!({"url": format!("http://{address}/")}));
        self.until("document.documentElement?.dataset.ready === 'yes'");
    }

    /// Waits until something is so in the page.
    pub(crate) fn until(&mut self, expression: &str) {
        let begin = Instant::now();
        while self.run(expression) != json!(true) {
            assert!(begin.elapsed() < Duration::from_secs(60), "it never is: {expression}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Types a text into an element, in place of what is there.
    pub(crate) fn fill(&mut self, selector: &str, text: &str) {
        self.run(&format!("document.querySelector('{selector}').focus()"));
        self.run(&format!("document.querySelector('{selector}').select()"));
        self.ask("Input.insertText", json!({"text": text}));
    }

    /// The value of an expression in the page.
    pub(crate) fn run(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.ask("Runtime.evaluate", params);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// A number in the page.
    pub(crate) fn number(&mut self, expression: &str) -> f64 {
        let value = self.run(expression);
        value.as_f64().unwrap_or_else(|| panic!("{expression} is {value}"))
    }

    /// The text of an element.
    pub(crate) fn text(&mut self, selector: &str) -> String {
        let value = self.run(&format!("document.querySelector('{selector}').innerText"));
        value.as_str().unwrap_or_default().to_owned()
    }

    /// Waits two frames, until pending changes are drawn.
    pub(crate) fn settle(&mut self) {
        self.run(
            "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))",
        );
    }

    /// Moves the pointer.
    pub(crate) fn point(&mut self, x: f64, y: f64) {
        self.mouse(json!({"type": "mouseMoved", "x": x, "y": y}));
    }

    /// Clicks.
    pub(crate) fn click(&mut self, x: f64, y: f64) {
        for kind in ["mousePressed", "mouseReleased"] {
            self.mouse(
                json!({"type": kind, "x": x, "y": y, "button": "left", "buttons": 1, "clickCount": 1}),
            );
        }
    }

    /// Rolls the wheel away from the reader.
    pub(crate) fn roll(&mut self, x: f64, y: f64) {
        self.mouse(json!({"type": "mouseWheel", "x": x, "y": y, "deltaX": 0, "deltaY": -240}));
    }

    fn mouse(&mut self, event: Value) {
        self.ask("Input.dispatchMouseEvent", event);
        self.settle();
    }

    /// Presses a key.
    pub(crate) fn key(&mut self, key: &str) {
        let text = match key {
            "Enter" => "\r",
            key if key.chars().count() == 1 => key,
            _ => "",
        };
        self.stroke(key, text, 0);
    }

    /// Presses a key together with Ctrl.
    pub(crate) fn ctrl(&mut self, key: &str) {
        self.stroke(key, "", 2);
    }

    fn stroke(&mut self, key: &str, text: &str, modifiers: u32) {
        let code = match key {
            "Backspace" => 8,
            "Tab" => 9,
            "Enter" => 13,
            "Escape" => 27,
            "ArrowUp" => 38,
            _ => 0,
        };
        for kind in ["keyDown", "keyUp"] {
            let text = if kind == "keyDown" { text } else { "" };
            let event = json!({
                "type": kind, "key": key, "text": text, "windowsVirtualKeyCode": code, "modifiers": modifiers,
            });
            self.ask("Input.dispatchKeyEvent", event);
        }
        self.settle();
    }

    /// Clicks the middle of an element.
    pub(crate) fn press(&mut self, selector: &str) {
        let find = format!("document.querySelector('{selector}').getBoundingClientRect()");
        let x = self.number(&format!("(({find}).left + ({find}).right) / 2"));
        let y = self.number(&format!("(({find}).top + ({find}).bottom) / 2"));
        self.click(x, y);
    }

    /// Sets the system theme: `light` or `dark`.
    pub(crate) fn surroundings(&mut self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.ask("Emulation.setEmulatedMedia", json!({"features": features}));
        self.settle();
    }

    /// Saves a screenshot in `artefacts` of the workspace.
    pub(crate) fn keep(&mut self, name: &str) {
        let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../artefacts"));
        std::fs::create_dir_all(&folder).unwrap();
        let shot = self.ask("Page.captureScreenshot", json!({"format": "png"}));
        let bytes = decoded(shot["data"].as_str().unwrap());
        assert!(bytes.starts_with(b"\x89PNG"));
        std::fs::write(folder.join(name), bytes).unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.to.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        let _ = self.to.flush();
        for _ in 0..100 {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Base 64.
fn decoded(text: &str) -> Vec<u8> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    let (mut bits, mut held) = (0u32, 0);
    for sextet in text.bytes().filter_map(value) {
        bits = bits << 6 | u32::from(sextet);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
        }
    }
    bytes
}
