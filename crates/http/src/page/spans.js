// The text of a block as spans: strings, and objects with a `kind`. HTML in the text stays text.

const PUNCTUATION = /[\p{P}\p{S}]/u;
const ESCAPED = /[!-/:-@[-`{-~]/;
// Bounds keep a text of brackets from being read again and again.
const LABEL = /!?\[((?:[^[\]\\]|\\[^]|\[[^[\]]{0,200}\]){0,500})\]/;
const TARGET = /\(<?((?:[^()\s<>]|\([^()\s<>]{0,500}\)){0,2000})>?(?:[ \t]+"[^"\n]{0,500}")?\)/;
const LINK = new RegExp(LABEL.source + TARGET.source, "y");
const ADDRESS = /https?:\/\/[^\s<>"`]{1,2000}/y;
const ANGLE = /<(https?:\/\/[^\s<>]{1,2000})>/y;

/** Marks that may be open at the same time; more are text. */
const DEEPEST = 32;

/** The spans of a text. Within a link there are no links. */
export function spans(text, inLink = false) {
  const reader = new Reader(text, inLink);
  while (reader.at < text.length) reader.next();
  return reader.finish();
}

/** The address of a link, if it may be followed. */
export function safeAddress(address) {
  try {
    const url = new URL(address);
    return ["http:", "https:"].includes(url.protocol) ? url.href : null;
  } catch {
    return null; // relative addresses mean nothing here
  }
}

class Reader {
  constructor(text, inLink) {
    this.text = text;
    this.inLink = inLink;
    this.at = 0;
    // Each open mark with the spans behind it. The first frame is the text itself.
    this.frames = [{ char: "", count: 0, items: [] }];
    this.backticks = null;
  }

  get items() {
    return this.frames.at(-1).items;
  }

  put(span) {
    const { items } = this;
    if (typeof span === "string" && typeof items.at(-1) === "string") items.push(items.pop() + span);
    else if (span !== "") items.push(span);
  }

  match(pattern) {
    pattern.lastIndex = this.at;
    return pattern.exec(this.text);
  }

  next() {
    const { text, at } = this;
    const char = text[at];
    if (char === "\\") this.escape();
    else if (char === "`") this.code();
    else if (char === "*" || char === "_" || char === "~") this.mark(char);
    else if (char === "\n") this.take({ kind: "break" }, 1);
    else if ((char === "[" || (char === "!" && text[at + 1] === "[")) && !this.inLink) this.link();
    else if (char === "<" && !this.inLink) this.address(this.match(ANGLE), char);
    else if (char === "h" && !this.inLink && !/\w/.test(text[at - 1] ?? " ")) {
      this.address(this.match(ADDRESS), char);
    } else {
      const plain = /[^\\`*_~\n[!<h]+/y;
      plain.lastIndex = at;
      this.take(plain.exec(text)?.[0] ?? char);
    }
  }

  take(span, length = span.length) {
    this.put(span);
    this.at += length;
  }

  escape() {
    const next = this.text[this.at + 1] ?? "";
    if (next === "\n") this.take({ kind: "break" }, 2);
    else if (ESCAPED.test(next)) this.take(next, 2);
    else this.take("\\");
  }

  code() {
    const length = this.run("`");
    const from = this.at + length;
    const end = this.closing(length, from);
    if (end < 0) return this.take("`".repeat(length));
    const inside = this.text.slice(from, end).replaceAll("\n", " ");
    const padded = inside.length > 2 && inside.startsWith(" ") && inside.endsWith(" ");
    this.take({ kind: "code", text: padded ? inside.slice(1, -1) : inside }, end + length - this.at);
  }

  /** Where a run of this many backticks begins. Runs are listed once: an open one is not searched again. */
  closing(length, from) {
    if (!this.backticks) {
      this.backticks = new Map();
      for (const { 0: run, index } of this.text.matchAll(/`+/g)) {
        if (!this.backticks.has(run.length)) this.backticks.set(run.length, []);
        this.backticks.get(run.length).push(index);
      }
      this.backticks.forEach((places) => places.reverse());
    }
    const places = this.backticks.get(length) ?? [];
    while (places.length && places.at(-1) < from) places.pop();
    return places.at(-1) ?? -1;
  }

  run(char) {
    let length = 1;
    while (this.text[this.at + length] === char) length++;
    return length;
  }

  link() {
    const found = this.match(LINK);
    if (!found) return this.take(this.text[this.at]);
    const [whole, label, address] = found;
    const href = safeAddress(address);
    if (href) this.take({ kind: "link", href, spans: spans(label || href, true) }, whole.length);
    else this.take(whole);
  }

  address(found, char) {
    if (!found) return this.take(char);
    const whole = found[1] ? found[0] : untrailed(found[0]);
    const address = found[1] ?? whole;
    const href = safeAddress(address);
    if (href) this.take({ kind: "link", href, spans: [address] }, whole.length);
    else this.take(whole);
  }

  /** Emphasis, as CommonMark has it: a mark opens or closes by what is on its sides. */
  mark(char) {
    const count = this.run(char);
    const before = sideOf(this.text[this.at - 1]);
    const after = sideOf(this.text[this.at + count]);
    const left = after !== "space" && (after !== "punctuation" || before !== "letter");
    const right = before !== "space" && (before !== "punctuation" || after !== "letter");
    const opens = char === "_" ? left && (!right || before === "punctuation") : left;
    const closes = char === "_" ? right && (!left || after === "punctuation") : right;
    this.at += count;
    if (char === "~" && count !== 2) return this.put("~".repeat(count));
    let rest = count;
    while (closes && rest > 0) {
      const place = this.opener(char, rest, opens);
      if (place < 0) break;
      rest -= this.close(place, rest);
    }
    if (rest === 0) return;
    if (opens && this.frames.length < DEEPEST) {
      this.frames.push({ char, count: rest, both: closes, items: [] });
    } else this.put(char.repeat(rest));
  }

  opener(char, count, opens) {
    const fits = (frame) => {
      if (frame.char !== char) return false;
      const mixed = (frame.both || opens) && (frame.count + count) % 3 === 0;
      return !mixed || (frame.count % 3 === 0 && count % 3 === 0);
    };
    return this.frames.findLastIndex(fits);
  }

  /** Closes the mark of a frame; those opened after it were text. Gives how many of its characters were used. */
  close(place, count) {
    this.flatten(place);
    const frame = this.frames[place];
    const used = frame.char === "~" || Math.min(frame.count, count) > 1 ? 2 : 1;
    const kind = frame.char === "~" ? "deleted" : used === 2 ? "strong" : "emphasis";
    const span = { kind, spans: frame.items };
    frame.count -= used;
    frame.items = [span];
    if (frame.count === 0) {
      this.frames.pop();
      this.put(span);
    }
    return used;
  }

  flatten(place) {
    const later = this.frames.splice(place + 1);
    for (const { char, count, items } of later) {
      this.put(char.repeat(count));
      items.forEach((item) => this.put(item));
    }
  }

  finish() {
    this.flatten(0);
    return this.frames[0].items;
  }
}

function sideOf(char) {
  if (char === undefined || /\s/.test(char)) return "space";
  return PUNCTUATION.test(char) ? "punctuation" : "letter";
}

/** An address in running text, without the punctuation behind it. */
function untrailed(address) {
  let end = address.length;
  const opened = address.split("(").length;
  let closed = address.split(")").length;
  while (end > 0) {
    const char = address[end - 1];
    if (char === ")" && closed > opened) closed--;
    else if (!".,;:!?'*_~]".includes(char)) break;
    end--;
  }
  return address.slice(0, end);
}
