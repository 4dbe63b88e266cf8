// Tests the addon of the CUDA backend without a GPU: `npm run test:addon`. The addon is built with the compiler's
// sanitizers and with conformance/tests/stand-in in place of CUDA. The headers of CUDA come from the toolkit that
// build-cuda.mjs finds.
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("..", import.meta.url));

/** Runs a program; if it fails, exits with its status. */
function run(program, args, env = {}) {
  const { status } = spawnSync(program, args, {
    cwd: ROOT,
    stdio: "inherit",
    env: { ...process.env, ...env },
  });
  if (status !== 0) process.exit(status ?? 1);
}

/** The sanitizer's library, which must be loaded into the process before the addon. */
function sanitizer() {
  const { status, stdout } = spawnSync("c++", ["-print-file-name=libasan.so"], { encoding: "utf8" });
  if (status === 0) return stdout.trim();
  process.stderr.write(
    "test-addon: c++ does not say where its libasan is; install a C++20 compiler with its sanitizers\n",
  );
  process.exit(1);
}

run(process.execPath, ["scripts/build-cuda.mjs", "--stand-in"]);
run(
  process.execPath,
  ["node_modules/vitest/vitest.mjs", "run", "--project", "addon", ...process.argv.slice(2)],
  {
    LD_PRELOAD: sanitizer(),
    // leak detection is off, because Node keeps memory until it exits
    ASAN_OPTIONS: "detect_leaks=0:abort_on_error=1:allocator_may_return_null=1",
    UBSAN_OPTIONS: "print_stacktrace=1:abort_on_error=1",
    LOCKSTEP_ADDON: `${ROOT}build/stand-in/Release/lockstep.node`,
    LOCKSTEP_NCCL: `${ROOT}build/stand-in/Release/libnccl.so`,
    LOCKSTEP_STAND_IN: "1",
    STAND_IN_BYTES: String(2 ** 30),
  },
);
