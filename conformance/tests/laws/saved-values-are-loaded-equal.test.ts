/**
 * Saving and loading: names, metadata and a caller's values either come back equal or are refused when they are saved.
 */
import { readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ArgumentError, FileError, LockstepError } from "../../../src/errors.js";
import { loadCheckpoint, type SavedState, saveCheckpoint } from "../../../src/io/index.js";
import { parseJson } from "../../../src/io/json/json-read.js";
import { MAX_HEADER_BYTES } from "../../../src/io/limits.js";
import { SafetensorsFile } from "../../../src/io/safetensors.js";
import { writeSafetensors } from "../../../src/io/safetensors-writer.js";
import { Linear } from "../../../src/modules/linear.js";
import { Module } from "../../../src/modules/module.js";
import { constantInit, Parameter } from "../../../src/modules/parameter.js";
import { zeros } from "../../../src/ops/create.js";
import { AdamW } from "../../../src/optimizers/adamw.js";
import { RandomState } from "../../../src/quantizers/random-state.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { draws, sampleCases } from "../harness/draws.js";
import { IS_FULL } from "../harness/full.js";
import { useBackend } from "../harness/suite.js";
import { useFolder } from "../io/folder.js";

let folder = "";
let path = "";
useFolder((createdFolder) => {
  folder = createdFolder;
  path = join(folder, "file.safetensors");
});

const backend = useBackend({ threads: 1, datapath: "hopper" });

/** Strings of every kind: control characters, lone surrogates, names of Object's own properties. */
const anyText = fc.oneof(
  fc.string({ unit: "binary", maxLength: 12 }),
  fc.string({
    unit: fc.integer({ min: 0, max: 0xffff }).map((code) => String.fromCharCode(code)),
    maxLength: 6,
  }),
  fc.constantFrom(
    "",
    "__proto__",
    "constructor",
    "toString",
    "\ud800",
    "\udc00x",
    '"',
    "\\",
    "\u0000",
    "\u2028",
    "1",
    "01",
  ),
);

/** A checkpoint has a tensor for each; the header of 130,000 has more than 8 MB. */
const PARAMETERS = IS_FULL ? 130_000 : 2000;

/** The number of values in a large object. */
const MANY = draws(500_000);

describe("a safetensors file", () => {
  it("has every name and all metadata that it was given, whatever characters they have", async () => {
    const names = fc.uniqueArray(
      anyText.filter((name) => name !== "__metadata__"),
      { maxLength: 8 },
    );
    const metadata = fc.array(fc.tuple(anyText, anyText), { maxLength: 6 }).map(Object.fromEntries<string>);
    await fc.assert(
      fc.asyncProperty(names, metadata, async (parameterNames, meta) => {
        const tensors = parameterNames.map((name, i) => ({ name, dtype: "U8", shape: [i % 3] }) as const);
        await writeSafetensors(path, { tensors, metadata: meta }, async (writeTensor) => {
          for (const [i, { name }] of tensors.entries())
            await writeTensor(name, new Uint8Array(i % 3).fill(i));
        });
        const file = await SafetensorsFile.open(path);
        try {
          expect([...file.tensors.keys()]).toEqual(parameterNames);
          expect(isDeepStrictEqual(file.metadata, meta)).toBe(true);
          for (const [i, name] of parameterNames.entries())
            expect(await file.read(file.entry(name))).toEqual(new Uint8Array(i % 3).fill(i));
        } finally {
          await file.close();
        }
      }),
      { numRuns: draws(200) },
    );
  });

  it.each(
    sampleCases<readonly [string, { name?: string; metadata?: Record<string, string>; count?: number }]>(
      [
        ["a name of 8 MB", { name: "n".repeat(2 ** 23) }],
        ["a name of 8 MB of quotes and backslashes", { name: '\\"'.repeat(2 ** 22) }],
        ["metadata of 8 MB", { metadata: { m: "m".repeat(2 ** 23) } }],
        ["metadata of 8 MB of brackets", { metadata: { m: '[{"'.repeat(2 ** 22) } }],
        ["a key of 8 MB", { metadata: { ["k".repeat(2 ** 23)]: "" } }],
        [
          "200,000 metadata",
          { metadata: Object.fromEntries(Array.from({ length: 200_000 }, (_, i) => [i, ""])) },
        ],
        ["200,000 tensors", { count: 200_000 }],
      ],
      1,
    ),
  )("is read again with %s", async (_, { name = "t", metadata = {}, count = 1 }) => {
    const tensors = Array.from(
      { length: count },
      (_, i) => ({ name: i ? `${name}${i}` : name, dtype: "U8", shape: [0] }) as const,
    );
    await writeSafetensors(path, { tensors, metadata }, async () => {});
    const file = await SafetensorsFile.open(path);
    await file.close();
    expect(file.tensors.size).toBe(count);
    expect(file.tensors.has(name)).toBe(true);
    expect(isDeepStrictEqual(file.metadata, metadata)).toBe(true);
  });

  it("may have a header of the largest size that the reader accepts, to the byte; a larger one is refused before anything is written", async () => {
    const around = JSON.stringify({ __metadata__: { m: "" } }).length;
    const write = (length: number) =>
      writeSafetensors(path, { tensors: [], metadata: { m: "m".repeat(length) } }, async () => {});
    await write(MAX_HEADER_BYTES - around);
    const file = await SafetensorsFile.open(path);
    await file.close();
    expect(file.metadata.m).toHaveLength(MAX_HEADER_BYTES - around);
    rmSync(path);
    await expect(write(MAX_HEADER_BYTES - around + 1)).rejects.toThrow(FileError);
    expect(readdirSync(folder)).toEqual([]);
  });
});

