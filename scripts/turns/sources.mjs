// Writes the instrumented sources of the addon to build/turns, for `build-cuda.mjs --turns`.
import { cpSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, extname, join, relative } from "node:path";
import { cudaParser, instrument } from "./instrument.mjs";

const KERNELS = [".cu", ".cuh"];
const SOURCES = [...KERNELS, ".cc", ".h"];

/** The files below a folder of `root`, as paths relative to `root`. */
export function filesIn(root, folder) {
  return readdirSync(join(root, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map(({ parentPath, name }) => relative(root, join(parentPath, name)))
    .sort();
}

/** Writes the folders `kernels` and `native` with marks to `to`, and the list of marked sites to sites.json there. */
export async function markSources(root, to) {
  const parser = await cudaParser();
  rmSync(to, { recursive: true, force: true });
  const all = [];
  for (const folder of ["kernels", "native"]) {
    mkdirSync(join(to, folder), { recursive: true });
    for (const file of filesIn(root, folder)) {
      mkdirSync(dirname(join(to, file)), { recursive: true });
      if (!SOURCES.includes(extname(file))) {
        cpSync(join(root, file), join(to, file));
        continue;
      }
      const source = readFileSync(join(root, file), "utf8");
      const { text, sites } = instrument(parser, source, {
        first: all.length,
        branches: KERNELS.includes(extname(file)),
      });
      const unit = extname(file) === ".cu" ? `#define LOCKSTEP_UNIT "${file}"\n` : "";
      const include = sites.length > 0 || unit ? '#include "kernels/turns.h"\n' : "";
      writeFileSync(join(to, file), unit + include + text);
      all.push(...sites.map((site) => ({ file, ...site })));
    }
  }
  for (const [name, folder] of [
    ["turns.h", "kernels"],
    ["turns.cc", "native"],
  ])
    cpSync(join(import.meta.dirname, name), join(to, folder, basename(name)));
  writeFileSync(
    join(to, "kernels/turns.gen.h"),
    `#pragma once\nnamespace lockstep::turns {\nconstexpr int kSites = ${all.length};\n}\n`,
  );
  writeFileSync(join(to, "sites.json"), `${JSON.stringify(all, null, 1)}\n`);
  return all;
}
