/** The code that native/README.md shows is in the sources, and the files that it names exist. */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { listFiles, ROOT } from "../harness/sources/sources.js";

const textOf = (file: string): string => readFileSync(join(ROOT, file), "utf8");
const PAGE = textOf("native/README.md");
const SOURCES = ["native", "src/backends/cuda"]
  .flatMap(listFiles)
  .filter((file) => /\.(ts|cc|h)$/.test(file))
  .map((file) => ({ file, text: textOf(file) }));

describe("native/README.md", () => {
  const blocks = [...PAGE.matchAll(/^```(?:ts|cpp)\n([\s\S]*?)^```$/gm)].map(([, code = ""]) => code);

  it("shows declarations and bindings, generated and by hand, as the sources have them", () => {
    const files = blocks.map((code) => SOURCES.find(({ text }) => text.includes(code))?.file ?? code);
    expect(files).toEqual([
      "src/backends/cuda/update/grad-norm.ts",
      "native/calls.gen.cc",
      "src/backends/cuda/cast/cast.ts",
      "native/cast/fill.cc",
    ]);
  });

  it("names files that exist", () => {
    const paths = [...PAGE.matchAll(/`([\w./-]+\.(?:ts|cc|h))`/g)].map(([, path = ""]) => path);
    expect(paths.length).toBeGreaterThan(10);
    const isFile = (path: string): boolean =>
      ["native", "src/backends/cuda", "."].some((folder) => existsSync(join(ROOT, folder, path)));
    expect(paths.filter((path) => !isFile(path) && path !== "calls.ts")).toEqual([]);
  });
});
