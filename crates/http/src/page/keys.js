// Keys for the whole page.

import { byId } from "./dom.js";

/** What the keys do: shown in the help, and bound here. `mod` is Ctrl, or Command. */
export const KEYS = [
  { shown: "Enter", what: "Send" },
  { shown: "Shift Enter", what: "New line" },
  { shown: "↑", what: "Edit the last message, while the box is empty" },
  { shown: "Esc", what: "Stop the answer", key: "Escape", run: ({ chats }) => chats.stop() },
  {
    shown: "mod Shift O",
    what: "New conversation",
    key: "o",
    mod: true,
    shift: true,
    run: ({ begin }) => begin(),
  },
  { shown: "mod K", what: "Search conversations", key: "k", mod: true, run: ({ search }) => search() },
  {
    shown: "mod Enter",
    what: "Answer again",
    key: "Enter",
    mod: true,
    run: ({ messages }) => messages.again(),
  },
  {
    shown: "mod .",
    what: "Show or hide the server",
    key: ".",
    mod: true,
    run: ({ toggleLive }) => toggleLive(),
  },
  { shown: "mod ,", what: "Settings", key: ",", mod: true, run: ({ settings }) => settings.open() },
  { shown: "mod /", what: "These keys", key: "/", mod: true, run: () => byId("help").showModal() },
];

/** Binds the keys. */
export function prepare(page) {
  document.addEventListener("keydown", (event) => {
    if (document.querySelector("dialog[open]")) return;
    const { key, ctrlKey, metaKey, shiftKey } = event;
    const pressed = ({ key: wanted, mod = false, shift = false }) => {
      return (
        wanted?.toLowerCase() === key.toLowerCase() &&
        mod === (ctrlKey || metaKey) &&
        (shift === shiftKey || !mod)
      );
    };
    const found = KEYS.find(pressed);
    if (!found) return;
    event.preventDefault();
    found.run(page);
  });
}