const NOTHING = Symbol("nothing came back");

/** The loaded value of an extra, or the error that refuses it. Any other error fails the test. */
async function saveAndLoad(extra: unknown): Promise<unknown> {
  using module = new Linear(backend(), 32, 32, { bias: false });
  try {
    await saveCheckpoint(path, { module, extra });
  } catch (error) {
    if (!(error instanceof LockstepError)) throw error;
    expect(readdirSync(folder)).toEqual([]);
    return NOTHING;
  }
  const checkpoint = await loadCheckpoint(path, { module });
  rmSync(path);
  return checkpoint;
}

const nest = (depth: number, innermost: unknown = 0): unknown => {
  let value = innermost;
  for (let i = 0; i < depth; i++) value = i % 2 ? { a: value } : [value];
  return value;
};

describe("the caller's extra values in a checkpoint", () => {
  const numbers = fc.oneof(
    fc.double(),
    fc.constantFrom(-0, 2 ** 53 + 2, 1e308, 5e-324, Infinity, Number.NaN, 1e21),
  );
  const anyValue = fc.letrec((tie) => ({
    value: fc.oneof(
      { maxDepth: 4, depthIdentifier: "extra" },
      fc.oneof(numbers, anyText, fc.boolean(), fc.constant(null)),
      fc.array(tie("value"), { maxLength: 4, depthIdentifier: "extra" }),
      fc.array(fc.tuple(anyText, tie("value")), { maxLength: 4 }).map(Object.fromEntries<unknown>),
      fc.anything({
        withBigInt: true,
        withBoxedValues: true,
        withDate: true,
        withMap: true,
        withSet: true,
        withNullPrototype: true,
        withSparseArray: true,
        withTypedArray: true,
      }),
    ),
  })).value;

  it("are read back equal to the sign of a zero, or refused with a typed error and no file", async () => {
    let numKept = 0;
    await fc.assert(
      fc.asyncProperty(anyValue, async (extra) => {
        const back = await saveAndLoad(extra);
        if (back === NOTHING) return;
        numKept++;
        expect(isDeepStrictEqual(back, extra)).toBe(true);
      }),
      { numRuns: draws(600) },
    );
    expect(numKept).toBeGreaterThan(draws(600) / 6);
  });

  it("are never refused if JSON can represent them", async () => {
    const plainJson = fc.jsonValue().filter((json) => isPlainJson(json));
    await fc.assert(
      fc.asyncProperty(plainJson, async (extra) => {
        expect(isDeepStrictEqual(await saveAndLoad(extra), extra)).toBe(true);
      }),
      { numRuns: draws(100) },
    );
  });

  it.each<readonly [string, () => unknown]>([
    ...sampleCases<readonly [string, () => unknown]>(
      [
        ["a text of 8 MB", () => "x".repeat(2 ** 23)],
        ["a text of 8 MB of quotes", () => '"\\'.repeat(2 ** 22)],
        [`${MANY} numbers`, () => Array.from({ length: MANY }, (_, i) => i / 7)],
        [`${MANY} keys`, () => Object.fromEntries(Array.from({ length: MANY }, (_, i) => [`k${i}`, i]))],
      ],
      1,
    ),
    ["500 levels", () => nest(500)],
    ["a zero of each sign", () => [0, -0, { z: -0 }]],
    ["keys of every object", () => JSON.parse('{"__proto__":{"a":1},"constructor":null,"toString":"x"}')],
    ["lone surrogates", () => ({ "\ud800": "\udfff\ud800" })],
    ["the same object twice", () => ((object) => [object, { object }])({ a: [1] })],
    ["numbers of every size", () => [Number.MAX_VALUE, 5e-324, 2 ** 53 + 2, -1e21, 1e-7]],
  ])("may be %s", async (_, make) => {
    expect(isDeepStrictEqual(await saveAndLoad(make()), make())).toBe(true);
  });

  const cycle: Record<string, unknown> = { a: [1] };
  (cycle.a as unknown[]).push(cycle);
  const wideTree = (levels: number): unknown => {
    let value: unknown = "x".repeat(1000);
    for (let i = 0; i < levels; i++) value = [value, value];
    return value;
  };
  it.each<[string, unknown, RegExp]>([
    ["a cycle", cycle, /extra.a\[1\] contains itself/],
    ["501 levels", nest(501), /nests more than 500 deep/],
    ["100,000 levels", nest(100_000), /nests more than 500 deep/],
    ["more text than a header may have", wideTree(40), /more than the 100000000 bytes/],
    ["a symbol key", { [Symbol("s")]: 1 }, /extra has the key Symbol\(s\)/],
    ["a symbol key of an array", Object.assign([1], { [Symbol("s")]: 1 }), /members beside its elements/],
    ["further members of an array", Object.assign([1], { more: 1 }), /members beside its elements/],
    ["a hole", Object.assign(new Array(3), [1]), /extra has nothing at 1/],
    ["undefined in an array", [undefined], /extra\[0\] is undefined/],
    ["undefined in an object", { a: undefined }, /extra.a is undefined/],
    ["a function", { f: () => 1 }, /extra.f is function/],
    ["a symbol", Symbol("s"), /extra is symbol/],
    ["a bigint", 1n, /extra is bigint 1/],
    ["NaN", Number.NaN, /extra is number NaN/],
    ["infinity", [-Infinity], /extra\[0\] is number -Infinity/],
    ["an accessor", Object.defineProperty({}, "a", { get: () => 1, enumerable: true }), /accessor, "a"/],
    ["a hidden member", Object.defineProperty({}, "a", { value: 1 }), /hidden member, "a"/],
    ["toJSON", { toJSON: () => 1 }, /extra.toJSON is function/],
    ["a date", new Date(0), /object of class Date/],
    ["a boxed number", Object(1), /object of class Number/],
    ["an object without a prototype", Object.create(null), /object without a prototype/],
    ["a typed array", new Float32Array(2), /object of class Float32Array/],
    ["an array of another class", new (class Mine extends Array {})(), /array of another class/],
  ])("may not be %s", async (_, extra, message) => {
    using module = new Linear(backend(), 32, 32, { bias: false });
    const error: unknown = await saveCheckpoint(path, { module, extra }).catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(ArgumentError);
    expect((error as ArgumentError).message).toMatch(message);
    expect(readdirSync(folder)).toEqual([]);
  });
});

