/** Checkpoints that libraries wrote are recognized, raise no alarm, and have the values that these libraries read. */
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { CONVENTIONS, type ConventionName } from "../../../../src/checkpoints/stored/conventions.js";
import { dequantizedRows } from "../../../../src/checkpoints/stored/dequantize.js";
import { openCheckpointFiles } from "../../../../src/checkpoints/stored/open.js";
import type { QuantizedWeight } from "../../../../src/checkpoints/stored/weight.js";
import { surveyFiles } from "../../../../src/checkpoints/survey.js";
import { errorsIn, FIXTURES, reportOf, VECTORS } from "../files/checkpoints.js";

const ORIGINAL = join(VECTORS, "original");

/** The convention and the codes of each fixture. */
const EXPECTED: Readonly<
  Record<string, { readonly conventions: readonly ConventionName[]; readonly bits: number }>
> = {
  "ct-fp8-tensor": { conventions: ["ct-float"], bits: 8 },
  "ct-fp8-channel": { conventions: ["ct-float"], bits: 8 },
  "ct-fp8-block": { conventions: ["ct-float"], bits: 8 },
  "ct-nvfp4": { conventions: ["ct-nvfp4"], bits: 4.5 },
  "ct-mxfp4": { conventions: ["ct-mxfp4"], bits: 4.25 },
  "ct-mxfp6": { conventions: ["ct-mxfp6"], bits: 6.25 },
  "ct-mxfp8": { conventions: ["ct-mxfp8"], bits: 8.25 },
  "ct-int8-channel": { conventions: ["ct-int8"], bits: 8 },
  "ct-int4-group": { conventions: ["ct-int4"], bits: 4.5 },
  "modelopt-fp8": { conventions: ["modelopt-fp8"], bits: 8 },
  "modelopt-fp8-row": { conventions: ["modelopt-fp8"], bits: 8 },
  "modelopt-int8": { conventions: ["modelopt-int8"], bits: 8 },
  "modelopt-mxfp4": { conventions: ["modelopt-mxfp4"], bits: 4.25 },
  "modelopt-nvfp4": { conventions: ["modelopt-nvfp4"], bits: 4.5 },
  "transformers-fp8": { conventions: ["block-fp8"], bits: 8 },
  "transformers-ue8m0": { conventions: ["block-fp8"], bits: 8 },
  "gpt-oss": { conventions: ["gpt-oss"], bits: 4.25 },
  "fbgemm-fp8": { conventions: ["fbgemm-fp8", "fbgemm-experts"], bits: 8 },
  "torchao-fp8": { conventions: ["torchao-fp8"], bits: 8 },
  "torchao-mxfp8": { conventions: ["torchao-mxfp8"], bits: 8.25 },
  "torchao-nvfp4": { conventions: ["torchao-nvfp4"], bits: 4.5 },
};

interface RecordedValues {
  readonly values: Readonly<
    Record<string, { readonly dtype: string; readonly shape: readonly number[]; readonly sha256: string }>
  >;
}
const WITNESS: Readonly<Record<string, RecordedValues>> = JSON.parse(
  readFileSync(join(VECTORS, "witness.json"), "utf8"),
);

/** The bytes of values in a type that PyTorch names; NaN is not among them. */
function bytesIn(dtype: string, values: Float32Array): Uint8Array {
  if (dtype === "float32") return new Uint8Array(values.buffer);
  const bits = new Uint32Array(values.buffer);
  return new Uint8Array(
    Uint16Array.from(bits, (word) => (word + 0x7fff + ((word >>> 16) & 1)) >>> 16).buffer,
  );
}

async function valuesOf(weight: QuantizedWeight): Promise<Float32Array> {
  const elements = new Float32Array(weight.shape.reduce((product, size) => product * size, 1));
  for await (const { at, values } of dequantizedRows(weight)) elements.set(values, at);
  return elements;
}

it("every fixture has an expectation and a witness", () => {
  expect(Object.keys(EXPECTED).toSorted()).toEqual(FIXTURES.toSorted());
  expect(Object.keys(WITNESS).toSorted()).toEqual(FIXTURES.toSorted());
});

describe.each(FIXTURES)("%s", (name) => {
  it("is recognized, and raises no error, also against the original", async () => {
    for (const original of [undefined, ORIGINAL]) {
      const { weights, findings, unquantized } = await reportOf(join(VECTORS, name), original);
      // the fixture's experts differ from the original's
      const expected = original && name === "gpt-oss" ? ["nothing-compared"] : [];
      expect(errorsIn(findings).map((finding) => finding.name)).toEqual(expected);
      expect(findings.filter(({ severity }) => severity === "warning")).toEqual([]);
      const { conventions, bits } = EXPECTED[name] ?? { conventions: [], bits: 0 };
      expect([...new Set(weights.map(({ convention }) => convention))].toSorted()).toEqual(
        conventions.toSorted(),
      );
      expect(weights.length).toBe(name === "gpt-oss" ? 2 : name === "fbgemm-fp8" ? 9 : 7);
      expect(unquantized.length).toBe(name === "gpt-oss" ? 3 : 5);
      // tiles of swizzled scales are padded, and the global scale of a small tensor adds to the count
      for (const weight of weights) expect(weight.bits).toBeGreaterThanOrEqual(bits);
      if (original === undefined) continue;
      for (const weight of weights.filter(({ error }) => error)) {
        expect(weight.error?.relative).toBeLessThan(
          weight.type === "e2m1" || weight.type === "int4" ? 0.15 : 0.06,
        );
        expect(weight.error?.relative).toBeGreaterThan(0);
      }
      expect(weights.filter(({ error }) => error).length).toBe(name === "gpt-oss" ? 0 : 7);
    }
  });

  it("has the values that the library reads", async () => {
    const checkpoint = await openCheckpointFiles(join(VECTORS, name));
    const { weights } = await surveyFiles(checkpoint);
    const recordedValues = WITNESS[name]?.values ?? {};
    for (const [key, { dtype, shape, sha256 }] of Object.entries(recordedValues)) {
      const weight = weights.find((candidate) => candidate.name === key);
      expect(weight?.shape, key).toEqual(shape);
      const bytes = weight ? bytesIn(dtype, await valuesOf(weight)) : new Uint8Array();
      expect(createHash("sha256").update(bytes).digest("hex"), key).toBe(sha256);
    }
    await checkpoint.close();
  });
});

it("every convention has a source", () => {
  for (const { source, summary } of Object.values(CONVENTIONS)) {
    expect(source).not.toBe("");
    expect(summary).not.toBe("");
  }
});
