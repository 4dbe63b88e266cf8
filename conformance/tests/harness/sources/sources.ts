/** The repository's source files and their imports. Paths are relative to the root. */
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, normalize, relative } from "node:path";
import { fileURLToPath } from "node:url";

export const ROOT = fileURLToPath(new URL("../../../..", import.meta.url));

/** All files below a folder, sorted. */
export function filesIn(folder: string): string[] {
  return readdirSync(join(ROOT, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map(({ parentPath, name }) => relative(ROOT, join(parentPath, name)))
    .sort();
}

const IMPORT = /\bfrom "(\.[^"]+)"/g;
const INCLUDE = /^#include "([^"]+)"/gm;

/** The project's files that a file imports or #includes, including type-only imports. */
export function importsOf(file: string): string[] {
  const text = readFileSync(join(ROOT, file), "utf8");
  const imported = Array.from(text.matchAll(IMPORT), ([, path = ""]) =>
    normalize(join(dirname(file), path))
      .replace(/\.(js|ts)$/, "")
      .concat(".ts"),
  );
  return [...imported, ...Array.from(text.matchAll(INCLUDE), ([, path = ""]) => path)];
}

/** A cycle of imports among the files; empty if there is none. */
export function circleIn(files: readonly string[]): string[] {
  const done = new Set<string>();
  const path: string[] = [];
  const search = (file: string): string[] => {
    const at = path.indexOf(file);
    if (at >= 0) return [...path.slice(at), file];
    if (done.has(file)) return [];
    path.push(file);
    for (const next of importsOf(file)) {
      if (!files.includes(next)) continue;
      const circle = search(next);
      if (circle.length > 0) return circle;
    }
    path.pop();
    done.add(file);
    return [];
  };
  for (const file of files) {
    const circle = search(file);
    if (circle.length > 0) return circle;
  }
  return [];
}
