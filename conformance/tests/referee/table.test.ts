// The models of the table give every bit of recorded runs, and every row is used by a recorded run or call.
import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { findRow, OPERATORS } from "../../../src/referee/table.js";
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
    readonly verdict: "same" | "differs" | "not modelled";
    readonly unverified?: boolean;
  }[];
}

async function replayReport(path: string): Promise<Report> {
  return JSON.parse((await w.run("replay", path, "--json")).stdout);
}

function schemasOf(name: string): readonly string[] {
  const { logs } = JSON.parse(readFileSync(`${runPath(name)}/log.json`, "utf8")) as {
    logs: { lockstep: LoggedOperation }[];
  };
  return logs.map(({ lockstep }) => lockstep.schema);
}

/** The operators with recorded calls in conformance/vectors/torch-operators. */
function recordedSchemas(): readonly string[] {
  const folder = new URL("../../vectors/torch-operators/", import.meta.url);
  return readdirSync(folder).flatMap((file) => {
    const { calls } = JSON.parse(readFileSync(new URL(file, folder), "utf8")) as {
      calls: { schema: string }[];
    };
    return calls.map(({ schema }) => schema);
  });
}

/** Training steps that an H200 ran; two of them with torchao's Float8Linear. */
const STEPS = ["block", "step", "float8-tensorwise", "float8-rowwise_with_gw_hp"];

describe("a recorded run", () => {
  it.each([
    ["moves", [], []],
    // an f16 cube: a CPU rounds it once, a GPU rounds the square first
    ["roundings", [], ["aten::pow.Tensor_Scalar"]],
  ])("of PyTorch's own CPU, %s, has the bits of the models", async (name, unknown, differingSchemas) => {
    const { operations, same, verdicts, reasons } = await replayReport(runPath(name));
    const differingVerdicts = verdicts.filter(({ verdict }) => verdict === "differs");
    expect(differingVerdicts.map(({ schema }) => schema)).toEqual(differingSchemas);
    expect([...new Set(reasons.map(({ schema }) => schema))].toSorted()).toEqual(unknown);
    expect(same).toBeGreaterThan(0.9 * operations);
  });

  it.each(STEPS)("of a training step on an H200, %s, has the bits of the models", async (name) => {
    const { operations, same, unverified } = await replayReport(runPath(name));
    expect({ same, unverified }).toEqual({ same: operations, unverified: 0 });
    const contract = JSON.parse(readFileSync(`${runPath(name)}/contract.json`, "utf8"));
    expect(contract).toMatchObject({ chip: "h200", computed_by: "device" });
  });

  it("inside reference is the same, and unverified where a row has no witness", async () => {
    const { differs, reasons, verdicts } = await replayReport(runPath("operators"));
    expect({ differs, reasons }).toEqual({ differs: 0, reasons: [] });
    for (const { schema, verdict, unverified = false } of verdicts) {
      const row = findRow(schema)?.row;
      if (verdict === "same" && !row?.witness) expect(unverified, schema).toBe(row?.kind === "computes");
    }
  });

  it("is confirmed for small products, with scales of tensors, of rows and of blocks", async () => {
    const { verdicts } = await replayReport(runPath("operators"));
    const countOf = (name: string) =>
      verdicts.filter(({ schema }) => schema === name).map(({ unverified = false }) => unverified);
    expect(countOf("aten::_scaled_mm")).toEqual([false, false, false, false]);
    expect(countOf("aten::mm")).toEqual([false, false]);
  });

  it("of a step has the report that docs/referee.md shows", async () => {
    const page = readFileSync(new URL("../../../docs/referee.md", import.meta.url), "utf8");
    const [, shown] =
      /^lockstep replay conformance\/vectors\/runs\/step\n```\n\n```\n(.*?)^```$/ms.exec(page) ?? [];
    expect(await w.succeed("replay", runPath("step"))).toBe(shown);
  });

  it("is unverified throughout under another version of PyTorch, except where bytes move", async () => {
    const run = await RecordedRun.read("operators");
    run.contract.versions = { torch: "2.9.1" };
    await run.write(w.path("run"));
    const { verdicts } = await replayReport(w.path("run"));
    for (const { schema, unverified } of verdicts)
      expect(unverified ?? false, schema).toBe(findRow(schema)?.row.kind === "computes");
  });
});

describe("the table of operators", () => {
  it("has no row whose model no recorded run or call uses", () => {
    const usedRows = [
      ...["moves", "roundings", "operators", ...STEPS].flatMap(schemasOf),
      ...recordedSchemas(),
    ];
    const rowsInUse = new Set(usedRows.map((schema) => findRow(schema)?.row));
    const unusedRows = Object.entries(OPERATORS).filter(([, row]) => !rowsInUse.has(row));
    expect(unusedRows.map(([name]) => name)).toEqual([]);
  });

  it("names a witness only for operators that a GPU was recorded running", () => {
    const knownSchemas = new Set([...STEPS.flatMap(schemasOf), ...recordedSchemas()]);
    const claimedOperators = Object.entries(OPERATORS).filter(
      ([, { kind, witness }]) => kind === "computes" && witness,
    );
    expect(claimedOperators.map(([name]) => name).filter((name) => !knownSchemas.has(name))).toEqual([]);
  });

  it("is the list that lockstep operators prints", async () => {
    const { operators } = JSON.parse(await w.succeed("operators", "--json"));
    expect(operators.map(({ name }: { name: string }) => name)).toEqual(Object.keys(OPERATORS));
    const text = await w.succeed("operators");
    expect(text).toMatch(/^aten::mm .*h200, PyTorch 2\.11/m);
    expect(text).toMatch(/^aten::copy_ .*\(unverified\)$/m);
  });

  it("knows operators that write in place only where the operator exists", () => {
    expect(findRow("aten::add_.Tensor")).toMatchObject({ writesSelf: true });
    expect(findRow("aten::add.Tensor")).toMatchObject({ writesSelf: false });
    expect(findRow("aten::mm_")).toBeUndefined();
    expect(findRow("toString")).toBeUndefined();
    expect(findRow("aten::__proto__")).toBeUndefined();
  });
});
