// Processes that mpirun starts on this machine.
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { binary } from "./server.mjs";

// mpirun refuses root unless told twice; it counts on a core for each process.
Object.assign(process.env, { OMPI_ALLOW_RUN_AS_ROOT: "1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM: "1" });
// AddressSanitizer: what Open MPI leaks is told by the whole stack, through libraries without frame pointers.
if (process.env.ASAN_OPTIONS) {
  process.env.ASAN_OPTIONS += ":fast_unwind_on_malloc=0";
  process.env.LSAN_OPTIONS = "print_suppressions=0:suppressions=tests/lsan.supp";
}
export const mpirun = (n) => ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", String(n)];

// Why ranks cannot be processes here; false: they can.
export const skip = spawnSync("mpirun", ["--version"]).error
  ? "mpirun is not installed: scripts/setup test installs it"
  : existsSync(join(dirname(binary), "libinferd-mpi.so"))
    ? false
    : "libinferd-mpi.so was not built";

// The processes of mpirun's ranks, by rank.
export function pidsOf(server) {
  const list = spawnSync("pgrep", ["-P", String(server.child.pid)], { encoding: "utf8" })
    .stdout.trim()
    .split("\n");
  const pids = [];
  for (const pid of list) {
    const variables = readFileSync(`/proc/${pid}/environ`, "latin1").split("\0");
    const rank = variables.find((v) => v.startsWith("OMPI_COMM_WORLD_RANK="));
    if (rank) pids[Number(rank.split("=")[1])] = Number(pid);
  }
  return pids;
}

export const isGone = (pid) =>
  !existsSync(`/proc/${pid}`) || /^State:\tZ/m.test(readFileSync(`/proc/${pid}/status`, "latin1"));
