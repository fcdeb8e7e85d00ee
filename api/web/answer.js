// One streamed answer: collects the deltas and the measurements. No DOM.
import { streamChat } from "./api.js";

const MIN_TOKENS = 10; // the speed of a shorter answer is not meaningful

export const newAnswer = () => ({ role: "assistant", content: "", reasoning: "", tool_calls: [], state: "running" });

function takeCall(calls, delta) {
  const call = (calls[delta.index ?? 0] ??= { id: "", type: "function", function: { name: "", arguments: "" } });
  if (delta.id) call.id = delta.id;
  call.function.name += delta.function?.name ?? "";
  call.function.arguments += delta.function?.arguments ?? "";
}

function takeDelta(answer, delta) {
  answer.content += delta.content ?? "";
  answer.reasoning += delta.reasoning_content ?? "";
  if (delta.refusal) answer.refusal = (answer.refusal ?? "") + delta.refusal;
  for (const call of delta.tool_calls ?? []) takeCall(answer.tool_calls, call);
  return Boolean(delta.content || delta.reasoning_content || delta.refusal || delta.tool_calls?.length);
}

// The statistics so far; without the server's usage, chunks are counted as tokens.
function measure(clock, usage) {
  const tokens = usage?.completion_tokens ?? clock.chunks;
  const seconds = (clock.last - clock.first) / 1000,
    enough = tokens >= MIN_TOKENS && seconds > 0;
  return {
    ttft_ms: clock.first ? Math.round(clock.first - clock.start) : null,
    tokens_per_s: enough ? (tokens - 1) / seconds : null,
    completion_tokens: tokens,
    prompt_tokens: usage?.prompt_tokens ?? null,
    cached_tokens: usage?.prompt_tokens_details?.cached_tokens ?? null,
    cache_miss: usage?.prompt_tokens_details?.cache_miss ?? null,
    reasoning_tokens: usage?.completion_tokens_details?.reasoning_tokens ?? null,
    total_tokens: usage?.total_tokens ?? null,
  };
}

function fail(answer, error) {
  if (error.name === "AbortError") {
    answer.state = "stopped";
    return;
  }
  answer.state = error.name === "CutError" ? "cut" : "failed";
  answer.error = { message: error.message, param: error.param ?? null, status: error.status ?? null };
}

// Streams the answer to `body` into `answer`; onChange is called after each change. Without a body it goes on
// after answer.event, the last event that the answer has. Never throws: a failure is in answer.state (done,
// stopped, cut, failed) and answer.error.
export async function runAnswer(answer, body, signal, onChange) {
  const clock = { start: performance.now(), first: 0, last: 0, chunks: 0 },
    from = body ? null : answer.event;
  let usage = null;
  delete answer.error;
  answer.state = "running";
  answer.finish = null;
  try {
    for await (const event of streamChat(body, signal, from)) {
      const choice = event.choices[0];
      answer.resuming = event.resuming;
      if (choice && takeDelta(answer, choice.delta)) {
        clock.last = performance.now();
        clock.first ||= clock.last;
        clock.chunks++;
      }
      if (choice?.finish_reason) answer.finish = choice.finish_reason;
      if (event.usage) usage = event.usage;
      answer.event = event.event_id;
      answer.stats = measure(clock, usage);
      // The pause counts for neither figure.
      if (from) Object.assign(answer.stats, { ttft_ms: null, tokens_per_s: null });
      onChange();
    }
    answer.state = "done";
  } catch (e) {
    fail(answer, e);
  }
  delete answer.resuming;
  delete answer.event;
  onChange();
}

// The message in the form of a request.
export function asMessage(answer) {
  const calls = answer.tool_calls?.length ? { tool_calls: answer.tool_calls } : {};
  return { role: "assistant", content: answer.content || (answer.tool_calls?.length ? null : ""), ...calls };
}
