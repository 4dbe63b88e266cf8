/** Products of the same sizes one after another in one process, which differ in layout and types alone: what is kept of one must not serve another. */
import * as fc from "fast-check";
import { it } from "vitest";
import type { Backend } from "../../src/backends/backend.js";
import { type GemmLayout, gemm } from "../../src/ops/gemm.js";
import { batchedGemm } from "../../src/ops/gemm-batched.js";
import { Scope } from "../../src/tensor/scope.js";
import type { WideDType } from "../../src/tensor/shape.js";
import { assertSame } from "../harness/difference.js";
import { describeOnGpu, RUNS, SEED, useGpu } from "../harness/gpu.js";
import { download, upload } from "../harness/plain.js";
import { PAIRS, type Pair, wideValuesOf } from "../harness/products.js";
import { SpecQuantizer } from "../harness/quantized.js";

const SIZE = 64;
const PROCESSES = Math.min(Math.ceil(RUNS / 10), 100);

/** What two products of one size may differ in. */
interface Variant {
  readonly pair: string;
  readonly layout: GemmLayout;
  readonly outDtype: WideDType;
  readonly useSplitAccumulator: boolean;
  readonly bias: boolean;
  readonly beta: 0 | 1;
  readonly batch: 1 | 2;
}

/** The pairs that any layout takes: block scales along rows alone go with TN. */
const anyLayout = Object.keys(PAIRS).filter((name) => !name.includes("128"));

const variant: fc.Arbitrary<Variant> = fc
  .record({
    pair: fc.constantFrom(...Object.keys(PAIRS), "bf16", "f16", "e4m3 by e4m3", "e5m2 by e4m3"),
    layout: fc.constantFrom<GemmLayout>("TN", "NN", "NT"),
    outDtype: fc.constantFrom<WideDType>("bf16", "f32", "f16"),
    useSplitAccumulator: fc.boolean(),
    bias: fc.boolean(),
    beta: fc.constantFrom<0 | 1>(0, 1),
    batch: fc.constantFrom<1 | 2>(1, 1, 2),
  })
  .map((drawn) => ({ ...drawn, layout: anyLayout.includes(drawn.pair) ? drawn.layout : "TN" }));

describeOnGpu("products of one size in one process", () => {
  const { gpu, reference } = useGpu();

  const operand = (backend: Backend, source: Pair[number], seed: number) => {
    const x = upload(backend, wideValuesOf(typeof source === "string" ? source : "bf16", [SIZE, SIZE], seed));
    if (typeof source === "string") return x;
    const usage = { rowwise: true, columnwise: true, scaleLayout: "logical" } as const;
    return new SpecQuantizer(source, usage).quantize(x);
  };

  const single = (
    { pair, layout, outDtype, useSplitAccumulator, bias, beta }: Variant,
    seed: number,
  ): void => {
    const [ofB, ofA] = PAIRS[pair] as Pair;
    const on = (backend: Backend) => ({
      a: operand(backend, ofA, seed),
      b: operand(backend, ofB, seed + 1),
      layout,
      outDtype,
      useSplitAccumulator,
      ...(bias ? { bias: upload(backend, wideValuesOf("bf16", [SIZE], seed + 2)) } : {}),
      ...(beta ? { beta, c: upload(backend, wideValuesOf(outDtype, [SIZE, SIZE], seed + 3)) } : {}),
    });
    const { out, plan } = gemm({ ...on(gpu()), datapath: gpu().datapath });
    assertSame("out", download(out), download(gemm({ ...on(reference()), plan }).out));
  };

  const batched = ({ layout, outDtype }: Variant, seed: number, dtype: "bf16" | "f16"): void => {
    const on = (backend: Backend) => ({
      a: upload(backend, wideValuesOf(dtype, [2, SIZE, SIZE], seed)),
      b: upload(backend, wideValuesOf(dtype, [2, SIZE, SIZE], seed + 1)),
      layout,
      outDtype,
    });
    const { out, plan } = batchedGemm({ ...on(gpu()), datapath: gpu().datapath });
    assertSame("out", download(out), download(batchedGemm({ ...on(reference()), plan }).out));
  };

  it("are each their own, in any order", () => {
    fc.assert(
      fc.property(fc.array(variant, { minLength: 12, maxLength: 24 }), fc.nat(), (variants, seed) => {
        for (const [i, each] of variants.entries()) {
          using _scope = new Scope();
          if (each.batch > 1) batched(each, seed + 5 * i, each.pair === "f16" ? "f16" : "bf16");
          else single(each, seed + 5 * i);
        }
      }),
      { numRuns: PROCESSES, seed: SEED },
    );
  });
});
