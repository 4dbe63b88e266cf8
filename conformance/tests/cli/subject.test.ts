/** `conform --subject` with programs that are correct, wrong, slow, silent or dead. */
import { spawn, spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import * as fc from "fast-check";
import { beforeAll, describe, expect, it } from "vitest";
import type { Supported } from "../../arbitraries/supported.js";
import { supportedInputs } from "../../laws/supported.js";
import { OPERATION_NAMES } from "../../operations/operations.js";
import { programPath } from "../harness/bundle.js";
import { useWorkspace } from "../harness/cli.js";
import { draws, sampleCases } from "../harness/draws.js";

const w = useWorkspace();
const script = new URL("./subject.mjs", import.meta.url).pathname;

const conform = (fault: string, ...options: string[]) =>
  w.run(
    "conform",
    "--subject",
    `${process.execPath} ${script} ${fault}`,
    "--runs",
    "5",
    "--deadline",
    fault === "hang" ? "0.5" : "10",
    ...options,
  );

describe("conform --subject", () => {
  it.each(sampleCases(["none", "bits"], 1))("holds where the answers are right (%s)", async (fault) => {
    const { status, stdout } = await conform(fault);
    expect(status).toBe(0);
    expect(stdout).toMatch(/1 of 1 laws hold for e8m0 in JavaScript, 5 inputs each/);
  });

  it.each(
    sampleCases<readonly [string, RegExp]>(
      [
        ["wrong", /values: 1 of \d+ elements differ, first at \[0\]/],
        ["name", /the answer has value; it has to have values/],
        ["shape", /values is U8 \[\d+\]; it has to be (F32|BF16) \[\d+\]/],
        ["id", /the subject answered \d+ to case \d+; repeat the id/],
        ["reports", /the subject reports an error: out of registers/],
        [
          "crash",
          /the subject (ended with status 134|was ended by SIGABRT) instead of answering; it wrote: about to fall/,
        ],
        ["exit", /the subject ended with status 3 instead of answering/],
        ["silent", /the subject ended with status 0 instead of answering/],
        ["hang", /the subject gave no answer within 0\.5 s/],
        ["noise", /the subject answered with no valid frame.*does it begin with its length/],
        ["json", /the subject's answer has no JSON object/],
      ],
      1,
    ),
  )("fails with the reason and a command that replays it (%s)", async (fault, message) => {
    const { status, stdout } = await conform(fault);
    expect(status).toBe(1);
    expect(stdout).toMatch(message);
    expect(stdout).toMatch(/counterexample, after \d+ shrinks: .*"format":"e8m0"/);
    const [, replay] = /replay: lockstep (conform .*)/.exec(stdout) ?? [];
    expect(replay).toContain(fault);
    const path = /--path (\S+)/.exec(replay ?? "")?.[1] ?? "";
    const replayRun = await conform(
      fault,
      "--seed",
      "1",
      "--law",
      "decode agrees with the reference",
      "--path",
      path,
    );
    expect(replayRun.status).toBe(1);
    expect(replayRun.stdout).toMatch(message);
  });

  it.each(
    sampleCases<readonly [string, RegExp]>(
      [
        ["start", /the subject ended with status 4 instead of answering/],
        ["protocol", /the subject says protocol 2; this version speaks 1/],
        ["operation", /the subject has an operation "dequantise"; there are/],
        ["field", /no input of decode is supported: formatt among e8m0; check the fields/],
        ["values", /operation decode supports \{"format":"e8m0"\}; give lists of values by field/],
        ["nothing", /the subject's operations are \{\}; it must name at least one/],
        ["declines", /declined every input, so nothing was checked: decode: not on Mondays/],
      ],
      1,
    ),
  )("does not begin, or says that nothing was checked (%s)", async (fault, message) => {
    const { status, stdout, stderr } = await conform(fault);
    expect({ status, stdout }).toEqual({ status: 2, stdout: "" });
    expect(stderr).toMatch(message);
  });

  it("needs a command and --subject for a deadline", async () => {
    for (const args of [
      ["--deadline", "1"],
      ["--subject", ""],
      ["--subject", "x", "--deadline", "0"],
    ])
      expect((await w.run("conform", ...args)).status).toBe(2);
    expect((await w.run("conform", "--subject", "/nonexistent/program")).stderr).toMatch(
      /ended with status 127/,
    );
  });

  it("leaves no process behind", async () => {
    await conform("hang");
    const { stdout } = spawnSync("ps", ["-eo", "args"], { encoding: "utf8" });
    expect(stdout.split("\n").filter((line) => line.includes(script))).toEqual([]);
  });
});

const isBuilt = existsSync(new URL("../../../dist/src/cli/bin.js", import.meta.url));

describe.skipIf(!isBuilt)(
  `conform --subject - ${isBuilt ? "" : "(not built: npm run build makes dist)"}`,
  () => {
    /** Connects the streams of both programs, and returns the subject's final output. */
    async function runConnected(
      fault: string,
    ): Promise<{ status: number | null; report: Record<string, unknown> }> {
      const args = [programPath("bin"), "conform", "--subject", "-", "--runs", "5", "--threads", "1"];
      const harness = spawn(process.execPath, args, { stdio: ["pipe", "pipe", "inherit"] });
      const subject = spawn(process.execPath, [script, fault]);
      for (const { stdin } of [harness, subject]) stdin.on("error", () => {});
      harness.stdout.pipe(subject.stdin);
      subject.stdout.pipe(harness.stdin);
      let output = "";
      subject.stderr.on("data", (text: Buffer) => {
        output += text.toString();
      });
      const [status] = await Promise.all([
        new Promise<number | null>((resolve) => harness.on("close", resolve)),
        new Promise((resolve) => subject.on("close", resolve)),
      ]);
      return { status, report: JSON.parse(output) };
    }

    const REPORTS = [
      ["none", 0, { ok: true }],
      ["wrong", 1, { ok: false }],
      ["declines", 2, { error: expect.stringMatching(/declined every input/) }],
    ] as const;
    it.each(sampleCases<(typeof REPORTS)[number]>(REPORTS, 1))(
      "tells the program that started it the report (%s)",
      async (fault, status, report) => {
        expect(await runConnected(fault)).toMatchObject({ status, report: { type: "report", ...report } });
      },
    );
  },
);

describe("numpy", () => {
  let missingReason = "";
  beforeAll(() => {
    const { status, stderr, error } = spawnSync("python3", ["-I", "-c", "import numpy"], {
      encoding: "utf8",
    });
    if (status !== 0) missingReason = error ? String(error) : stderr;
  });

  it("quantizes to MXFP8 by the example", async (context) => {
    context.skip(missingReason !== "", `python3 with numpy is not here: ${missingReason}`);
    const example = new URL("../../../examples/subjects/mxfp8_numpy.py", import.meta.url).pathname;
    const runs = draws(300);
    const { status, stdout } = await w.run(
      ...["conform", "--subject", `python3 ${example}`, "--runs", String(runs)],
    );
    expect(stdout).toContain(`holds  quantize agrees with the reference: ${runs} runs`);
    expect(status).toBe(0);
  });
});

describe("inputs that a subject supports", () => {
  const valueAt = (input: unknown, path: string): unknown =>
    path.split(".").reduce<unknown>((value, field) => (value as never)?.[field], input);

  const quantize: Supported = {
    "spec.quantizer": ["mxfp8", "nvfp4"],
    "spec.tile": ["1x32", "16x16"],
    "usage.columnwise": [false],
    "x.dtype": ["bf16"],
    "x.shape.length": [2],
    noop: [null],
  };

  it("have the values that it names, and all of them", () => {
    const inputs = fc.sample(supportedInputs("quantize", quantize).quantize as never, {
      numRuns: draws(300, 60),
      seed: 3,
    });
    for (const [path, values] of Object.entries(quantize)) {
      const valuesSeen = new Set(inputs.map((input) => valueAt(input, path) ?? null));
      expect([...valuesSeen].sort(), path).toEqual([...values].sort());
    }
  });

  it("are arbitrary if nothing is named, and an error if no input is supported", () => {
    for (const operation of OPERATION_NAMES) expect(supportedInputs(operation, {})).toEqual({});
    for (const operation of sampleCases(["amax", "encode", "quantize"] as const, 1)) {
      const supported = { "no.such.field": [1] };
      expect(() => supportedInputs(operation, supported)).toThrow(/no input of .* is supported/);
    }
    expect(() => supportedInputs("quantize", { "spec.format": ["e9m9"] })).toThrow(/no input of quantize/);
  });
});
