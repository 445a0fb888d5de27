use serde_json::Value;

use crate::support::Folder;
use crate::terminal::Terminal;
use crate::with_model::json;

const TRANSCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/chat/transcript.txt");

/// The tokens that a message adds to SmolLM2's chat, from the end of the last answer on.
fn tokens_of(message: &str) -> usize {
    let text = format!("<|im_end|>\n<|im_start|>user\n{message}<|im_end|>\n<|im_start|>assistant\n");
    json(&["tokenize", "--json", "--plain", &text])["tokens"].as_array().unwrap().len()
}

#[test]
fn a_chat_of_five_turns_matches_the_transcript() {
    let folder = Folder::new();
    // Quantized activations could give other words on other machines.
    let exact = ["--precision", "f32", "-ctk", "f32", "-ctv", "f32"];
    let mut chat = Terminal::chat(&[&["-n", "48", "-c", "1024"][..], &exact].concat(), &folder.path("."));
    chat.prompt();
    let mut transcript = String::new();
    let mut say = |chat: &mut Terminal, message: &str| {
        let (answer, counts) = chat.say(message);
        let (kept, new, answered) = (counts.kept, counts.new, counts.answered);
        transcript += &format!("> {message}\n{answer}\n({kept} kept, {new} new, {answered} answered)\n\n");
        (answer, counts)
    };
    let (first, counts) = say(&mut chat, "What is the capital of France?");
    assert_eq!(counts.kept, 0);
    let used = counts.used;

    // The model ended its answer, so only that end and the message are new.
    let message = "Which river flows through it?";
    let (_, counts) = say(&mut chat, message);
    assert_eq!((counts.kept, counts.new), (used, tokens_of(message)));
    let used = counts.used;

    chat.enter("Tell me a long story about a ship.");
    let begun = chat.expect(" ");
    chat.keys("\x03");
    let (rest, counts) = chat.answer();
    assert!(rest.contains("stopped"), "{rest}");
    assert!(counts.answered < 48 && counts.kept == used, "{counts:?}: {rest}");

    chat.enter("/memory");
    let memory = chat.expect(" used by 3 turns\n> ");
    assert!(memory.contains("repacked") && memory.contains(" of 1024 tokens"), "{memory}");
    chat.enter("/save chat.json");
    chat.expect("chat saved to chat.json\n> ");
    let saved: Value = serde_json::from_slice(&std::fs::read(folder.path("chat.json")).unwrap()).unwrap();
    let roles: Vec<&str> =
        saved.as_array().unwrap().iter().map(|said| said["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant", "user", "assistant"]);
    assert_eq!(saved[1]["content"], first.as_str());
    assert!(saved[5]["content"].as_str().unwrap().starts_with(&begun), "{saved}");

    chat.enter("/reset");
    chat.expect("chat cleared\n> ");
    let (again, counts) = say(&mut chat, "What is the capital of France?");
    assert_eq!(again, first, "nothing of the turns before is left");
    assert_eq!(counts.new, 1, "the beginning is still in the cache");
    say(&mut chat, "Say it in one word.");

    chat.keys("\x04");
    let (status, said) = chat.end();
    assert_eq!(status, Some(0), "{said}");
    let history = std::fs::read_to_string(folder.path("orlop/history")).unwrap();
    assert!(history.contains("Which river") && history.contains("/save"), "{history}");

    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(TRANSCRIPT, &transcript).unwrap();
    }
    assert_eq!(transcript, std::fs::read_to_string(TRANSCRIPT).unwrap());
}

#[test]
fn a_saved_chat_continues_in_another_process() {
    let folder = Folder::new();
    let start = |folder: &Folder| {
        let mut chat = Terminal::chat(&["-n", "12", "-c", "256"], &folder.path("."));
        chat.prompt();
        chat
    };
    let mut chat = start(&folder);
    let (_, first) = chat.say("What is the capital of France?");
    chat.enter("/save-state paris.state");
    chat.expect(&format!("chat of 1 turn and {} tokens saved to paris.state (", first.used));
    chat.prompt();
    let (expected, counts) = chat.say("Which river flows through it?");
    chat.keys("\x04");
    chat.end();

    let mut chat = start(&folder);
    chat.say("Name three colours.");
    // A damaged file changes nothing.
    let mut damaged = std::fs::read(folder.path("paris.state")).unwrap();
    let last = damaged.len() - 1000;
    damaged[last] ^= 1;
    folder.file("damaged.state", damaged);
    chat.enter("/load-state damaged.state");
    chat.expect("damaged.state: it is damaged: its checksum is ");
    chat.prompt();
    chat.enter("/memory");
    chat.expect(" used by 1 turn\n> ");
    chat.enter("/load-state paris.state");
    chat.expect(&format!("chat of 1 turn and {} tokens loaded from paris.state\n> ", first.used));
    let (again, loaded) = chat.say("Which river flows through it?");
    assert_eq!(again, expected);
    assert_eq!((loaded.kept, loaded.new), (counts.kept, counts.new));
    chat.keys("\x04");
    assert_eq!(chat.end().0, Some(0));
}

#[test]
fn lines_are_edited_recalled_and_completed() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path("orlop")).unwrap();
    folder.file("orlop/history", "#V2\nSay yes.\n");
    let mut chat = Terminal::chat(&["-n", "4", "-c", "256"], &folder.path("."));
    chat.prompt();
    chat.keys("\x1b[A");
    chat.expect("Say yes.");
    chat.keys("\r");
    let (first, _) = chat.answer();
    chat.keys("/ag\t\r");
    let (second, counts) = chat.answer();
    assert!(second.ends_with(first.trim_start()), "{first:?} {second:?}");
    assert_eq!(counts.new, 1);
    chat.keys("/ret\x7fset\r");
    chat.expect("cleared\n> ");
    chat.keys("Say\\\r");
    chat.expect(". ");
    chat.keys("ja é.\r");
    chat.answer();
    chat.enter("/save two lines.txt");
    chat.expect("chat saved to two lines.txt\n> ");
    let saved = std::fs::read_to_string(folder.path("two lines.txt")).unwrap();
    assert!(saved.starts_with("user: Say\nja é.\n"), "{saved}");
    chat.enter("/quit");
    assert_eq!(chat.end().0, Some(0));
}

#[test]
fn ctrl_c_at_the_prompt_asks_once_and_then_ends() {
    let mut chat = Terminal::chat(&["-c", "256"], &Folder::new().path("."));
    chat.prompt();
    chat.keys("never mind");
    chat.expect("never mind");
    chat.keys("\x03");
    chat.expect("Ctrl-C again, Ctrl-D or /quit ends the chat\n> ");
    chat.keys("\x03");
    assert_eq!(chat.end().0, Some(0));
}

#[test]
fn a_long_prompt_shows_a_bar_and_can_be_stopped() {
    let system = "The ship sailed on. ".repeat(150);
    let arguments = ["-n", "2", "-c", "1024", "-ub", "32", "--system", &system];
    let mut chat = Terminal::chat(&arguments, &Folder::new().path("."));
    chat.prompt();
    chat.keys("Hi\r");
    chat.expect("reading ");
    chat.keys("\x03");
    chat.expect("stopped; the last message is withdrawn\n");
    chat.prompt();
    let (_, counts) = chat.say("Hi");
    assert!(counts.kept + counts.new > 750 && counts.kept % 32 == 0, "{counts:?}");
    chat.keys("\x04");
    assert_eq!(chat.end().0, Some(0));
}
