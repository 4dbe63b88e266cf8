/** A worker thread that terminates during its reads and calls leaves the process and other threads intact. */
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";
import { describeOnStandIn } from "../harness/addon/stand-in.js";

describeOnStandIn("worker threads", () => {
  it.each([0, 5])(
    "can be terminated while they read device memory, if each wait takes %i ms",
    { timeout: 120_000 },
    (delay) => {
      const script = fileURLToPath(new URL("../harness/addon/terminate.mjs", import.meta.url));
      const { status, signal, stdout, stderr } = spawnSync(process.execPath, ["--no-warnings", script], {
        encoding: "utf8",
        timeout: 100_000,
        env: { ...process.env, STAND_IN_DELAY_MS: String(delay) },
      });
      expect({ status, signal, stdout, stderr }).toEqual({
        status: 0,
        signal: null,
        stdout: "all gone; 9 9\n",
        stderr: "",
      });
    },
  );
});
