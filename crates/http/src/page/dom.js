// Elements, made from values. Text is only ever set as text.

const SVG = "http://www.w3.org/2000/svg";

// Shapes on a grid of 16, drawn as lines.
const ICONS = {
  menu: "M2 4h12M2 8h12M2 12h12",
  plus: "M8 3v10M3 8h10",
  panel: "M2 3h12v10H2zM10 3v10",
  settings: "M2 5h6M12 5h2M2 11h2M8 11h6M10 3v4M6 9v4",
  theme: "M8 2a6 6 0 1 0 0 12zM8 2a6 6 0 0 1 0 12",
  copy: "M5 5h8v9H5zM3 11V2h8",
  check: "M3 8l4 4 6-8",
  edit: "M3 13l1-3 7-7 2 2-7 7zM9 5l2 2",
  again: "M13 8a5 5 0 1 1-2-4M13 2v3h-3",
  go: "M4 3l8 5-8 5z",
  send: "M8 13V3M4 7l4-4 4 4",
  stop: "M4 4h8v8H4z",
  trash: "M3 4h10M6 4V2h4v2M4 4l1 10h6l1-10",
  left: "M10 3L5 8l5 5",
  right: "M6 3l5 5-5 5",
  down: "M8 3v10M4 9l4 4 4-4",
  close: "M3 3l10 10M13 3L3 13",
  help: "M6 6a2 2 0 1 1 2 2v2M8 13v.1",
};

/** An icon; what it means is said elsewhere. */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

/** An element with properties and children. `data` and `aria` are objects. */
export function element(tag, { data = {}, aria = {}, ...properties } = {}, ...children) {
  const made = document.createElement(tag);
  Object.assign(made, properties);
  Object.assign(made.dataset, data);
  Object.entries(aria).forEach(([name, value]) => made.setAttribute(`aria-${name}`, value));
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** A button with an icon and a label that is read out. */
export function button(name, label, onclick, className = "icon") {
  return element("button", { type: "button", className, title: label, aria: { label }, onclick }, icon(name));
}

export const byId = (id) => document.getElementById(id);

/** Says something to those who do not see the page. */
export function announce(text) {
  byId("status").textContent = text;
}

/** Shows a short message for a while, with something that can be done about it. */
export function toast(text, action) {
  const shown = element("div", { className: "toast" }, element("span", {}, text));
  if (action) {
    const done = () => {
      action.run();
      shown.remove();
    };
    shown.append(element("button", { type: "button", onclick: done }, action.label));
  }
  byId("toasts").replaceChildren(shown);
  announce(text);
  setTimeout(() => shown.remove(), 6000);
}

function copiedBySelection(text) {
  const area = element("textarea", { className: "unseen", value: text });
  document.body.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  return copied;
}

/** Copies a text, and shows it on the button. */
export async function copy(text, pressed) {
  try {
    // Pages that are not from this machine have no clipboard without TLS.
    if (navigator.clipboard) await navigator.clipboard.writeText(text);
    else if (!copiedBySelection(text)) throw new Error("refused");
    pressed.replaceChildren(icon("check"));
    announce("Copied");
    setTimeout(() => pressed.replaceChildren(icon("copy")), 1500);
  } catch {
    toast("The browser does not let this page copy.");
  }
}
