// A proxy between a coding agent and inferd that decides what the model says. It changes nothing but
// the choice of the tool and that tool's schema, whose members become constants: the answer, with
// everything around it, comes from inferd. So a model with random weights plays a script, and what
// is tested is the protocol.
import http from "node:http";

// {type: "object"} with one value for each member.
export function constants(input) {
  const properties = Object.fromEntries(Object.entries(input).map(([k, v]) => [k, { const: v }]));
  return { type: "object", properties, required: Object.keys(input), additionalProperties: false };
}

const done = { const: "done" }; // a text that is never empty: agents ask again, or give up, after an empty one

// How each protocol names the tools of a body, forces one, and has a text said instead.
const protocols = {
  "/v1/messages": {
    results: (body) => count(body.messages, (m) => list(m.content).filter((p) => p.type === "tool_result").length),
    names: (body) => list(body.tools).map((t) => t.name),
    force(body, name, input) {
      for (const t of body.tools) if (t.name === name) t.input_schema = constants(input);
      body.tool_choice = { type: "tool", name };
      delete body.thinking; // a forced call and thinking exclude each other in this protocol
    },
    say(body) {
      body.tool_choice = { type: "none" };
      body.output_config = { ...body.output_config, format: { type: "json_schema", schema: done } };
    },
  },
  "/v1/responses": {
    results: (body) => count(body.input, (i) => (/_call_output$/.test(i.type) ? 1 : 0)),
    names: (body) => list(body.tools).map((t) => t.name),
    force(body, name, input) {
      for (const t of body.tools)
        if (t.name === name) Object.assign(t, { parameters: constants(input), strict: false });
      body.tool_choice = { type: "function", name };
    },
    say(body) {
      body.tool_choice = "none";
      body.text = { format: { type: "json_schema", name: "said", schema: done } };
    },
  },
  "/v1/chat/completions": {
    results: (body) => count(body.messages, (m) => (m.role === "tool" ? 1 : 0)),
    names: (body) => list(body.tools).map((t) => t.function?.name),
    force(body, name, input) {
      for (const t of body.tools) if (t.function?.name === name) t.function.parameters = constants(input);
      body.tool_choice = { type: "function", function: { name } };
    },
    say(body) {
      body.tool_choice = "none";
      body.response_format = { type: "json_schema", json_schema: { name: "said", schema: done } };
    },
  },
};

const list = (v) => (Array.isArray(v) ? v : []);
const count = (items, of) => list(items).reduce((n, item) => n + of(item), 0);

// script: the calls in their order, {name, input(body)}; a request with as many results as there are
// calls gets a text. Requests that do not offer the call's tool pass as they are.
export async function playScript(target, script) {
  const seen = [];
  const server = http.createServer(async (req, res) => {
    const parts = [];
    for await (const part of req) parts.push(part);
    let bytes = Buffer.concat(parts);
    const path = new URL(req.url, target).pathname;
    const entry = { method: req.method, url: req.url, body: null, status: 0, ignored: null, answer: "" };
    const protocol = req.method === "POST" ? protocols[path] : undefined;
    if (protocol) {
      const body = JSON.parse(bytes);
      entry.body = structuredClone(body);
      const step = script[protocol.results(body)];
      if (step && protocol.names(body).includes(step.name)) protocol.force(body, step.name, step.input);
      else if (protocol.names(body).length) protocol.say(body);
      bytes = Buffer.from(JSON.stringify(body));
    }
    seen.push(entry);
    const headers = { ...req.headers, host: new URL(target).host, "content-length": bytes.length };
    delete headers["transfer-encoding"];
    if (!bytes.length) delete headers["content-length"];
    const up = http.request(target + req.url, { method: req.method, headers }, (answer) => {
      entry.status = answer.statusCode;
      entry.ignored = answer.headers["x-inferd-ignored-fields"] ?? null;
      res.writeHead(answer.statusCode, answer.headers);
      answer.on("data", (d) => {
        entry.answer += d;
        res.write(d);
      });
      answer.on("end", () => res.end());
    });
    up.on("error", () => res.destroy());
    res.on("close", () => up.destroy());
    up.end(bytes);
  });
  await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    seen,
    stop: () => new Promise((done) => (server.closeAllConnections(), server.close(done))),
  };
}
