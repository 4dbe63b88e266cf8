/** Activations and their derivatives, quantized as they are computed. */
import * as fc from "fast-check";
import type { ActivationName, SwigluClamp } from "../../../src/backends/ops.js";
import { BLOCK_FORMATS, type BlockFormatName, tileSize } from "../../../src/formats/block.js";
import { asMatrix, type Shape, type WideDType } from "../../../src/tensor/shape.js";
import { matrixShape } from "../../arbitraries/matrices.js";
import { quantizeSpec, sourceType } from "../../arbitraries/specs.js";
import { wideTensor, wideType } from "../../arbitraries/wide.js";
import { quantizeActivated } from "../../oracle/quantize/computed.js";
import { type PlainTensor, upload, wideValues } from "../../values/plain.js";
import {
  activationBackwardOperation,
  activationOperation,
  EDGES,
  gatedBackwardOperation,
  gatedOperation,
  kinds,
  maybeClamp,
} from "../elementwise/activation.js";
import type { Answer, Operation } from "../operation.js";
import { askOracle, type Quantization, quantizationBy, runQuantizer, type Shapes } from "./quantize.js";

export interface ActivationQuantizeCase extends Quantization {
  readonly x: PlainTensor<WideDType>;
  readonly kind: ActivationName;
  readonly gated: boolean;
  /** Of a gated silu. */
  readonly clamp?: SwigluClamp;
  /** Backward: the gradient of the result. */
  readonly grad?: PlainTensor<WideDType>;
}

/** A form, and the shapes of x and of the gradient under which the result has the shape asked for. */
interface Form {
  readonly kind: ActivationName;
  readonly gated: boolean;
  readonly clamp?: SwigluClamp;
  readonly shape: Shape;
  readonly gradShape?: Shape;
}

function formFor(result: Shape): fc.Arbitrary<Form> {
  const lead = result.slice(0, -1);
  const columns = result.at(-1) ?? 1;
  // the gradients of two halves lie beside each other, where that can be the result
  const half = columns % 2 === 0 ? columns / 2 : columns;
  return fc
    .record({ kind: kinds, gated: fc.boolean(), backward: fc.boolean(), clamp: maybeClamp })
    .map(({ kind, gated, backward, clamp }): Form => {
      if (!gated) return { kind, gated, shape: result, ...(backward && { gradShape: result }) };
      const form = clamp ? { kind: "silu" as const, gated, clamp } : { kind, gated };
      if (!backward) return { ...form, shape: [...lead, 2 * columns] };
      return { ...form, shape: [...lead, 2 * half], gradShape: [...lead, half] };
    });
}

/** Fused quantizations by `names`, of results of those shapes. */
export function activationQuantizeCase(
  names?: readonly BlockFormatName[],
  shapes: Shapes = matrixShape,
): fc.Arbitrary<ActivationQuantizeCase> {
  return quantizeSpec(names).chain((spec) => {
    const { multiple } = BLOCK_FORMATS[spec.quantizer];
    const forms = shapes(multiple, tileSize(spec.tile)[1]).chain(formFor);
    // what is quantized is rounded to the type of x, or backward to that of the gradient
    return fc
      .tuple(forms, sourceType(spec), wideType())
      .chain(([{ shape, gradShape, ...form }, dtype, other]) => {
        const x = wideTensor(shape, { edges: EDGES, dtype: gradShape ? other : dtype });
        const grad = gradShape ? wideTensor(gradShape, { dtype }) : fc.constant(undefined);
        return fc
          .tuple(x, grad, quantizationBy(spec))
          .map(([source, slope, how]) => ({ ...how, ...form, x: source, ...(slope && { grad: slope }) }));
      });
  });
}

export const activationQuantizeOperation: Operation<ActivationQuantizeCase> = {
  arbitrary: activationQuantizeCase(),
  run: (backend, { x, kind, gated, clamp, grad, ...how }) =>
    runQuantizer(backend, how, (quantizer) =>
      quantizer.activationQuantize(upload(backend, x), {
        kind,
        gated,
        ...(clamp && { clamp }),
        ...(grad && { grad: upload(backend, grad) }),
      }),
    ),
  oracle({ x, kind, gated, clamp, grad, ...how }) {
    const input = { x, kind, clamp, outDtype: "f32" as const };
    const answer = (): Answer => {
      if (gated && grad) return gatedBackwardOperation.oracle({ ...input, grad });
      if (gated) return gatedOperation.oracle(input);
      return grad
        ? activationBackwardOperation.oracle({ ...input, grad })
        : activationOperation.oracle(input);
    };
    const out = answer().out as PlainTensor<"f32">;
    const { dtype } = grad ?? x;
    const source = { data: wideValues(out), shape: asMatrix(out.shape), dtype };
    return askOracle(how, source.shape, (spec) => quantizeActivated(source, spec));
  },
};
