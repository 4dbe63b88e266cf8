/**
 * Every parser of JSON from a file or another program answers or throws a typed error with a short message, whatever the JSON is:
 * deep, long, with huge numbers, repeated keys, or keys of Object.prototype.
 */
import { createHash } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { afterAll, afterEach, describe, expect, it } from "vitest";
import { claimIn, parseObject } from "../../../src/checkpoints/stored/config/claim.js";
import { subclassOf } from "../../../src/checkpoints/stored/config/torchao.js";
import { readPlan } from "../../../src/cli/commands/gemm-plan.js";
import { Server } from "../../../src/cli/commands/serve.js";
import { Inputs } from "../../../src/cli/compare/inputs.js";
import { DISK } from "../../../src/cli/files.js";
import { COMMANDS } from "../../../src/cli/main.js";
import { readCounterexample } from "../../../src/cli/subject/counterexample-file.js";
import { type Peer, request } from "../../../src/cli/subject/talk.js";
import { LockstepError } from "../../../src/errors.js";
import { readRecord } from "../../../src/io/checkpoint-record.js";
import { encodeFrame, Frame, MESSAGE_KEY } from "../../../src/io/frames/frame.js";
import { FrameReader } from "../../../src/io/frames/frame-reader.js";
import { shownJson } from "../../../src/io/json/json-shown.js";
import { recipesOf } from "../../../src/io/quantized/quantized-file.js";
import { parseRecipe } from "../../../src/io/quantized/recipe-parser.js";
import { readIndex } from "../../../src/io/sharded/index-file.js";
import * as harness from "../../index.js";
import { draws } from "../harness/draws.js";

const folder = mkdtempSync(join(tmpdir(), "lockstep-json-"));
const server = new Server(COMMANDS, {});
afterAll(async () => {
  rmSync(folder, { recursive: true });
  await server.dispose();
});

/** Valid but unusual JSON. */
const deep = fc
  .tuple(
    fc.constantFrom(100, 511, 600, 100_000),
    fc.constantFrom(["[", "]"], ['{"a":', "}"], ['[{"b":', "}]"]),
  )
  .map(([depth, [open = "", close = ""]]) => `${open.repeat(depth)}1${close.repeat(depth)}`);
const extreme = fc.oneof(
  deep,
  fc.constantFrom("1e999", "-1e999", "1e-999", "-0", "9".repeat(100_000), "null", "true", '""', "{}", "[]"),
  fc.nat(300_000).map((length) => JSON.stringify("x\u0000".repeat(length))),
  fc.constantFrom(10, 100_000).map((length) => `[${Array(length).fill(0)}]`),
  fc
    .constantFrom("__proto__", "constructor", "toString", "hasOwnProperty")
    .chain((key) =>
      fc
        .constantFrom("null", "1", "{}", '{"polluted":1}', "[]")
        .map((value) => `{${JSON.stringify(key)}:${value}}`),
    ),
  fc.constantFrom('{"a":1,"a":2}', '{"__proto__":1,"__proto__":2}', "[", '{"a"', "\u0000", ""),
  fc.jsonValue({ maxDepth: 3 }).map((value) => JSON.stringify(value)),
);

/** A JSON object with some of these fields and extreme values, sometimes with the serialization of something else. */
function objects(fields: readonly string[]): fc.Arbitrary<string> {
  const member = fc.tuple(fc.constantFrom(...fields, "__proto__", "constructor"), extreme);
  const object = fc
    .array(member, { maxLength: 4 })
    .map((members) => `{${members.map(([key, value]) => `${JSON.stringify(key)}:${value}`)}}`);
  return fc.oneof({ weight: 3, arbitrary: object }, extreme);
}

/** The object with one field replaced by something extreme. */
function damagedJson(valid: object): fc.Arbitrary<string> {
  const entries = Object.entries(valid);
  return fc.tuple(fc.nat(entries.length - 1), extreme).map(([index, text]) => {
    const members = entries.map(
      ([key, value], i) => `${JSON.stringify(key)}:${i === index ? text : JSON.stringify(value)}`,
    );
    return `{${members}}`;
  });
}

