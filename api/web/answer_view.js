// Renders an answer: reasoning, text, tool calls, errors, statistics. Used by the chat and by
// the playground.
import { h, morphChildren, number } from "./dom.js";
import { MarkdownStream, codeBlock, listenForClicks } from "./markdown.js";

function prettyJson(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text; // still arriving, or not JSON
  }
}

const toolCard = (call) =>
  h(
    "section",
    { class: "tool-call", "aria-label": `Call of ${call.function.name || "a tool"}` },
    h(
      "header",
      {},
      h("span", { class: "tool-label" }, "Tool call"),
      h("strong", {}, call.function.name || "…"),
      h("small", {}, call.id),
    ),
    codeBlock(prettyJson(call.function.arguments), "json"),
  );

const ENDINGS = { length: "cut off at the token limit", content_filter: "withheld", tool_calls: "tool calls" };

function endingOf(answer) {
  if (answer.state === "stopped") return "stopped";
  if (answer.resuming) return "resuming after a break";
  return answer.state === "done" ? ENDINGS[answer.finish] : null;
}

const MISSES = {
  nothing_cached: "nothing of it was cached",
  evicted: "more of it was cached, but the cache needed the room",
  another_tenant: "it is cached, but for another key or cache_salt",
  state_missing: "more of it was cached, but without the state that the model needs",
  differs: "it differs from what is cached",
};

// Why no more of the prompt was cached; null where nothing was missed.
function missText(miss) {
  if (!miss || !MISSES[miss.reason]) return null;
  const place = [miss.message !== undefined && `message ${miss.message + 1}`, `byte ${miss.byte}`].filter(Boolean);
  const at = miss.byte === undefined ? "" : ` at ${place.join(", ")}`;
  return MISSES[miss.reason] + at + (miss.near ? `, near "${miss.near}"` : "");
}

function statTexts(answer) {
  const s = answer.stats ?? {},
    out = [];
  if (s.tokens_per_s) out.push([`${s.tokens_per_s.toFixed(1)} tokens/s`, "Speed after the first token"]);
  if (s.ttft_ms !== null && s.ttft_ms !== undefined)
    out.push([`first after ${number(s.ttft_ms)} ms`, "Time to the first token"]);
  if (s.prompt_tokens !== null && s.prompt_tokens !== undefined)
    out.push([
      `${number(s.prompt_tokens)} prompt tokens (${number(s.cached_tokens ?? 0)} cached)`,
      ["Prompt tokens, and how many of them were in the prefix cache", missText(s.cache_miss)]
        .filter(Boolean)
        .join(": "),
    ]);
  if (s.completion_tokens) out.push([`${number(s.completion_tokens)} answer tokens`, "Tokens of the answer"]);
  if (s.reasoning_tokens)
    out.push([`${number(s.reasoning_tokens)} reasoning tokens`, "Answer tokens that are reasoning"]);
  return out;
}

function contextBar(total, length) {
  const share = Math.min(1, total / length);
  const fill = h("span", { class: share > 0.9 ? "fill high" : "fill" });
  fill.style.width = `${(share * 100).toFixed(1)}%`;
  const text = `${number(total)} of ${number(length)}`;
  return h(
    "span",
    { class: "context", title: "Context used" },
    h(
      "span",
      {
        class: "bar",
        role: "meter",
        "aria-label": "Context used",
        "aria-valuemin": 0,
        "aria-valuemax": length,
        "aria-valuenow": total,
        "aria-valuetext": `${text} tokens`,
      },
      fill,
    ),
    h("span", {}, text),
  );
}

function errorBox(error) {
  const param = error.param ? h("p", {}, "Field: ", h("code", {}, error.param)) : null;
  const status = error.status ? h("small", {}, `Status ${error.status}`) : null;
  return h("div", { class: "error", role: "alert" }, h("p", {}, error.message), param, status);
}

export class AnswerView {
  // contextLength: of the model, 0 if unknown. json: the text is one JSON value.
  constructor(answer, contextLength, { json = false } = {}) {
    this.answer = answer;
    this.json = json;
    this.contextLength = contextLength;
    this.reasoning = h("div", { class: "markdown" });
    this.reasoningLabel = h("summary", {}, "Reasoning");
    this.details = h("details", { class: "reasoning", hidden: true }, this.reasoningLabel, this.reasoning);
    this.text = h("div", { class: "text markdown" });
    this.calls = h("div", { class: "calls" });
    this.trouble = h("div", { class: "trouble" });
    this.meta = h("div", { class: "meta" });
    this.el = h("div", { class: "answer" }, this.details, this.text, this.calls, this.trouble, this.meta);
    this.textStream = new MarkdownStream(this.text);
    this.reasoningStream = new MarkdownStream(this.reasoning);
    this.shownCalls = "";
    listenForClicks(this.el);
    this.update();
  }

  get running() {
    return this.answer.state === "running";
  }

  update() {
    const { answer } = this;
    if (this.json) this.showJson(answer.content);
    else this.showText(this.textStream, answer.content);
    if (answer.reasoning) {
      this.details.hidden = false;
      this.reasoningLabel.textContent = this.running && !answer.content ? "Reasoning …" : "Reasoning";
      this.showText(this.reasoningStream, answer.reasoning);
    }
    this.showCalls();
    this.showMeta();
    if (!this.running) this.showTrouble();
  }

  showText(stream, text) {
    if (stream.source === text && this.running) return;
    if (this.running) stream.update(text);
    else stream.finish(text);
  }

  showJson(text) {
    if (text) morphChildren(this.text, [codeBlock(prettyJson(text), "json")]);
  }

  showCalls() {
    const calls = (this.answer.tool_calls ?? []).filter(Boolean),
      key = JSON.stringify(calls);
    if (key === this.shownCalls) return;
    this.shownCalls = key;
    this.calls.replaceChildren(...calls.map(toolCard));
  }

  showMeta() {
    const { answer } = this,
      parts = statTexts(answer).map(([text, title]) => h("span", { title }, text));
    const total = answer.stats?.total_tokens;
    if (total && this.contextLength) parts.push(contextBar(total, this.contextLength));
    const ending = endingOf(answer);
    if (ending) parts.push(h("span", { class: "ending" }, ending));
    this.meta.replaceChildren(...parts);
  }

  showTrouble() {
    const { answer } = this,
      boxes = [];
    if (answer.refusal) boxes.push(h("p", { class: "error" }, answer.refusal));
    if (answer.state === "cut")
      boxes.push(errorBox(answer.error ?? { message: "This answer is incomplete: the page was closed or reloaded." }));
    else if (answer.error) boxes.push(errorBox(answer.error));
    else if (answer.state === "done" && !answer.content && !answer.tool_calls?.length && !answer.refusal)
      boxes.push(h("p", { class: "empty" }, "The model returned an empty answer."));
    this.trouble.replaceChildren(...boxes);
  }
}
