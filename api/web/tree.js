// The messages of a chat as a tree, so that an edited message or another answer adds a branch and loses
// nothing. chat.messages holds all nodes, parents before children: {id, parent, next, role, content, ...}.
// `parent` is an id (null: a first message), `next` the id of the child that is shown; chat.next that of
// the first message. No DOM.

export const newId = () =>
  Array.from(crypto.getRandomValues(new Uint8Array(9)), (b) => b.toString(36).padStart(2, "0")).join("");

const holder = (chat, parent) => (parent === null ? chat : (chat.messages.find((m) => m.id === parent) ?? chat));

export const childrenOf = (chat, id) => chat.messages.filter((m) => m.parent === id);

// The versions of a message: those with its parent, the oldest first.
export const versionsOf = (chat, message) => childrenOf(chat, message.parent);

// The messages that are shown.
export function pathOf(chat) {
  const children = new Map();
  for (const m of chat.messages) children.set(m.parent, [...(children.get(m.parent) ?? []), m]);
  const path = [];
  for (let at = chat; ; at = path.at(-1)) {
    const below = children.get(at === chat ? null : at.id) ?? [];
    const next = below.find((m) => m.id === at.next) ?? below.at(-1);
    if (!next) return path;
    path.push(next);
  }
}

// Adds a message below `parent` (null: a first one) and shows it.
export function addMessage(chat, parent, message) {
  const node = Object.assign(message, { id: newId(), parent: parent?.id ?? null });
  chat.messages.push(node);
  showVersion(chat, node);
  return node;
}

// Shows the branch that `message` is on, as far as that message.
export function showVersion(chat, message) {
  for (let m = message; m; m = chat.messages.find((n) => n.id === m.parent)) holder(chat, m.parent).next = m.id;
}

// Removes a message with all that follows it; the version beside it is shown. Returns what brings them
// back: {n, undo}.
export function removeBranch(chat, message) {
  const gone = new Set([message.id]),
    before = chat.messages,
    above = holder(chat, message.parent),
    next = above.next;
  for (const m of before) if (gone.has(m.parent)) gone.add(m.id); // parents come first
  const versions = versionsOf(chat, message),
    at = versions.indexOf(message);
  chat.messages = before.filter((m) => !gone.has(m.id));
  above.next = (versions[at + 1] ?? versions[at - 1])?.id ?? null;
  return {
    n: gone.size,
    undo: () => {
      chat.messages = before;
      above.next = next;
    },
  };
}

// A list of messages as one branch.
export function asBranch(messages) {
  let parent = null;
  return messages.map((m) => {
    const node = { ...m, id: newId(), parent };
    parent = node.id;
    return node;
  });
}

// Makes any list of nodes a tree: parents first, unknown parents become null, circles and second nodes of
// an id are dropped.
export function asTree(nodes) {
  const ids = new Map(nodes.toReversed().map((m) => [m.id, m])), // of two, the first stays
    children = new Map(),
    out = [];
  for (const m of nodes) {
    if (ids.get(m.id) !== m) continue;
    const parent = ids.has(m.parent) ? m.parent : null;
    children.set(parent, [...(children.get(parent) ?? []), { ...m, parent }]);
  }
  const waiting = [...(children.get(null) ?? [])];
  while (waiting.length) {
    const m = waiting.shift();
    out.push(m);
    waiting.unshift(...(children.get(m.id) ?? []));
    children.delete(m.id);
  }
  return out;
}
