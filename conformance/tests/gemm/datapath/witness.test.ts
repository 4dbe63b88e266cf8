import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import type { DatapathName, StagingName } from "../../../../src/formats/datapath.js";
import {
  type Codes,
  type KernelInstance,
  type KernelTask,
  kernels,
  runKernel,
} from "../../../operations/gemm/kernel.js";

interface Vector {
  readonly name: string;
  readonly datapath: DatapathName;
  readonly staging: StagingName;
  readonly depth: number;
  readonly x: Codes;
  readonly w: Codes;
  /** The f32 result in hexadecimal, row by row. */
  readonly d: readonly string[];
}

interface Recording {
  readonly origin: { readonly project: string; readonly version: string };
  readonly cases: readonly Vector[];
}

/** The kernels that implement a row of datapaths. */
function kernelsOf(datapath: DatapathName): readonly KernelTask["kernel"][] {
  if (datapath.endsWith("fp8")) return ["scalar", "narrow"];
  return datapath.endsWith("fp4") ? ["scalar"] : ["scalar", "wide"];
}

const hex = (bits: number): string =>
  (bits & 0x7fffffff) > 0x7f800000 ? "NaN" : bits.toString(16).padStart(8, "0");

/** The results of a kernel, with some fields of the row overridden, and the recorded results. */
function answers(
  vector: Vector,
  instance: KernelInstance,
  kernel: KernelTask["kernel"],
  broken: KernelTask["broken"] = {},
): readonly [ours: string[], theirs: string[]] {
  const bits = Array.from(runKernel(instance, { ...vector, kernel, broken }), hex);
  return [bits, vector.d.map((d) => hex(Number.parseInt(d, 16)))];
}

function recording(file: string): Recording {
  return JSON.parse(readFileSync(new URL(`../../../vectors/${file}`, import.meta.url), "utf8")) as Recording;
}

for (const file of ["h200-gemm.json", "mmasim.json"]) {
  const { origin, cases } = recording(file);
  describe(`${origin.project} ${origin.version} gives the same bits`, () => {
    for (const vector of cases) {
      it(vector.name, async () => {
        const instance = await kernels();
        for (const kernel of kernelsOf(vector.datapath)) {
          const [actual, expected] = answers(vector, instance, kernel);
          expect(actual).toEqual(expected);
        }
      });
    }
  });
}

it("the hardware's results exclude that a zero takes part with exponent -126, as operand or accumulator", async () => {
  const instance = await kernels();
  for (const broken of [
    { zeroOperand: -126 },
    { zeroAccumulator: -126 },
    { zeroAccumulator: -132 },
    { zeroAccumulator: -134 },
  ]) {
    const differ = recording("h200-gemm.json").cases.filter((vector) => {
      const [ours, theirs] = answers(vector, instance, "scalar", broken);
      return ours.join() !== theirs.join();
    });
    expect(differ.length).toBeGreaterThan(0);
  }
});
