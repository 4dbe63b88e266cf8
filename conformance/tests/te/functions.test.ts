// Norms and activations of TransformerEngine, which uses other functions and orders of summation: the differences in
// units of the last place.
import { describe, expect, it } from "vitest";
import {
  type ActivationName,
  activation,
  activationBackward,
  gated,
  gatedBackward,
  layerNorm,
  normBackward,
  rmsNorm,
  Scope,
  type Shape,
  type Tensor,
  tensor,
} from "../../../src/index.js";
import { useBackend } from "../harness/suite.js";
import { combineByResult, expectDistances } from "../harness/te/distances.js";
import { type DrawKind, draw } from "../harness/te/draws.js";
import {
  canonicalBytes,
  computeDistances,
  type Distances,
  type RecordedResult,
  readWitness,
} from "../harness/te/recorded.js";

interface Case {
  readonly function: string;
  readonly dtype: "f32" | "bf16";
  readonly kind: DrawKind;
  readonly seed: number;
  readonly shape: readonly [number, number];
  readonly zeroCentered?: boolean;
  readonly epsilon?: number;
}

const { origin, cases } = readWitness<Case & Readonly<Record<string, RecordedResult>>>("functions");
const backend = useBackend();

const GATED: Readonly<Record<string, ActivationName>> = {
  ...{ geglu: "gelu", reglu: "relu", qgeglu: "qgelu", sreglu: "srelu", swiglu: "silu", glu: "sigmoid" },
};

function resultsOf({
  function: name,
  dtype,
  kind,
  seed,
  shape,
  ...norm
}: Case): Readonly<Record<string, Tensor>> {
  const randomTensor = (kind: DrawKind, offset: number, size: Shape): Tensor =>
    tensor(backend(), draw(kind, dtype, seed + offset, size), size, dtype);
  const x = randomTensor(kind, 0, shape);
  const [rows, columns] = shape;
  if (name === "layerNorm" || name === "rmsNorm") {
    const [grad, gamma, beta] = [
      randomTensor(kind, 1, shape),
      randomTensor("bell", 2, [columns]),
      randomTensor("bell", 3, [columns]),
    ];
    const { zeroCentered = false, epsilon = 0 } = norm;
    const options = { zeroCenteredGamma: zeroCentered, eps: epsilon };
    const forward = name === "layerNorm" ? layerNorm(x, gamma, beta, options) : rmsNorm(x, gamma, options);
    const { mean, rstd } = forward;
    const { dx, dgamma, dbeta } = normBackward({
      grad,
      x,
      gamma,
      mean,
      rstd,
      zeroCenteredGamma: zeroCentered,
    });
    const results = { out: forward.out, ...(mean ? { mean } : {}), rstd, dx, dgamma };
    return dbeta && name === "layerNorm" ? { ...results, dbeta } : results;
  }
  const kindOfGate = GATED[name];
  if (kindOfGate) {
    const options = { kind: kindOfGate };
    return {
      out: gated(x, options),
      dx: gatedBackward(randomTensor(kind, 1, [rows, columns / 2]), x, options),
    };
  }
  const options = { kind: name as ActivationName };
  return { out: activation(x, options), dx: activationBackward(randomTensor(kind, 1, shape), x, options) };
}

describe(`functions of ${origin.version} on an ${origin.gpu}`, () => {
  it("differ from ours by the recorded distances", async () => {
    const distancesByName = new Map<string, Distances[]>();
    for (const testCase of cases) {
      using _scope = new Scope();
      for (const [name, result] of Object.entries(resultsOf(testCase))) {
        const key = `${testCase.function} ${testCase.dtype}: ${name}`;
        const distances = computeDistances(await canonicalBytes(result), testCase[name] as RecordedResult);
        distancesByName.set(key, [...(distancesByName.get(key) ?? []), distances]);
      }
    }
    expect(distancesByName.size).toBeGreaterThan(50);
    expectDistances("functions", combineByResult(distancesByName));
  });
});
