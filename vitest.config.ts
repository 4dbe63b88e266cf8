import { existsSync, readdirSync } from "node:fs";
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

/** Whether the addon is built. Without it, its tests only report why they are skipped. */
const hasAddon =
  process.env.LOCKSTEP_ADDON !== undefined ||
  ["Release/", ""].some((folder) =>
    existsSync(new URL(`./build/native/${folder}lockstep.node`, import.meta.url)),
  );

const filesIn = (folder: string): readonly string[] =>
  readdirSync(new URL(`./conformance/tests/${folder}`, import.meta.url), { recursive: true })
    .map(String)
    .filter((name) => name.endsWith(".test.ts"));

/** Whether this is a short run of all files, not of some that the command line names. */
const isShort =
  process.env.LOCKSTEP_TESTS !== "full" && process.argv.slice(3).every((word) => word.startsWith("-"));
/** A short run without the addon does not load the files of its tests, which would all be skipped. */
const leftOut = isShort && !hasAddon ? ["cuda", "nccl", "addon"].flatMap(filesIn).length : 0;
const needingAddon = (folder: string): string[] =>
  leftOut > 0 ? [] : [`conformance/tests/${folder}/**/*.test.ts`];

/**
 * `reference` runs anywhere; `gpu` runs where a GPU is, `nccl` where two are, and `browser`, with the built package, where
 * Chromium is; each says why it does not run elsewhere. `addon` is what `npm run test:addon` runs, on an addon without a GPU that
 * the compiler's sanitizers watch.
 */
export default defineConfig({
  ...base,
  test: {
    reporters: ["default", new Progress(leftOut)],
    slowTestThreshold: 5000,
    // a difference of two arrays of many elements takes minutes to print
    diff: { truncateThreshold: 500 },
    testTimeout: 120_000,
    hookTimeout: 60_000,
    // tests of a short run often wait for processes, which would leave a core idle
    maxWorkers: availableParallelism() + (isShort ? 1 : 0),
    coverage: { include: ["src/**/*.ts"], reporter: ["text"] },
    projects: [
      {
        extends: true,
        test: {
          name: "reference",
          // files of one worker share the modules that they import: loading these takes more than a second of each file
          isolate: false,
          setupFiles: ["draws", "equality"].map((name) => `conformance/tests/harness/${name}.ts`),
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
          include: needingAddon("cuda"),
          globalSetup: "conformance/tests/harness/gpu/announce.ts",
          setupFiles: "conformance/tests/harness/gpu/turns.ts",
          env: { LOCKSTEP_FENCES: "1" },
        },
      },
      {
        extends: true,
        test: { name: "nccl", include: needingAddon("nccl"), fileParallelism: false },
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
        test: { name: "addon", isolate: hasAddon, include: needingAddon("addon") },
      },
    ],
  },
});
