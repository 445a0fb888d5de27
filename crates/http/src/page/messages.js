// The messages of the open conversation.

import { announce, button, byId, copy, element } from "./dom.js";
import { draw } from "./drawing.js";
import { alternatives, branch } from "./tree.js";

/** Within this many pixels of its end, the list follows an answer. */
const NEAR = 90;

/** Shows the messages of `chats`, and keeps showing them. */
export class Messages {
  constructor(chats) {
    this.chats = chats;
    this.list = byId("messages");
    this.shown = new Map();
    /** Messages that have changed since they were drawn. */
    this.dirty = new Set();
    this.follows = true;
    this.list.onscroll = () => {
      const { scrollTop, scrollHeight, clientHeight } = this.list;
      this.follows = scrollHeight - scrollTop - clientHeight < NEAR;
      byId("to-end").hidden = this.follows;
    };
    byId("to-end").onclick = () => this.toEnd();
    chats.addEventListener("open", () => this.drawAll());
    chats.addEventListener("message", ({ detail }) => this.later(detail));
    chats.addEventListener("written", ({ detail }) => {
      if (this.shown.get(detail.id)?.message === detail) announce(detail.error ?? "The answer is complete.");
      this.drawAll();
    });
    this.drawAll();
  }

  drawAll() {
    const path = branch(this.chats.open);
    const rows = path.map((message) => {
      const known = this.shown.get(message.id);
      const row = known?.message === message && !known.row.dataset.editing ? known.row : this.row(message);
      row
        .querySelector("footer")
        .replaceChildren(element("span", { className: "stats" }), this.actions(message));
      this.fill(row, message);
      return row;
    });
    byId("welcome").hidden = rows.length > 0;
    this.shown = new Map(path.map((message, place) => [message.id, { message, row: rows[place] }]));
    // Rows that stay keep what is open and selected in them.
    rows.forEach((row, place) => {
      if (this.list.children[place] !== row) this.list.insertBefore(row, this.list.children[place] ?? null);
    });
    [...this.list.children].slice(rows.length).forEach((row) => row.remove());
    if (this.follows) this.toEnd();
  }

  /** Draws a message with the next frame. */
  later(message) {
    if (this.shown.get(message.id)?.message !== message) return;
    if (this.dirty.size === 0) requestAnimationFrame(() => this.drawDirty());
    this.dirty.add(message);
  }

  drawDirty() {
    for (const message of this.dirty) {
      const row = this.shown.get(message.id)?.row;
      if (row) this.fill(row, message);
    }
    this.dirty.clear();
    if (this.follows) this.toEnd();
  }

  toEnd() {
    this.list.scrollTop = this.list.scrollHeight;
    this.follows = true;
    byId("to-end").hidden = true;
  }

  row(message) {
    const who = message.role === "user" ? "You" : "Model";
    const row = element("article", { className: message.role, aria: { label: who } });
    if (message.role === "assistant") {
      const reasoning = element(
        "details",
        { className: "reasoning", hidden: true },
        element("summary"),
        element("div", { className: "prose" }),
      );
      row.append(
        reasoning,
        element("div", { className: "text prose" }),
        element("p", { className: "error", hidden: true }),
      );
    } else row.append(element("div", { className: "text" }));
    row.append(element("footer"));
    return row;
  }

  fill(row, message) {
    const text = row.querySelector(".text");
    const writes = this.isWritten(message);
    row.classList.toggle("writing", writes);
    row.setAttribute("aria-busy", writes);
    // What was typed is shown as it was typed.
    if (message.role === "user") text.textContent = message.text;
    else {
      draw(text, message.text);
      this.fillReasoning(row.querySelector(".reasoning"), message, writes);
      const error = row.querySelector(".error");
      error.hidden = !message.error;
      error.textContent = message.error ?? "";
    }
    row.querySelector(".stats").textContent = statsOf(message, writes);
  }

