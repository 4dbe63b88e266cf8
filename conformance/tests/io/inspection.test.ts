/** Rules are read from a JSON file, and records are appended as JSON lines. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import {
  ArgumentError,
  autocast,
  encode,
  FileError,
  type InspectionRule,
  Linear,
  MXFP8BlockScaling,
  Scope,
  tensor,
} from "../../../src/index.js";
import { openInspector } from "../../../src/io/index.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend();
const folder = mkdtempSync(join(tmpdir(), "lockstep-inspection-"));
afterAll(() => rmSync(folder, { recursive: true }));
const [rules, log] = [join(folder, "rules.json"), join(folder, "log.jsonl")];

const RULES: readonly InspectionRule[] = [
  { layers: ["linear"], LogTensorStats: { tensors: ["input"], stats: ["amax", "sqnr", "scales"], freq: 2 } },
];

function forward(module: Linear, value: number): void {
  using _ = new Scope();
  const x = encode(tensor(backend(), new Float32Array(32 * 32).fill(value), [32, 32]), { format: "bf16" });
  autocast({ recipe: new MXFP8BlockScaling() }, () => module.forward(x));
}

function lines(): unknown[] {
  return readFileSync(log, "utf8")
    .split("\n")
    .filter(Boolean)
    .map((line) => JSON.parse(line));
}

describe("openInspector", () => {
  it("appends the records of each step to the file", async () => {
    writeFileSync(rules, JSON.stringify(RULES));
    using module = new Linear(backend(), 32, 32);
    const head = { layer: "linear", tensor: "input", quantizer: "mxfp8", format: "e4m3" };
    const expected: unknown[] = [];
    for (const step of [0, 4]) {
      const inspector = await openInspector(module, { rules, log, step });
      for (const value of [1, 2, 0.5]) {
        forward(module, value);
        const stepRecords = await inspector.endStep();
        const isLogged = value !== 2;
        const stats = { amax: value, sqnr: Infinity, scales: [[Math.log2(value) - 8, 32]] };
        const numbers = { elements: 1024, nonFinite: 0, stats };
        const loggedValues = (["rowwise", "columnwise"] as const).map((copy) => {
          const record = { step: inspector.step - 1, ...head, copy, ...numbers };
          // JSON has no infinities
          if (isLogged) expected.push({ ...record, stats: { ...stats, sqnr: null } });
          return record;
        });
        expect(stepRecords).toEqual(isLogged ? loggedValues : []);
      }
      inspector.dispose();
      inspector.dispose();
      expect(lines()).toEqual(expected);
    }
  });

  const FAULTS: readonly (readonly [string, string, string])[] = [
    ["its rules", '[{"layers": ["linear"]', log],
    ["cannot be read: there is no such file", "", log],
    ["cannot be written: there is no such file", JSON.stringify(RULES), join(folder, "none", "log.jsonl")],
  ];

  it.each(FAULTS)("says which file is at fault: %s", async (message, text, out) => {
    using module = new Linear(backend(), 32, 32);
    const path = text === "" ? join(folder, "absent.json") : rules;
    writeFileSync(rules, text);
    const openInspection = openInspector(module, { rules: path, log: out });
    await expect(openInspection).rejects.toThrow(FileError);
    await expect(openInspector(module, { rules: path, log: out })).rejects.toThrow(message);
    writeFileSync(rules, JSON.stringify(RULES));
    using _ = await openInspector(module, { rules, log });
  });

  it("refuses rules that Inspector refuses", async () => {
    writeFileSync(rules, JSON.stringify([{ layers: ["liner"], LogTensorStats: {} }]));
    using module = new Linear(backend(), 32, 32);
    await expect(openInspector(module, { rules, log })).rejects.toThrow(ArgumentError);
  });
});
