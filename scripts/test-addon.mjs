// Tests the addon of the CUDA backend without a GPU: `npm run test:addon`. It is built with the compiler's sanitizers and with
// conformance/tests/stand-in in place of CUDA, whose headers come from the toolkit that build-cuda.mjs finds.
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("..", import.meta.url));

/** Runs a program to its end, and ends with it where it fails. */
function run(program, args, env = {}) {
  const { status } = spawnSync(program, args, {
    cwd: ROOT,
    stdio: "inherit",
    env: { ...process.env, ...env },
  });
  if (status !== 0) process.exit(status ?? 1);
}

/** The library that has to be in a process before anything that it watches. */
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
    // what Node keeps to its end is no leak of the addon's
    ASAN_OPTIONS: "detect_leaks=0:abort_on_error=1:allocator_may_return_null=1",
    UBSAN_OPTIONS: "print_stacktrace=1:abort_on_error=1",
    LOCKSTEP_ADDON: `${ROOT}build/stand-in/Release/lockstep.node`,
    LOCKSTEP_STAND_IN: "1",
    STAND_IN_BYTES: String(2 ** 30),
  },
);
