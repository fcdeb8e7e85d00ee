// The chat page: keeps one conversation, streams answers from /v1/chat/completions, can stop them.

const $ = (id) => document.getElementById(id);
const log = $("log"), input = $("input"), model = $("model"), state = $("state");

let messages = []; // {role, content} of the conversation so far
let running = null; // AbortController of the answer that is streaming

function setState(text, bad = false) {
  state.textContent = text;
  state.classList.toggle("bad", bad);
}

function headers() {
  const key = $("api-key").value.trim();
  return { "Content-Type": "application/json", ...(key && { Authorization: `Bearer ${key}` }) };
}

async function errorText(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return `the server answered ${response.status}`;
  }
}

async function loadModels() {
  try {
    const response = await fetch("v1/models", { headers: headers() });
    if (!response.ok) throw new Error(await errorText(response));
    const { data } = await response.json();
    model.replaceChildren(...data.map(({ id }) => new Option(id, id)));
    model.disabled = data.length === 0;
    if (data.length === 0) throw new Error("still loading");
    setState("ready");
  } catch (e) {
    setState(e.message, true);
    setTimeout(loadModels, 2000);
  }
}

function addMessage(role, text) {
  $("welcome").hidden = true;
  const box = document.createElement("article");
  box.className = `message ${role}`;
  const body = document.createElement("div");
  body.className = "text";
  body.textContent = text;
  const meta = document.createElement("div");
  meta.className = "meta";
  box.append(body, meta);
  log.append(box);
  box.scrollIntoView({ block: "end" });
  return { box, body, meta };
}

// Server-sent events of a response, one parsed JSON object after the other.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    buffer += value;
    let end;
    while ((end = buffer.indexOf("\n\n")) >= 0) {
      const event = buffer.slice(0, end);
      buffer = buffer.slice(end + 2);
      const data = event.split("\n").filter((l) => l.startsWith("data: ")).map((l) => l.slice(6)).join("\n");
      if (data === "[DONE]") return;
      if (data) yield JSON.parse(data);
    }
  }
}

function requestBody() {
  const system = $("system").value.trim();
  const body = {
    model: model.value,
    stream: true,
    stream_options: { include_usage: true },
    temperature: Number($("temperature").value),
    messages: [...(system ? [{ role: "system", content: system }] : []), ...messages],
  };
  const limit = Number($("max-tokens").value);
  if (limit > 0) body.max_tokens = limit;
  return JSON.stringify(body);
}

function showRate(meta, start, first, tokens, note = "") {
  if (!first) return;
  const seconds = (performance.now() - first) / 1000;
  const rate = tokens > 1 && seconds > 0 ? ` · ${((tokens - 1) / seconds).toFixed(1)} tokens/s` : "";
  meta.textContent = `${tokens} tokens${rate} · first after ${Math.round(first - start)} ms${note}`;
}

// Streams one answer into `view`; returns its text.
async function stream(view, signal) {
  const start = performance.now();
  let first = 0, tokens = 0, text = "", finish = "";
  try {
    const response = await fetch("v1/chat/completions", {
      method: "POST", headers: headers(), body: requestBody(), signal,
    });
    if (!response.ok) throw new Error(await errorText(response));
    for await (const event of events(response)) {
      if (event.error) throw new Error(event.error.message);
      const choice = event.choices[0];
      if (choice?.delta.content) {
        first ||= performance.now();
        tokens++;
        text += choice.delta.content;
        view.body.textContent = text;
        showRate(view.meta, start, first, tokens);
        const main = log.parentElement;
        if (main.scrollHeight - main.scrollTop - main.clientHeight < 120) main.scrollTop = main.scrollHeight;
      }
      if (choice?.finish_reason) finish = choice.finish_reason;
      if (event.usage) tokens = event.usage.completion_tokens;
    }
    showRate(view.meta, start, first, tokens, finish === "length" ? " · cut off at the limit" : "");
  } catch (e) {
    if (e.name !== "AbortError") throw e;
    showRate(view.meta, start, first, tokens, " · stopped");
  }
  return text;
}

async function send(text) {
  messages.push({ role: "user", content: text });
  addMessage("user", text);
  const view = addMessage("assistant", "");
  running = new AbortController();
  view.box.classList.add("running");
  $("send").hidden = true;
  $("stop").hidden = false;
  setState("answering");
  try {
    messages.push({ role: "assistant", content: await stream(view, running.signal) });
    setState("ready");
  } catch (e) {
    messages.pop(); // the question was not answered: it is not part of the conversation
    view.box.classList.add("failed");
    view.body.textContent = e.message;
    setState("error", true);
  } finally {
    running = null;
    view.box.classList.remove("running");
    $("send").hidden = false;
    $("stop").hidden = true;
    input.focus();
  }
}

function grow() {
  input.style.height = "auto";
  input.style.height = `${input.scrollHeight + 2}px`;
}

function submit() {
  const text = input.value.trim();
  if (!text || running || model.disabled) return;
  input.value = "";
  grow();
  send(text);
}

$("composer").addEventListener("submit", (e) => {
  e.preventDefault();
  submit();
});
input.addEventListener("input", grow);
input.addEventListener("keydown", (e) => {
  if (e.key === "Enter" && !e.shiftKey && !e.isComposing) {
    e.preventDefault();
    submit();
  }
});
document.addEventListener("keydown", (e) => {
  if (e.key === "Escape") running?.abort();
});
$("stop").addEventListener("click", () => running?.abort());
$("new-chat").addEventListener("click", () => {
  running?.abort();
  messages = [];
  log.querySelectorAll(".message").forEach((m) => m.remove());
  $("welcome").hidden = false;
  input.focus();
});
$("starters").addEventListener("click", (e) => {
  if (e.target.tagName !== "BUTTON" || running || model.disabled) return;
  send(e.target.textContent);
});

loadModels();
