// A conversation is a tree of messages: answering again or editing adds a branch, and loses nothing. `leaf` is the
// last message of the branch that is shown.
//
//   { id, title, system, created, changed, leaf, messages: [{ id, parent, role, text, … }] }

/** A conversation without messages. */
export function conversation(system) {
  const now = Date.now();
  return {
    id: crypto.randomUUID?.() ?? `${now}-${Math.random()}`,
    title: "",
    system,
    created: now,
    changed: now,
    leaf: null,
    messages: [],
  };
}

const byId = (conversation) => new Map(conversation.messages.map((message) => [message.id, message]));

/** The messages from the first one to a message. */
export function branch(conversation, leaf = conversation.leaf) {
  const messages = byId(conversation);
  const path = [];
  for (let at = messages.get(leaf); at && path.length < messages.size; at = messages.get(at.parent))
    path.push(at);
  return path.reverse();
}

/** The messages that are alternatives to one, itself among them. */
export function alternatives(conversation, message) {
  return conversation.messages.filter(({ parent }) => parent === message.parent);
}

/** Adds a message behind another one, and shows it. */
export function append(conversation, parent, message) {
  const id = conversation.messages.reduce((most, { id }) => Math.max(most, id), 0) + 1;
  const added = { id, parent, ...message };
  conversation.messages.push(added);
  conversation.leaf = id;
  conversation.changed = Date.now();
  return added;
}

/** Shows the branch through a message, to its newest end. */
export function show(conversation, message) {
  let leaf = message;
  for (;;) {
    const next = conversation.messages.findLast(({ parent }) => parent === leaf.id);
    if (!next) break;
    leaf = next;
  }
  conversation.leaf = leaf.id;
}

/** What a conversation is called while it has no title. */
export function titleOf({ title, messages }) {
  if (title) return title;
  const line = messages[0]?.text.trim().split("\n")[0] ?? "";
  return line.length > 60 ? `${line.slice(0, 59)}…` : line || "New conversation";
}
