/** The repository's source files and their imports. Paths are relative to the root. */
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, normalize, relative } from "node:path";
import { fileURLToPath } from "node:url";

export const ROOT = fileURLToPath(new URL("../../../..", import.meta.url));

/** All files below a folder, sorted. */
export function listFiles(folder: string): string[] {
  return readdirSync(join(ROOT, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map(({ parentPath, name }) => relative(ROOT, join(parentPath, name)))
    .sort();
}

const IMPORT = /\bfrom "(\.[^"]+)"/g;
const INCLUDE = /^#include "([^"]+)"/gm;

/** The project's files that a file imports or #includes, including type-only imports. */
export function readImports(file: string): string[] {
  const text = readFileSync(join(ROOT, file), "utf8");
  const importedFiles = Array.from(text.matchAll(IMPORT), ([, path = ""]) =>
    normalize(join(dirname(file), path))
      .replace(/\.(js|ts)$/, "")
      .concat(".ts"),
  );
  return [...importedFiles, ...Array.from(text.matchAll(INCLUDE), ([, path = ""]) => path)];
}

/** A cycle of imports among the files; empty if there is none. */
export function findCycle(files: readonly string[]): string[] {
  const finished = new Set<string>();
  const path: string[] = [];
  const search = (file: string): string[] => {
    const index = path.indexOf(file);
    if (index >= 0) return [...path.slice(index), file];
    if (finished.has(file)) return [];
    path.push(file);
    for (const dependency of readImports(file)) {
      if (!files.includes(dependency)) continue;
      const cycle = search(dependency);
      if (cycle.length > 0) return cycle;
    }
    path.pop();
    finished.add(file);
    return [];
  };
  for (const file of files) {
    const cycle = search(file);
    if (cycle.length > 0) return cycle;
  }
  return [];
}
