// The conversations of this browser, the one that is open, and the answers that are being written. Tells of
// changes by events: `list`, `open` (another conversation or branch), `message` (its `detail`, which grows),
// `written` (it is complete), `key` (one is needed) and `failed` (the browser does not keep conversations).

import { ask, events } from "./api.js";
import { requestFields, settings } from "./settings.js";
import * as store from "./store.js";
import { append, branch, conversation, show } from "./tree.js";

/** Time between two writes of an answer that grows, in milliseconds. */
const SAVE_EVERY = 1000;

export class Chats extends EventTarget {
  constructor() {
    super();
    this.all = new Map();
    this.open = conversation(settings().system ?? "");
    /** What ends the answer of a conversation, by its id. */
    this.writing = new Map();
  }

  /** Reads what the browser keeps. */
  async load() {
    for (const kept of await store.all()) this.all.set(kept.id, kept);
    this.tell("list");
  }

  tell(kind, detail) {
    this.dispatchEvent(new CustomEvent(kind, { detail }));
  }

  /** The newest first. */
  list() {
    return [...this.all.values()].sort((a, b) => b.changed - a.changed);
  }

  begin() {
    this.open = conversation(settings().system ?? "");
    this.tell("open");
    this.tell("list");
  }

  choose(id) {
    if (!this.all.has(id)) return;
    this.open = this.all.get(id);
    this.tell("open");
    this.tell("list");
  }

  /** Keeps a conversation. Empty ones are not kept. */
  keep(changed) {
    if (changed.messages.length === 0) return;
    this.all.set(changed.id, changed);
    store.put(changed).catch((error) => this.tell("failed", error));
  }

  add(conversations) {
    const newer = conversations.filter(({ id, changed }) => !(this.all.get(id)?.changed >= changed));
    newer.forEach((conversation) => this.keep(conversation));
    if (newer.some(({ id }) => id === this.open.id)) this.choose(this.open.id);
    this.tell("list");
    return newer.length;
  }

  remove(id) {
    this.stop(id);
    this.all.delete(id);
    store.remove(id).catch((error) => this.tell("failed", error));
    if (this.open.id === id) this.begin();
    else this.tell("list");
  }

  rename(title) {
    this.open.title = title.trim();
    this.keep(this.open);
    this.tell("list");
  }

  setSystem(system) {
    this.open.system = system;
    this.keep(this.open);
  }

  show(message) {
    show(this.open, message);
    this.keep(this.open);
    this.tell("open");
  }

  /** Adds a question behind a message, and has it answered. */
  send(text, parent = this.open.leaf) {
    return this.answer(append(this.open, parent, { role: "user", text }));
  }

  /** Has a question answered, once more if it was. */
  answer(question) {
    const message = append(this.open, question.id, { role: "assistant", text: "" });
    return this.write(this.open, message);
  }

  /** Has an answer continued. */
  resume(message) {
    return this.write(this.open, message);
  }

  isWriting(id = this.open.id) {
    return this.writing.has(id);
  }

  stop(id = this.open.id) {
    this.writing.get(id)?.abort();
  }

  async write(chat, message) {
    const abort = new AbortController();
    this.writing.set(chat.id, abort);
    const answer = new Answer(message);
    const changed = () => this.tell("message", message);
    this.keep(chat);
    this.tell("open");
    this.tell("list");
    let saved = performance.now();
    try {
      const response = await ask("/v1/chat/completions", {
        json: request(chat, message),
        signal: abort.signal,
      });
      for await (const { data } of events(response)) {
        if (data === "[DONE]") break;
        answer.take(JSON.parse(data));
        changed();
        if (performance.now() - saved > SAVE_EVERY) {
          this.keep(chat);
          saved = performance.now();
        }
      }
      answer.finish();
    } catch (error) {
      answer.fail(error);
      if (error.status === 401) this.tell("key");
    }
    this.writing.delete(chat.id);
    chat.changed = Date.now();
    // A conversation that was removed meanwhile stays removed.
    if (this.all.has(chat.id)) this.keep(chat);
    changed();
    this.tell("list");
    this.tell("written", message);
  }
}

/** The request that continues a conversation with a message. */
function request({ system, ...chat }, message) {
  const before = branch(chat, message.id);
  const messages = before
    .filter(({ text }) => text !== "")
    .map(({ role, text }) => ({ role, content: text }));
  if (system.trim()) messages.unshift({ role: "system", content: system });
  return { ...requestFields(), messages, stream: true, stream_options: { include_usage: true } };
}

/** A message while it is written. */
class Answer {
  constructor(message) {
    this.message = message;
    this.asked = performance.now();
    this.first = null;
    this.chunks = 0;
    delete message.end;
    delete message.error;
    delete message.stats;
  }

  take({ choices, usage, timings, error }) {
    if (error) throw new Error(error.message);
    const { message } = this;
    const { delta, finish_reason: end } = choices?.[0] ?? {};
    const [text, reasoning] = [delta?.content ?? "", delta?.reasoning_content ?? ""];
    if (text || reasoning) {
      this.first ??= performance.now();
      this.chunks++;
      if (reasoning) message.reasoning = (message.reasoning ?? "") + reasoning;
      else if (message.reasoning) message.thought ??= performance.now() - this.first;
      message.text += text;
    }
    if (end) message.end = end;
    message.stats = { ...message.stats, ...this.measured() };
    if (timings) message.stats = { ...message.stats, speed: timings.predicted_per_second, exact: 1 };
    if (usage) message.stats = { ...message.stats, ...counted(usage) };
  }

  /** What is known before the server says it: a chunk has a token at least. */
  measured() {
    if (this.first === null) return {};
    const seconds = (performance.now() - this.first) / 1000;
    const known = { first: (this.first - this.asked) / 1000 };
    if (!this.message.stats?.exact && this.chunks > 1)
      known.speed = (this.chunks - 1) / Math.max(seconds, 0.001);
    return known;
  }

  finish() {
    // A stream that ends without a reason was cut off.
    if (!this.message.end) this.fail(new Error("The connection was lost."));
  }

  fail(error) {
    const stopped = error.name === "AbortError";
    this.message.end = stopped ? "stopped" : "failed";
    if (!stopped) this.message.error = error.message;
  }
}

function counted({ prompt_tokens: prompt, completion_tokens: generated, prompt_tokens_details: details }) {
  return { prompt, generated, cached: details?.cached_tokens ?? 0 };
}
