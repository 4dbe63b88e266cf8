/** The command line: conform --order any. */
import { describe, expect, it } from "vitest";
import { useWorkspace } from "../../harness/cli.js";

const w = useWorkspace();

describe("conform --order any", () => {
  it("accepts the reference's column sums and says their order", async () => {
    const { status, stdout } = await w.run(
      "conform",
      "--order",
      "any",
      "--op",
      "columnSum",
      "--runs",
      "12",
      "--json",
    );
    const report = JSON.parse(stdout);
    expect([status, report.order, report.ok]).toEqual([0, "any", true]);
    const [{ operation, lines, verdict }] = report.operations;
    expect(operation).toBe("columnSum");
    expect(verdict.counts.elements).toBeGreaterThan(0);
    const text = await w.run("conform", "--order", "any", "--op", "columnSum", "--runs", "12");
    for (const line of lines) expect(text.stdout).toContain(line);
    expect(text.stdout).toContain("accepted  columnSum, any order: 12 inputs");
  }, 120_000);

  it.each([
    [["--order", "some"], '"some" is not one of reference, any'],
    [
      ["--order", "any", "--accumulator", "fp32"],
      '"fp32" is not one of f32, tensor-core, f64, hopper-fp8, hopper-fp8-fast',
    ],
    [["--accumulator", "f32"], "--accumulator is for --order any"],
    [["--order", "any", "--law", "x"], "--law is of a law"],
    [["--order", "any", "--counterexample", "d"], "--counterexample is of a law"],
    [["--order", "any", "--op", "quantize"], "order any is for gemm and columnSum"],
  ])(
    "refuses %j",
    async (args, message) => {
      const { status, stderr } = await w.run("conform", ...args);
      expect([status, stderr.includes(message)], stderr).toEqual([2, true]);
    },
    60_000,
  );
});
