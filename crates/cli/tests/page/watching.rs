//! What the page of `orlop serve` shows of the server, and how it suits its readers.

use orlop::llm::Synth;
use serde_json::json;

use crate::browser::Browser;
use crate::served::Served;
use crate::support::Folder;

#[test]
fn plan_pages_and_queue_are_shown_as_they_change() {
    let served = Served::start(&["--parallel", "2"]);
    let mut browser = Browser::start();
    browser.visit(served.address);
    browser.until("document.querySelectorAll('#devices .device').length === 1");
    // The first event of the feed.
    let plan = "fetch('/orlop/live').then((feed) => feed.body.getReader().read()) \
        .then(({value}) => new TextDecoder().decode(value).split('data: ')[1].split('\\n')[0]) \
        .then((text) => JSON.parse(text).devices[0])";
    let device = browser.run(plan);
    let titles =
        browser.run("[...document.querySelectorAll('.device [title]')].map((part) => part.title).join(';')");
    for part in ["weights", "kv", "compute", "total"] {
        let bytes = browser.run(&format!("({}).toLocaleString('en') + ' bytes'", device[part]));
        assert!(titles.as_str().unwrap().contains(bytes.as_str().unwrap()), "{part}: {bytes} in {titles}");
    }
    browser.until("document.getElementById('live-state').innerText === 'idle'");
    assert_eq!(browser.run("document.getElementById('cache').ariaLabel"), "No page is used.");
    // Answers to one prompt of several pages: two run, and share it.
    let prompt: Vec<u32> = (0..200).map(|place| 70 + place % 90).collect();
    let prompts = [&prompt, &prompt];
    let many = json!({"prompt": prompts, "max_tokens": 300, "n": 64, "ignore_eos": true, "stream": true});
    let asked = served.begin("/v1/completions", &many);
    browser.until("document.getElementById('cache').ariaLabel.startsWith('shared by #')");
    browser.until("document.getElementById('queue').innerText.includes('2 of at most 2 requests run')");
    assert_eq!(browser.number("document.querySelectorAll('#running li').length"), 2.0);
    assert!(browser.text("#running").contains("of 300 tokens"), "{}", browser.text("#running"));
    assert!(browser.text("#live-state").starts_with("2 running, "));
    assert_eq!(browser.number("document.querySelectorAll('#queue li').length"), 64.0);
    assert!(browser.text("#queue-rest").starts_with("and "));
    browser.until("document.getElementById('speed').innerText.includes('tokens/s')");
    browser.keep("serve-busy.png");
    drop(asked);
    browser.until("document.getElementById('live-state').innerText === 'idle'");
    browser.until("document.getElementById('cache').ariaLabel.startsWith('kept for later requests')");
    assert_eq!(browser.run("document.getElementById('no-queue').hidden"), false);
    // A panel that cannot be seen costs the server nothing.
    browser.ctrl(".");
    assert_eq!(browser.run("document.getElementById('live').hidden"), true);
    browser.ctrl(".");
    browser.until("document.getElementById('live-state').innerText === 'idle'");
    assert_eq!(browser.complaints, [""; 0]);
}

#[test]
fn it_fits_a_phone_and_follows_the_theme() {
    let served = Served::start(&[]);
    let mut browser = Browser::start();
    let size = json!({"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": true});
    browser.ask("Emulation.setDeviceMetricsOverride", size);
    browser.visit(served.address);
    served.scripted(
        "A wide table:\n\n| a | b | c | d | e |\n|-|-|-|-|-|\n\
         | one hundred | two hundred | three hundred | four hundred | five hundred |\n\n\
         ```\nlet line = \"code that is much wider than the screen of a phone is\";\n```\n\n\
         anunbrokenwordthatislongerthanthescreenofaphoneiswideandstillmustnotmakeitscroll",
    );
    browser
        .fill("#draft", "Anunbrokenwordthatislongerthanthescreenofaphoneiswideandstillmustnotmakeitscroll");
    browser.press("#send");
    browser.until("document.querySelector('.assistant:not(.writing) .table') !== null");
    let fits = "document.documentElement.scrollWidth <= innerWidth && \
        document.getElementById('messages').scrollWidth <= document.getElementById('messages').clientWidth";
    assert_eq!(browser.run(fits), true);
    browser.keep("chat-phone.png");
    for panel in ["sidebar", "live"] {
        assert_eq!(browser.run(&format!("document.getElementById('{panel}').hidden")), true);
        browser.press(&format!("#{panel}-toggle"));
        let edge =
            browser.number(&format!("document.getElementById('{panel}').getBoundingClientRect().right"));
        assert!(edge <= 390.0, "{panel} ends at {edge}");
        browser.press(&format!("#{panel}-toggle"));
        assert_eq!(browser.run(&format!("document.getElementById('{panel}').hidden")), true);
    }
    browser.press("#sidebar-toggle");
    browser.click(380.0, 600.0);
    let hidden = browser.run("document.getElementById('sidebar').hidden");
    assert_eq!(hidden, true, "what it covers, pressed, closes it");
    let ground = "getComputedStyle(document.body).backgroundColor";
    browser.surroundings("light");
    let light = browser.run(ground);
    browser.surroundings("dark");
    let dark = browser.run(ground);
    assert_ne!(light, dark);
    browser.press("#theme");
    assert_eq!(browser.run(ground), light);
    browser.visit(served.address);
    assert_eq!(browser.run(ground), light, "what was chosen is kept");
    assert_eq!(browser.complaints, [""; 0]);
}

