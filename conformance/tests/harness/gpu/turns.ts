/**
 * With TURNS=FOLDER, each GPU test file writes to that folder which loops and branches of the addon it executed;
 * scripts/turns/report.mjs reads the files. Needs an addon built with `build-cuda.mjs --turns`; LOCKSTEP_ADDON is its path.
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { afterAll, beforeAll } from "vitest";
import { platform } from "../../../../src/backends/platform/node.js";

/** The marks of every .cu file and of the host code. */
type Marks = Readonly<Record<string, Uint8Array>>;

function readMarks(): Marks {
  const { exports, attempts } = platform.loadAddon();
  const { turns } = (exports ?? {}) as { readonly turns?: () => Marks };
  if (turns) return turns();
  throw new Error(`TURNS wants an addon of build-cuda.mjs --turns in LOCKSTEP_ADDON; ${attempts.join("; ")}`);
}

const { TURNS } = process.env;

if (TURNS) {
  beforeAll(() => {
    mkdirSync(TURNS, { recursive: true });
  });
  afterAll(() => {
    const marks = Object.entries(readMarks()).map(([unit, bytes]) => [
      unit,
      Buffer.from(bytes).toString("latin1"),
    ]);
    writeFileSync(`${TURNS}/${process.pid}-${Date.now()}.json`, JSON.stringify(Object.fromEntries(marks)));
  });
}
