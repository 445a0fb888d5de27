use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use nix::libc;
use nix::pty::{OpenptyResult, openpty};
use nix::unistd::setsid;

/// Time limit of every wait.
const PATIENCE: Duration = Duration::from_secs(120);

/// A program on a terminal of its own.
pub(crate) struct Terminal {
    child: Child,
    keys: File,
    screen: Receiver<Vec<u8>>,
    seen: Vec<u8>,
    /// How much of the text was already matched.
    read: usize,
}

/// The counts that a chat prints with `--verbose`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) kept: usize,
    pub(crate) new: usize,
    pub(crate) answered: usize,
    pub(crate) used: usize,
}

impl Terminal {
    pub(crate) fn start(command: &mut Command) -> Terminal {
        command.env("TERM", "xterm").env("NO_COLOR", "1");
        let (side, keys) = pair();
        command.stdin(side()).stdout(side()).stderr(side());
        // SAFETY: between fork and exec only `setsid` and `ioctl` are called, which may be called there.
        unsafe { command.pre_exec(own_terminal) };
        let child = command.spawn().unwrap();
        let mut output = keys.try_clone().unwrap();
        let (sender, screen) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // At the end, a terminal gives an error or nothing.
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                if sender.send(bytes[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        // Drop our copies of the program's end, so that it closes when the program ends.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        drop(side);
        Terminal { child, keys, screen, seen: Vec::new(), read: 0 }
    }

    /// A chat; its answers are the same every time.
    pub(crate) fn chat(arguments: &[&str], home: &str) -> Terminal {
        let mut command = crate::with_model::command();
        command.args(["run", "--temp", "0", "--verbose", "-t", "1"]).args(arguments);
        let mut terminal = Terminal::start(command.current_dir(home).env("XDG_STATE_HOME", home));
        terminal.expect("/help lists commands, Ctrl-D quits\n");
        terminal
    }

    /// Waits for the prompt, and returns the text before it.
    pub(crate) fn prompt(&mut self) -> String {
        self.expect("> ")
    }

    pub(crate) fn keys(&mut self, keys: impl AsRef<[u8]>) {
        self.keys.write_all(keys.as_ref()).unwrap();
    }

    /// Enters a line.
    pub(crate) fn enter(&mut self, line: &str) {
        self.keys(line);
        self.expect(line);
        self.keys("\r");
        self.expect("\n");
    }

    /// Waits for a text, and returns the text before it.
    pub(crate) fn expect(&mut self, expected: &str) -> String {
        let begin = Instant::now();
        loop {
            let text = plain(&self.seen);
            if let Some(place) = text[self.read..].find(expected) {
                let before = text[self.read..self.read + place].to_owned();
                self.read += place + expected.len();
                return before;
            }
            let left = PATIENCE.saturating_sub(begin.elapsed());
            match self.screen.recv_timeout(left) {
                Ok(bytes) => self.seen.extend(bytes),
                Err(why) => panic!("expected {expected:?} ({why}); found:\n{text}"),
            }
        }
    }

    /// Sends a message, and returns the answer.
    pub(crate) fn say(&mut self, line: &str) -> (String, Counts) {
        self.enter(line);
        self.answer()
    }

    /// The rest of an answer.
    pub(crate) fn answer(&mut self) -> (String, Counts) {
        let answer = self.expect(" tokens cached, ");
        let rest = self.expect(" in use\n> ");
        let (answer, kept) = answer.rsplit_once('\n').unwrap_or(("", &answer));
        let count = |before: &str| {
            let text = rest.split(before).next().unwrap().rsplit(' ').next().unwrap();
            text.parse::<usize>().unwrap_or_else(|_| panic!("a number before {before:?}: {rest}"))
        };
        let counts = Counts {
            kept: kept.parse().unwrap(),
            new: count(" new in"),
            answered: count(" generated in"),
            used: count(" of "),
        };
        (answer.to_owned(), counts)
    }

    /// The exit status and the remaining output.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let begin = Instant::now();
        while let Ok(bytes) = self.screen.recv_timeout(PATIENCE.saturating_sub(begin.elapsed())) {
            self.seen.extend(bytes);
        }
        (self.child.wait().unwrap().code(), plain(&self.seen)[self.read..].to_owned())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Fails if it has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A terminal: the ends for a program, and the one for its user. Other programs inherit neither.
pub(crate) fn pair() -> (impl Fn() -> Stdio, File) {
    let OpenptyResult { master, slave } = openpty(None, None).unwrap();
    let private = |end: OwnedFd| end.try_clone().unwrap();
    let (user, program) = (private(master), private(slave));
    (move || Stdio::from(program.try_clone().unwrap()), File::from(user))
}

/// Makes standard input the terminal whose keys send signals to this process.
fn own_terminal() -> std::io::Result<()> {
    setsid()?;
    // SAFETY: the request takes no pointer.
    match unsafe { libc::ioctl(0, libc::TIOCSCTTY, 0) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// A screen's text without escape sequences.
fn plain(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut plain = String::new();
    let mut rest = text.as_ref();
    while let Some((before, after)) = rest.split_once('\u{1b}') {
        plain.push_str(before);
        rest = after.split_once(|c: char| c.is_ascii_alphabetic()).map_or("", |(_, after)| after);
    }
    plain.push_str(rest);
    plain.replace('\r', "")
}
