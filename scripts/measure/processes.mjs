// Child processes that are bounded in time and do not outlive this one.
import { spawn } from "node:child_process";
import { createServer } from "node:net";

const running = new Set();
process.on("exit", () => running.forEach((child) => child.kill("SIGKILL")));
for (const [signal, number] of [
  ["SIGINT", 2],
  ["SIGTERM", 15],
  ["SIGHUP", 1],
])
  process.on(signal, () => process.exit(128 + number));

export function tracked(child) {
  running.add(child);
  child.on("exit", () => running.delete(child));
  return child;
}

// Runs a command to its end: its output, or an Error that shows the end of what it said.
export function capture(command, args, { seconds = 600, cwd, anyStatus = false } = {}) {
  return new Promise((resolve, reject) => {
    const child = tracked(spawn(command, args, { cwd, stdio: ["ignore", "pipe", "pipe"] }));
    let stdout = "",
      stderr = "",
      late = false;
    const limit = setTimeout(() => {
      late = true;
      child.kill("SIGKILL");
    }, seconds * 1000);
    child.stdout.on("data", (d) => (stdout += d));
    child.stderr.on("data", (d) => (stderr += d));
    child.on("error", (e) => {
      clearTimeout(limit);
      running.delete(child);
      reject(e);
    });
    child.on("close", (code, signal) => {
      clearTimeout(limit);
      if (late) reject(new Error(`${command} ran longer than ${seconds} s`));
      else if (code === 0 || anyStatus) resolve({ stdout, stderr });
      else
        reject(
          new Error(`${command} ${args.join(" ")} ended with ${code ?? signal}:\n${(stderr || stdout).slice(-1500)}`),
        );
    });
  });
}

export function freePort() {
  return new Promise((resolve, reject) => {
    const probe = createServer();
    probe.on("error", reject);
    probe.listen(0, "127.0.0.1", () => {
      const { port } = probe.address();
      probe.close(() => resolve(port));
    });
  });
}

// Keeps one CPU busy until the returned function is called, ten minutes at most.
export async function spinner(cpu) {
  const child = tracked(
    spawn("timeout", ["600", "taskset", "-c", `${cpu}`, "sh", "-c", "while :; do :; done"], { stdio: "ignore" }),
  );
  const ended = new Promise((resolve) => child.on("close", resolve).on("error", resolve));
  const early = await Promise.race([
    ended.then(() => true),
    new Promise((resolve) => setTimeout(() => resolve(false), 200)),
  ]);
  if (early) throw new Error("cannot keep a core busy: timeout and taskset are wanted");
  return async () => {
    child.kill("SIGTERM"); // timeout passes it on
    await ended;
  };
}

// Starts a server that listens on a port of 127.0.0.1 and waits until its /health is well. At most
// half an hour later it is ended.
export async function startServer(command, args, port, cwd) {
  const child = tracked(spawn(command, args, { cwd, stdio: ["ignore", "ignore", "pipe"] }));
  const server = { url: `http://127.0.0.1:${port}`, pid: child.pid };
  let log = "",
    over = null;
  child.stderr.on("data", (d) => (log = (log + d).slice(-4000)));
  const ended = new Promise((resolve) => {
    child.on("close", (code, signal) => resolve((over = `${code ?? signal}`)));
    child.on("error", (e) => resolve((over = e.message)));
  });
  const limit = setTimeout(() => child.kill("SIGKILL"), 1_800_000);
  server.stop = async () => {
    child.kill("SIGTERM");
    const hard = setTimeout(() => child.kill("SIGKILL"), 20_000);
    await ended;
    clearTimeout(hard);
    clearTimeout(limit);
  };
  for (;;) {
    if (over !== null) throw new Error(`${command} ended at its start (${over}):\n${log}`);
    const response = await fetch(`${server.url}/health`).catch(() => null);
    await response?.arrayBuffer();
    if (response?.ok) return server;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
