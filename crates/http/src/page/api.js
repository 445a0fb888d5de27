// The server's API: requests with a key, errors as values, and events of streams.

const KEY = "orlop-key";

/** What the server refused, or that it cannot be reached (status 0). */
export class ServerError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const key = () => localStorage.getItem(KEY) ?? "";

export function setKey(value) {
  if (value) localStorage.setItem(KEY, value);
  else localStorage.removeItem(KEY);
}

/** A response that succeeded. */
export async function ask(path, { json, signal } = {}) {
  const headers = {};
  if (key()) headers.Authorization = `Bearer ${key()}`;
  if (json) headers["Content-Type"] = "application/json";
  const options = { method: json ? "POST" : "GET", headers, signal, cache: "no-store" };
  let response;
  try {
    response = await fetch(path, json ? { ...options, body: JSON.stringify(json) } : options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError(0, "The server cannot be reached.");
  }
  if (response.ok) return response;
  const body = await response.json().catch(() => null);
  throw new ServerError(response.status, body?.error?.message ?? `The server answered ${response.status}.`);
}

/** The JSON at a path. */
export const get = async (path) => (await ask(path)).json();

/** The events of a stream: their names, and their data as text. */
export async function* events(response) {
  let rest = "";
  const texts = response.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (;;) {
      const { value, done } = await texts.read();
      if (done) return;
      const frames = (rest + value).split("\n\n");
      rest = frames.pop();
      yield* frames.map(eventOf).filter(({ data }) => data !== "");
    }
  } finally {
    texts.cancel().catch(() => {});
  }
}

function eventOf(frame) {
  const field = (name) => {
    const lines = frame.split("\n").filter((line) => line.startsWith(`${name}:`));
    return lines.map((line) => line.slice(name.length + 1).trimStart()).join("\n");
  };
  return { name: field("event"), data: field("data") };
}
