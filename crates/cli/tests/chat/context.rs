use crate::support::Folder;
use crate::terminal::Terminal;

#[test]
fn a_full_context_is_reported_and_the_oldest_turns_can_be_dropped() {
    let folder = Folder::new();
    let mut chat = Terminal::chat(&["-n", "12", "-c", "120"], &folder.path("."));
    chat.prompt();
    let mut turns = 0;
    // Questions of equal length, until they no longer fit.
    let offer = loop {
        chat.enter("Name a colour, please.");
        let heard = chat.expect("\n");
        if heard.contains("exceeds the context") {
            break heard;
        }
        let (_, counts) = chat.answer();
        turns += 1;
        assert!(counts.used <= 120 && turns < 10, "{counts:?}");
    };
    assert!(offer.contains("exceeds the context of 120"), "{offer}");
    chat.expect("oldest turn");
    chat.expect("[Y/n] ");
    chat.keys("n\r");
    chat.expect("withdrawn");
    chat.expect("> ");

    chat.enter("Name a colour, please.");
    chat.expect("[Y/n] ");
    chat.keys("\r");
    let (answer, counts) = chat.answer();
    assert!(!answer.is_empty() && counts.used <= 90 + 12, "{answer}: {counts:?}");
    chat.enter("/memory");
    let memory = chat.expect(" turn");
    let left: usize = memory.rsplit(' ').next().unwrap().parse().unwrap();
    chat.prompt();
    assert!(left <= turns, "{left} of {turns}");

    let long = "word ".repeat(200);
    chat.keys(&long);
    chat.keys("\r");
    chat.expect("write a shorter message, or use a larger context (-c)\n> ");
    chat.keys("\x04");
    chat.end();
}
