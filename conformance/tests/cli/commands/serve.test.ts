/** `serve`: a command on frames returns the files that it would write to disk, and the same errors. */
import { spawn } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import * as fc from "fast-check";
import { afterAll, describe, expect, it } from "vitest";
import { Server } from "../../../../src/cli/commands/serve.js";
import { ON_FILES } from "../../../../src/cli/main.js";
import { encodeFrame, Frame, type FrameTensor } from "../../../../src/io/frames/frame.js";
import { FrameReader } from "../../../../src/io/frames/frame-reader.js";
import { programPath } from "../../harness/bundle.js";
import { type FileContents, f32, ramp, useWorkspace } from "../../harness/cli.js";
import { draws, sampleCases } from "../../harness/draws.js";
import { writeLanguageModel } from "../../models/tiny-tokenizer.js";

const w = useWorkspace();
const server = new Server(ON_FILES, { json: "", threads: "1" });
afterAll(() => server.dispose());

const KEY = "lockstep";

function request(args: unknown, tensors: readonly FrameTensor[] = [], metadata = {}): readonly Uint8Array[] {
  return encodeFrame("test", tensors, { ...metadata, [KEY]: JSON.stringify({ id: "7", args }) });
}

async function ask(frames: readonly Uint8Array[]): Promise<Frame> {
  const [, ...payload] = frames;
  const [, ...answerFrames] = await server.respond("request 1", new Uint8Array(Buffer.concat(payload)));
  return Frame.decode("answer", new Uint8Array(Buffer.concat(answerFrames)));
}

function messageOf(frame: Frame): {
  id: unknown;
  status?: number;
  result?: unknown;
  error?: { code: string; message: string };
} {
  return JSON.parse(frame.metadata[KEY] ?? "null");
}

async function contentsOf(frame: Frame, path: string): Promise<FileContents> {
  const part = frame.part(path);
  const tensors = Array.from(part.tensors.values(), ({ name, dtype, shape, begin, end }) => {
    return [
      name,
      { name, dtype, shape, bytes: frame.bytesOf({ name, dtype, shape, begin, end }).slice() },
    ] as const;
  });
  return { tensors: Object.fromEntries(tensors), metadata: part.metadata };
}

const X = [f32("x", [32, 64], ramp(32 * 64)), f32("y", [8, 16], ramp(128, 7))];
const PAIR = [f32("x", [32, 64], ramp(2048)), f32("w", [16, 64], ramp(1024, 3))];
const tensorsBelow = (path: string, tensors: readonly FrameTensor[]) =>
  tensors.map((tensor) => ({ ...tensor, name: `${path}/${tensor.name}` }));

/** Command lines with one input and one output. */
const LINES: readonly (readonly [line: string, input: readonly FrameTensor[]])[] = [
  ["encode in -o out --format e4m3", X],
  ["encode in -o out --format e2m1 --rounding stochastic --seed 5", X],
  ["quantize in -o out --quantizer mxfp8 --usage rowwise,columnwise --tensors x", X],
  ["quantize in -o out --quantizer nvfp4 --stochastic --tensors x", X],
  ["quantize in -o out --quantizer fp8-delayed --scale 2", X],
  ["gemm in -o out --datapath fp32", PAIR],
];

it("generate returns what the command prints with --json, for a model on the disk", async () => {
  await writeLanguageModel(w.path("model"));
  const args = ["generate", w.path("model"), "--prompt", "abc", "--max-tokens", "3"];
  const { status, result } = messageOf(await ask(request(args)));
  const report = JSON.parse(await w.succeed(...args, "--json")) as object;
  expect(status).toBe(0);
  expect({ ...(result as object), tokensPerSecond: 0 }).toEqual({ ...report, tokensPerSecond: 0 });
  const { error } = messageOf(await ask(request(["generate", w.path("none"), "--prompt", "abc"])));
  expect(error?.code).toBe("FILE");
});

it("perplexity reads the text from the metadata, and returns what the command prints with --json", async () => {
  await writeLanguageModel(w.path("model"));
  const text = "abcabdacbzzyxw";
  writeFileSync(w.path("text"), text);
  const args = ["perplexity", w.path("model"), "--forms", "ct-mxfp4", "--context", "8", "--text"];
  const { status, result } = messageOf(await ask(request([...args, "text"], [], { text })));
  const report = JSON.parse(await w.succeed(...args, "@text", "--json")) as object;
  expect(status).toBe(0);
  expect(result).toEqual({ ...report, text: "text" });
  const { error } = messageOf(await ask(request([...args, "text"])));
  expect([error?.code, error?.message]).toEqual([
    "FILE",
    expect.stringMatching(/^text: the frame has no metadata/),
  ]);
});