const RECIPE = {
  ...{
    quantizer: "nvfp4",
    format: "e2m1",
    rht: true,
    stochastic: false,
    fourOverSix: "mae",
    rowScaled: false,
  },
  ...{ shape: [16, 32], dtype: "f32", scales: "logical", usage: ["rowwise"] },
};
const RECORD = {
  ...{ version: 2, steps: { w: 1 }, random: { seed: "1", offset: "0" }, extra: { epoch: 1 }, sha256: "00" },
};
const INDEX = { version: 1, generation: `generation-${"0".repeat(24)}`, ranks: 1, tensors: {}, random: [] };
const PLAN = { datapath: "exact", accumulator: "fast", splitK: 1 };
const ENTRY = { dtype: "F32", shape: [1], data_offsets: [0, 4] };
const KINDS = {
  operation: "encode",
  input: { x: 1 },
  kinds: { x: { dtype: "f32", shape: [1] } },
  before: {},
};
const HELLO = { protocol: 1, name: "kernel", operations: { quantize: { recipe: "{}" } } };
const REQUEST = { id: 1, args: ["info"] };

const X = { name: "x", dtype: "F32", shape: [1], bytes: new Uint8Array(4) } as const;
/** A frame with an element of f32 under the name x, and metadata. */
const frameWithMetadata = (metadata: Readonly<Record<string, string>>): Frame => {
  const [, ...frames] = encodeFrame("file", [X], metadata);
  return Frame.decode("file", new Uint8Array(Buffer.concat(frames)));
};

/** A frame with a raw header. */
function withHeader(text: string): Frame {
  const header = Buffer.from(text);
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(header.length));
  return Frame.decode("file", Buffer.concat([length, header, Buffer.alloc(4)]));
}

/** A program that answers with a message. */
function peerWithAnswer(text: string): Peer {
  const answer = encodeFrame("answer", [], { [MESSAGE_KEY]: text });
  const frames = new FrameReader(
    "the subject",
    (async function* () {
      yield* answer;
    })(),
  );
  return {
    ...{
      frames,
      isRunning: true,
      write: () => {},
      exitStatus: async () => "ended",
      errorOutput: () => "",
      kill: () => {},
    },
  };
}

interface Entry {
  readonly texts: fc.Arbitrary<string>;
  readonly parse: (text: string) => unknown;
}

/** Each reader of JSON, with input that is almost valid. */
const ENTRIES: Readonly<Record<string, Entry>> = {
  "the header of a file": {
    texts: fc.oneof(
      objects(["__metadata__", "x"]),
      damagedJson(ENTRY).map((entry) => `{"x":${entry}}`),
      extreme.map((value) => `{"__metadata__":{"k":${value}},"x":${JSON.stringify(ENTRY)}}`),
    ),
    parse: withHeader,
  },
  "the quantization of a tensor": {
    texts: fc.oneof(damagedJson(RECIPE), objects(Object.keys(RECIPE))),
    parse: (text) => parseRecipe("file", "w", text),
  },
  "quantizations in the metadata of a file": {
    texts: fc.oneof(damagedJson(RECIPE), objects(Object.keys(RECIPE))),
    parse: (text) =>
      recipesOf(frameWithMetadata({ "lockstep.checkpoint": text, "lockstep.__proto__": text })),
  },
  "the record of a checkpoint": {
    texts: fc.oneof(damagedJson(RECORD), objects(Object.keys(RECORD))),
    parse: (text) => readRecord(frameWithMetadata({ "lockstep.checkpoint": text })),
  },
  "the index of a sharded checkpoint": {
    texts: damagedJson(INDEX),
    parse: (text) => {
      const body = text.slice(0, -1);
      const sha256 = createHash("sha256").update(body).digest("hex");
      writeFileSync(join(folder, "checkpoint.index.json"), `${body},\n"sha256":"${sha256}"}\n`);
      return readIndex(folder);
    },
  },
  "the plan of a product": {
    texts: fc.oneof(damagedJson(PLAN), objects(Object.keys(PLAN))),
    parse: (text) => {
      writeFileSync(join(folder, "plan.json"), text);
      return readPlan(DISK, join(folder, "plan.json"));
    },
  },
  "the configuration of a model": {
    texts: fc.oneof(
      objects(["quantization_config", "text_config", "compression_config"]),
      objects(["config_groups", "ignore", "weight_block_size", "quant_method", "kv_cache_scheme"]).map(
        (text) => `{"quantization_config":${text},"quantization":${text}}`,
      ),
    ),
    parse: (text) =>
      claimIn(["config.json", "hf.json"], parseObject("config.json", text), parseObject("hf.json", text)),
  },
  "what torchao says of a weight": {
    texts: objects(["_type", "_data", "_tensor_data_names"]),
    parse: (text) => subclassOf({ w: text }, "w"),
  },
  "the options that fuzz recorded": {
    texts: objects(["scale", "seed", "offset", "random-bits"]),
    parse: (text) => new Inputs(frameWithMetadata({ "lockstep-fuzz": text }), []),
  },
  "a counterexample": {
    texts: fc.oneof(damagedJson(KINDS), objects(["operation", "input", "kinds"])),
    parse: (text) => readCounterexample(frameWithMetadata({ "lockstep-counterexample": text }), harness),
  },
  "the answer of a subject": {
    texts: fc.oneof(damagedJson(HELLO), extreme),
    parse: (text) => request(peerWithAnswer(text), { fields: {}, tensors: [] }, 10_000),
  },
};

