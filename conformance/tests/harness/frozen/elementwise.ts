/**
 * Frozen cases (calls with recorded hashes of their results) of elementwise operations: casts, elementwise operators,
 * activations and optimizers.
 */

import { OPERATOR_NAMES } from "../../../../src/backends/elementwise.js";
import type { ActivationName, RoundingName } from "../../../../src/backends/ops.js";
import { ACTIVATION, ROUNDING } from "../../../../src/formats/contract.gen.js";
import { factsOf } from "../../../../src/formats/derive.js";
import { SCALAR_FORMATS, type ScalarFormat } from "../../../../src/formats/scalar.js";
import { WIDE_DTYPES } from "../../../../src/tensor/shape.js";
import { words } from "../../../arbitraries/random.js";
import { stored } from "../../../operations/cast/encode.js";
import { fromCodes, type PlainTensor } from "../../../values/plain.js";
import { type FrozenCase, frozenCase, values } from "./case.js";

const FORMATS = Object.keys(SCALAR_FORMATS) as ScalarFormat[];
const ROUNDINGS = Object.keys(ROUNDING) as RoundingName[];
const KINDS = Object.keys(ACTIVATION) as ActivationName[];
const SHAPE = [67, 258];

function castCases(): readonly FrozenCase[] {
  return FORMATS.flatMap((format, i) => {
    const encodeCases = ROUNDINGS.map((rounding, r) =>
      frozenCase("encode", `${format} ${rounding}`, {
        x: values("f32", SHAPE, 600 + i),
        format,
        rounding,
        overflow: r % 2 === 0 ? "saturate" : "nonfinite",
        random: { seed: 11n, offset: BigInt(i) },
        scale: rounding === "tiesToEven" ? 3.5 : 1,
      }),
    );
    const codes = Array.from(words(630 + i, 4096), (word) => word % 2 ** factsOf(format).bits);
    return [
      ...encodeCases,
      frozenCase("decode", format, { codes: stored(codes, format, [4096]), format, dtype: "f32" }),
    ];
  });
}

function activationCases(): readonly FrozenCase[] {
  return WIDE_DTYPES.flatMap((dtype, i) => {
    const x = values(dtype, SHAPE, 200 + i);
    const [grad, gatedGrad] = [values("bf16", SHAPE, 210 + i), values("bf16", [67, 129], 220 + i)];
    return KINDS.flatMap((kind) => [
      frozenCase("activation", `${kind} ${dtype}`, { x, kind, outDtype: dtype }),
      frozenCase("activationBackward", `${kind} ${dtype}`, { x, grad, kind, outDtype: "f32" }),
      frozenCase("gated", `${kind} ${dtype}`, { x, kind, outDtype: "bf16" }),
      frozenCase("gatedBackward", `${kind} ${dtype}`, { x, grad: gatedGrad, kind, outDtype: dtype }),
    ]);
  });
}

/** Calls of dropout, and of elementwise operators, each with the inputs and numbers that it has. */
function operatorCases(): readonly FrozenCase[] {
  return WIDE_DTYPES.flatMap((dtype, i) => {
    const [x, y] = [values(dtype, SHAPE, 660 + i), values("bf16", SHAPE, 670 + i)];
    const condition = fromCodes(
      "bf16",
      SHAPE,
      Array.from(y.codes, (code, index) => (index % 3 === 0 ? 0 : code)),
    );
    const input = { condition, x, y, factor: 1 / 3, into: "new", outDtype: dtype } as const;
    const random = { seed: 12n, offset: BigInt(i) };
    return [
      ...OPERATOR_NAMES.map((name) => frozenCase(name, dtype, input)),
      frozenCase("dropout", dtype, { x, probability: 0.1, random, outDtype: dtype }),
    ];
  });
}

function optimizerSteps(): readonly FrozenCase[] {
  return WIDE_DTYPES.flatMap((dtype, i) => {
    const f32 = (seed: number) => values("f32", SHAPE, seed + i) as PlainTensor<"f32">;
    const step = { parameter: f32(270), grad: values(dtype, SHAPE, 200 + i), m: f32(280) };
    const common = { learningRate: 0.1, weightDecay: 0.01 };
    const momentum = { momentum: 0.9, dampening: 0, nesterov: true, first: false };
    const moments = { beta1: 0.9, beta2: 0.999, eps: 1e-8, decoupled: true, step: 3 };
    return [
      frozenCase("sgd", dtype, { ...step, options: { ...common, ...momentum } }),
      frozenCase("adamw", dtype, { ...step, v: f32(290), options: { ...common, ...moments } }),
    ];
  });
}

export const ELEMENTWISE_CASES: readonly FrozenCase[] = [
  ...castCases(),
  ...activationCases(),
  ...operatorCases(),
  ...optimizerSteps(),
];