  fillReasoning(details, { reasoning, thought, text }, writes) {
    details.hidden = !reasoning;
    if (!reasoning) return;
    const thinks = writes && !text;
    const time = thought ? `Thought for ${(thought / 1000).toFixed(1)} s` : "Thoughts";
    details.querySelector("summary").textContent = thinks ? "Thinking…" : time;
    draw(details.querySelector(".prose"), reasoning);
  }

  isWritten(message) {
    return this.chats.isWriting() && message.id === this.chats.open.leaf && message.role === "assistant";
  }

  actions(message) {
    const bar = element("div", { className: "actions" });
    const others = alternatives(this.chats.open, message);
    const busy = this.chats.isWriting();
    if (others.length > 1 && !busy) bar.append(...this.pager(message, others));
    bar.append(button("copy", "Copy this message", ({ currentTarget }) => copy(message.text, currentTarget)));
    if (busy) return bar;
    if (message.role === "user") {
      bar.append(button("edit", "Edit this message", () => this.edit(message)));
      return bar;
    }
    const question = this.chats.open.messages.find(({ id }) => id === message.parent);
    bar.append(button("again", "Answer again", () => question && this.chats.answer(question)));
    const isCut = message.end !== "stop" && message.text !== "";
    if (isCut) bar.append(button("go", "Continue this answer", () => this.chats.resume(message)));
    return bar;
  }

  pager(message, others) {
    const place = others.indexOf(message);
    const step = (name, label, to) => {
      const made = button(name, label, () => this.chats.show(others[to]));
      made.disabled = others[to] === undefined;
      return made;
    };
    const count = element("span", { className: "place" }, `${place + 1}/${others.length}`);
    return [step("left", "Earlier version", place - 1), count, step("right", "Later version", place + 1)];
  }

  /** Makes a question a text that can be changed; sending it begins another branch. */
  edit(message) {
    const { row } = this.shown.get(message.id);
    const area = element("textarea", {
      value: message.text,
      rows: Math.min(message.text.split("\n").length + 1, 12),
      aria: { label: "Edited message" },
    });
    const send = element("button", { type: "submit", className: "primary" }, "Send");
    const cancel = element("button", { type: "button", onclick: () => this.drawAll() }, "Cancel");
    const form = element("form", { className: "editing" }, area, element("div", {}, cancel, send));
    form.onsubmit = (event) => {
      event.preventDefault();
      if (area.value.trim()) this.chats.send(area.value, message.parent);
    };
    area.onkeydown = (event) => {
      if (event.key === "Escape") cancel.click();
      else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) form.onsubmit(event);
      else return;
      event.stopPropagation();
      event.preventDefault();
    };
    row.dataset.editing = "yes";
    row.replaceChildren(form);
    area.focus();
  }

  /** Edits the last question. */
  editLast() {
    const last = branch(this.chats.open).findLast(({ role }) => role === "user");
    if (last && !this.chats.isWriting()) this.edit(last);
  }

  /** Answers the last question again. */
  again() {
    const last = branch(this.chats.open).findLast(({ role }) => role === "user");
    if (last && !this.chats.isWriting()) this.chats.answer(last);
  }
}

const ENDS = { length: "the limit was reached", stopped: "stopped", failed: "", tool_calls: "called a tool" };

function statsOf({ role, stats = {}, end }, writes) {
  if (role === "user") return "";
  const { speed, exact, generated, first, prompt, cached } = stats;
  const parts = [
    speed !== undefined && `${exact ? "" : "≈ "}${speed.toFixed(1)} tokens/s`,
    generated !== undefined && `${generated} tokens`,
    first !== undefined && `first after ${first.toFixed(2)} s`,
    cached > 0 && `${cached} of ${prompt} prompt tokens cached`,
    end ? ENDS[end] : !writes && "interrupted",
  ];
  return parts.filter(Boolean).join(" · ");
}
