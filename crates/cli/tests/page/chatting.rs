//! Conversations on the page of `orlop serve`.

use serde_json::{Value, json};

use crate::browser::Browser;
use crate::served::Served;
use crate::support::Folder;

/// No answer is being written.
const QUIET: &str = "!document.querySelector('.assistant.writing') && document.getElementById('stop').hidden";

/// A browser that shows the page of a server.
fn visitor(served: &Served) -> Browser {
    let mut browser = Browser::start();
    browser.visit(served.address);
    browser
}

fn send(browser: &mut Browser, text: &str) {
    browser.fill("#draft", text);
    browser.key("Enter");
}

/// Sends a message that is answered by a text, and waits for it.
fn talk(browser: &mut Browser, served: &Served, text: &str, answer: &str) {
    served.scripted(answer);
    send(browser, text);
    browser.until(QUIET);
}

/// Visits the page again, when everything is stored.
fn reload(browser: &mut Browser, served: &Served) {
    browser.run("import('/page/store.js').then((store) => store.all()).then((all) => all.length)");
    browser.visit(served.address);
}

/// The text of each message that is shown.
fn shown(browser: &mut Browser) -> Value {
    browser.run("[...document.querySelectorAll('#messages .text')].map((text) => text.innerText.trim())")
}

/// Presses the button with a label within the last element that a selector finds.
fn press_in(browser: &mut Browser, selector: &str, label: &str) {
    browser.run(&format!(
        "[...document.querySelectorAll('{selector}')].at(-1) \
         .querySelector('[aria-label=\"{label}\"]').click()"
    ));
    browser.settle();
}

#[test]
fn a_model_answers_and_the_conversation_survives_a_reload() {
    let served = Served::start(&["--alias", "tiny"]);
    let mut browser = visitor(&served);
    browser.run(
        "localStorage.setItem('orlop-settings', JSON.stringify({max_tokens: 24, temperature: 0, seed: 1}))",
    );
    browser.ctrl(",");
    browser.fill("#system", "Be brief.");
    for (field, value) in [("top_p", "7"), ("min_p", "0.07"), ("repeat_penalty", "1.1")] {
        browser.fill(&format!("#set-{field}"), value);
        browser.key("Tab");
    }
    browser.key("Escape");
    send(&mut browser, "Hello there");
    browser.until(QUIET);
    let asked = served.last_asked();
    assert_eq!(
        (&asked["max_tokens"], &asked["temperature"], &asked["seed"]),
        (&json!(24), &json!(0), &json!(1))
    );
    assert_eq!((&asked["min_p"], &asked["repeat_penalty"]), (&json!(0.07), &json!(1.1)));
    assert_eq!(asked["top_p"], Value::Null, "what is out of bounds is not taken");
    let messages =
        json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello there"}]);
    assert_eq!(asked["messages"], messages);
    let stats = browser.text(".assistant .stats");
    assert!(stats.contains("tokens/s") && stats.contains(" tokens · ") && !stats.contains('≈'), "{stats}");
    let context = browser.text("#context-text");
    assert!(context.ends_with("of 512 tokens") && !context.starts_with("0 "), "{context}");
    assert_eq!(browser.run("document.getElementById('model').value"), "tiny");
    let before = shown(&mut browser);
    assert!(before[1].as_str().is_some_and(|text| !text.is_empty()), "{before}");
    reload(&mut browser, &served);
    assert_eq!(shown(&mut browser), before);
    assert_eq!(browser.text("#conversations .choose"), "Hello there");
    assert_eq!(browser.run("document.title"), "Hello there – Orlop");
    assert_eq!(browser.complaints, [""; 0]);
    let own = format!("http://{}/", served.address);
    let foreign: Vec<&String> =
        browser.requests.iter().filter(|url| !url.starts_with(&own) && *url != "about:blank").collect();
    assert!(foreign.is_empty(), "{foreign:?}");
}

