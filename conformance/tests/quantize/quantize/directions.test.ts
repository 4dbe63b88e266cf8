/**
 * The code of an element depends neither on the direction of its block nor on the type of the source: kernels compute the rows
 * and columns of f32, bf16 and f16 in different ways.
 */
import { describe, expect, it } from "vitest";
import { BLOCK_FORMAT_NAMES, BLOCK_FORMATS, type BlockFormat } from "../../../../src/formats/block.js";
import { ELEMENT_SCALINGS } from "../../../../src/formats/element-scalings.js";
import type { ScalarFormat } from "../../../../src/formats/scalar.js";
import { SCALE_RULES } from "../../../../src/formats/scale-rules.js";
import { castTo } from "../../../../src/ops/cast/cast.js";
import { tensor } from "../../../../src/ops/create.js";
import { transpose } from "../../../../src/ops/layout/layout.js";
import type { Direction, QuantizeSpec } from "../../../../src/tensor/quantized.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { WIDE_DTYPES } from "../../../../src/tensor/shape.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { SpecQuantizer } from "../../../operations/quantize/quantized.js";
import { codeEdges } from "../../arbitraries/code-edges.js";
import { scaledSpecs } from "../../arbitraries/scaled-specs.js";
import { useBackend } from "../../harness/suite.js";

const backend = useBackend({ threads: 1 });
const SIZE = 64;

/** A square of codes' values and midpoints of both signs. Every run of 8 in a row or column has the largest magnitude. */
function squareOf(format: ScalarFormat): Float32Array {
  const edges = codeEdges(format);
  const max = edges.at(-1) as number;
  return Float32Array.from({ length: SIZE * SIZE }, (_, i) => {
    const [row, column] = [Math.floor(i / SIZE), i % SIZE];
    if ((row + column) % 8 === 0) return max;
    return (edges[i % edges.length] as number) * ((row ^ column) & 1 ? -1 : 1);
  });
}

function valuesOf(x: Tensor, spec: QuantizeSpec, direction: Direction): Float32Array {
  const usage = { rowwise: direction === "rowwise", columnwise: direction === "columnwise" };
  const quantizedTensor = new SpecQuantizer(spec, { ...usage, scaleLayout: "logical" }).quantize(x);
  const values = quantizedTensor.dequantize("f32");
  const rows = direction === "rowwise" ? values : transpose(values);
  return rows.dataSync() as Float32Array;
}

const names = BLOCK_FORMAT_NAMES.filter(
  (name) => (BLOCK_FORMATS[name] as BlockFormat).scaleSource !== "given",
);

describe.each(names)("%s", (name) => {
  it("values and midpoints of codes are quantized to the same values by row and by column, from each type", () => {
    for (const spec of scaledSpecs(name)) {
      const formulas = SCALE_RULES[spec.scaleRule].formula + ELEMENT_SCALINGS[spec.elementScaling].formula;
      const isTyped = formulas.includes("rounded to the type of");
      let expected: Float32Array | undefined;
      for (const dtype of WIDE_DTYPES) {
        using _ = new Scope();
        const x = castTo(tensor(backend(), squareOf(spec.format), [SIZE, SIZE]), dtype);
        const rows = valuesOf(x, spec, "rowwise");
        const columns = valuesOf(transpose(x), spec, "columnwise");
        const text = `${spec.scaleRule} ${spec.elementScaling} ${spec.format} ${dtype}`;
        expect(areSame(columns, rows), text).toBe(true);
        if (isTyped) continue;
        expected ??= rows;
        expect(areSame(rows, expected), text).toBe(true);
      }
    }
  });
});

function areSame(a: Float32Array, b: Float32Array): boolean {
  return a.every((value, i) => Object.is(value, b[i]));
}
