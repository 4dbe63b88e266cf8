// Runs that PyTorch recorded replay to the bit, by the models of the table.
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { OPERATORS, rowOf } from "../../../src/referee/table.js";
import { useWorkspace } from "../harness/cli.js";
import { type LoggedOperation, RecordedRun, runPath } from "../harness/referee/recorded-run.js";

const w = useWorkspace();

interface Report {
  readonly operations: number;
  readonly same: number;
  readonly differs: number;
  readonly unverified: number;
  readonly reasons: readonly { readonly schema: string }[];
  readonly verdicts: readonly {
    readonly schema: string;
    readonly verdict: string;
    readonly unverified?: boolean;
  }[];
}

async function replayed(path: string): Promise<Report> {
  return JSON.parse(await w.succeed("replay", path, "--json"));
}

function schemasOf(name: string): readonly string[] {
  const { logs } = JSON.parse(readFileSync(`${runPath(name)}/log.json`, "utf8")) as {
    logs: { lockstep: LoggedOperation }[];
  };
  return logs.map(({ lockstep }) => lockstep.schema);
}

describe("a recorded run", () => {
  it.each([
    ["moves", ["aten::sum"]],
    ["roundings", ["aten::arange.start_step", "aten::pow.Tensor_Scalar"]],
  ])("of PyTorch's own CPU, %s, has the bits of the models", async (name, unknown) => {
    const { operations, same, differs, reasons } = await replayed(runPath(name));
    expect(differs).toBe(0);
    expect([...new Set(reasons.map(({ schema }) => schema))].toSorted()).toEqual(unknown);
    expect(same).toBeGreaterThan(0.9 * operations);
  });

  it.each([
    ["operators", []],
    [
      "block",
      [
        "aten::_softmax",
        "aten::_softmax_backward_data",
        "aten::arange",
        "aten::mean",
        "aten::mean.dim",
        "aten::pow.Scalar",
        "aten::silu_backward",
        "aten::sum.dim_IntList",
      ],
    ],
  ])("inside reference, %s, is the same where it is modelled", async (name, unknown) => {
    const { differs, reasons, verdicts } = await replayed(runPath(name));
    expect(differs).toBe(0);
    expect([...new Set(reasons.map(({ schema }) => schema))].toSorted()).toEqual(unknown);
    for (const { schema, verdict, unverified = false } of verdicts) {
      const row = rowOf(schema)?.row;
      if (verdict === "same" && !row?.witness) expect(unverified, schema).toBe(row?.kind === "computes");
    }
  });

  it("is confirmed for products with scales of tensors, and unverified for scales of rows and blocks", async () => {
    const { verdicts } = await replayed(runPath("operators"));
    const of = (name: string) =>
      verdicts.filter(({ schema }) => schema === name).map(({ unverified = false }) => unverified);
    expect(of("aten::_scaled_mm")).toEqual([false, false, true, true]);
    expect(of("aten::mm")).toEqual([false, false]);
  });

  it("is what docs/referee.md shows", async () => {
    const page = readFileSync(new URL("../../../docs/referee.md", import.meta.url), "utf8");
    const [, shown] =
      /^lockstep replay conformance\/vectors\/runs\/block\n```\n\n```\n(.*?)^```$/ms.exec(page) ?? [];
    expect(await w.succeed("replay", runPath("block"))).toBe(shown);
  });

  it("is unverified throughout under another version of PyTorch, except where bytes move", async () => {
    const run = await RecordedRun.read("operators");
    run.contract.versions = { torch: "2.9.1" };
    await run.write(w.path("run"));
    const { verdicts } = await replayed(w.path("run"));
    for (const { schema, unverified } of verdicts)
      expect(unverified ?? false, schema).toBe(rowOf(schema)?.row.kind === "computes");
  });
});

describe("the table of operators", () => {
  it("has no row whose model no recorded run uses", () => {
    const used = new Set(
      ["moves", "roundings", "operators", "block"].flatMap((name) =>
        schemasOf(name).map((schema) => rowOf(schema)?.row.definition),
      ),
    );
    const unused = Object.entries(OPERATORS).filter(([, { definition }]) => !used.has(definition));
    expect(unused.map(([name]) => name)).toEqual([]);
  });

  it("is what the command lists", async () => {
    const { operators } = JSON.parse(await w.succeed("operators", "--json"));
    expect(operators.map(({ name }: { name: string }) => name)).toEqual(Object.keys(OPERATORS));
    const text = await w.succeed("operators");
    expect(text).toMatch(/^aten::mm .*h200, PyTorch 2\.11/m);
    expect(text).toMatch(/^aten::exp .*\(unverified\)$/m);
  });

  it("knows operators that write in place only where the operator exists", () => {
    expect(rowOf("aten::add_.Tensor")).toMatchObject({ writesSelf: true });
    expect(rowOf("aten::add.Tensor")).toMatchObject({ writesSelf: false });
    expect(rowOf("aten::mm_")).toBeUndefined();
    expect(rowOf("toString")).toBeUndefined();
    expect(rowOf("aten::__proto__")).toBeUndefined();
  });
});
