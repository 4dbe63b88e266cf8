/** A dialect's quantizers have the settings and stored tensors that its row lists. */
import { describe, expect, it } from "vitest";
import { dialectSettings, quantizerOf } from "../../../src/dialects/quantizer-of.js";
import { DIALECT_NAMES, DIALECTS, type Dialect } from "../../../src/dialects/table.js";
import { ArgumentError } from "../../../src/errors.js";
import { isTensorWide } from "../../../src/formats/block.js";
import { factsOf } from "../../../src/formats/derive.js";
import { tensorScaleRole } from "../../../src/formats/scale-rules.js";
import { zeros } from "../../../src/ops/create.js";
import { quantizerNamed } from "../../../src/quantizers/named.js";
import { Scope } from "../../../src/tensor/scope.js";
import { elementCount } from "../../../src/tensor/shape.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });
const rows = DIALECT_NAMES.map((name) => [name, DIALECTS[name] as Dialect] as const);
const forms = rows.flatMap(([name, { forms }]) => forms.map((form) => [name, form.quantizer, form] as const));

describe.each(forms)("%s, %s", (name, quantizer, { fixed }) => {
  it("refuses other values of what it fixes, and takes these values and undefined", () => {
    const { spec } = quantizerOf({ dialect: name, quantizer });
    expect(spec).toMatchObject(fixed);
    for (const [option, value] of Object.entries(fixed)) {
      const otherValue = typeof value === "number" ? value + 1 : "another";
      expect(() => dialectSettings(name, quantizer, { [option]: otherValue })).toThrow(ArgumentError);
      for (const fixedValue of [value, undefined])
        expect(quantizerNamed(...dialectSettings(name, quantizer, { [option]: fixedValue })).spec).toEqual(
          spec,
        );
    }
  });
});

/** The sizes that a row gives for a weight [N, K], such as "[N, K/2]". */
function sizesOf(shape: string, [N, K]: readonly [number, number]): number[] {
  const [, factorsOfShape = ""] = /^\[(.*?)\]/.exec(shape) ?? [];
  const size = (text: string): number => {
    const [, product = "", divisor = "1"] = /^(?:ceil\()?([^/]*)(?:\/(\d+)\)?)?$/.exec(text.trim()) ?? [];
    const factors = product
      .split("*")
      .flatMap((factorText) => [...factorText.matchAll(/\d+|[NK]/g)].map(([factor]) => factor));
    const value = factors.reduce(
      (elements, factor) => elements * (factor === "N" ? N : factor === "K" ? K : Number(factor)),
      1,
    );
    return value / Number(divisor);
  };
  return factorsOfShape === "" ? [] : factorsOfShape.split(",").map(size);
}

describe.each(rows.filter(([, { tensors }]) => tensors.length > 0))(
  "the files of %s",
  (name, { tensors }) => {
    it("have the codes and scales that its first form makes of a weight, and a divisor where its rule has one", () => {
      using _ = new Scope();
      const size = [256, 384] as const;
      const quantizedTensor = quantizerOf({ dialect: name }).quantize(zeros(backend(), "bf16", size));
      const { data, scaleInv, amax } = quantizedTensor.copy("rowwise");
      const { bits } = factsOf(quantizedTensor.spec.format);
      const [codes, scales, tensorScale] = tensors.filter(({ role }) => role !== "logicalShape");
      const elementBits = codes?.dtype === "I32" ? 32 : 8;
      expect(codes).toMatchObject({ role: "codes" });
      const numCodes = elementCount(sizesOf(codes?.shape ?? "", size));
      expect([(data.size * bits) / elementBits, data.size]).toContain(numCodes);
      expect(elementCount(sizesOf(scales?.shape ?? "", size))).toBe(
        isTensorWide(quantizedTensor.spec.tile) ? 1 : scaleInv.size,
      );
      expect(scales?.role).toBe("multiplier");
      if (tensorScale)
        expect([amax?.size, tensorScale.role]).toEqual([1, tensorScaleRole(quantizedTensor.spec.scaleRule)]);
    });
  },
);
