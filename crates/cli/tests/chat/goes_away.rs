use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigHandler, Signal, signal};

use crate::support::Folder;
use crate::terminal::pair;
use crate::with_model::command;

/// A chat on a terminal that sends no signal when it closes, and the terminal's other end.
fn chat(folder: &Folder) -> (Child, File) {
    let (side, user) = pair();
    let mut command = command();
    command.args(["run", "-t", "1", "-c", "256", "-n", "200"]);
    command.env("XDG_STATE_HOME", folder.path(".")).env("TERM", "xterm");
    heed_hangups(&mut command);
    let child = command.stdin(side()).stdout(side()).stderr(side()).spawn().unwrap();
    (child, user)
}

/// Makes SIGHUP end a command. Under `nohup` it would be ignored, and programs inherit that.
fn heed_hangups(command: &mut Command) {
    let reset = || {
        // SAFETY: `signal` asks that a handler is safe to call at any time; the default action is none of the program's code.
        unsafe { signal(Signal::SIGHUP, SigHandler::SigDfl) }?;
        Ok(())
    };
    // SAFETY: `pre_exec` asks for calls that are safe between fork and exec; `signal` makes one system call, `sigaction`.
    unsafe { command.pre_exec(reset) };
}

/// Reads until the expected text.
fn read_until(terminal: &mut File, expected: &str) {
    let mut seen = Vec::new();
    let mut byte = [0];
    while !String::from_utf8_lossy(&seen).contains(expected) {
        assert_eq!(terminal.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&seen));
        seen.push(byte[0]);
    }
}

fn wait(mut child: Child) -> ExitStatus {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(60) {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    panic!("still running without a terminal");
}

#[test]
fn a_chat_ends_when_its_terminal_closes() {
    let folder = Folder::new();
    let (child, mut terminal) = chat(&folder);
    read_until(&mut terminal, "Ctrl-D quits");
    drop(terminal);
    assert_eq!(wait(child).code(), Some(0));
}

#[test]
fn an_answer_ends_when_its_terminal_closes() {
    let folder = Folder::new();
    let (child, mut terminal) = chat(&folder);
    read_until(&mut terminal, "Ctrl-D quits");
    terminal.write_all(b"Tell me a long story.\r").unwrap();
    read_until(&mut terminal, "story.");
    read_until(&mut terminal, "e");
    drop(terminal);
    assert_eq!(wait(child).code(), Some(0));
}

#[test]
fn sighup_ends_a_chat() {
    let folder = Folder::new();
    let (child, mut terminal) = chat(&folder);
    read_until(&mut terminal, "Ctrl-D quits");
    let kill = Command::new("kill").args(["-HUP", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    assert_eq!(wait(child).signal(), Some(1));
}

#[test]
fn a_closed_standard_output_ends_generation_silently() {
    let mut command = command();
    command.args(["run", "-n", "60", "--temp", "0", "Once upon a time"]);
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    out.read_exact(&mut [0]).unwrap();
    drop(out);
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((wait(child).code(), said.as_str()), (Some(0), ""));
}
