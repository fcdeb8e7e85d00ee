// Talks to the daemon that served this page. The API key lives in sessionStorage, nowhere else.

const KEY = "inferd.api-key",
  CHAT = "v1/chat/completions";
const MAX_ATTEMPTS = 4;
const RESUME_AFTER_MS = [0, 500, 1000, 2000, 4000];

export const getKey = () => sessionStorage.getItem(KEY) ?? "";
export const setKey = (key) => (key ? sessionStorage.setItem(KEY, key) : sessionStorage.removeItem(KEY));

// An error reply of the server; `param` is the field that it names.
class ApiError extends Error {
  constructor(status, { message, param, code } = {}) {
    super(message ?? `The server answered with status ${status}.`);
    Object.assign(this, { name: "ApiError", status, param: param ?? null, code: code ?? null });
  }
}

// No answer, or an incomplete one.
class CutError extends Error {
  constructor(message) {
    super(message);
    this.name = "CutError";
  }
}

async function refusal(response) {
  const text = await response.text().catch(() => "");
  try {
    return new ApiError(response.status, JSON.parse(text).error);
  } catch {
    return new ApiError(response.status, text ? { message: text.trim() } : {});
  }
}

async function ask(path, { body, signal, timeoutMs, lastEventId, explain } = {}) {
  const key = getKey();
  const headers = {
    ...(body && { "Content-Type": "application/json" }),
    ...(key && { Authorization: `Bearer ${key}` }),
    ...(lastEventId && { "Last-Event-ID": lastEventId }),
    ...(explain && { "X-Inferd-Explain-Cache": "1" }),
  };
  let response;
  try {
    response = await fetch(path, {
      method: body ? "POST" : "GET",
      headers,
      body,
      signal: timeoutMs ? AbortSignal.timeout(timeoutMs) : signal,
    });
  } catch (e) {
    if (e.name === "AbortError") throw e;
    throw new CutError("The server cannot be reached.");
  }
  if (!response.ok) throw await refusal(response);
  return response;
}

export const fetchModels = async () => (await (await ask("v1/models", { timeoutMs: 5000 })).json()).data;
export const fetchFields = async () => (await (await ask("v1/inferd/fields", { timeoutMs: 5000 })).json()).data;
export const fetchReady = async () => (await ask("readyz", { timeoutMs: 5000 })).text();
export const fetchHistory = async () => (await ask("v1/inferd/history", { timeoutMs: 5000 })).json();
export const fetchHealth = async () => (await ask("health", { timeoutMs: 5000 })).json();
// For administrators: the models of the registry and what is done to them; {load,unload,pull,cancel}.
export const fetchAllModels = async () => (await ask("v1/inferd/models", { timeoutMs: 5000 })).json();
export const changeModels = async (what, body) =>
  (await ask(`v1/inferd/models/${what}`, { body: JSON.stringify(body), timeoutMs: 20_000 })).json();
export const fetchMetrics = async () => (await ask("metrics", { timeoutMs: 5000 })).text();

// Server-sent events: {id, data}.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    buffer += value.replaceAll("\r", "");
    let end;
    while ((end = buffer.indexOf("\n\n")) >= 0) {
      const lines = buffer.slice(0, end).split("\n");
      buffer = buffer.slice(end + 2);
      const all = (name) =>
        lines.filter((l) => l.startsWith(`${name}:`)).map((l) => l.slice(name.length + 1).replace(/^ /, ""));
      const data = all("data");
      if (data.length) yield { id: all("id").at(-1), data: data.join("\n") };
    }
  }
}

async function* guarded(response) {
  try {
    yield* events(response);
  } catch (e) {
    if (e.name === "AbortError") throw e;
    throw new CutError("The connection broke during the answer.");
  }
  throw new CutError("The connection ended before the answer was complete.");
}

const sleep = (ms, signal) =>
  new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener(
      "abort",
      () => {
        clearTimeout(timer);
        reject(signal.reason);
      },
      { once: true },
    );
  });

// The rest of a stream after the event `id`, which the server keeps for a while. Throws `cause` if it
// is not kept any more.
async function resume(id, signal, cause) {
  for (const delayMs of RESUME_AFTER_MS) {
    await sleep(delayMs, signal);
    try {
      return await ask(CHAT, { body: "{}", signal, lastEventId: id });
    } catch (e) {
      if (e.name === "AbortError") throw e;
      if (e.status && e.status !== 503) throw cause;
    }
  }
  throw cause;
}

// `body` is an object; `seed`, if any, is a string, because JavaScript numbers do not hold all 64 bits.
function begin({ seed, ...body }, signal) {
  const json = JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } });
  const whole = seed === undefined ? json : `${json.slice(0, -1)},"seed":${seed}}`;
  return ask(CHAT, { body: whole, signal, explain: true });
}

const GONE = "This answer is incomplete: the page was left, and the server has not kept the rest.";

// Chunks of a streamed chat, each with the id of its event; {resuming: true, choices: []} with the id of the
// last one when the connection broke and the rest is requested. `from`: the id of the event after which to go
// on with a stream of before, instead of `body`.
export async function* streamChat(body, signal, from) {
  let response = from ? await resume(from, signal, new CutError(GONE)) : await begin(body, signal);
  let last = from ?? null,
    attempts = 0; // since the last event
  for (;;) {
    try {
      for await (const { id, data } of guarded(response)) {
        if (data === "[DONE]") return;
        const event = JSON.parse(data);
        if (event.error) throw new ApiError(response.status, event.error);
        last = id ?? last;
        attempts = 0;
        yield { ...event, event_id: last };
      }
    } catch (e) {
      if (e.name !== "CutError" || !last || ++attempts > MAX_ATTEMPTS) throw e;
      yield { choices: [], resuming: true, event_id: last };
      response = await resume(last, signal, e);
    }
  }
}
