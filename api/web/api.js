// Talks to the daemon that served this page. The API key lives in sessionStorage, nowhere else.

const KEY = "inferd.api-key";

export const getKey = () => sessionStorage.getItem(KEY) ?? "";
export const setKey = (key) => (key ? sessionStorage.setItem(KEY, key) : sessionStorage.removeItem(KEY));

// What the server said no to: `param` is the field that it names.
export class ApiError extends Error {
  constructor(status, { message, param, code } = {}) {
    super(message ?? `The server answered with status ${status}.`);
    Object.assign(this, { name: "ApiError", status, param: param ?? null, code: code ?? null });
  }
}

// No answer, or one that broke off.
export class CutError extends Error {
  constructor(message) {
    super(message);
    this.name = "CutError";
  }
}

async function refusal(response) {
  try {
    return new ApiError(response.status, (await response.json()).error);
  } catch {
    return new ApiError(response.status);
  }
}

async function ask(path, { body, signal, timeoutMs } = {}) {
  const key = getKey();
  const headers = { ...(body && { "Content-Type": "application/json" }), ...(key && { Authorization: `Bearer ${key}` }) };
  let response;
  try {
    response = await fetch(path, {
      method: body ? "POST" : "GET", headers, body,
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
export const fetchReady = async () => (await ask("readyz", { timeoutMs: 5000 })).text();
export const fetchMetrics = async () => (await ask("metrics", { timeoutMs: 5000 })).text();

// The data of server-sent events, one text after the other.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    buffer += value.replaceAll("\r", "");
    let end;
    while ((end = buffer.indexOf("\n\n")) >= 0) {
      const lines = buffer.slice(0, end).split("\n").filter((l) => l.startsWith("data:"));
      buffer = buffer.slice(end + 2);
      if (lines.length) yield lines.map((l) => l.slice(5).replace(/^ /, "")).join("\n");
    }
  }
}

async function* guarded(response) {
  try {
    yield* events(response);
  } catch (e) {
    if (e.name === "AbortError") throw e;
    throw new CutError("The connection broke while the answer was coming in.");
  }
}

// Chunks of a streamed chat. `body` is an object; `seed`, if any, is a text, because JavaScript's
// numbers do not hold all 64 bits.
export async function* streamChat({ seed, ...body }, signal) {
  const json = JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } });
  const whole = seed === undefined ? json : `${json.slice(0, -1)},"seed":${seed}}`;
  const response = await ask("v1/chat/completions", { body: whole, signal });
  for await (const data of guarded(response)) {
    if (data === "[DONE]") return;
    const event = JSON.parse(data);
    if (event.error) throw new ApiError(response.status, event.error);
    yield event;
  }
  throw new CutError("The connection ended before the answer did.");
}
