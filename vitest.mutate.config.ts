import { existsSync, readFileSync } from "node:fs";
import { relative } from "node:path";
import { defineConfig } from "vitest/config";
import { base } from "./vitest.config.js";

const plan = JSON.parse(readFileSync(process.env.LOCKSTEP_MUTATION ?? "", "utf8"));

/** Tests on sources whose mutants stand behind switches; `scripts/mutate.mjs` starts it. */
export default defineConfig({
  ...base,
  plugins: [
    {
      name: "mutants",
      enforce: "pre",
      load(id) {
        const path = `${plan.folder}/files/${relative(process.cwd(), id)}`;
        return existsSync(path) ? readFileSync(path, "utf8") : undefined;
      },
    },
  ],
  test: {
    include: plan.tests,
    runner: "./scripts/mutate/runner.mjs",
    setupFiles: "./scripts/mutate/setup.mjs",
    // mutants often make ranks wait for each other
    testTimeout: Math.max(4000, 10 * plan.longest),
    hookTimeout: 20_000,
    maxWorkers: 1,
    bail: plan.loaded ? 1 : 0,
  },
});
