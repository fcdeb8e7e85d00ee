// What the access log costs: processor time of the daemon for each request without one, with name=value pairs and with
// JSON: one daemon, which is reloaded in turns. Prints a table of medians, and of the differences within a round.
// usage: node scripts/bench-access.mjs [ROUNDS]
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { Agent, request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { modelName, post, sleep, startServer, until, user } from "../tests/http/server.mjs";
import { markdown, median, percentile } from "./measure/numbers.mjs";

const rounds = Number(process.argv[2] ?? 40);
const connections = 16;
const modes = {
  without: "",
  plain: "log-format = text\naccess-log = LOG",
  JSON: "log-format = json\naccess-log = LOG",
};
const chat = JSON.stringify({ model: modelName, messages: user("Hi"), max_tokens: 1, temperature: 0 });
const loads = [
  { name: "`GET /health`", n: 500, path: "/health" },
  { name: "`POST /v1/chat/completions`, 1 token", n: 100, path: "/v1/chat/completions", body: chat },
];

const folder = mkdtempSync(join(tmpdir(), "inferd-access-"));
const config = join(folder, "daemon.conf");
const log = join(folder, "access.log");
writeFileSync(config, "");
const server = await startServer(["--log-level", "warn", "--config", config]);
const agent = new Agent({ keepAlive: true, maxSockets: connections });

async function change(mode) {
  writeFileSync(config, `${modes[mode].replace("LOG", log)}\n`);
  const response = await post(server, "/v1/inferd/reload", {});
  if (response.status !== 200) throw new Error(await response.text());
  await response.text();
  await sleep(20);
}

// Nanoseconds on a processor, of all threads.
const busy = () =>
  readdirSync(`/proc/${server.child.pid}/task`).reduce(
    (sum, id) => sum + Number(readFileSync(`/proc/${server.child.pid}/task/${id}/schedstat`, "utf8").split(" ")[0]),
    0,
  );

const ask = (load) =>
  new Promise((resolve, reject) => {
    const method = load.body ? "POST" : "GET";
    const headers = { "Content-Type": "application/json" };
    const asked = request(server.url + load.path, { agent, method, headers }, (response) => {
      response.resume();
      response.on("end", () => (response.statusCode === 200 ? resolve() : reject(new Error(response.statusCode))));
    });
    asked.on("error", reject);
    asked.end(load.body);
  });

// Microseconds of processor time for each request, with the lines on disk.
const lines = () => readFileSync(log, "latin1").split("\n").length - 1;
async function measure(mode, load) {
  await change(mode);
  rmSync(log, { force: true });
  await change(mode); // opens an empty file
  const before = mode === "without" ? 0 : lines();
  const start = busy();
  let left = load.n;
  const worker = async () => {
    while (left-- > 0) await ask(load);
  };
  await Promise.all(Array.from({ length: connections }, worker));
  if (mode !== "without") await until(() => lines() >= before + load.n, "each request has its line");
  return (busy() - start) / load.n / 1000;
}

const rows = [];
const spread = (values) =>
  `${median(values).toFixed(2)} (${percentile(values, 0.25).toFixed(2)} to ${percentile(values, 0.75).toFixed(2)})`;
for (const load of loads) {
  const names = Object.keys(modes);
  const times = Object.fromEntries(names.map((mode) => [mode, []]));
  for (const mode of names) await measure(mode, load); // warm
  for (let round = 0; round < rounds; round++)
    for (let i = 0; i < names.length; i++) {
      const mode = names[(round + i) % names.length];
      times[mode].push(await measure(mode, load));
    }
  const more = (mode) => spread(times[mode].map((t, i) => t - times.without[i]));
  rows.push([load.name, median(times.without).toFixed(2), more("plain"), more("JSON")]);
}
console.log(markdown(["processor time of a request, µs", "without", "plain: more", "JSON: more"], rows));
agent.destroy();
await server.stop();
rmSync(folder, { recursive: true, force: true });
