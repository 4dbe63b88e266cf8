// Verdicts from all elements, from a sample or from a hash; and contracts.
import { createHash } from "node:crypto";
import { describe, expect, it } from "vitest";
import { useWorkspace } from "../harness/cli.js";
import { type LoggedOperation, RecordedRun } from "../harness/referee/recorded-run.js";

const w = useWorkspace();

/** A run of one doubled vector, whose output is described by `output`. */
async function writeDoubledRun(
  values: readonly number[],
  output: (run: RecordedRun) => object,
): Promise<void> {
  const run = await RecordedRun.read("moves");
  const bytes = new Uint8Array(Float32Array.from(values).buffer);
  const x = run.add({ dtype: "F32", shape: [values.length], bytes });
  const operation = { schema: "aten::mul.Tensor", args: [x, 2], kwargs: {}, outputs: [output(run)] };
  run.operations.splice(0, run.operations.length, operation as LoggedOperation);
  await run.write(w.path("run"));
}

const bytesOf = (...values: readonly number[]): Uint8Array =>
  new Uint8Array(Float32Array.from(values).buffer);
const hash = (...values: readonly number[]): string =>
  createHash("sha256")
    .update(bytesOf(...values))
    .digest("hex");

async function verdict(): Promise<{
  readonly status: number;
  readonly verdict: string;
  readonly lines: string;
}> {
  const { status, stdout } = await w.run("replay", "@run", "--json");
  const [firstVerdict] = JSON.parse(stdout).verdicts;
  return { status, verdict: firstVerdict.verdict, lines: JSON.stringify(firstVerdict.differences ?? []) };
}

describe("a verdict", () => {
  it("rests on a hash where only it was recorded", async () => {
    await writeDoubledRun([1, 2, 3], () => ({ dtype: "F32", shape: [3], sha256: hash(2, 4, 6) }));
    expect(await verdict()).toMatchObject({ status: 0, verdict: "same" });
    await writeDoubledRun([1, 2, 3], () => ({ dtype: "F32", shape: [3], sha256: hash(2, 4, 7) }));
    expect(await verdict()).toMatchObject({
      status: 1,
      verdict: "differs",
      lines: expect.stringMatching(/the hash differs/),
    });
  });

  it("is missing where a hash has NaN, whose bits are not defined", async () => {
    await writeDoubledRun([1, Number.NaN], () => ({ dtype: "F32", shape: [2], sha256: "0".repeat(64) }));
    const { status, stderr } = await w.run("replay", "@run");
    expect({ status, stderr }).toEqual({ status: 2, stderr: expect.stringMatching(/nothing was compared/) });
  });

  it.each([
    [8, 0, "same"],
    [9, 1, "differs"],
  ])("rests on a sample where one was recorded: %d of element 3", async (element, status, expected) => {
    await writeDoubledRun([1, 2, 3, 4], (run) => {
      const sample = run.add({ dtype: "F32", shape: [2], bytes: bytesOf(2, element) });
      return {
        dtype: "F32",
        shape: [4],
        sha256: hash(0),
        sample: { indices: [0, 3], tensor: sample.tensor },
      };
    });
    const problems = await verdict();
    expect(problems).toMatchObject({ status, verdict: expected });
    if (status === 1) expect(problems.lines).toMatch(/"coordinate":\[3\]/);
  });

  it("ignores the bits of NaN, and sees the sign of zero", async () => {
    const payload = bytesOf(Number.NaN);
    payload[0] = 1;
    await writeDoubledRun([Number.NaN], (run) => run.add({ dtype: "F32", shape: [1], bytes: payload }));
    expect(await verdict()).toMatchObject({ status: 0, verdict: "same" });
    await writeDoubledRun([-0], (run) => run.add({ dtype: "F32", shape: [1], bytes: bytesOf(0) }));
    expect(await verdict()).toMatchObject({ status: 1, verdict: "differs" });
  });

  it("differs for an output of another shape or dtype", async () => {
    await writeDoubledRun([1, 2], (run) => run.add({ dtype: "F32", shape: [2, 1], bytes: bytesOf(2, 4) }));
    expect(await verdict()).toMatchObject({
      status: 1,
      lines: expect.stringMatching(/recorded F32 \[2,1\], computed F32 \[2\]/),
    });
  });

  it("is missing for a sum of elements that were not in row-major order", async () => {
    const verdictOf = async (strides: readonly number[] | undefined): Promise<unknown> => {
      const run = await RecordedRun.read("moves");
      const x = {
        ...run.add({ dtype: "F32", shape: [2, 2], bytes: bytesOf(1, 2, 3, 4) }),
        ...(strides && { strides }),
      };
      const sum = run.add({ dtype: "F32", shape: [2], bytes: bytesOf(3, 7) });
      const operation = { schema: "aten::sum.dim_IntList", args: [x, [1]], kwargs: {}, outputs: [sum] };
      run.operations.splice(0, run.operations.length, operation as LoggedOperation);
      await run.write(w.path("run"));
      const { stdout } = await w.run("replay", "@run", "--json");
      return JSON.parse(stdout).verdicts?.[0].verdict ?? stdout;
    };
    expect(await verdictOf(undefined)).toBe("same");
    expect(await verdictOf([1, 2])).toMatch(/none of the 1 operations of .* is modelled/);
    expect(await verdictOf([1])).toMatch(
      /args\[0\]: the strides are \[1\]; they must be a size for each dimension/,
    );
  });

  it("does not rest on outputs that PyTorch does not write", async () => {
    // a query of zeros has the score 0 with the only key, so the output is the value, and the logarithm of the sum is 0
    const verdictOf = async (logSum: number): Promise<unknown> => {
      const run = await RecordedRun.read("moves");
      const half = (fill: number) =>
        run.add({ dtype: "F16", shape: [1, 1, 1, 32], bytes: new Uint8Array(64).fill(fill) });
      const logSums = new Float32Array(32).fill(Number.POSITIVE_INFINITY);
      logSums[0] = logSum;
      const outputs = [
        half(0x3c),
        run.add({ dtype: "F32", shape: [1, 1, 32], bytes: new Uint8Array(logSums.buffer) }),
        ...[5, 6].map((byte) => run.add({ dtype: "I64", shape: [], bytes: new Uint8Array(8).fill(byte) })),
      ];
      const operation = {
        schema: "aten::_scaled_dot_product_efficient_attention",
        args: [half(0), half(0x12), half(0x3c), null, true],
        kwargs: {},
        outputs,
      };
      run.operations.splice(0, run.operations.length, operation as LoggedOperation);
      await run.write(w.path("run"));
      return (await verdict()).verdict;
    };
    expect(await verdictOf(0)).toBe("same");
    expect(await verdictOf(1)).toBe("differs");
  });

  it("is required of every operation by --all-modelled", async () => {
    const run = await RecordedRun.read("block");
    run.operations.push({ schema: "aten::linalg_svd", args: [], kwargs: {}, outputs: [] });
    await run.write(w.path("run"));
    expect((await w.run("replay", "@run")).status).toBe(0);
    expect((await w.run("replay", "@run", "--all-modelled")).status).toBe(1);
  });
});