#[test]
fn markdown_is_drawn_while_it_comes() {
    let served = Served::start(&[]);
    let mut browser = visitor(&served);
    let script = served.script();
    send(&mut browser, "Tell me of ships.");
    script.say("# Sh");
    browser.until("document.querySelector('.assistant h3')?.textContent === 'Sh'");
    script.say("ips\n\nAn *orlop* is");
    browser.until("document.querySelector('.assistant em')?.textContent === 'orlop'");
    browser.run("document.querySelector('.assistant h3').isOld = true");
    script.say(" a deck:\n\n1. low\n2. **dark**\n\n| deck | height |\n|---|--:|\n| orlop | 1.7 |\n\n");
    script.say("```rust\nlet deck = \"orlop\";");
    browser.until("document.querySelector('.assistant .code .string')?.textContent === '\"orlop\"'");
    assert_eq!(browser.run("document.querySelector('.assistant h3').isOld"), true, "what is complete stays");
    assert_eq!(browser.run("document.querySelector('.assistant td.right').textContent"), "1.7");
    assert_eq!(browser.run("document.querySelector('article.assistant').ariaBusy"), "true");
    script.say("\n```\n");
    drop(script);
    browser.until(QUIET);
    let stats = browser.text(".assistant .stats");
    for part in ["42.1 tokens/s", "30 tokens", "64 of 120 prompt tokens cached"] {
        assert!(stats.contains(part), "{part}: {stats}");
    }
    assert_eq!(browser.text("#context-text"), "150 of 512 tokens");
    assert_eq!(browser.text("#status"), "The answer is complete.");
    // The clipboard of a browser without a screen cannot be read.
    browser.run("navigator.clipboard.writeText = async (text) => { window.copied = text; }");
    press_in(&mut browser, ".assistant .code", "Copy this code");
    assert_eq!(browser.run("window.copied"), "let deck = \"orlop\";");
    press_in(&mut browser, ".user", "Copy this message");
    assert_eq!(browser.run("window.copied"), "Tell me of ships.");
    browser.keep("chat-light.png");
    browser.surroundings("dark");
    browser.keep("chat-dark.png");
    assert_eq!(browser.complaints, [""; 0]);
}

