// Streaming clients over the OpenAI-compatible API: when each piece of text arrived.
import { post, sse } from "../../tests/http/server.mjs";

// One streaming completion. onPiece(ms, text) is called for each piece of text; ends early, without an
// error, when the signal aborts. Resolves to the number of tokens that the server counted.
export async function stream(server, body, { onPiece, signal, headers } = {}) {
  const all = { model: server.model, stream: true, stream_options: { include_usage: true }, ...body };
  let tokens = 0;
  try {
    const response = await post(server, "/v1/completions", all, { signal, headers });
    if (response.status !== 200) throw new Error(`${response.status}: ${await response.text()}`);
    for await (const event of sse(response)) {
      if (event === "[DONE]") break;
      if (event.error) throw new Error(event.error.message);
      if (event.choices?.[0]?.text) onPiece?.(performance.now(), event.choices[0].text);
      if (event.usage) tokens = event.usage.completion_tokens;
    }
  } catch (e) {
    if (!signal?.aborted) throw e;
  }
  return tokens;
}

// Many streams at once. Gaps between the pieces of each are kept under the phase that runs.
export class Crowd {
  constructor() {
    this.phase = "start";
    this.gaps = {};
    this.controller = new AbortController();
    this.streams = [];
  }

  add(server, body) {
    let last = 0;
    const onPiece = (now) => {
      if (last) (this.gaps[this.phase] ??= []).push(now - last);
      last = now;
    };
    this.streams.push(stream(server, body, { onPiece, signal: this.controller.signal }));
  }

  // Resolves to the tokens of all streams when they have ended by themselves.
  async finish() {
    return (await Promise.all(this.streams)).reduce((a, b) => a + b, 0);
  }

  async stop() {
    this.controller.abort();
    await Promise.all(this.streams);
  }
}
