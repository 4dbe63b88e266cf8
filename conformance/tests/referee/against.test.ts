// Two runs of one program: the first operation whose outputs differ is named, with or without stored tensors.
import { describe, expect, it } from "vitest";
import { compareRuns } from "../../../src/referee/against.js";
import type { RecordedOperation } from "../../../src/referee/run.js";
import { useWorkspace } from "../harness/cli.js";
import { RecordedRun, runPath } from "../harness/referee/recorded-run.js";

const w = useWorkspace();

const operation = (schema: string, ...digests: readonly (string | undefined)[]): RecordedOperation => ({
  schema,
  args: [],
  kwargs: {},
  outputs: digests.map((digest) => ({
    dtype: "F32",
    shape: [2],
    ...(digest === undefined ? {} : { digest }),
  })),
});

const run = [
  operation("aten::mm", "01"),
  operation("aten::t", undefined),
  operation("aten::add.Tensor", "02", "03"),
];

describe("the comparison of two runs", () => {
  it("finds nothing in equal ones, and counts operations with digests", () => {
    expect(compareRuns(run, structuredClone(run))).toEqual({ compared: 2, different: 0 });
  });

  it("names the first output that differs", () => {
    const otherRun = run.with(2, operation("aten::add.Tensor", "02", "04"));
    const firstDifference = {
      index: 2,
      schema: "aten::add.Tensor",
      what: "output 1, F32 [2], has other bytes",
    };
    expect(compareRuns(run, otherRun)).toEqual({ compared: 2, different: 1, first: firstDifference });
    const twiceChanged = otherRun.with(0, operation("aten::mm", "05"));
    expect(compareRuns(run, twiceChanged)).toMatchObject({ different: 2, first: { index: 0 } });
  });

  it.each([
    ["another operator", run.with(1, operation("aten::bmm", "01")), 1, "the other run has aten::bmm"],
    ["an operation less", run.slice(0, 2), 2, "the other run has no further operation"],
    ["an operation more", [...run, operation("aten::neg", "09")], 3, "only the other run has it"],
    ["another number of outputs", run.with(0, operation("aten::mm")), 0, "1 outputs against 0"],
    [
      "another shape",
      run.with(0, { ...operation("aten::mm"), outputs: [{ dtype: "F32", shape: [3], digest: "01" }] }),
      0,
      "output 0 is F32 [2] against F32 [3]",
    ],
  ])("names %s", (_, otherRun, index, description) => {
    expect(compareRuns(run, otherRun).first).toMatchObject({ index, what: description });
  });

  it("leaves out outputs that PyTorch does not write", () => {
    const name = "aten::_scaled_dot_product_flash_attention";
    const attention = (...digests: readonly string[]) => [operation(name, ...digests)];
    const compared = (digests: readonly string[]) =>
      compareRuns(attention("01", "02", "03", "04", "05"), attention(...digests));
    expect(compared(["01", "02", "06", "07", "05"])).toEqual({ compared: 1, different: 0 });
    expect(compared(["01", "06", "03", "04", "05"])).toMatchObject({ different: 1 });
  });

  it("compares the hashes of all bytes where a run has no digests", () => {
    const withHashes = (sha256: string): RecordedOperation[] => [
      { ...operation("aten::mm"), outputs: [{ dtype: "F32", shape: [2], sha256 }] },
    ];
    expect(compareRuns(withHashes("a"), withHashes("a"))).toEqual({ compared: 1, different: 0 });
    expect(compareRuns(withHashes("a"), withHashes("b"))).toMatchObject({ different: 1 });
  });
});

describe("lockstep replay --against", () => {
  it("exits with 0 for the same run, and with 1 at the first operation that differs", async () => {
    const sameRun = await w.run("replay", runPath("block"), "--against", runPath("block"));
    expect(sameRun).toMatchObject({
      status: 0,
      stdout: expect.stringMatching(/^against .*: the outputs of \d+ operations are the same\n/),
    });
    const changedRun = await RecordedRun.read("block");
    const index = changedRun.operations.findIndex(({ schema }) => schema === "aten::mm");
    const [output] = changedRun.operations[index]?.outputs ?? [];
    if (!output) throw new Error("the run has no product");
    output.digest = "0".repeat(16);
    await changedRun.write(w.path("run"));
    const { status, stdout } = await w.run("replay", runPath("block"), "--against", "@run", "--json");
    expect({ status, against: JSON.parse(stdout).against }).toMatchObject({
      status: 1,
      against: { different: 1, first: { index, schema: "aten::mm" } },
    });
  });

  it("needs no operation that has a model", async () => {
    const blockRun = await RecordedRun.read("block");
    for (const operation of blockRun.operations) {
      operation.args = operation.args.map((argument) => (typeof argument === "object" ? null : argument));
      operation.schema = `other::${operation.schema}`;
    }
    await blockRun.write(w.path("run"));
    expect((await w.run("replay", "@run")).status).toBe(2);
    expect((await w.run("replay", "@run", "--against", "@run")).status).toBe(0);
  });
});
