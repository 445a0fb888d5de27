use orlop::gguf::{GgufPart, Writer};
use serde_json::Value;

use crate::support::Folder;
use crate::terminal::Terminal;
use crate::with_model::{command, default_model, json, orlop};

#[test]
fn mistakes_are_explained_and_the_chat_continues() {
    let folder = Folder::new();
    folder.file("note.txt", "Nothing that a chat can continue.");
    let mut chat = Terminal::chat(&["-n", "4", "-c", "256"], &folder.path("."));
    chat.prompt();
    for (line, expected) in [
        ("/dance", "unknown command /dance; /help lists"),
        ("/save", "/save needs a file name"),
        ("/save /nowhere/at/all.txt", "/nowhere/at/all.txt: cannot write the file ("),
        ("/save-state", "/save-state needs a file name"),
        ("/save-state /nowhere/at/all", "/nowhere/at/all: "),
        ("/load-state", "/load-state needs a file name"),
        ("/load-state nothing.state", "nothing.state: cannot open the file"),
        ("/load-state note.txt", "note.txt: not a GGUF file"),
        ("/reset everything", "/reset takes no argument"),
        ("/again", "no answer to regenerate yet"),
    ] {
        chat.enter(line);
        chat.expect(expected);
        chat.expect("\n> ");
    }
    chat.enter("/help");
    let help = chat.expect("\n> ");
    for name in ["/help", "/reset", "/again", "/memory", "/save FILE", "/save-state FILE", "/quit", "Ctrl-C"]
    {
        assert!(help.contains(name), "{name}: {help}");
    }
    chat.keys(b"a\xff");
    chat.expect("ignored: not UTF-8");
    chat.prompt();
    let (answer, counts) = chat.say("Say yes.");
    assert!(!answer.is_empty() && counts.answered > 0);
    chat.keys("\x04");
    assert_eq!(chat.end().0, Some(0));
}

/// The default model with another chat template, or none.
fn with_template(folder: &Folder, template: Option<&str>) -> String {
    let file = GgufPart::open(default_model()).unwrap();
    let mut writer = Writer::copy_of(&file).unwrap();
    writer.metadata_mut().remove("tokenizer.chat_template");
    if let Some(template) = template {
        writer.set("tokenizer.chat_template", template).unwrap();
    }
    let path = folder.path("model.gguf");
    writer.create(&path).unwrap();
    path
}

#[test]
fn without_a_working_template_a_chat_uses_a_generic_one() {
    let cases = [
        (None, "the model has no chat template; using a generic template"),
        (Some("{% for"), "the chat template does not work"),
        (Some("{{ raise_exception('not today') }}"), "not today"),
    ];
    for (template, expected) in cases {
        let folder = Folder::new();
        let model = with_template(&folder, template);
        let mut chat = Terminal::chat(&["-m", &model, "-n", "24", "-c", "256"], &folder.path("."));
        let mut said = chat.prompt();
        said += &chat.say("Say yes.").0;
        // A broken template may only fail at its first use.
        assert!(said.contains(expected), "{said}");
        let run = orlop(&["run", "-m", &model, "-t", "1", "--chat", "--json", "-n", "1", "Say yes."]);
        assert!(run.stderr.contains(expected), "{run:?}");
        let plain = json(&["tokenize", "--json", "User: Say yes.\nAssistant:"]);
        assert_eq!(serde_json::from_str::<Value>(&run.stdout).unwrap()["prompt_tokens"], plain["tokens"]);
        chat.keys("\x04");
        chat.end();
    }
}

#[test]
fn a_chat_prompt_uses_the_models_template() {
    let run = json(&["run", "--chat", "--json", "-n", "1", "--system", "Be brief.", "Say yes."]);
    let text = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nSay yes.<|im_end|>\n<|im_start|>assistant\n";
    let tokens = &json(&["tokenize", "--json", text])["tokens"];
    assert_eq!(run["prompt_tokens"], *tokens);
    let run = json(&["run", "--json", "-n", "1", "--system", "Be brief.", "Say yes."]);
    assert_eq!(run["prompt_tokens"], *tokens, "--system makes a prompt a message");
}

#[test]
fn options_that_need_a_prompt_are_rejected_in_a_chat() {
    let folder = Folder::new();
    let trace = folder.path("trace.json");
    for option in [&["--trace", &trace][..], &["--no-special"], &["--prompt-cache", &trace]] {
        let mut chat = command();
        chat.arg("run").args(option);
        let (status, said) = Terminal::start(&mut chat).end();
        assert_eq!(status, Some(2), "{said}");
        assert!(said.contains(&format!("{} is not supported in a chat", option[0])), "{said}");
    }
    assert!(folder.files().is_empty());
    for option in [&["--chat"][..], &["--system", "Be brief."]] {
        let said = orlop(&[&["run", "--no-special", "Say yes."], option].concat()).refusal(2);
        assert!(said.contains("--no-special") && said.contains(option[0]), "{said}");
    }
}

#[test]
fn a_penalty_for_repetition_changes_what_repeats() {
    let prompt = "one two one two one two one two one two one";
    let tokens = |penalty| {
        json(&["run", "--json", "--temp", "0", "-n", "6", "--repeat-penalty", penalty, prompt])["tokens"]
            .clone()
    };
    assert_ne!(tokens("1"), tokens("2"));
    for bad in ["0", "-1", "much", "inf"] {
        let said = orlop(&["run", &format!("--repeat-penalty={bad}"), prompt]).refusal(2);
        assert!(said.contains("positive number"), "{said}");
    }
}

#[test]
fn errors_of_size_suggest_flags_that_fit() {
    const PROMPT: &str = "one two three four five six seven eight nine ten";
    let said = orlop(&["bench", "-p", "3000", "-n", "16", "--budget", "cpu=105MB"]).refusal(3);
    let flags = said.rsplit_once("; ").unwrap().1.strip_suffix(" fits").unwrap();
    let fitting: Vec<&str> =
        ["bench", "--json", "-r", "1", "--budget", "cpu=105MB"].into_iter().chain(flags.split(' ')).collect();
    let tests = json(&fitting);
    assert_eq!(tests.as_array().unwrap().len(), 2, "{tests}");

    let said = orlop(&["run", "-c", "8", "-n", "2", PROMPT]).refusal(3);
    let flags = said.rsplit_once("; ").unwrap().1.strip_suffix(" fits").unwrap();
    let fitting: Vec<&str> =
        ["run", "-n", "2", "--json", PROMPT].into_iter().chain(flags.split(' ')).collect();
    assert_eq!(json(&fitting)["tokens"].as_array().unwrap().len(), 2);
    let said = orlop(&["run", "--budget", "cpu=1MB", "Hi"]).refusal(3);
    assert!(said.contains("even a context of 1 does not fit"), "{said}");
    let said = orlop(&["plan", &default_model(), "-c", "8192", "--budget", "cpu=200MB"]);
    assert!(said.stdout.contains("does not fit; -c "), "{said:?}");
}

#[test]
fn a_missing_prompt_without_a_terminal_is_an_error() {
    let said = orlop(&["run"]).refusal(2);
    assert!(said.contains("standard input is empty"), "{said}");
    let mut bad = command();
    let folder = Folder::new();
    let input = folder.file("prompt.txt", b"ab\xffcd");
    let run = bad.arg("run").stdin(std::fs::File::open(input).unwrap()).output().unwrap();
    let said = String::from_utf8(run.stderr).unwrap();
    assert_eq!(run.status.code(), Some(2));
    assert!(said.contains("not UTF-8 (byte 3 of 5)"), "{said}");
}
