// The list of conversations: search, export and import.

import { button, byId, element, toast } from "./dom.js";
import { parsed, written } from "./exchange.js";
import { titleOf } from "./tree.js";

const DAY = 24 * 60 * 60 * 1000;

/** Shows the conversations of `chats`, and keeps showing them. `close` is called when one was chosen. */
export function prepare(chats, close) {
  const search = byId("search");
  const drawList = () => {
    const found = chats.list().filter((chat) => holds(chat, search.value.trim().toLowerCase()));
    let group = "";
    const rows = found.flatMap((chat) => {
      const row = rowOf(chats, chat, close);
      if (dayOf(chat.changed) === group) return [row];
      group = dayOf(chat.changed);
      return [element("li", { className: "day" }, group), row];
    });
    byId("conversations").replaceChildren(...rows);
    byId("none-found").hidden = found.length > 0;
    byId("none-found").textContent = search.value ? "Nothing found." : "Conversations stay in this browser.";
    const title = byId("title");
    if (document.activeElement !== title) title.value = titleOf(chats.open);
    document.title = chats.open.messages.length ? `${titleOf(chats.open)} – Orlop` : "Orlop";
  };
  search.oninput = drawList;
  chats.addEventListener("list", drawList);
  byId("title").onchange = ({ target }) => chats.rename(target.value);
  byId("export").onclick = () => exportAll(chats);
  byId("import").onclick = () => byId("file").click();
  byId("file").onchange = ({ target }) => {
    const [file] = target.files;
    if (file) importFrom(chats, file);
    target.value = "";
  };
  drawList();
}

function rowOf(chats, chat, close) {
  const open = () => {
    chats.choose(chat.id);
    close();
  };
  const title = titleOf(chat);
  const isOpen = chat.id === chats.open.id;
  const choose = element("button", { type: "button", className: "choose", onclick: open, title }, title);
  if (isOpen) choose.setAttribute("aria-current", "page");
  const remove = button("trash", `Delete “${title}”`, () => {
    chats.remove(chat.id);
    toast("The conversation was deleted.", { label: "Undo", run: () => chats.add([chat]) });
  });
  return element("li", { className: chats.isWriting(chat.id) ? "writing" : "" }, choose, remove);
}

function holds(chat, words) {
  const within = (text) => text.toLowerCase().includes(words);
  return words === "" || within(titleOf(chat)) || chat.messages.some(({ text }) => within(text));
}

function dayOf(time) {
  const days = Math.floor((new Date().setHours(24, 0, 0, 0) - time) / DAY);
  if (days < 1) return "Today";
  if (days < 2) return "Yesterday";
  return days < 8
    ? "This week"
    : new Date(time).toLocaleDateString(undefined, { month: "long", year: "numeric" });
}

function exportAll(chats) {
  const file = new Blob([written(chats.list())], { type: "application/json" });
  const href = URL.createObjectURL(file);
  element("a", { href, download: "orlop-conversations.json" }).click();
  setTimeout(() => URL.revokeObjectURL(href), 10_000);
}

async function importFrom(chats, file) {
  try {
    const conversations = parsed(await file.text());
    const count = chats.add(conversations);
    const others = count < conversations.length ? "; the others are here already" : "";
    toast(`${count} of ${conversations.length} conversations imported${others}.`);
  } catch (error) {
    toast(`${file.name} cannot be imported: ${error.message}.`);
  }
}
