/** Fused activation and quantization, and the same for gradients of activations. */
import * as fc from "fast-check";
import type { ActivationName, SwigluClamp } from "../../../src/backends/ops.js";
import { BLOCK_FORMATS, type BlockFormatName } from "../../../src/formats/block.js";
import type { QuantizeSpec } from "../../../src/tensor/quantized.js";
import { asMatrix, type Shape, type WideDType } from "../../../src/tensor/shape.js";
import { anyRows, drawnBlock } from "../../arbitraries/matrices.js";
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
  /** The clamped form of a gated silu. */
  readonly clamp?: SwigluClamp;
  /** The gradient of the result; present in the backward pass. */
  readonly grad?: PlainTensor<WideDType>;
}

/** A form of activation, and the shapes of x and of the gradient for a given shape of the result. */
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
  // the result holds both halves' gradients, so only even numbers of columns can be gated
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

/** Draws fused calls of the quantizers `names` whose results have one of `shapes`. */
export function activationQuantizeCase(
  names?: readonly BlockFormatName[],
  shapes: Shapes = anyRows,
): fc.Arbitrary<ActivationQuantizeCase> {
  return activationQuantizeCaseBy(quantizeSpec(names), shapes);
}

/** As `activationQuantizeCase`, with specs that the caller draws. */
export function activationQuantizeCaseBy(
  specs: fc.Arbitrary<QuantizeSpec>,
  shapes: Shapes = anyRows,
): fc.Arbitrary<ActivationQuantizeCase> {
  return specs.chain((spec) => {
    const { multiple } = BLOCK_FORMATS[spec.quantizer];
    const forms = shapes(multiple, drawnBlock(spec.tile)).chain(formFor);
    // quantizers read values rounded to the type of x, or in the backward pass to the gradient's type
    return fc
      .tuple(forms, sourceType(spec), wideType())
      .chain(([{ shape, gradShape, ...form }, dtype, other]) => {
        const x = wideTensor(shape, { edges: EDGES, dtype: gradShape ? other : dtype });
        const grad = gradShape ? wideTensor(gradShape, { dtype }) : fc.constant(undefined);
        return fc.tuple(x, grad, quantizationBy(spec)).map(([source, gradient, how]) => ({
          ...how,
          ...form,
          x: source,
          ...(gradient && { grad: gradient }),
        }));
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