describe("a contract", () => {
  it("does not hold for another chip or with TF32", async () => {
    const run = await RecordedRun.read("operators");
    const settings = { ...(run.contract.settings as object), float32_matmul_precision: "high" };
    Object.assign(run.contract, { chip: "b200", settings });
    await run.write(w.path("run"));
    const { status, stdout } = await w.run("contract", "check", "@run", "--json");
    expect(status).toBe(1);
    expect(JSON.parse(stdout)).toMatchObject({
      problems: [/chip is b200/, /float32_matmul_precision is high/].map((pattern) =>
        expect.stringMatching(pattern),
      ),
      witnessed: [],
    });
  });

  it("differs from another one in the terms that are listed", async () => {
    const run = await RecordedRun.read("operators");
    await run.write(w.path("a"));
    Object.assign(run.contract.versions as object, { driver: "1.2", cudnn: "9" });
    await run.write(w.path("b"));
    expect(await w.run("contract", "diff", "@a", "@a")).toMatchObject({ status: 0 });
    const { status, stdout } = await w.run("contract", "diff", "@a", "@b");
    expect({ status, stdout }).toEqual({
      status: 1,
      stdout: "versions.driver: unknown against 1.2\nversions.cudnn: unknown against 9\n2 terms differ\n",
    });
  });

  it.each([["check"], ["check", "@a", "@b"], ["diff", "@a"], ["show", "@a"]])(
    "refuses %s %s %s",
    async (...args) => {
      const { status, stderr } = await w.run("contract", ...args);
      expect({ status, stderr }).toEqual({ status: 2, stderr: expect.stringMatching(/RUN/) });
    },
  );
});
