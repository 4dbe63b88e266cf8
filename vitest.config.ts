import { defineConfig } from "vitest/config";

export const base = {
  resolve: { alias: { "#platform": new URL("./src/backends/platform/node.ts", import.meta.url).pathname } },
  oxc: { target: "es2022" },
};

export default defineConfig({
  ...base,
  test: {
    include: ["conformance/**/*.test.ts"],
    exclude: ["conformance/slow/**"],
    testTimeout: 120_000,
    hookTimeout: 60_000,
    maxWorkers: 2,
  },
});