/** A module with parameters under given names. */
class Named extends Module {
  constructor(names: readonly string[]) {
    super(backend(), { random: new RandomState(1n) });
    for (const name of names) this.parameter(name, [1], constantInit(1));
  }
}

describe("a checkpoint", () => {
  it("keeps parameters under any names that modules accept, with an optimizer's step counts", async () => {
    const names = fc.uniqueArray(
      anyText.filter((name) => name !== "" && !name.includes(".")),
      { minLength: 1, maxLength: 5 },
    );
    await fc.assert(
      fc.asyncProperty(names, async (parameterNames) => {
        using module = new Named(parameterNames);
        using optimizer = new AdamW(module, { learningRate: 1 });
        for (const [i, parameter] of module.parameters().entries())
          (parameter.value as Tensor).write(Uint16Array.of(0x3f80 + i));
        await saveCheckpoint(path, { module, optimizer });
        using otherModule = new Named(parameterNames);
        using otherOptimizer = new AdamW(otherModule, { learningRate: 1 });
        await loadCheckpoint(path, { module: otherModule, optimizer: otherOptimizer });
        for (const [i, { value }] of otherModule.parameters().entries())
          expect((value as Tensor).dataSync()[0]).toBe(0x3f80 + i);
      }),
      { numRuns: draws(60) },
    );
  });

  it(`may have ${PARAMETERS} parameters`, async () => {
    const value = zeros(backend(), "bf16", [1]);
    using module = new (class extends Module {
      constructor() {
        super(backend());
        for (let i = 0; i < PARAMETERS; i++) this.addParameter(`p${i}`, new Parameter(value));
      }
    })();
    await saveCheckpoint(path, { module });
    await loadCheckpoint(path, { module });
  });

  it.each<[string, unknown, RegExp]>([
    ["a random state without numbers", { random: {} }, /random is .*; it must be a RandomState/],
    ["numbers for bigints", { random: { seed: 1, offset: 2 } }, /random is .*must be/],
    ["null for a random state", { random: null }, /random is null; it must be/],
    ["no module", { module: {} }, /module is .*; it must be a Module/],
    ["a module for an optimizer", { optimizer: {} }, /optimizer is .*; it must be/],
    [
      "a misspelt option",
      { optimiser: undefined },
      /no option optimiser; did you mean optimizer\? There are module, optimizer, random/,
    ],
  ])("is neither saved nor loaded with %s", async (_, wrongKey, message) => {
    using module = new Linear(backend(), 32, 32, { bias: false });
    const state = { module, ...(wrongKey as object) } as SavedState;
    await expect(saveCheckpoint(path, state)).rejects.toThrow(message);
    expect(readdirSync(folder)).toEqual([]);
    await saveCheckpoint(path, { module });
    await expect(loadCheckpoint(path, state)).rejects.toThrow(message);
    for (const call of [saveCheckpoint, loadCheckpoint])
      await expect(call(path, undefined as never)).rejects.toThrow(ArgumentError);
  });

  it.each([undefined, 3, "", "a\0b"])(
    "is neither saved to nor loaded from the invalid path %j",
    async (wrongKey) => {
      using module = new Linear(backend(), 32, 32, { bias: false });
      for (const call of [saveCheckpoint, loadCheckpoint])
        await expect(call(wrongKey as string, { module })).rejects.toThrow(LockstepError);
    },
  );
});

