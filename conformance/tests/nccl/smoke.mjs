// Runs one call of each kind on two ranks, in a few seconds, and prints the output of every rank: `node
// conformance/tests/nccl/smoke.mjs N`.
import { spawn } from "node:child_process";

const size = Number(process.argv[2] ?? 2);
const port = 20_000 + (process.pid % 20_000);
const rank = new URL("ranks/bulk.mjs", import.meta.url).pathname;
for (let i = 0; i < size; i++) {
  const env = {
    RANK: String(i),
    LOCAL_RANK: process.env.STAND_IN_BYTES ? "0" : String(i),
    WORLD_SIZE: String(size),
    MASTER_ADDR: "127.0.0.1",
    MASTER_PORT: String(port),
    LOCKSTEP_JOB_TOKEN: `smoke ${process.pid}`,
    TIMEOUT_MS: "20000",
    NCCL_DEBUG: process.env.NCCL_DEBUG ?? "WARN",
  };
  const stdio = ["ignore", "inherit", "inherit"];
  spawn(process.execPath, [rank, "1", process.argv[3] ?? "12", process.argv[4] ?? "100000"], {
    env: { ...process.env, ...env },
    stdio,
  });
}