it("perplexity returns the picture that it writes on disk in the metadata, under any key except the answer's key", async () => {
  await writeLanguageModel(w.path("model"));
  const text = "abcabdacbzzyxw";
  writeFileSync(w.path("text"), text);
  const args = ["perplexity", w.path("model"), "--forms", "ct-mxfp4", "--context", "8", "--text"];
  const answer = await ask(request([...args, "text", "--picture", "errors"], [], { text }));
  await w.succeed(...args, "@text", "--picture", "@errors");
  expect(answer.metadata.errors).toBe(readFileSync(w.path("errors"), "utf8"));
  const { error } = messageOf(await ask(request([...args, "text", "--picture", KEY], [], { text })));
  expect([error?.code, error?.message]).toEqual(["FILE", expect.stringMatching(/key of the answer/)]);
});

describe("a served command", () => {
  it.each(sampleCases(LINES, 6))(
    "%s returns the tensors that the command writes to a file",
    async (line, input) => {
      const answer = await ask(request(line.split(" "), tensorsBelow("in", input)));
      expect(messageOf(answer)).toMatchObject({ id: "7", status: 0, result: { output: "out" } });
      await w.write("in", input);
      await w.succeed(...line.replace(" in ", " @in ").replace(" out ", " @out ").split(" "));
      expect(await contentsOf(answer, "out")).toEqual(await w.read("out"));
    },
  );

  it.each([
    ["--threads", "1"],
    ["--threads=1"],
    ["--backend", "wasm"],
    ["--backend=wasm"],
    ["--json"],
    ["--threads=1", "--backend", "wasm", "--json"],
  ])("takes %s %s %s in place of the server's", async (...options) => {
    const args = ["encode", "in", "-o", "out", "--format", "e4m3"];
    const plainAnswer = await ask(request(args, tensorsBelow("in", X)));
    const otherServer = new Server(ON_FILES, { json: "", threads: "1", backend: "wasm" });
    const [, ...payload] = request([...args, ...options], tensorsBelow("in", X));
    const [, ...answerFrames] = await otherServer.respond(
      "request 1",
      new Uint8Array(Buffer.concat(payload)),
    );
    await otherServer.dispose();
    const frame = Frame.decode("answer", new Uint8Array(Buffer.concat(answerFrames)));
    expect(messageOf(frame)).toEqual(messageOf(plainAnswer));
    expect(await contentsOf(frame, "out")).toEqual(await contentsOf(plainAnswer, "out"));
  });

  it("reads the tensors and metadata that another served command returned", async () => {
    const line = "quantize in -o out --quantizer nvfp4 --tensors x";
    const quantizedAnswer = await ask(request(line.split(" "), tensorsBelow("in", X)));
    const tensors = Array.from(quantizedAnswer.tensors.values(), (entry) => ({
      ...entry,
      bytes: quantizedAnswer.bytesOf(entry),
    }));
    const { [KEY]: _, ...metadata } = quantizedAnswer.metadata;
    const back = await ask(request("dequantize out -o wide --dtype bf16".split(" "), tensors, metadata));
    await w.write("in", X);
    await w.succeed("quantize", "@in", "-o", "@out", "--quantizer", "nvfp4", "--tensors", "x");
    await w.succeed("dequantize", "@out", "-o", "@wide", "--dtype", "bf16");
    expect(await contentsOf(back, "wide")).toEqual(await w.read("wide"));
  });

  it("compares two files of one frame, and reports the exit status", async () => {
    const otherTensors = [f32("x", [32, 64], ramp(2048, 2)), X[1] as FrameTensor];
    const frame = await ask(
      request(["compare", "a", "b"], [...tensorsBelow("a", X), ...tensorsBelow("b", otherTensors)]),
    );
    expect(messageOf(frame)).toMatchObject({ status: 1, result: { equal: false } });
    const equalAnswer = await ask(request(["compare", "a", "a"], tensorsBelow("a", X)));
    expect(messageOf(equalAnswer)).toMatchObject({ status: 0, result: { equal: true } });
  });

  it("takes a plan of a product from the metadata, and gives one", async () => {
    const printedAnswer = await ask(
      request(["gemm", "in", "-o", "d", "--datapath", "fp32", "--print-plan"], tensorsBelow("in", PAIR)),
    );
    const plan = JSON.stringify(messageOf(printedAnswer).result);
    const plannedAnswer = await ask(
      request(["gemm", "in", "-o", "d", "--plan", "p.json"], tensorsBelow("in", PAIR), { "p.json": plan }),
    );
    expect(await contentsOf(plannedAnswer, "d")).toEqual(await contentsOf(printedAnswer, "d"));
    const absentAnswer = await ask(
      request(["gemm", "in", "-o", "d", "--plan", "q.json"], tensorsBelow("in", PAIR)),
    );
    expect(messageOf(absentAnswer).error).toMatchObject({
      code: "FILE",
      message: expect.stringContaining("q.json"),
    });
  });

  it.each([
    [["quantise", "in"], "ARGUMENT", /did you mean quantize/],
    [["serve", "--stdio"], "ARGUMENT", /"serve" is not served/],
    [["launch", "x.mjs"], "ARGUMENT", /"launch" is not served/],
    [[], "ARGUMENT", /no command was given/],
    ["quantize", "ARGUMENT", /"args" .* must be a list of strings/],
    [["quantize", 3], "ARGUMENT", /"args" .* must be a list of strings/],
    [["quantize", "absent", "-o", "out", "--quantizer", "mxfp8"], "FILE", /begins with "absent\/"/],
    [
      ["quantize", "in", "-o", "in", "--quantizer", "mxfp8"],
      "ARGUMENT",
      /is the input in, which would be lost/,
    ],
    [["quantize", "in", "-o", "out", "--quantizer", "mxfp9"], "ARGUMENT", /mxfp9/],
    [["quantize", "in", "-o", "out", "--quantizer", "mxfp8", "--tensors", "y"], "SHAPE", /y/],
  ])("%j is an error with a code, and the next request is answered", async (args, code, message) => {
    const failure = messageOf(await ask(request(args, tensorsBelow("in", X))));
    expect(failure).toMatchObject({ error: { code, message: expect.stringMatching(message) } });
    expect(messageOf(await ask(request(["info"])))).toMatchObject({ id: "7", status: 0 });
  });

  it("repeats any id, whether the request fails or not", async () => {
    const leaf = fc.oneof(
      fc.constant(null),
      fc.boolean(),
      fc.string({ unit: "grapheme" }),
      fc.maxSafeInteger(),
      fc.double({ noNaN: true }).filter((x) => Number.isFinite(x) && !Number.isInteger(x)),
    );
    const anyId = fc.oneof(leaf, fc.array(leaf), fc.dictionary(fc.string(), leaf, { noNullPrototype: true }));
    const requests = fc.constantFrom<object>(
      ...[["info"], ["serve"], ["nothing"], [], "info", [3], null, { 0: "info" }].map((args) => ({ args })),
      { args: ["encode", "absent", "-o", "out", "--format", "e4m3"] },
      { args: ["encode", "in", "-o", "out", "--format", "e9m9"] },
      {},
    );
    await fc.assert(
      fc.asyncProperty(anyId, requests, async (id, message) => {
        const text = JSON.stringify({ ...message, id });
        const answer = messageOf(await ask(encodeFrame("test", tensorsBelow("in", X), { [KEY]: text })));
        expect([answer.id, answer.status === undefined]).toEqual([
          JSON.parse(JSON.stringify(id)),
          answer.error !== undefined,
        ]);
      }),
      { numRuns: draws(200), examples: [[7, { args: "info" }]] },
    );
  });

  it("answers any bytes with a response", async () => {
    await fc.assert(
      fc.asyncProperty(fc.uint8Array({ maxLength: 60 }), async (bytes) => {
        const [, ...answerFrames] = await server.respond("request 1", bytes);
        const response = messageOf(Frame.decode("answer", new Uint8Array(Buffer.concat(answerFrames))));
        expect(response.error?.code).toMatch(/FILE|ARGUMENT/);
      }),
    );
  });
});