/** The number of strings in a JSON text that are keys. */
const keysIn = (text: string): number =>
  Array.from(text.matchAll(/"(?:[^"\\]|\\.)*"(\s*:)?/g)).filter(([, colon]) => colon).length;

/** The number of keys of all objects in a value. */
const keysOf = (value: unknown): number =>
  typeof value === "object" && value !== null
    ? Object.values(value).reduce(
        (sum: number, element) => sum + keysOf(element),
        Array.isArray(value) ? 0 : Object.keys(value).length,
      )
    : 0;

describe("JSON", () => {
  const texts = fc.oneof(
    fc.json(),
    fc
      .json()
      .chain((text) =>
        fc
          .tuple(fc.nat(text.length), fc.string({ maxLength: 2 }), fc.nat(2))
          .map(
            ([position, insertion, numRemoved]) =>
              text.slice(0, position) + insertion + text.slice(position + numRemoved),
          ),
      ),
    fc.stringMatching(/^[[\]{}",:0-9eE.+\-\\ untrfalse]{0,12}$/),
  );

  it("is read as JSON.parse reads it, except that repeated keys are refused", () => {
    fc.assert(
      fc.property(texts, (text) => {
        const attempt = (parse: (text: string) => unknown): unknown => {
          try {
            return { value: parse(text) };
          } catch (error) {
            return (error as Error).message.includes("twice") ? "twice" : "refused";
          }
        };
        const [actual, expected] = [attempt(parseJson), attempt(JSON.parse)];
        if (actual !== "twice") expect(isDeepStrictEqual(actual, expected)).toBe(true);
        // text after the repeated key is not read
        else if (expected !== "refused") expect(keysOf(JSON.parse(text))).toBeLessThan(keysIn(text));
      }),
      { numRuns: draws(20_000) },
    );
  });
});

/** Whether JSON.parse can return the value; an object without a prototype is not. */
function isPlainJson(value: unknown): boolean {
  if (typeof value !== "object" || value === null) return true;
  return Object.getPrototypeOf(value) !== null && Object.values(value).every(isPlainJson);
}