/** The error of a call, or undefined. */
async function errorOf(call: () => unknown): Promise<unknown> {
  try {
    await call();
    return undefined;
  } catch (error) {
    return error;
  }
}

const PROTOTYPE = Reflect.ownKeys(Object.prototype).map(String).toSorted().join();
afterEach(() => expect(Reflect.ownKeys(Object.prototype).map(String).toSorted().join()).toBe(PROTOTYPE));

/** The length of a message with the limit of 4096 characters, each escaped to at most six, plus the note about omitted ones. */
const MAX_MESSAGE = 6 * 4096 + 200;

describe("JSON from outside", () => {
  it.each(Object.entries(ENTRIES))(
    "%s: is read or refused by a typed error",
    async (_name, { texts, parse }) => {
      await fc.assert(
        fc.asyncProperty(texts, async (text) => {
          const error = await errorOf(() => parse(text));
          if (error === undefined) return;
          expect(error).toBeInstanceOf(LockstepError);
          expect((error as LockstepError).message.length).toBeLessThan(MAX_MESSAGE);
          expect(({} as { polluted?: unknown }).polluted).toBeUndefined();
        }),
        { numRuns: draws(60) },
      );
    },
  );

  it("a request: has a response with its id, or with an error; the next request is answered too", async () => {
    const next = requestBytes(JSON.stringify({ id: "next", args: ["dialects"] }));
    await fc.assert(
      fc.asyncProperty(fc.oneof(damagedJson(REQUEST), objects(["id", "args"])), async (text) => {
        const { id, status, error } = await respond(requestBytes(text));
        const parsedRequest = parseOrUndefined(text);
        if (error === undefined) expect(status).toBe(0);
        else expect(["ARGUMENT", "FILE"]).toContain(error.code);
        if (status === 0)
          expect({ id }).toEqual(
            JSON.parse(JSON.stringify({ id: (parsedRequest as { id?: unknown }).id ?? null })),
          );
        expect((await respond(next)).id).toBe("next");
      }),
      { numRuns: draws(60) },
    );
  });

  it.each([
    ["the options that fuzz recorded", '{"scale":{"toString":null}}'],
    [
      "a counterexample",
      '{"operation":"encode","input":{},"kinds":{"__proto__.x":{"dtype":"f32","shape":[1]}}}',
    ],
  ])("%s: %s", async (name, text) => {
    expect(await errorOf(() => ENTRIES[name]?.parse(text))).toBeOneOf([undefined, expect.any(LockstepError)]);
  });

  it("a served plan of the name of a property of every object is a file that is not there", async () => {
    const text = JSON.stringify({ id: 1, args: ["gemm", "x", "--output", "y", "--plan", "toString"] });
    expect((await respond(requestBytes(text))).error?.code).toBe("FILE");
  });
});

function requestBytes(text: string): Uint8Array {
  const [, ...frames] = encodeFrame("request", [{ ...X, name: "x/x" }], { [MESSAGE_KEY]: text });
  return new Uint8Array(Buffer.concat(frames));
}

async function respond(
  bytes: Uint8Array,
): Promise<{ id: unknown; status?: number; error?: { code: string; message: string } }> {
  const [, ...answerFrames] = await server.respond("request", bytes);
  return JSON.parse(
    Frame.decode("answer", new Uint8Array(Buffer.concat(answerFrames))).metadata[MESSAGE_KEY] ?? "null",
  );
}

function parseOrUndefined(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

describe("a value in a message", () => {
  it("is its JSON where that is short, and otherwise at most 160 characters", () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 5 }), (value) => {
        const text = shownJson(value);
        expect(text.length).toBeLessThanOrEqual(160);
        if (!text.includes("…")) expect(text).toBe(JSON.stringify(value));
      }),
    );
    expect(shownJson(undefined)).toBe("absent");
    expect(shownJson(["a", { b: [1, null] }])).toBe('["a",{"b":[1,null]}]');
    const nestedArrays = JSON.parse(`${"[".repeat(5000)}${"]".repeat(5000)}`) as unknown;
    expect(shownJson(nestedArrays)).toBe("[[[[…]]]]");
  });
});
