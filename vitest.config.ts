import { existsSync } from "node:fs";
import { availableParallelism } from "node:os";
import { defineConfig } from "vitest/config";
import { Progress } from "./conformance/tests/harness/progress.js";

export const base = {
  resolve: {
    alias: {
      "#platform": new URL("./src/backends/platform/node.ts", import.meta.url).pathname,
      "lockstep/conformance": new URL("./conformance/index.ts", import.meta.url).pathname,
    },
  },
  oxc: { target: "es2022" },
};

/** Whether the addon is built. Without it, its tests only report why they are skipped, and their files can share a process. */
const hasAddon =
  process.env.LOCKSTEP_ADDON !== undefined ||
  ["Release/", ""].some((folder) =>
    existsSync(new URL(`./build/native/${folder}lockstep.node`, import.meta.url)),
  );

/**
 * `reference` runs anywhere; `gpu` runs where a GPU is, `nccl` where two are, and `browser`, with the built package, where
 * Chromium is; each says why it does not run elsewhere. `addon` is what `npm run test:addon` runs, on an addon without a GPU that
 * the compiler's sanitizers watch.
 */
export default defineConfig({
  ...base,
  test: {
    reporters: ["default", new Progress()],
    slowTestThreshold: 5000,
    // a difference of two arrays of many elements takes minutes to print
    diff: { truncateThreshold: 500 },
    testTimeout: 120_000,
    hookTimeout: 60_000,
    maxWorkers: availableParallelism(),
    coverage: { include: ["src/**/*.ts"], reporter: ["text"] },
    projects: [
      {
        extends: true,
        test: {
          name: "reference",
          // files of one worker share the modules that they import: loading these takes more than a second of each file
          isolate: false,
          setupFiles: "conformance/tests/harness/draws.ts",
          include: ["conformance/**/*.test.ts"],
          exclude: ["slow", "cuda", "nccl", "addon", "package", "browser"].map(
            (folder) => `conformance/tests/${folder}/**`,
          ),
        },
      },
      {
        extends: true,
        test: {
          name: "gpu",
          isolate: hasAddon,
          include: ["conformance/tests/cuda/**/*.test.ts"],
          globalSetup: "conformance/tests/harness/gpu/announce.ts",
          setupFiles: "conformance/tests/harness/gpu/turns.ts",
          env: { LOCKSTEP_FENCES: "1" },
        },
      },
      {
        extends: true,
        test: { name: "nccl", include: ["conformance/tests/nccl/**/*.test.ts"], fileParallelism: false },
      },
      {
        extends: true,
        test: {
          name: "browser",
          include: ["conformance/tests/browser/**/*.test.ts"],
          globalSetup: "conformance/tests/browser/chromium.ts",
        },
      },
      {
        extends: true,
        test: { name: "addon", isolate: hasAddon, include: ["conformance/tests/addon/**/*.test.ts"] },
      },
    ],
  },
});
