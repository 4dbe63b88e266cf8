/**
 * Tests of every scale rule and element scaling of block formats on a GPU: blocks with each of the 2^16 amaxes of bf16 and f16,
 * and with f32 amaxes around each step of the rules. Per-tensor formats use the same functions as blocks.
 */
import { describe, it } from "vitest";
import type { Backend } from "../../../../src/backends/backend.js";
import { type BlockFormatName, blockFormat, quantizersWith } from "../../../../src/formats/block.js";
import { tensor } from "../../../../src/ops/create.js";
import type { QuantizeSpec } from "../../../../src/tensor/quantized.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { WIDE_DTYPES, type WideDType } from "../../../../src/tensor/shape.js";
import { drawnBlock } from "../../../arbitraries/matrices.js";
import { assertSameAnswer } from "../../../laws/laws.js";
import { downloadQuantized, SpecQuantizer } from "../../../operations/quantize/quantized.js";
import { type PlainTensor, upload } from "../../../values/plain.js";
import { amaxesOf, matrixOfAmaxes, tensorAmaxesOf } from "../../arbitraries/amaxes.js";
import { scaledSpecs } from "../../arbitraries/scaled-specs.js";
import { describeOnGpu, SEED, useGpu } from "./gpu.js";
import { QUANTIZER_GROUPS } from "./groups.js";

const ROWWISE = { rowwise: true, columnwise: false, scaleLayout: "logical" } as const;

/** The specs of blocks with each rule, format and scaling. */
const SPECS: readonly QuantizeSpec[] = quantizersWith("scaleRule")
  .filter((name) => blockFormat(name).scaleSource === "blocks")
  .flatMap(scaledSpecs);

const matrixCache = new Map<string, PlainTensor<WideDType>>();

/** The blocks of a type, created once. */
function amaxMatrix(dtype: WideDType, block: number): PlainTensor<WideDType> {
  const key = `${dtype} ${block}`;
  const matrix =
    matrixCache.get(key) ??
    matrixOfAmaxes(amaxesOf(dtype), dtype, block, { isColumnwise: false, seed: SEED });
  matrixCache.set(key, matrix);
  return matrix;
}

/** Tests the rules and scalings of a group of quantizers. */
export function describeScaleRulesOnGpu(group: keyof typeof QUANTIZER_GROUPS): void {
  describeOnGpu(`scale rules and element scalings of ${group} on a GPU`, () =>
    describeRules(QUANTIZER_GROUPS[group]),
  );
}

function describeRules(names: readonly BlockFormatName[]): void {
  const { gpu, reference } = useGpu();

  describe.each(WIDE_DTYPES)("of %s", (dtype) => {
    for (const spec of SPECS.filter(({ quantizer }) => names.includes(quantizer))) {
      const { quantizer, format, scaleRule, elementScaling, tile } = spec;
      it.each(tensorAmaxesOf(spec))(
        `${quantizer} ${format} ${scaleRule} ${elementScaling}, in a tensor of %s`,
        (tensorAmax) => {
          const block = drawnBlock(tile);
          const [gpuAnswer, referenceAnswer] = [gpu(), reference()].map((backend: Backend) => {
            using _scope = new Scope();
            const amax = tensorAmax === undefined ? undefined : tensor(backend, [tensorAmax]);
            const x = upload(backend, amaxMatrix(dtype, block));
            return downloadQuantized(new SpecQuantizer(spec, ROWWISE, { amax }).quantize(x));
          });
          assertSameAnswer(gpuAnswer as never, referenceAnswer as never);
        },
      );
    }
  });
}
