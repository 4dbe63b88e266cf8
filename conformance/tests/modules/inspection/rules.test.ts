/** Empty, ambiguous and unknown rules of an inspector are refused, and a refusal changes nothing. */
import { describe, expect, it } from "vitest";
import {
  ArgumentError,
  type InspectionRule,
  Inspector,
  LayerNormMLP,
  LayerQuantization,
  Linear,
  Module,
  type QuantizationState,
  RandomState,
} from "../../../../src/index.js";
import { useBackend } from "../../harness/suite.js";

const backend = useBackend();

class OwnModule extends Module {
  readonly linear = this.addModule(
    "linear",
    new Linear(this.backend, 32, 32, { random: new RandomState(1n) }),
  );
  readonly #quantization = new LayerQuantization(this.linear.weight);
  protected override quantizations(): ReadonlyMap<string, QuantizationState> {
    return new Map<string, QuantizationState>([
      ["own", { snapshotSync: () => undefined, restore() {}, dispose() {} }],
      ["layer", this.#quantization],
    ]);
  }
}

const REFUSED: readonly (readonly [string, unknown])[] = [
  ["rules is a plain object; it must be a list", {}],
  ["there is no option rules[0].layer; did you mean rules[0].layers?", [{ layer: ["*"] }]],
  ["rules[0].layers is missing; give it", [{ LogTensorStats: {} }]],
  ['rules[0].layers is "*"; it must be a list with something in it', [{ layers: "*", LogTensorStats: {} }]],
  ["rules[0] has no feature; give LogTensorStats, or leave the rule out", [{ layers: ["*"] }]],
  [
    "there is no option rules[0].LogTensorStat; did you mean rules[0].LogTensorStats?",
    [{ layers: ["linear"], LogTensorStat: {} }],
  ],
  [
    "there is no option rules[0].LogTensorStats.every; did you mean rules[0].LogTensorStats.",
    [{ layers: ["linear"], LogTensorStats: { every: 2 } }],
  ],
  [
    'rules[0].LogTensorStats.tensors[0] "weigth" is not one of input, weight, gradOutput; did you mean weight?',
    [{ layers: ["linear"], LogTensorStats: { tensors: ["weigth"] } }],
  ],
  [
    'rules[0].LogTensorStats.tensors[1] "gradient" is not one of input, weight, gradOutput; did you mean gradOutput?',
    [{ layers: ["linear"], LogTensorStats: { tensors: ["input", "gradient"] } }],
  ],
  [
    'rules[0].LogTensorStats.stats[0] "amx" is not one of amax, min, max, mean, std, l1Norm, l2Norm, dynamicRange, underflow, overflow, mse, sqnr, scales; did you mean amax?',
    [{ layers: ["linear"], LogTensorStats: { stats: ["amx"] } }],
  ],
  [
    "rules[0].LogTensorStats logs no step: endStep 3 is not after startStep 3",
    [{ layers: ["linear"], LogTensorStats: { startStep: 3, endStep: 3 } }],
  ],
  ["rules[0].LogTensorStats.freq is 0; it must be", [{ layers: ["linear"], LogTensorStats: { freq: 0 } }]],
  [
    'rules[0].DisableFP8GEMM.gemms[0] "fprob" is not one of fprop, dgrad, wgrad; did you mean fprop?',
    [{ layers: ["linear"], DisableFP8GEMM: { gemms: ["fprob"] } }],
  ],
  ["rules[0].DisableFP8GEMM.gemms is missing", [{ layers: ["linear"], DisableFP8GEMM: {} }]],
  [
    "rules[0] has DisableFP8GEMM and FakeQuant for dgrad; give each product one of them",
    [{ layers: ["linear"], DisableFP8GEMM: { gemms: ["dgrad"] }, FakeQuant: { gemms: ["fprop", "dgrad"] } }],
  ],
  ['no layer matches "liner"; did you mean linear?', [{ layers: ["liner"], LogTensorStats: {} }]],
  ['no layer matches "x*"; there are own, layer, linear', [{ layers: ["linear", "x*"], LogTensorStats: {} }]],
  ["own is a quantization state that a module defines itself", [{ layers: ["*"], LogTensorStats: {} }]],
  [
    "layer is a LayerQuantization, whose module multiplies what its quantizers return; it takes LogTensorStats and DisableFP8Layer only",
    [{ layers: ["linear", "layer"], FakeQuant: {} }],
  ],
];

describe("rules", () => {
  it.each(REFUSED)("are refused: %s", (message, rules) => {
    using module = new OwnModule(backend());
    const create = () => new Inspector(module, rules as readonly InspectionRule[]);
    expect(create).toThrow(ArgumentError);
    expect(create).toThrow(`Inspector: ${message}`);
    // no layer has an inspector
    new Inspector(module, [{ layers: ["linear", "layer"], LogTensorStats: {} }]).dispose();
  });

  it("may be none, and match several layers by one pattern", () => {
    using module = new LayerNormMLP(backend(), 32, 32);
    new Inspector(module, []).dispose();
    using _ = new Inspector(module, [{ layers: ["fc?"], DisableFP8Layer: {} }]);
    for (const name of ["fc1", "fc2"])
      expect(() => new Inspector(module, [{ layers: [name], LogTensorStats: {} }])).toThrow(
        `${name} has an inspector`,
      );
  });
});
