/** specialFunction: its laws, threads, the bits of NaN, and dtypes that an instruction does not support. */
import { describe, expect } from "vitest";
import { ArgumentError, DTypeError, ShapeError } from "../../../src/errors.js";
import { SPECIAL_FUNCTIONS } from "../../../src/formats/special-functions.js";
import { tensor } from "../../../src/ops/create.js";
import { specialFunction } from "../../../src/ops/elementwise/special-function.js";
import { download } from "../../values/plain.js";
import { derivedSeed } from "../harness/draws.js";
import { SPECIAL_INPUTS, SPECIAL_RESULTS } from "../harness/special-functions.js";
import { describeLaws, testEqualBits, testInScope, useBackend, useThreads } from "../harness/suite.js";

const backend = useBackend();

describeLaws(backend, ["specialFunction"], { runs: 400, seed: derivedSeed(411) });

describe("results", () => {
  const wave = Float32Array.from({ length: 300_003 }, (_, i) => ((i * 7) % 1013) / 7 - 3);
  testEqualBits("do not depend on the number of threads", useThreads(), (testBackend) => ({
    out: download(specialFunction(tensor(testBackend, wave), { function: "rsqrt.approx.f32" })),
  }));
});

testInScope("the results of special inputs have the bits that chips returned", () => {
  const x = tensor(backend(), new Float32Array(Uint32Array.from(SPECIAL_INPUTS).buffer));
  for (const [name, results] of SPECIAL_RESULTS) {
    const { buffer, byteOffset, length } = specialFunction(x, { function: name }).dataSync() as Float32Array;
    expect([...new Uint32Array(buffer, byteOffset, length)], name).toEqual(results);
  }
});

testInScope("an instruction of another dtype or name is refused", () => {
  const x = tensor(backend(), [1]);
  for (const [name, { dtype }] of Object.entries(SPECIAL_FUNCTIONS))
    if (dtype !== "f32")
      expect(() => specialFunction(x, { function: name as never })).toThrow(
        new DTypeError(`specialFunction: x is f32; ${name} takes ${dtype}`),
      );
  expect(() => specialFunction(x, { function: "erf.approx.f32" as never })).toThrow(ArgumentError);
});

testInScope(
  "a function of two arguments needs the second in the shape of the first, and others take none",
  () => {
    const [x, y] = [tensor(backend(), [1, 2]), tensor(backend(), [3])];
    expect(() => specialFunction(x, { function: "powf" })).toThrow(
      "powf has two arguments; pass the second as y",
    );
    expect(() => specialFunction(x, { function: "powf", y })).toThrow(ShapeError);
    expect(() => specialFunction(x, { function: "expf", y: x })).toThrow("expf has one argument");
  },
);