#[test]
fn everything_has_a_name_and_can_be_reached_by_keys() {
    let served = Served::start(&[]);
    let mut browser = Browser::start();
    browser.visit(served.address);
    served.scripted("Yes.\n\n```\ncode\n```");
    browser.fill("#draft", "Is it?");
    browser.key("Enter");
    browser.until("document.querySelector('.assistant:not(.writing) .code') !== null");
    // What the browser tells a screen reader of each control.
    let tree = browser.ask("Accessibility.getFullAXTree", json!({}));
    let controls = [
        "button",
        "textbox",
        "searchbox",
        "combobox",
        "MenuListPopup",
        "spinbutton",
        "link",
        "dialog",
        "image",
    ];
    let mut named = 0;
    for node in tree["nodes"].as_array().unwrap() {
        let role = node["role"]["value"].as_str().unwrap_or_default();
        if node["ignored"] == true || !controls.contains(&role) || role == "MenuListPopup" {
            continue;
        }
        named += 1;
        assert_ne!(node["name"]["value"].as_str().unwrap_or_default(), "", "{node}");
    }
    assert!(named >= 15, "{named} controls");
    let unlabelled = "[...document.querySelectorAll('input, select, textarea')] \
        .filter((input) => !input.labels.length && !input.ariaLabel).map((input) => input.id)";
    assert_eq!(browser.run(unlabelled), json!([]));
    // Every control that is seen is reached by Tab.
    let reached = (0..60).map(|_| {
        browser.key("Tab");
        browser.run("document.activeElement.id")
    });
    let reached: Vec<String> = reached.filter_map(|id| id.as_str().map(str::to_owned)).collect();
    for id in [
        "new",
        "search",
        "export",
        "import",
        "title",
        "theme",
        "settings-open",
        "live-toggle",
        "messages",
        "draft",
    ] {
        assert!(reached.iter().any(|reached| reached == id), "{id} in {reached:?}");
    }
    browser.ctrl("k");
    assert_eq!(browser.run("document.activeElement.id"), "search");
    browser.ctrl(",");
    assert_eq!(browser.run("document.getElementById('settings').open"), true);
    browser.key("Escape");
    assert_eq!(browser.run("document.getElementById('settings').open"), false);
    browser.ctrl("/");
    assert!(browser.text("#keys").contains("New conversation"));
    browser.key("Escape");
    assert_eq!(browser.complaints, [""; 0]);
}

#[test]
fn the_chosen_model_answers_and_is_the_one_that_is_shown() {
    let folder = Folder::new();
    let synth = Synth { context: 256, vocabulary: 400, ..Synth::default() };
    let second = folder.file("second.gguf", synth.bytes().unwrap());
    let served = Served::start(&["-m", &second]);
    let mut browser = Browser::start();
    browser.visit(served.address);
    assert_eq!(
        browser.run("[...document.getElementById('model').options].map(({value}) => value).join()"),
        "tiny,second"
    );
    assert_eq!(browser.text("#context-text"), "0 of 512 tokens");
    browser.run(
        "(() => { const model = document.getElementById('model'); model.value = 'second'; model.onchange(); })()",
    );
    browser.until("document.getElementById('context-text').innerText === '0 of 256 tokens'");
    served.scripted("Yes.");
    browser.fill("#draft", "Are you the second?");
    browser.key("Enter");
    browser.until("document.querySelectorAll('#messages .assistant').length === 1");
    assert_eq!(served.last_asked()["model"], "second");
    // The feed of the model that is shown.
    drop(served.begin("/v1/completions", &json!({"model": "second", "prompt": [70], "max_tokens": 1})));
    browser.until("document.getElementById('live-state').innerText === 'idle'");
    assert_eq!(browser.complaints, [""; 0]);
}
