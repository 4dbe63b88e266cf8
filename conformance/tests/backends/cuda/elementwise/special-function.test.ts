/** The special functions that the CUDA backend runs on a GPU, and the agreement that it reports. */
import { expect, it } from "vitest";
import type { DeviceFacts } from "../../../../../src/backends/cuda/addon.js";
import { specialFunction } from "../../../../../src/backends/cuda/elementwise/special-function.js";
import {
  hasTwoArguments,
  SPECIAL_FUNCTIONS,
  type SpecialFunctionName,
  type SpecialFunctionRow,
} from "../../../../../src/formats/special-functions.js";
import { UNARY_FUNCTION_NAMES } from "../../../harness/special-functions.js";

/** The answer of `supports` on a GPU of a name and a compute capability. */
function supportOn(gpu: string, [major, minor]: [number, number], name: SpecialFunctionName) {
  const facts: DeviceFacts = { name: gpu, major, minor, multiprocessors: 1, bytes: 1, uuid: "" };
  return specialFunction.supports?.({ function: name } as never, { facts } as never);
}

const NAMES = Object.keys(SPECIAL_FUNCTIONS) as SpecialFunctionName[];

function unverifiedOn(gpu: string, name: SpecialFunctionName) {
  const { measured: isMeasured } = SPECIAL_FUNCTIONS[name] as SpecialFunctionRow;
  const unverified = `the results of ${gpu} were not all compared with the reference; of ${name}, ${isMeasured} were`;
  return { ok: true, agrees: "bits", unverified };
}

it.each(UNARY_FUNCTION_NAMES)(
  "%s is verified on an H200, and elsewhere the chips that were measured are named",
  (name) => {
    expect(supportOn("NVIDIA H200", [9, 0], name)).toEqual({ ok: true, agrees: "bits" });
    expect(supportOn("GPU", [9, 0], name)).toEqual(unverifiedOn("GPU", name));
  },
);

it.each(NAMES.filter(hasTwoArguments))(
  "%s is unverified on every GPU: not all pairs were compared",
  (name) => {
    for (const gpu of ["NVIDIA H200", "GPU"])
      expect(supportOn(gpu, [9, 0], name)).toEqual(unverifiedOn(gpu, name));
  },
);

it("is refused before compute capability 9.0 for the instructions that ptxas has only from sm_90 on", () => {
  const refusedNames = NAMES.filter((name) => supportOn("GPU", [8, 9], name)?.ok === false);
  expect(refusedNames).toEqual(["ex2.approx.ftz.bf16", "tanh.approx.bf16"]);
  expect(supportOn("GPU", [8, 9], "tanh.approx.bf16")).toEqual({
    ok: false,
    reason: "tanh.approx.bf16 needs compute capability 9.0; this GPU has 8.9",
  });
});
