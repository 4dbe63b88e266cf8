/**
 * Cases in which cuBLASLt deviates from the specification on a GPU, and the backend avoids it: factors that are zero,
 * accumulation in place, the end of K.
 */
import { expect, it } from "vitest";
import type { Backend } from "../../../../src/backends/backend.js";
import type { GemmAlgorithm } from "../../../../src/formats/gemm-algorithm.js";
import { tensor } from "../../../../src/ops/create.js";
import { gemm } from "../../../../src/ops/gemm/gemm.js";
import type { GemmInput } from "../../../../src/ops/gemm/operand.js";
import type { GemmOptions } from "../../../../src/ops/gemm/options.js";
import type { GemmPlan } from "../../../../src/ops/gemm/plan.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { makeSpec } from "../../../../src/tensor/spec.js";
import { Tensor } from "../../../../src/tensor/tensor.js";
import { assertSame } from "../../../values/difference.js";
import { download, type PlainTensor, upload } from "../../../values/plain.js";
import { drawOperand, gridWideValues, PAIRS, type Pair } from "../../harness/gemm/products.js";
import { describeOnGpu, useGpu } from "../../harness/gpu/gpu.js";

const [M, N] = [32, 32];

describeOnGpu("a product on a GPU", () => {
  const { gpu, reference } = useGpu();

  function planOf(make: (backend: Backend) => GemmOptions): GemmPlan & { readonly algorithm: GemmAlgorithm } {
    using _scope = new Scope();
    const { algorithm, ...plan } = gemm(make(gpu())).plan;
    if (!algorithm) throw new Error("a GPU's plan has an algorithm");
    return { ...plan, algorithm };
  }

  /** Compares the product on the GPU with the reference; returns the result. */
  function same(make: (backend: Backend) => GemmOptions): PlainTensor {
    const [actual, expected] = [gpu(), reference()].map((backend) => {
      using _scope = new Scope();
      return download(gemm({ ...make(backend), datapath: "hopper" }).out);
    }) as [PlainTensor, PlainTensor];
    assertSame("out", actual, expected);
    return expected;
  }

  for (const splitK of [1, 2]) {
    it(`whose scale factors round to zero keeps NaN, and with split-K the signs of zeros: splitK ${splitK}`, () => {
      const nvfp4 = makeSpec("nvfp4", {});
      const negatives = same((backend) => ({
        a: drawOperand(backend, nvfp4, [N, 256], 1),
        b: drawOperand(backend, nvfp4, [M, 256], 2),
        alpha: 2 ** -149,
        splitK,
        outDtype: "bf16",
      })).codes.filter((code) => code === 0x8000).length;
      expect(negatives > 0).toBe(splitK > 1);

      const scaled = (backend: Backend, seed: number): GemmInput => {
        const codes = gridWideValues("bf16", [32, 128], seed).data;
        const bytes = new Uint8Array(codes.buffer.slice(0)).map((code) => code & 0xbf);
        bytes[5] = 0x7f;
        const data = new Tensor(backend, "e4m3", [32, 256]).write(bytes);
        return { data, scaleInv: tensor(backend, [2 ** -140]), tile: "tensor" };
      };
      const nans = same((backend) => ({
        a: scaled(backend, 3),
        b: scaled(backend, 4),
        splitK,
        outDtype: "bf16",
      })).codes.filter((code) => (code & 0x7fff) > 0x7f80).length;
      expect(nans).toBe(M + N - 1);
    });
  }

  it.each([
    ["bf16", 259, 4],
    ["bf16", 129, 2],
    ["f16", 257, 4],
    ["f16", 584, 9],
    ["e4m3 by e4m3", 2192, 17],
    ["1x128 by 1x128", 2192, 17],
  ] as const)("with split-K adds every element along K: %s, K %i, splitK %i", (name, depth, splitK) => {
    const [ofB, ofA] = PAIRS[name] as Pair;
    for (const layout of ["TN", "NN", "NT"] as const) {
      if (layout !== "TN" && name.length > 4) continue;
      same((backend) => ({
        a: drawOperand(backend, ofA, layout === "TN" ? [N, depth] : [depth, N], 9),
        b: drawOperand(backend, ofB, layout === "NT" ? [depth, M] : [M, depth], 10),
        layout,
        splitK,
        useSplitAccumulator: name.length > 4,
        outDtype: "f32",
      }));
    }
  });

  it.each(["bf16", "e4m3 by e4m3", "1x128 by 1x128"])(
    "with split-K adds the parts in f32 in every reduction scheme: %s",
    (name) => {
      const [ofB, ofA] = PAIRS[name] as Pair;
      for (const outDtype of ["f32", "bf16"] as const) {
        const options = (backend: Backend) => ({
          a: drawOperand(backend, ofA, [N, 1536], 11),
          b: drawOperand(backend, ofB, [M, 1536], 12),
          outDtype,
        });
        const { algorithm, ...plan } = planOf((backend) => ({ ...options(backend), splitK: 3 }));
        for (const scheme of ["computeType", "inPlace", "outputType"] as const) {
          // a plan of an unknown library version: the GPU's library configures the algorithm from its attributes
          const pinned = { ...plan, algorithm: { ...algorithm, version: 0, scheme } };
          const pinnedTo = (backend: Backend) => ({ ...options(backend), plan: pinned });
          expect(planOf(pinnedTo).algorithm).toMatchObject({ scheme, splitK: 3 });
          same(pinnedTo);
        }
      }
    },
  );

  const pairs = Object.entries(PAIRS).filter(([name]) => !name.includes("1x128"));
  it.each(pairs)("that is added to its output in place is rounded once: %s", (_, pair: Pair) => {
    for (const dtype of ["f32", "bf16", "f16"] as const)
      for (const depth of [32, 160, 256])
        for (const alpha of [1, 0.3, -2])
          for (const bias of [undefined, gridWideValues(dtype, [N], 7)])
            same((backend) => ({
              a: drawOperand(backend, pair[1], [N, depth], 5),
              b: drawOperand(backend, pair[0], [M, depth], 6),
              out: upload(backend, gridWideValues(dtype, [M, N], 8)),
              accumulate: true,
              alpha,
              bias: bias && upload(backend, bias),
            }));
  });
});
