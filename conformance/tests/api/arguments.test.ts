/**
 * No argument of any export corrupts memory, changes another tensor, or is ignored although it is invalid. Docstrings
 * name the errors that refuse arguments.
 */
import { readFileSync } from "node:fs";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import * as processes from "../../../src/distributed/processes/index.js";
import * as lockstep from "../../../src/index.js";
import * as files from "../../../src/io/index.js";
import * as conformance from "../../index.js";
import { GuardedBackend } from "../../operations/guarded.js";
import { type Callable, type Declarations, declared } from "../harness/arguments/declared.js";
import { completed } from "../harness/arguments/derived.js";
import {
  areApart,
  type Refusals,
  type Target,
  type Trial,
  trialsOf,
  tried,
  valid,
} from "../harness/arguments/law.js";
import type { Row, Rows } from "../harness/arguments/row.js";
import { CONFORMANCE_ROWS } from "../harness/arguments/rows-conformance.js";
import { DISTRIBUTED_ROWS } from "../harness/arguments/rows-distributed.js";
import { CheckpointFolder, fileRows } from "../harness/arguments/rows-files.js";
import { MODULE_ROWS, RECIPE_ROWS } from "../harness/arguments/rows-modules.js";
import { OPERATION_ROWS } from "../harness/arguments/rows-ops.js";
import { OTHER_ROWS, TENSOR_ROWS, WITHOUT_LAW } from "../harness/arguments/rows-others.js";
import { QUANTIZER_ROWS } from "../harness/arguments/rows-quantizers.js";
import { type Backends, openBackends } from "../harness/arguments/world.js";

const folder = new CheckpointFolder();

const ENTRIES = [
  ["dist/src/index.d.ts", lockstep],
  ["dist/src/io/index.d.ts", files],
  ["dist/src/distributed/processes/index.d.ts", processes],
  ["dist/conformance/index.d.ts", conformance],
] as const;

const declarations: Declarations = declared(...ENTRIES.map(([path]) => path));

const ROWS: Rows = completed(declarations, {
  ...fileRows(folder),
  ...OPERATION_ROWS,
  ...QUANTIZER_ROWS,
  ...MODULE_ROWS,
  ...RECIPE_ROWS,
  ...OTHER_ROWS,
  ...TENSOR_ROWS,
  ...CONFORMANCE_ROWS,
  ...DISTRIBUTED_ROWS,
});

const callables = new Map(declarations.callables.map((each) => [each.name, each]));
/** The exports that have parameters. */
const taking = [...callables.values()].filter(({ name, parameters }) => parameters.length > 0 || ROWS[name]);

/**
 * Functions to which another function passes its argument for checking, by the name of that other function: the class that it
 * extends, or the function that it calls.
 */
const SPEAKS_FOR: Readonly<Record<string, readonly string[]>> = {
  Parameter: ["Variable"],
  assertSameBits: ["PlainTensor"],
  quantizeCase: ["quantizeSpec"],
  recompute: ["Variable"],
  specsOf: ["optionsOf"],
  words: ["splitmix32"],
};

let backends: Backends;

beforeAll(async () => {
  backends = await openBackends((backend) => new GuardedBackend(backend));
  await folder.fill(backends);
});

afterAll(async () => {
  await folder.end();
  await backends.backend.dispose();
  await backends.other.dispose();
});

function targetOf({ name }: Callable): Target {
  const [first = "", second] = name.split(".");
  const entry = ENTRIES.find(([, exported]) => first in exported)?.[1];
  const found: unknown = entry && Reflect.get(entry, first);
  if (second === undefined) {
    return (_self, args) =>
      isClass(found)
        ? Reflect.construct(found, args)
        : Reflect.apply(found as () => unknown, undefined, args);
  }
  if (typeof found !== "function")
    return (_self, args) => Reflect.apply(Reflect.get(found as object, second), undefined, args);
  return (self, args) => Reflect.apply(Reflect.get(self as object, second), self, args);
}

function isClass(value: unknown): value is new (...args: unknown[]) => object {
  return typeof value === "function" && /^class\b/.test(String(value));
}

const made = new Map<string, readonly Trial[]>();