const isBuilt = existsSync(new URL("../../../../dist/src/cli/bin.js", import.meta.url));

describe.skipIf(!isBuilt)(
  `the process ${isBuilt ? "serve --stdio" : "(not built: npm run build makes dist)"}`,
  () => {
    async function talk(
      bytes: Uint8Array,
    ): Promise<{ answers: Frame[]; status: number | null; stderr: string }> {
      const child = spawn(process.execPath, [programPath("bin"), "serve", "--stdio", "--threads", "1"]);
      let stderr = "";
      child.stderr.on("data", (text: Buffer) => {
        stderr += text.toString();
      });
      const exitStatus = new Promise<number | null>((resolve) => child.on("close", resolve));
      child.stdin.on("error", () => {});
      child.stdin.end(bytes);
      const reader = new FrameReader("serve", child.stdout as AsyncIterable<Uint8Array>);
      const answers: Frame[] = [];
      for (let frame = await reader.next(); frame; frame = await reader.next())
        answers.push(Frame.decode("answer", frame));
      return { answers, status: await exitStatus, stderr };
    }

    it("answers in order, and ends with its input", async () => {
      const largeTensor = f32("in/x", [512, 4096], ramp(512 * 4096));
      const requests = [
        request(["info"]),
        request("encode in -o out --format e4m3".split(" "), [largeTensor]),
        request(["nothing"]),
      ];
      const { answers, status, stderr } = await talk(Buffer.concat(requests.flat()));
      expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
      expect(answers.map((answer) => messageOf(answer).status)).toEqual([0, 0, undefined]);
      expect(answers[1]?.entry("out/x").shape).toEqual([512, 4096]);
    });

    it("ends with status 2 where the stream makes no sense", async () => {
      const { answers, status, stderr } = await talk(Buffer.from("GET / HTTP/1.1\r\n\r\n"));
      expect({ answers, status }).toEqual({ answers: [], status: 2 });
      expect(stderr).toMatch(/lockstep serve: standard input: a frame would have/);
    });
  },
);
