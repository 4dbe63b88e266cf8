import { defineConfig } from "vitest/config";
import { base } from "./vitest.config.js";

/** The exhaustive suite: all 2^32 inputs and the long property runs. Hours, not minutes. */
export default defineConfig({
  ...base,
  test: { include: ["conformance/tests/slow/**/*.test.ts"], testTimeout: 6 * 3_600_000, maxWorkers: 1 },
});
