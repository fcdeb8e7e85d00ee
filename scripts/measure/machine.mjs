// What a figure needs to be read by: the machine and the revision that it was taken on.
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import os from "node:os";

const interesting = /^(avx2|fma|avx_vnni|avx512f|avx512_vnni|avx512_bf16|amx_int8|amx_bf16|asimddp|i8mm|sve|bf16)$/;

function read(path) {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}

function git(...args) {
  try {
    return execFileSync("git", args, { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }).trim();
  } catch {
    return "";
  }
}

export function facts() {
  const cpuinfo = read("/proc/cpuinfo");
  const field = (name) => new RegExp(`^${name}\\s*:\\s*(.*)$`, "mi").exec(cpuinfo)?.[1] ?? "";
  const isa = (field("flags") || field("features")).split(/\s+/).filter((f) => interesting.test(f));
  const revision = git("rev-parse", "--short", "HEAD") || "unknown",
    changed = git("status", "--porcelain", "--untracked-files=no");
  return [
    `CPU: ${os.cpus()[0]?.model ?? "unknown"}, ${allowedCpus().length} cores, ${isa.join(" ") || os.arch()}`,
    `Memory: ${(os.totalmem() / 2 ** 30).toFixed(0)} GiB; load average at the start ${os.loadavg()[0].toFixed(2)}`,
    `Revision: ${revision}${changed ? " with changes" : ""}; ${os.type()} ${os.release()}`,
  ];
}

// Numbers of the CPUs that this process may use.
export function allowedCpus() {
  const list = /^Cpus_allowed_list:\s*(\S+)/m.exec(read("/proc/self/status"))?.[1];
  if (!list) return os.cpus().map((_, i) => i);
  return list.split(",").flatMap((part) => {
    const [low, high = low] = part.split("-").map(Number);
    return Array.from({ length: high - low + 1 }, (_, i) => low + i);
  });
}

// Resident memory of a process in bytes: all, its own pages, pages of mapped files. Linux only.
export function residentMemory(pid) {
  const text = read(`/proc/${pid}/status`);
  const bytes = (name) => 1024 * Number(new RegExp(`^${name}:\\s*(\\d+) kB`, "m").exec(text)?.[1] ?? NaN);
  return { all: bytes("VmRSS"), own: bytes("RssAnon"), file: bytes("RssFile") };
}