#[test]
fn an_answer_is_stopped_and_continued() {
    let served = Served::start(&[]);
    let mut browser = visitor(&served);
    let script = served.script();
    send(&mut browser, "Count.");
    script.say("One, two");
    browser.until("document.querySelector('.assistant .text').innerText === 'One, two'");
    browser.press("#stop");
    browser.until(QUIET);
    // The server is told, by a connection that ends.
    while script.say(".") {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(shown(&mut browser), json!(["Count.", "One, two"]));
    assert!(browser.text(".assistant .stats").contains("stopped"));
    served.scripted(", three");
    press_in(&mut browser, ".assistant", "Continue this answer");
    browser.until(QUIET);
    let asked = served.last_asked()["messages"].clone();
    let expected =
        json!([{"role": "user", "content": "Count."}, {"role": "assistant", "content": "One, two"}]);
    assert_eq!(asked, expected);
    assert_eq!(shown(&mut browser), json!(["Count.", "One, two, three"]));
    let script = served.script();
    send(&mut browser, "More.");
    script.say("Four");
    browser.until("document.querySelectorAll('.assistant').length === 2");
    browser.key("Escape");
    browser.until(QUIET);
    assert_eq!(browser.complaints, [""; 0]);
}

#[test]
fn answering_again_and_editing_lose_nothing() {
    let served = Served::start(&[]);
    let mut browser = visitor(&served);
    talk(&mut browser, &served, "Which fish?", "Cod");
    served.scripted("Hake");
    press_in(&mut browser, ".assistant", "Answer again");
    browser.until(QUIET);
    assert_eq!(shown(&mut browser), json!(["Which fish?", "Hake"]));
    assert_eq!(browser.text(".assistant .place"), "2/2");
    press_in(&mut browser, ".assistant", "Earlier version");
    assert_eq!(shown(&mut browser), json!(["Which fish?", "Cod"]));
    talk(&mut browser, &served, "Why?", "It is cold.");
    let asked = served.last_asked()["messages"].clone();
    assert_eq!(asked[1]["content"], "Cod", "the branch that is shown is what the model reads");
    press_in(&mut browser, ".user:first-child", "Edit this message");
    browser.fill(".editing textarea", "Which bird?");
    served.scripted("Gull");
    browser.key("Enter");
    browser.until(QUIET);
    assert_eq!(served.last_asked()["messages"], json!([{"role": "user", "content": "Which bird?"}]));
    assert_eq!(shown(&mut browser), json!(["Which bird?", "Gull"]));
    press_in(&mut browser, ".user", "Earlier version");
    assert_eq!(shown(&mut browser), json!(["Which fish?", "Hake"]), "the newest end of that branch");
    press_in(&mut browser, ".assistant", "Earlier version");
    assert_eq!(shown(&mut browser), json!(["Which fish?", "Cod", "Why?", "It is cold."]));
    // An edit that is given up changes nothing.
    browser.run("document.getElementById('draft').focus()");
    browser.key("ArrowUp");
    browser.fill(".editing textarea", "no");
    browser.key("Escape");
    assert_eq!(shown(&mut browser), json!(["Which fish?", "Cod", "Why?", "It is cold."]));
    reload(&mut browser, &served);
    assert_eq!(shown(&mut browser), json!(["Which fish?", "Cod", "Why?", "It is cold."]));
    assert_eq!(browser.complaints, [""; 0]);
}

#[test]
fn reasoning_is_folded_and_errors_are_shown() {
    let served = Served::start(&[]);
    let mut browser = visitor(&served);
    let script = served.script();
    send(&mut browser, "Think.");
    script.think("First, *this*.");
    browser.until("document.querySelector('.reasoning summary')?.textContent === 'Thinking…'");
    script.say("Done.");
    browser.until("document.querySelector('.reasoning summary').textContent.startsWith('Thought for')");
    drop(script);
    browser.until(QUIET);
    assert_eq!(browser.run("document.querySelector('.reasoning').open"), false);
    assert_eq!(browser.run("document.querySelector('.reasoning em').textContent"), "this");
    assert_eq!(shown(&mut browser), json!(["Think.", "Done."]));
    let script = served.script();
    send(&mut browser, "And now?");
    assert_eq!(served.last_asked()["messages"][1], json!({"role": "assistant", "content": "Done."}));
    script.say("Half");
    script.fail("the device was lost");
    browser.until(QUIET);
    assert_eq!(
        browser.run("[...document.querySelectorAll('.error')].at(-1).innerText"),
        "the device was lost"
    );
    assert_eq!(shown(&mut browser)[3], "Half", "what has come stays");
    assert_eq!(browser.complaints, [""; 0]);
}

#[test]
fn text_of_a_model_stays_text() {
    let served = Served::start(&[]);
    let mut browser = visitor(&served);
    let hostile = [
        "<script>window.hacked = 1</script>",
        "<img src=x onerror=\"window.hacked = 2\">",
        "[press](javascript:window.hacked=3) <javascript:window.hacked=3>",
        "[data](data:text/html;base64,PHNjcmlwdD4=) ![i](https://elsewhere.example/spy.png)",
        "```\"><script>window.hacked = 4</script>\n</code></pre><script>window.hacked = 5</script>\n```",
        "| <svg onload=window.hacked=6> | b |\n|---|---|\n| <iframe src=//elsewhere.example> | `<b>` |",
        "- <style>body{display:none}</style>\n- <a href=\"javascript:window.hacked=7\">x</a>",
        "# <form action=//elsewhere.example><button>\n> <base href=//elsewhere.example>",
    ];
    let script = served.script();
    send(&mut browser, hostile[0]);
    script.think(hostile[1]);
    // Piece by piece, so that half of each is drawn, too.
    for piece in hostile.join("\n\n").as_bytes().chunks(7) {
        script.say(std::str::from_utf8(piece).unwrap());
    }
    drop(script);
    browser.until(QUIET);
    browser.run("document.querySelector('.reasoning').open = true");
    reload(&mut browser, &served);
    let made = "#messages \
        :is(script, img, svg:not(button svg), iframe, style, form, base, [onerror], [onload], [style])";
    assert_eq!(browser.number(&format!("document.querySelectorAll('{made}').length")), 0.0);
    let links =
        browser.run("[...document.querySelectorAll('#messages a')].map((link) => [link.href, link.rel])");
    assert_eq!(links, json!([["https://elsewhere.example/spy.png", "noopener noreferrer"]]));
    let text = shown(&mut browser)[1].as_str().unwrap().to_owned();
    for part in ["<script>window.hacked = 1</script>", "onerror=", "<svg onload=", "<style>", "<form action"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(browser.text("#conversations .choose"), hostile[0]);
    assert_eq!(browser.run("window.hacked ?? null"), Value::Null);
    assert!(!browser.requests.iter().any(|url| url.contains("elsewhere")), "{:?}", browser.requests);
    // Nothing but files of the server may run, whatever is put into the page.
    browser.run(
        "const script = document.createElement('script'); script.textContent = 'window.hacked = 8'; \
         document.body.append(script);",
    );
    assert_eq!(browser.run("window.hacked ?? null"), Value::Null);
    assert!(
        browser.complaints.iter().all(|text| text.contains("Content Security Policy")),
        "{:?}",
        browser.complaints
    );
}

#[test]
fn conversations_are_searched_renamed_deleted_and_carried_over() {
    let served = Served::start(&[]);
    let mut browser = visitor(&served);
    talk(&mut browser, &served, "About ropes", "Hemp");
    browser.press("#new");
    talk(&mut browser, &served, "About sails", "Canvas **cloth**");
    let titles = "[...document.querySelectorAll('#conversations .choose')].map((row) => row.innerText)";
    assert_eq!(browser.run(titles), json!(["About sails", "About ropes"]));
    browser.ctrl("k");
    browser.ask("Input.insertText", json!({"text": "hemp"}));
    assert_eq!(browser.run(titles), json!(["About ropes"]));
    browser.fill("#search", "");
    browser.key("Backspace");
    browser.press("#conversations .choose");
    browser.run("document.getElementById('title').focus()");
    browser.fill("#title", "Sailcloth");
    browser.key("Enter");
    browser.until("document.querySelector('#conversations .choose').innerText === 'Sailcloth'");
    let folder = Folder::new();
    let download = json!({"behavior": "allow", "downloadPath": folder.path("")});
    browser.ask("Browser.setDownloadBehavior", download);
    browser.press("#export");
    let path = folder.path("orlop-conversations.json");
    let begin = std::time::Instant::now();
    let exported = loop {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        if let Ok(json) = serde_json::from_str::<Value>(&text) {
            break json;
        }
        assert!(begin.elapsed().as_secs() < 60, "nothing is exported: {text}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    assert_eq!(exported["format"], "orlop conversations 1");
    assert_eq!(exported["conversations"][0]["title"], "Sailcloth");
    assert_eq!(exported["conversations"][1]["messages"][1]["text"], "Hemp");
    // Deleted, wanted back, and deleted for good.
    let row = "#conversations li:not(.day)";
    press_in(&mut browser, row, "Delete “About ropes”");
    browser.run("document.querySelector('.toast button').click()");
    assert_eq!(browser.run(titles).as_array().unwrap().len(), 2);
    press_in(&mut browser, row, "Delete “About ropes”");
    browser.press("#new");
    assert_eq!(browser.run(titles), json!(["Sailcloth"]));
    import(&mut browser, &path);
    browser.until("document.querySelector('.toast')?.innerText.startsWith('1 of 2 conversations imported')");
    assert_eq!(browser.run(titles).as_array().unwrap().len(), 2);
    reload(&mut browser, &served);
    assert_eq!(browser.run(titles).as_array().unwrap().len(), 2);
    for (name, contents) in [
        ("broken.json", "{".to_owned()),
        ("other.json", json!({"format": "else", "conversations": []}).to_string()),
        ("circle.json", spoiled(&exported, json!([{"id": 1, "parent": 1, "role": "user", "text": "a"}]))),
        ("role.json", spoiled(&exported, json!([{"id": 1, "parent": null, "role": "system", "text": "a"}]))),
        ("type.json", spoiled(&exported, json!([{"id": 1, "parent": null, "role": "user", "text": {}}]))),
    ] {
        import(&mut browser, &folder.file(name, contents));
        browser.until(&format!(
            "document.querySelector('.toast')?.innerText.startsWith('{name} cannot be imported')"
        ));
        assert_eq!(browser.run(titles).as_array().unwrap().len(), 2, "{name}");
    }
    assert_eq!(browser.complaints, [""; 0]);
}

/// An export whose first conversation has other messages.
fn spoiled(exported: &Value, messages: Value) -> String {
    let mut spoiled = exported.clone();
    spoiled["conversations"][0]["messages"] = messages;
    spoiled.to_string()
}

/// Chooses a file to import.
fn import(browser: &mut Browser, path: &str) {
    let root = browser.ask("DOM.getDocument", json!({}))["root"]["nodeId"].clone();
    let found = browser.ask("DOM.querySelector", json!({"nodeId": root, "selector": "#file"}));
    browser.ask("DOM.setFileInputFiles", json!({"nodeId": found["nodeId"], "files": [path]}));
}

#[test]
fn a_server_with_a_key_is_asked_for_with_one() {
    let served = Served::start(&["--api-key", "sk-right"]);
    let mut browser = visitor(&served);
    browser.until("document.getElementById('key').open");
    for key in ["sk-wrong", "sk-right"] {
        browser.fill("#key-input", key);
        browser.key("Enter");
        let refused = key == "sk-wrong";
        browser.until(&format!("document.getElementById('key').open === {refused}"));
    }
    browser.until("document.getElementById('devices').innerText.includes('cpu')");
    browser.run("localStorage.setItem('orlop-settings', JSON.stringify({max_tokens: 4}))");
    send(&mut browser, "Hello");
    browser.until(QUIET);
    assert!(browser.text(".assistant .stats").contains("tokens"));
    reload(&mut browser, &served);
    assert_eq!(browser.run("document.getElementById('key').open"), false);
}
