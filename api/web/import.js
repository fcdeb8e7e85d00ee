// Exported chats -> chats of this page: its own export, Open WebUI's and ChatGPT's conversations.json. What
// a file says is checked field by field. No DOM.
import { asTree, newId, pathOf } from "./tree.js";
import { asChat } from "./store.js";

const text = (value, otherwise = "") => (typeof value === "string" ? value : otherwise);
const object = (value) => (value && typeof value === "object" && !Array.isArray(value) ? value : {});
const list = (value) => (Array.isArray(value) ? value : []);
const time = (seconds) => (Number.isFinite(seconds) && seconds > 0 ? Math.round(seconds * 1000) : Date.now());

const cleanCall = (call) => {
  const { name, arguments: args } = object(object(call).function);
  return { id: text(object(call).id), type: "function", function: { name: text(name), arguments: text(args) } };
};

function cleanMessage(message) {
  const m = object(message),
    links = { id: text(m.id, undefined), parent: text(m.parent, null), next: text(m.next, null) };
  const files = list(m.files).map((f) => ({ name: text(object(f).name, "file"), text: text(object(f).text) }));
  const content = text(m.content);
  if (m.role === "user") return { ...links, role: "user", content, ...(files.length && { files }) };
  const state = ["done", "stopped", "cut", "failed"].includes(m.state) ? m.state : "done";
  const answer = { ...links, role: "assistant", content, reasoning: text(m.reasoning), state };
  if (typeof m.finish === "string") answer.finish = m.finish;
  if (Number.isFinite(m.context_length)) answer.context_length = m.context_length;
  const stats = Object.entries(object(m.stats)).filter(([, v]) => Number.isFinite(v));
  return { ...answer, stats: Object.fromEntries(stats), tool_calls: list(m.tool_calls).map(cleanCall) };
}

const isSaid = (m) => object(m).role === "user" || object(m).role === "assistant";

function ownChat(chat) {
  const c = object(chat),
    settings = Object.entries(object(c.settings)).filter(([, v]) => typeof v === "string");
  return asChat({
    id: text(c.id, newId()),
    title: text(c.title),
    named: c.named === true,
    pinned: c.pinned === true,
    created: time(c.created / 1000),
    updated: time(c.updated / 1000),
    model: text(c.model, undefined),
    next: text(c.next, null),
    settings: Object.fromEntries(settings),
    messages: list(c.messages).filter(isSaid).map(cleanMessage), // without ids in version 1
  });
}

// A tree of nodes {id, parent, message}. Nodes without a message are left out, and their children get the
// nearest kept ancestor as parent. `current`: the node that was shown last.
function foreignChat({ id, title, created, updated, settings = {}, nodes, current }) {
  const byId = new Map(nodes.map((n) => [n.id, n]));
  const kept = (at) => {
    for (let n = 0; at && n <= nodes.length; n++) {
      const node = byId.get(at);
      if (!node || node.message) return node ? at : null;
      at = node.parent;
    }
    return null;
  };
  const messages = nodes
    .filter((n) => n.message)
    .map((n) => cleanMessage({ ...n.message, id: n.id, parent: kept(n.parent) }));
  const chat = asChat({ id, title: text(title), named: true, created, updated, settings, messages: asTree(messages) });
  const ids = new Map(chat.messages.map((m) => [m.id, m]));
  for (let m = ids.get(kept(current)), n = 0; m && n <= nodes.length; m = ids.get(m.parent), n++)
    (ids.get(m.parent) ?? chat).next = m.id;
  return chat;
}

const REASONING = /<details type="reasoning"[^>]*>\s*(?:<summary>[^<]*<\/summary>)?([^]*?)<\/details>\s*/g;
const plain = (quoted) => quoted.replace(/^> ?/gm, "").trim();

function webuiMessage(m) {
  if (m.role !== "user" && m.role !== "assistant") return null;
  if (m.role === "user") return { role: "user", content: text(m.content) };
  const reasoning = Array.from(text(m.content).matchAll(REASONING), ([, inner]) => plain(inner)).join("\n\n");
  return { role: "assistant", content: text(m.content).replace(REASONING, "").trim(), reasoning };
}

function webuiChat(entry) {
  const chat = object(entry.chat),
    history = object(chat.history),
    system = text(chat.system) || text(object(chat.params).system);
  const nodes = Object.entries(object(history.messages)).map(([id, m]) => ({
    id,
    parent: text(object(m).parentId, null),
    message: webuiMessage(object(m)),
  }));
  return foreignChat({
    id: `open-webui-${text(entry.id, newId())}`,
    title: entry.title ?? chat.title,
    created: time(entry.created_at),
    updated: time(entry.updated_at),
    settings: system ? { system } : {},
    nodes,
    current: history.currentId,
  });
}

function gptMessage(message) {
  const m = object(message),
    content = object(m.content),
    { role } = object(m.author);
  if (role !== "user" && role !== "assistant") return null;
  if (m.weight === 0 || object(m.metadata).is_visually_hidden_from_conversation) return null;
  const said =
    content.content_type === "code"
      ? `\`\`\`\n${text(content.text)}\n\`\`\``
      : list(content.parts)
          .filter((p) => typeof p === "string")
          .join("\n\n");
  const shown = ["text", "code", "multimodal_text"].includes(content.content_type);
  return shown && said.trim() ? { role, content: said } : null;
}

function gptChat(entry) {
  const nodes = Object.entries(object(entry.mapping)).map(([id, node]) => ({
    id,
    parent: text(object(node).parent, null),
    message: gptMessage(object(node).message),
  }));
  return foreignChat({
    id: `chatgpt-${text(entry.conversation_id ?? entry.id, newId())}`,
    title: entry.title,
    created: time(entry.create_time),
    updated: time(entry.update_time),
    nodes,
    current: entry.current_node,
  });
}

// The chats of a file; throws an Error that says what is wrong.
export function readChats(source) {
  let data;
  try {
    data = JSON.parse(source);
  } catch {
    throw new Error("The file is not JSON.");
  }
  const entries = list(data).map(object);
  let chats = null;
  if (object(data).format === "inferd-chats") chats = list(data.chats).map(ownChat);
  else if (entries.length && entries.every((e) => object(object(e.chat).history).messages))
    chats = entries.map(webuiChat);
  else if (entries.length && entries.every((e) => object(e.mapping) === e.mapping)) chats = entries.map(gptChat);
  if (!chats)
    throw new Error("The file is none of: an export of this page, of Open WebUI, ChatGPT's conversations.json.");
  return chats.filter((c) => c.messages.length);
}

// What is shown of a chat, as Markdown.
export function asMarkdown(chat, title) {
  const parts = pathOf(chat).map((m) => {
    const files = (m.files ?? []).map((f) => `\n\nAttached: ${f.name}`).join("");
    if (m.role === "user") return `## You\n\n${m.content}${files}`;
    const calls = (m.tool_calls ?? []).map(
      (c) => `\n\n\`\`\`json\n${c.function.name}(${c.function.arguments})\n\`\`\``,
    );
    return `## Answer\n\n${m.content}${calls.join("")}`;
  });
  return `# ${title}\n\n${parts.join("\n\n")}\n`;
}
