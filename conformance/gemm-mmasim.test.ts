import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import type { DatapathName, StagingName } from "../src/formats/datapath.js";
import { type Codes, type KernelTask, kernels, runKernel } from "./harness/gemm-kernel.js";

interface Vector {
  readonly name: string;
  readonly datapath: DatapathName;
  readonly staging: StagingName;
  readonly depth: number;
  readonly x: Codes;
  readonly w: Codes;
  /** f32 bits in hex, row by row. */
  readonly d: readonly string[];
}

const { origin, cases } = JSON.parse(
  readFileSync(new URL("vectors/mmasim.json", import.meta.url), "utf8"),
) as {
  readonly origin: { readonly version: string };
  readonly cases: readonly Vector[];
};

/** The kernels that serve a row. */
function kernelsOf(datapath: DatapathName): readonly KernelTask["kernel"][] {
  if (datapath.endsWith("fp8")) return ["scalar", "narrow"];
  return datapath.endsWith("fp4") ? ["scalar"] : ["scalar", "wide"];
}

describe(`the simulator mmasim ${origin.version} gives the same bits`, () => {
  for (const vector of cases) {
    it(vector.name, async () => {
      const instance = await kernels();
      for (const kernel of kernelsOf(vector.datapath)) {
        const bits = runKernel(instance, { ...vector, kernel });
        expect(Array.from(bits, (b) => b.toString(16).padStart(8, "0"))).toEqual(vector.d);
      }
    });
  }
});
