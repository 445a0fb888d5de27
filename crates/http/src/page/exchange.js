// Conversations as a file: JSON that is checked when it comes back.

const FORMAT = "orlop conversations 1";

/** The text of a file with these conversations. */
export function written(conversations) {
  return JSON.stringify({ format: FORMAT, conversations }, null, 1);
}

/** The conversations of a file. Unknown fields are left out; what is not a conversation is an error. */
export function parsed(text) {
  let file;
  try {
    file = JSON.parse(text);
  } catch (error) {
    throw new Error(`it is not JSON (${error.message})`);
  }
  if (file?.format !== FORMAT || !Array.isArray(file.conversations)) {
    throw new Error(`its \`format\` is not “${FORMAT}”`);
  }
  return file.conversations.map(conversationOf);
}

function conversationOf(value, place) {
  const wrong = (what) => new Error(`conversation ${place + 1}: ${what}`);
  const text = (field) => {
    if (typeof value?.[field] !== "string") throw wrong(`\`${field}\` is not a text`);
    return value[field];
  };
  const time = (field) => {
    if (!Number.isFinite(value[field])) throw wrong(`\`${field}\` is not a time`);
    return value[field];
  };
  if (!Array.isArray(value?.messages)) throw wrong("`messages` is not a list");
  const ids = new Set();
  const messages = value.messages.map((message, index) => {
    const checked = messageOf(message);
    // A parent comes before its children, so there are no circles.
    const isPlaced = checked && !ids.has(checked.id) && (checked.parent === null || ids.has(checked.parent));
    if (!isPlaced) throw wrong(`message ${index + 1} is not one`);
    ids.add(checked.id);
    return checked;
  });
  const leaf = ids.has(value.leaf) ? value.leaf : (messages.at(-1)?.id ?? null);
  const head = { id: text("id"), title: text("title"), system: text("system") };
  return { ...head, created: time("created"), changed: time("changed"), leaf, messages };
}

function messageOf({ id, parent, role, text, reasoning, thought, end, error, stats } = {}) {
  const isText = (value) => typeof value === "string";
  const isMessage = Number.isSafeInteger(id) && isText(text) && ["user", "assistant"].includes(role);
  if (!isMessage) return null;
  const message = { id, parent: parent ?? null, role, text };
  if (isText(reasoning)) message.reasoning = reasoning;
  if (Number.isFinite(thought)) message.thought = thought;
  if (isText(end)) message.end = end;
  if (isText(error)) message.error = error;
  const numbers = Object.entries(stats ?? {}).filter(([, value]) => Number.isFinite(value));
  if (stats) message.stats = Object.fromEntries(numbers);
  return message;
}
