// Where messages are typed.

import { byId } from "./dom.js";

const DRAFT = "orlop-draft";

/** Sends what is typed to `chats`, or ends the answer that is being written. */
export function prepare(chats, messages) {
  const [form, draft, send] = ["composer", "draft", "send"].map(byId);
  const fit = () => {
    draft.style.height = "auto";
    draft.style.height = `${draft.scrollHeight}px`;
  };
  const update = () => {
    const writing = chats.isWriting();
    byId("stop").hidden = !writing;
    send.hidden = writing;
    send.disabled = draft.value.trim() === "";
  };
  draft.value = localStorage.getItem(DRAFT) ?? "";
  draft.oninput = () => {
    localStorage.setItem(DRAFT, draft.value);
    fit();
    update();
  };
  draft.onkeydown = (event) => {
    // Text that is being composed takes Enter for itself.
    if (event.key === "Enter" && !event.shiftKey && !event.ctrlKey && !event.metaKey && !event.isComposing) {
      event.preventDefault();
      form.requestSubmit();
    } else if (event.key === "ArrowUp" && draft.value === "") {
      event.preventDefault();
      messages.editLast();
    }
  };
  form.onsubmit = (event) => {
    event.preventDefault();
    if (chats.isWriting() || draft.value.trim() === "") return;
    const text = draft.value;
    draft.value = "";
    draft.oninput();
    messages.follows = true;
    chats.send(text);
  };
  byId("stop").onclick = () => {
    chats.stop();
    draft.focus();
  };
  ["list", "open", "written"].forEach((kind) => chats.addEventListener(kind, update));
  fit();
  update();
}