function trialsFor(callable: Callable): readonly Trial[] {
  const { name } = callable;
  const row = ROWS[name];
  if (!row) return [];
  const all = made.get(name) ?? trialsOf(declarations, callable, row, backends);
  made.set(name, all);
  return row.costly ? all.filter(({ wrong }) => wrong) : all;
}

describe("arguments", () => {
  it("every entry point of the package is covered", () => {
    const { exports } = JSON.parse(readFileSync("package.json", "utf8")) as {
      readonly exports: Readonly<Record<string, string | { readonly types: string }>>;
    };
    const types = Object.values(exports).flatMap((each) => (typeof each === "string" ? [] : [each.types]));
    expect(ENTRIES.map(([path]) => `./${path}`).sort()).toEqual(types.sort());
  });

  it("every export is covered, and every row covers an export", () => {
    const left = taking.filter(({ name }) => !ROWS[name] && !WITHOUT_LAW[name]).map(({ name }) => name);
    expect(left, "exports without a row that says how they are called").toEqual([]);
    const stale = [...Object.keys(ROWS), ...Object.keys(WITHOUT_LAW)].filter((name) => !callables.has(name));
    expect(stale, "rows of what is not exported").toEqual([]);
  });

  const rows = taking.flatMap((callable) => {
    const row = ROWS[callable.name];
    return row ? [[callable.name, callable, row] as const] : [];
  });

  it.each(rows)("%s is called validly", async (_name, callable, row: Row) => {
    for (const call of row.calls.keys())
      expect(await valid(targetOf(callable), row, call, backends)).toBeUndefined();
  });

  let count = 0;
  it.each(rows)(
    "%s refuses wrong arguments by errors that its docstring names, and changes nothing",
    async (_name, callable) => {
      const faults: string[] = [];
      const refusals: Refusals = { errors: new Set(), users: new Set(), unnamed: new Map() };
      for (const trial of trialsFor(callable)) {
        const fault = await tried(targetOf(callable), [trial], backends, refusals);
        if (fault) faults.push(fault);
        count++;
      }
      expect(faults.slice(0, 12)).toEqual([]);
      const unsaid = [...refusals.errors].filter((error) => !callable.doc.includes(error));
      expect(unsaid, `typed errors of ${callable.name} that its docstring does not name`).toEqual([]);
      const { name } = callable;
      const strangers = [...refusals.users].filter(
        (user) =>
          !name.includes(".") && user !== name && callables.has(user) && !SPEAKS_FOR[name]?.includes(user),
      );
      expect([...refusals.unnamed], `arguments of ${name} that errors do not name`).toEqual([]);
      expect(strangers, `functions that errors of ${name} name instead of it`).toEqual([]);
    },
  );

  it("what was disposed of refuses calls with any arguments", async () => {
    const taken: string[] = [];
    for (const [, callable] of rows) {
      const trials = trialsFor(callable);
      const disposed = trials.find(({ disposedSelf }) => disposedSelf);
      if (!disposed) continue;
      for (const other of trials.filter((each) => each.call === disposed.call && !each.wrong)) {
        const fault = await tried(targetOf(callable), [disposed, other], backends);
        if (fault) taken.push(fault);
      }
    }
    expect(taken).toEqual([]);
  });

  it("two wrong arguments at once are refused as well", async () => {
    const some = rows.filter(([, , { costly }]) => !costly).map(([name]) => name);
    const pairs = fc.record({
      name: fc.constantFrom(...some),
      first: fc.nat(),
      second: fc.nat(),
    });
    await fc.assert(
      fc.asyncProperty(pairs, async ({ name, first, second }) => {
        const callable = callables.get(name) as Callable;
        const trials = trialsFor(callable);
        const one = trials[first % trials.length];
        const others = trials.filter((each) => one && each.call === one.call && areApart(each, one));
        const other = others[second % others.length];
        if (!one || !other) return;
        expect(await tried(targetOf(callable), [one, other], backends)).toBeUndefined();
      }),
      { numRuns: 1000, seed: 1 },
    );
  });

  it("more than 10,000 wrong values are tried", () => {
    const options = rows.reduce((sum, [, { parameters }]) => sum + parameters.length, 0);
    console.log(
      `arguments: ${rows.length} callables, ${options} parameters, ${count} wrong or doubtful values tried`,
    );
    expect(count).toBeGreaterThan(10_000);
  });
});
