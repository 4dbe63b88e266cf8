/** Which special functions the CUDA backend runs on a GPU, and what it says about their bits. */
import { expect, it } from "vitest";
import type { DeviceFacts } from "../../../../../src/backends/cuda/addon.js";
import { specialFunction } from "../../../../../src/backends/cuda/elementwise/special-function.js";
import {
  SPECIAL_FUNCTIONS,
  type SpecialFunctionName,
  type SpecialFunctionRow,
} from "../../../../../src/formats/special-functions.js";

/** The answer of `supports` on a GPU of a compute capability. */
function supportOn(major: number, minor: number, name: SpecialFunctionName) {
  const facts: DeviceFacts = { name: "GPU", major, minor, multiprocessors: 1, bytes: 1, uuid: "" };
  return specialFunction.supports?.({ function: name } as never, { facts } as never);
}

const NAMES = Object.keys(SPECIAL_FUNCTIONS) as SpecialFunctionName[];

it.each(NAMES)("%s is unverified, and the chips that were measured are named", (name) => {
  const { measured = "nothing" }: SpecialFunctionRow = SPECIAL_FUNCTIONS[name];
  const unverified = expect.stringContaining(`of ${name}, ${measured} was compared`);
  expect(supportOn(9, 0, name)).toEqual({ ok: true, agrees: "bits", unverified });
});

it("is refused before compute capability 9.0 for the instructions that ptxas has only from sm_90 on", () => {
  const refused = NAMES.filter((name) => supportOn(8, 9, name)?.ok === false);
  expect(refused).toEqual(["ex2.approx.ftz.bf16", "tanh.approx.bf16"]);
  expect(supportOn(8, 9, "tanh.approx.bf16")).toEqual({
    ok: false,
    reason: "tanh.approx.bf16 needs compute capability 9.0; this GPU has 8.9",
  });
});
