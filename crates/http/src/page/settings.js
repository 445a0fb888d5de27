// How answers are wanted: numbers that are empty are the server's to choose.

import { byId, element } from "./dom.js";

const STORED = "orlop-settings";

// The fields of a request, what they are called here, and the numbers they may have.
const NUMBERS = [
  { field: "temperature", label: "Temperature", hint: "0: the likeliest token", min: 0, max: 100, step: 0.01 },
  { field: "top_p", label: "Top p", hint: "most probable part", min: 0, max: 1, step: 0.01 },
  { field: "top_k", label: "Top k", hint: "most probable tokens", min: -1, max: 1e6, step: 1 },
  { field: "min_p", label: "Min p", hint: "of the likeliest token’s", min: 0, max: 1, step: 0.01 },
  { field: "repeat_penalty", label: "Repeat penalty", hint: "1: none", min: 0.01, max: 100, step: 0.01 },
  { field: "presence_penalty", label: "Presence penalty", hint: "0: none", min: -100, max: 100, step: 0.01 },
  { field: "frequency_penalty", label: "Frequency penalty", hint: "0: none", min: -100, max: 100, step: 0.01 },
  { field: "max_tokens", label: "Most tokens", hint: "of an answer", min: 1, max: 2 ** 53, step: 1 },
  { field: "seed", label: "Seed", hint: "equal seeds, equal answers", min: -1, max: 2 ** 53, step: 1 },
];

const EFFORTS = [
  ["", "default"],
  ["none", "none"],
  ["low", "low"],
  ["medium", "medium"],
  ["high", "high"],
];

/** What was chosen: fields of requests, and `system`, which new conversations begin with. */
export function settings() {
  try {
    return JSON.parse(localStorage.getItem(STORED)) ?? {};
  } catch {
    return {};
  }
}

function save(changes) {
  localStorage.setItem(STORED, JSON.stringify({ ...settings(), ...changes }));
}

/** The fields for a request. */
export function requestFields() {
  const chosen = settings();
  const names = [...NUMBERS.map(({ field }) => field), "reasoning_effort", "model"];
  return Object.fromEntries(
    names.filter((name) => (chosen[name] ?? "") !== "").map((name) => [name, chosen[name]]),
  );
}

/** Chooses a model by its name. */
export const setModel = (model) => save({ model });

/** A path that asks about the chosen model. */
export function aboutModel(path) {
  const { model } = settings();
  return model ? `${path}?model=${encodeURIComponent(model)}` : path;
}

/** Fills the dialog. `chats` has the conversation whose system prompt is edited. */
export function prepare(chats) {
  const fields = byId("sampling");
  const inputs = NUMBERS.map(({ field, label, hint, ...bounds }) => {
    const input = element("input", {
      type: "number",
      id: `set-${field}`,
      ...bounds,
      value: settings()[field] ?? "",
    });
    input.onchange = () => {
      if (input.checkValidity()) save({ [field]: input.value === "" ? "" : input.valueAsNumber });
      else input.reportValidity();
    };
    const text = element("span", {}, label, element("small", {}, hint));
    fields.append(element("label", { htmlFor: input.id }, text, input));
    return [field, input];
  });
  const effort = element("select", {
    id: "set-reasoning",
    onchange: () => save({ reasoning_effort: effort.value }),
  });
  effort.append(...EFFORTS.map(([value, text]) => element("option", { value }, text)));
  effort.value = settings().reasoning_effort ?? "";
  const text = element("span", {}, "Reasoning", element("small", {}, "where the template has it"));
  fields.append(element("label", { htmlFor: effort.id }, text, effort));
  const system = byId("system");
  system.oninput = () => {
    save({ system: system.value });
    chats.setSystem(system.value);
  };
  byId("reset").onclick = () => {
    inputs.forEach(([field, input]) => {
      input.value = "";
      save({ [field]: "" });
    });
    effort.value = "";
    save({ reasoning_effort: "" });
  };
  return {
    open() {
      system.value = chats.open.system;
      byId("settings").showModal();
    },
    /** Shows what the server takes where nothing is chosen. */
    defaults(parameters) {
      for (const [field, input] of inputs) {
        const value = parameters[field];
        const unset = field === "seed" ? "random" : "no limit";
        // Numbers of 32 bits have more digits than were meant.
        input.placeholder = value === undefined ? unset : +value.toPrecision(6);
      }
    },
  };
}
