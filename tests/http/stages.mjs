// Stages that wait on loopback for the first one.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after } from "node:test";
import { binary, patience, reports, until } from "./server.mjs";

export const folder = mkdtempSync(join(tmpdir(), "inferd-stages-"));
after(() => rmSync(folder, { recursive: true, force: true }));

async function freePort() {
  const server = net.createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => server.on("listening", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

export async function startStage(model, flags = []) {
  const address = `127.0.0.1:${await freePort()}`;
  const args = ["serve", "--stage-listen", address, "--model", model, "--threads", "1"];
  const child = spawn(binary, [...args, "--registry", join(folder, "registry.db"), ...flags]);
  const stage = { address, child, pid: child.pid, stderr: "" };
  child.stderr.on("data", (d) => (stage.stderr += d));
  stage.exited = new Promise((resolve, reject) =>
    child.on("close", (code, signal) =>
      reports.test(stage.stderr) ? reject(new Error(stage.stderr)) : resolve({ code, signal }),
    ),
  );
  const limit = setTimeout(() => child.kill("SIGKILL"), 300_000 * patience);
  limit.unref();
  await until(() => /waits for stage 0/.test(stage.stderr) || child.exitCode !== null, "the stage listens");
  return stage;
}

export const startStages = (n, model, flags) =>
  Promise.all(Array.from({ length: n - 1 }, () => startStage(model, flags)));

// Flags of the first stage.
export const leading = (stages) => [
  "--pipeline-parallel",
  String(stages.length + 1),
  "--stages",
  stages.map((s) => s.address).join(","),
];
