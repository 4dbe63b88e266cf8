import { defineConfig } from "vitest/config";
import { base } from "./vitest.config.js";

/** The package as `npm pack` makes it, installed and used in throw-away projects: `npm run test:package`. */
export default defineConfig({
  ...base,
  test: {
    include: ["conformance/tests/package/**/*.test.ts"],
    testTimeout: 120_000,
    hookTimeout: 120_000,
    maxWorkers: 1,
  },
});
