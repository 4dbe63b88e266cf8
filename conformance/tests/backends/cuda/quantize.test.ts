/**
 * The calls of the CUDA backend for each spec: it refuses none, and its kernels get the rule, the scaling and the position of a
 * shard.
 */
import { describe, expect, it } from "vitest";
import type { Addon, DeviceHandle } from "../../../../src/backends/cuda/addon.js";
import type { LoweringContext } from "../../../../src/backends/cuda/lowering.js";
import { LOWERINGS } from "../../../../src/backends/cuda/lowerings.gen.js";
import { blockFormat, hasGivenScale } from "../../../../src/formats/block.js";
import { SCALE_RULE } from "../../../../src/formats/contract.gen.js";
import { scalingBits } from "../../../../src/formats/element-scalings.js";
import { zeros } from "../../../../src/ops/create.js";
import type { QuantizeSpec } from "../../../../src/tensor/quantized.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { QUANTIZERS, specsOf } from "../../../arbitraries/specs.js";
import { SpecQuantizer } from "../../../operations/quantize/quantized.js";
import { useBackend } from "../../harness/suite.js";

const backend = useBackend();
const LAYOUT = { rowwise: true, columnwise: true, scaleLayout: "logical" } as const;
const SIZE = 32;
const PART = { rows: 96, columns: 128, row: 32, column: 16, width: SIZE, stride: 64 };

type Named = readonly [name: string, args: Readonly<Record<string, unknown>>];

/** A GPU that computes nothing and records its calls. */
function recordingGpu(): { readonly calls: readonly Named[]; readonly context: LoweringContext } {
  const calls: Named[] = [];
  const addon = new Proxy({} as Addon, {
    get: (_, name) => (_device: DeviceHandle, args: Named[1]) => {
      calls.push([String(name), args]);
    },
  });
  const facts = { name: "none", major: 9, minor: 0, multiprocessors: 1, uuid: "0", bytes: 0 };
  const context = {
    addon,
    device: {} as DeviceHandle,
    facts,
    withTemporary: <T>(_: number, body: (address: number) => T) => body(64),
  };
  return { calls, context };
}

/** The arguments of a quantization of zeros by `spec`, as a part of a larger matrix. */
function quantization(spec: QuantizeSpec) {
  const x = zeros(backend(), "bf16", [SIZE, SIZE]);
  const { rowwise, columnwise } = new SpecQuantizer(spec, LAYOUT).makeEmpty(backend(), x.shape, "bf16");
  const scale = hasGivenScale(spec) ? zeros(backend(), "f32", [1]) : undefined;
  return { x, spec, random: { seed: 1n, offset: 2n }, part: PART, rowwise, columnwise, scale };
}

/** The values that a kernel must get from a spec. NVFP4's kernel has only one rule, so the rule is not passed. */
function specFields({ quantizer, scaleRule, elementScaling, stochastic }: QuantizeSpec): object {
  const draws = blockFormat(quantizer).options.includes("stochastic")
    ? { stochastic, part: stochastic ? PART : undefined }
    : {};
  if (blockFormat(quantizer).tensorAmax) return draws;
  return { rule: SCALE_RULE[scaleRule], scaling: scalingBits(elementScaling), ...draws };
}

/** The fused kernels, with their rules. Their element scaling is one multiplication. */
const FUSED = {
  activationQuantizeMx: ["e8m0Up"],
  activationQuantizeTensor: ["f32"],
  biasGradQuantizeBlock: ["f32"],
  biasGradQuantizeTensor: ["f32"],
  normQuantizeTensor: ["f32"],
} as const;

/** The fused kernels that were called. */
const fusedCalls = new Set<string>();

describe.each(QUANTIZERS)("a quantization by %s on a GPU", (name) => {
  it("is refused for no spec, and its kernel gets the rule, the scaling and the part", () => {
    for (const spec of specsOf(name)) {
      using _scope = new Scope();
      const args = quantization(spec);
      const { calls, context } = recordingGpu();
      expect(LOWERINGS.quantize.supports?.(args, context)?.ok ?? true).toBe(true);
      LOWERINGS.quantize.run(context, args);
      expect(calls.map(([, fields]) => fields)).toMatchObject([specFields(spec)]);
    }
  });

  it("is fused only into kernels that have its rule and multiply", () => {
    for (const spec of specsOf(name)) {
      using _scope = new Scope();
      const args = quantization(spec);
      const { calls, context } = recordingGpu();
      const [biasGrad, gamma] = [zeros(backend(), "bf16", [SIZE]), zeros(backend(), "bf16", [SIZE])];
      const rstd = zeros(backend(), "f32", [SIZE]);
      const norm = { gamma, beta: undefined, eps: 1, zeroCenteredGamma: false, rstd, mean: undefined };
      const activation = { kind: "gelu", gated: false } as const;
      LOWERINGS.biasGradQuantize.run(context, { ...args, biasGrad });
      LOWERINGS.activationQuantize.run(context, { ...args, ...activation });
      LOWERINGS.normQuantize.run(context, { ...args, ...norm });
      for (const [call] of calls.filter(([name]) => Object.hasOwn(FUSED, name))) {
        expect(FUSED[call as keyof typeof FUSED]).toContain(spec.scaleRule);
        expect(spec.elementScaling).toBe("multiply");
        expect(spec.stochastic).toBe(false);
        fusedCalls.add(call);
      }
    }
  });
});

it("is fused into every such kernel for some spec", () => {
  expect([...fusedCalls].sort()).toEqual(Object.keys(FUSED));
});
