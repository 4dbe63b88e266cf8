// A folder that is not a run, or whose files contradict each other, is refused with a one-line error and exit status 2.
import { readFileSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { useWorkspace } from "../harness/cli.js";
import { type LoggedOperation, RecordedRun } from "../harness/referee/recorded-run.js";

const w = useWorkspace();

const FORMAT = "torch.utils._debug_mode.DebugMode.logs";
const logOf = (...entries: unknown[]): string =>
  JSON.stringify({ format: FORMAT, version: 1, logs: entries });
const mm = (change: Partial<Record<keyof LoggedOperation, unknown>>): string =>
  logOf({ lockstep: { schema: "aten::mm", args: [], kwargs: {}, outputs: [], ...change } });
const tensor = (change: object): object => ({ dtype: "BF16", shape: [8, 64], ...change });

async function expectRefusal(message: RegExp): Promise<void> {
  const { status, stderr } = await w.run("replay", "@run");
  expect({ status, stderr }).toEqual({ status: 2, stderr: expect.stringMatching(message) });
  expect(stderr).toMatch(/^lockstep replay: [^\n]*\n$/);
}

describe("a run with a hostile log", () => {
  it.each<readonly [string, string, RegExp]>([
    ["no JSON", "{", /log\.json: /],
    ["an empty file", "", /log\.json: /],
    ["deep nesting", "[".repeat(100_000), /log\.json: .*nest/],
    ["a repeated key", '{"format":1,"format":2}', /log\.json: .*format/],
    ["another format", '{"format":"x","version":1,"logs":[]}', /it is not a log/],
    ["no operations", logOf({ type: "annotate" }), /no operation has the field "lockstep"/],
    ["an operation that is a number", logOf({ lockstep: 3 }), /the operation is 3/],
    ["a schema that is a list", mm({ schema: [] }), /the schema is \[\]/],
    ["arguments that are an object", mm({ args: {} }), /args and outputs must be lists/],
    ["an unknown dtype", mm({ args: [tensor({ dtype: "BF17" })] }), /args\[0\]: the dtype is "BF17"/],
    [
      "a prototype as dtype",
      mm({ args: [tensor({ dtype: "__proto__" })] }),
      /args\[0\]: the dtype is "__proto__"/,
    ],
    ["a negative size", mm({ args: [tensor({ shape: [-1] })] }), /the shape is \[-1\]/],
    ["a fraction as size", mm({ args: [tensor({ shape: [0.5] })] }), /the shape is \[0\.5\]/],
    ["a huge size", mm({ args: [tensor({ shape: [2 ** 40, 2 ** 40] })] }), /at most 4294967296 are read/],
    [
      "a path as name",
      mm({ args: [tensor({ tensor: "../../etc/passwd" }), tensor({})] }),
      /tensor "\.\.\/\.\.\/etc\/passwd" is not in/,
    ],
    [
      "a name with control characters",
      mm({ args: [tensor({ tensor: "\u001b[2J" })] }),
      /tensor "\\u?.*1b\[2J" is not in/,
    ],
    [
      "a name that is a number",
      mm({ args: [tensor({ tensor: 5 })] }),
      /args\[0\]: tensor is 5; it must be a string/,
    ],
    ["too many arguments", mm({ args: [1, 2, 3, 4] }), /4 arguments by position; it takes self, mat2/],
    ["numbers for tensors", mm({ args: [1, 2] }), /operation 0, aten::mm: self is 1; a tensor is needed/],
    ["a wrong float", mm({ args: [{ float: "big" }] }), /a float is "inf", "-inf" or "nan"/],
    [
      "a list that is too deep for a size",
      logOf({ lockstep: { schema: "aten::zeros", args: [[2 ** 31, 2 ** 31]] } }),
      /at most 4294967296 bytes/,
    ],
    [
      "sizes that are no integers",
      logOf({ lockstep: { schema: "aten::zeros", args: [["x"]] } }),
      /a list of integers is needed/,
    ],
  ])("%s is refused", async (_, log, message) => {
    const run = await RecordedRun.read("moves");
    await run.write(w.path("run"));
    writeFileSync(w.path("run/log.json"), log);
    await expectRefusal(message);
  });
});

describe("a run with hostile files", () => {
  it.each(["log.json", "contract.json", "tensors.safetensors"])("without %s is refused", async (name) => {
    const run = await RecordedRun.read("moves");
    await run.write(w.path("run"));
    rmSync(w.path(`run/${name}`));
    await expectRefusal(new RegExp(name));
  });

  it.each<readonly [string, string, RegExp]>([
    ["no JSON", "[", /contract\.json: /],
    ["another format", "{}", /it is not a contract/],
    [
      "a chip that is a number",
      '{"format":"lockstep.contract","version":1,"chip":1}',
      /chip must be a string or null/,
    ],
    [
      "versions that are a list",
      '{"format":"lockstep.contract","version":1,"chip":null,"computed_by":"device","versions":[]}',
      /versions must be an object/,
    ],
  ])("and a contract with %s is refused", async (_, text, message) => {
    const run = await RecordedRun.read("moves");
    await run.write(w.path("run"));
    writeFileSync(w.path("run/contract.json"), text);
    await expectRefusal(message);
    const { status, stderr } = await w.run("contract", "check", "@run");
    expect({ status, stderr }).toEqual({ status: 2, stderr: expect.stringMatching(message) });
  });

  it("with a file of tensors that was cut is refused", async () => {
    const run = await RecordedRun.read("moves");
    await run.write(w.path("run"));
    truncateSync(w.path("run/tensors.safetensors"), 200);
    await expectRefusal(/tensors\.safetensors: /);
  });

  it("whose tensors were changed after the recording is refused, with the tensor", async () => {
    const run = await RecordedRun.read("operators");
    await run.write(w.path("run"));
    const file = readFileSync(w.path("run/tensors.safetensors"));
    file[file.length - 1] = (file.at(-1) as number) ^ 1;
    writeFileSync(w.path("run/tensors.safetensors"), file);
    await expectRefusal(/does not have the recorded hash; the file was changed after the recording/);
  });

  it("whose tensors have other sizes than the log says is refused", async () => {
    const run = await RecordedRun.read("operators");
    const [firstOperation] = run.operations;
    if (firstOperation)
      firstOperation.args = firstOperation.args.map((arg) => ({ ...(arg as object), shape: [3, 5] }));
    await run.write(w.path("run"));
    await expectRefusal(/has \d+ bytes in .*; \w+ \[3,5\] has/);
  });

  it("of which no operation is modelled is refused, because nothing was compared", async () => {
    const run = await RecordedRun.read("moves");
    run.operations.splice(0, run.operations.length, {
      schema: "aten::linalg_svd",
      args: [],
      kwargs: {},
      outputs: [],
    });
    await run.write(w.path("run"));
    await expectRefusal(/none of the 1 operations .* is modelled, so nothing was compared/);
  });
});
