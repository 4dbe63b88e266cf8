/** quantize: wide matrices to codes and scales, under every quantizer. */
import * as fc from "fast-check";
import type { RandomSource } from "../../../src/backends/ops.js";
import { BLOCK_FORMATS, type BlockFormatName, tileSize } from "../../../src/formats/block.js";
import { factsOf } from "../../../src/formats/derive.js";
import { copyGeometry } from "../../../src/tensor/geometry.js";
import type { QuantizeSpec, ScaleLayout, Usage } from "../../../src/tensor/quantized.js";
import type { Shape, WideDType } from "../../../src/tensor/shape.js";
import { randomSource } from "../../arbitraries/formats.js";
import { matrixShape, wideMatrix } from "../../arbitraries/matrices.js";
import { quantizeSpec, scaleLayout, usage } from "../../arbitraries/specs.js";
import * as oracle from "../../oracle/quantize.js";
import type { Answer, Operation } from "../operation.js";
import { download, fromCodes, PlainTensor, upload, wideValues } from "../plain.js";
import { DIRECTIONS, downloadQuantized, layOut, oracleSpec, SpecQuantizer } from "../quantized.js";

export interface QuantizeCase {
  readonly x: PlainTensor<WideDType>;
  readonly spec: QuantizeSpec;
  readonly usage: Usage;
  readonly scaleLayout: ScaleLayout;
  /** For stochastic rounding. */
  readonly random: RandomSource;
  /** fp8-delayed: the factor of the elements. */
  readonly scale: number;
}

const anyWide: fc.Arbitrary<WideDType> = fc.constantFrom("f32", "bf16", "f16");
const delayedScale = fc.oneof(fc.constantFrom(1, 2, 448, 2 ** -10), fc.float({ min: 0, noNaN: true }));

/** Shapes for a format: rows and columns are multiples of `multiple`, blocks `block` long. */
export type Shapes = (multiple: number, block: number) => fc.Arbitrary<Shape>;

/** Quantizations by `names`, of matrices planted for their blocks. */
export function quantizeCase(
  names?: readonly BlockFormatName[],
  shapes: Shapes = matrixShape,
): fc.Arbitrary<QuantizeCase> {
  return quantizeSpec(names).chain((spec) => {
    const block = tileSize(spec.tile)[1];
    const { multiple } = BLOCK_FORMATS[spec.quantizer];
    const aim = fc.tuple(spec.rht ? fc.constant<WideDType>("bf16") : anyWide, shapes(multiple, block));
    const { max } = factsOf(spec.format);
    return fc.record({
      x: aim.chain(([dtype, shape]) => wideMatrix({ dtype, shape, block, max })),
      spec: fc.constant(spec),
      usage: usage(),
      scaleLayout: scaleLayout(spec),
      random: randomSource(),
      scale: delayedScale,
    });
  });
}

export const quantizeOperation: Operation<QuantizeCase> = {
  arbitrary: quantizeCase(),
  run(backend, { x, spec, usage: copies, scaleLayout: layout, random, scale }) {
    if (spec.quantizer !== "fp8-delayed") {
      const quantizer = new SpecQuantizer(spec, { ...copies, scaleLayout: layout }, { random });
      return downloadQuantized(quantizer.quantize(upload(backend, x)));
    }
    const [factor, amaxRecord] = [scale, 0].map((value) => upload(backend, scalar(value)));
    const quantizer = new SpecQuantizer(
      spec,
      { ...copies, scaleLayout: layout },
      { scale: factor, amaxRecord },
    );
    const copy = downloadQuantized(quantizer.quantize(upload(backend, x)));
    return amaxRecord ? { ...copy, amax: download(amaxRecord) } : copy;
  },
  oracle({ x, spec, usage: copies, scaleLayout: layout, random, scale }): Answer {
    const wanted = DIRECTIONS.filter((direction) => copies[direction]);
    const source = { data: wideValues(x), shape: x.matrix, dtype: x.dtype };
    const result = oracle.quantize(source, { ...oracleSpec(spec), ...random, scale, usage: wanted });
    const answer: Record<string, PlainTensor> = {};
    for (const direction of wanted) {
      const copy = result[direction];
      if (!copy) continue;
      const { dataType, dataShape, scaleType, scaleShape } = copyGeometry(spec, x.matrix, direction, layout);
      const [rows = 1, columns = 1] = copy.scaleShape;
      const { values } = layOut({ values: copy.scale, shape: [rows, columns] }, spec, direction, layout);
      answer[`${direction}.data`] = fromCodes(dataType, dataShape, copy.codes);
      answer[`${direction}.scaleInv`] = fromCodes(scaleType, scaleShape, values);
      if (copy.amax !== undefined) answer[`${direction}.amax`] = fromCodes("f32", [1], [copy.amax]);
    }
    if (result.amax !== undefined) answer.amax = fromCodes("f32", [1], [result.amax]);
    return answer;
  },
};

/** One f32. */
export function scalar(value: number): PlainTensor<"f32"> {
  return new PlainTensor("f32", [1], Float32Array.of(value));
}
