// Puts the page together.

import { ask, get, key, setKey } from "./api.js";
import { Chats } from "./chats.js";
import * as composer from "./composer.js";
import { byId, element, icon } from "./dom.js";
import * as keys from "./keys.js";
import { Live } from "./live.js";
import { Messages } from "./messages.js";
import * as settings from "./settings.js";
import * as sidebar from "./sidebar.js";
import { branch } from "./tree.js";

document.querySelectorAll("[data-icon]").forEach((made) => made.prepend(icon(made.dataset.icon)));
const narrow = matchMedia("(max-width: 62rem)");

const chats = new Chats();
const messages = new Messages(chats);
const live = new Live();
const preferences = settings.prepare(chats);
sidebar.prepare(chats, () => narrow.matches && showSidebar(false));
composer.prepare(chats, messages);

function showSidebar(shown) {
  byId("sidebar").hidden = !shown;
  byId("sidebar-toggle").setAttribute("aria-expanded", shown);
}

function begin() {
  chats.begin();
  if (narrow.matches) showSidebar(false);
  byId("draft").focus();
}

function toggleLive() {
  live.toggle();
  localStorage.setItem("orlop-live", live.isShown ? "shown" : "hidden");
}

byId("new").onclick = begin;
byId("sidebar-toggle").onclick = () => showSidebar(byId("sidebar").hidden);
byId("live-toggle").onclick = toggleLive;
// Panels that cover the messages go when these are pressed.
byId("messages").onpointerdown = () => {
  if (!narrow.matches) return;
  showSidebar(false);
  live.toggle(false);
};
byId("settings-open").onclick = () => preferences.open();
byId("help-open").onclick = () => byId("help").showModal();
byId("theme").onclick = () => {
  const { dataset } = document.documentElement;
  const isDark = dataset.theme
    ? dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  dataset.theme = isDark ? "light" : "dark";
  localStorage.setItem("orlop-theme", dataset.theme);
  live.redraw();
};
keys.prepare({
  chats,
  messages,
  begin,
  toggleLive,
  settings: preferences,
  search() {
    showSidebar(true);
    byId("search").focus();
  },
});
byId("keys").append(
  ...keys.KEYS.flatMap(({ shown, what }) => {
    const mod = /Mac|iP/.test(navigator.platform) ? "⌘" : "Ctrl";
    const parts = shown
      .replace("mod", mod)
      .split(" ")
      .map((name) => element("kbd", {}, name));
    return [element("dt", {}, ...parts), element("dd", {}, what)];
  }),
);

// The part of the context that the open conversation fills.
let context = 0;
function showContext() {
  const { stats } = branch(chats.open).findLast((message) => message.stats?.prompt !== undefined) ?? {};
  const used = stats ? stats.prompt + stats.generated : 0;
  byId("context").hidden = context === 0;
  byId("context-bar").max = context;
  byId("context-bar").value = used;
  byId("context-text").textContent = `${used.toLocaleString("en")} of ${context.toLocaleString("en")} tokens`;
}
["open", "written"].forEach((kind) => chats.addEventListener(kind, showContext));

function askKey() {
  byId("key-input").value = key();
  if (!byId("key").open) byId("key").showModal();
}
byId("key-form").onsubmit = () => {
  setKey(byId("key-input").value.trim());
  connect();
};
chats.addEventListener("key", askKey);
chats.addEventListener("failed", ({ detail }) => {
  const why = detail?.message ?? "its storage is closed";
  notice("storage", `This browser does not keep conversations (${why}). Export what you need.`);
});

const notices = { server: "", storage: "" };
function notice(about, text) {
  notices[about] = text;
  const shown = Object.values(notices).filter(Boolean).join(" ");
  byId("notice").hidden = shown === "";
  byId("notice").textContent = shown;
}

function showModels(models) {
  const writers = models.filter(({ task }) => task === "generate");
  const names = (writers.length ? writers : models).map(({ id }) => id);
  const select = byId("model");
  select.replaceChildren(...names.map((name) => element("option", {}, name)));
  const chosen = settings.settings().model;
  select.value = names.includes(chosen) ? chosen : names[0];
  select.disabled = names.length < 2;
  settings.setModel(names.length < 2 ? "" : select.value);
  select.onchange = () => {
    settings.setModel(select.value);
    live.change();
    showModel().catch(({ message }) => notice("server", message));
  };
}

/** Learns what there is to know of the chosen model. */
async function showModel() {
  const { n_ctx, params } = (await get(settings.aboutModel("/props"))).default_generation_settings;
  context = n_ctx;
  preferences.defaults(params);
  showContext();
}

/** Waits for the server, and learns which models it has. */
async function connect() {
  try {
    await ask("/health");
    showModels((await get("/v1/models")).data);
    await showModel();
    notice("server", "");
    live.toggle(localStorage.getItem("orlop-live") !== "hidden" && !narrow.matches);
  } catch (error) {
    if (error.status === 401) return askKey();
    notice("server", error.status === 503 ? `${error.message} …` : error.message);
    setTimeout(connect, 1000);
  }
}

showSidebar(!narrow.matches);
await chats.load().catch((error) => chats.tell("failed", error));
// The conversation that was open, if this is a reload.
chats.choose(sessionStorage.getItem("orlop-open"));
["open", "list"].forEach((kind) => {
  chats.addEventListener(kind, () => sessionStorage.setItem("orlop-open", chats.open.id));
});
await connect();
document.documentElement.dataset.ready = "yes";
if (!narrow.matches) byId("draft").focus();
