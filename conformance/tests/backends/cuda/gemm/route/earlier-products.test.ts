/** The calls for a product do not depend on earlier products of the same sizes. */
import * as fc from "fast-check";
import { afterAll, beforeAll, expect, it } from "vitest";
import type { Backend, Support } from "../../../../../../src/backends/backend.js";
import { gemm as lowering } from "../../../../../../src/backends/cuda/gemm/gemm.js";
import { openBackend } from "../../../../../../src/backends/open.js";
import type { GemmArgs } from "../../../../../../src/backends/ops/gemm.js";
import type { OpArgs, OpName } from "../../../../../../src/backends/ops.js";
import { Scope } from "../../../../../../src/tensor/scope.js";
import { GuardedBackend } from "../../../../../operations/guarded.js";
import {
  CHOICES,
  multiply,
  OPERAND_PAIRS,
  SIMPLEST,
  type Variant,
  variant,
  withSupportedOptions,
} from "../../../../arbitraries/same-sizes.js";
import { FakeGpu, fakeAlgorithm, LAUNCHES } from "../../../../harness/addon/fake-gpu.js";
import { derivedSeed, draws, sampleCases } from "../../../../harness/draws.js";

/** The reference with products that are not computed: it collects their arguments. */
class CollectingBackend extends GuardedBackend {
  readonly products: GemmArgs[] = [];

  override supports<K extends OpName>(op: K, args: OpArgs[K]): Support {
    return op === "gemm" ? { ok: true, agrees: "bits" } : super.supports(op, args);
  }

  override run<K extends OpName>(op: K, args: OpArgs[K]): void {
    if (op === "gemm") this.products.push(args as OpArgs["gemm"]);
    else super.run(op, args);
  }
}

const openBackends: CollectingBackend[] = [];
beforeAll(async () => {
  const reference: Backend = await openBackend("wasm", { threads: 1 });
  openBackends.push(new CollectingBackend(reference));
});
afterAll(() => openBackends[0]?.dispose());

/** The arguments with which a product reaches the backend. */
function argsOf(input: Variant): GemmArgs {
  const backend = openBackends[0] as CollectingBackend;
  multiply(backend, input);
  return backend.products.at(-1) as GemmArgs;
}

/** The launches for the last of these products, with the arguments of each plan in place of its number. */
function launchedFor(products: readonly GemmArgs[]) {
  const gpu = new FakeGpu([fakeAlgorithm(66), fakeAlgorithm(67, { splitK: 2, scheme: 2 })]);
  const callCounts: number[] = [];
  for (const args of products) {
    callCounts.splice(0, callCounts.length, ...LAUNCHES.map((name) => gpu.callsOf(name).length));
    if (lowering.supports?.(args, gpu.context)?.ok) lowering.run(gpu.context, args);
  }
  const plans = gpu.callsOf("gemmPlan");
  return LAUNCHES.map((name, i) =>
    gpu
      .callsOf(name)
      .slice(callCounts[i])
      .map((choices) => ({ ...choices, plan: "plan" in choices ? plans[choices.plan - 1] : undefined })),
  );
}

const checkPair = (variants: readonly Variant[]): void => {
  using _scope = new Scope();
  const [firstArgs, secondArgs] = variants.map(argsOf) as [GemmArgs, GemmArgs];
  const expected = launchedFor([secondArgs]);
  expect(launchedFor([firstArgs, secondArgs])).toEqual(expected);
  expect(launchedFor([secondArgs, firstArgs, secondArgs])).toEqual(expected);
};

it("the calls for a product do not depend on which operands were multiplied before", () => {
  for (const one of sampleCases(OPERAND_PAIRS, 4))
    for (const other of OPERAND_PAIRS)
      checkPair([one, other].map((pair) => withSupportedOptions({ ...SIMPLEST, outDtype: "f32", pair })));
});

it("the calls for a product do not depend on an earlier product that differs in one option", () => {
  const simple = sampleCases(CHOICES.pair.slice(0, 3), 1).map((pair) => ({ ...SIMPLEST, pair }));
  for (const base of [...simple, ...fc.sample(variant, { numRuns: draws(8), seed: derivedSeed(1) })])
    for (const [key, values] of Object.entries(CHOICES))
      for (const value of key === "pair" ? values.slice(0, 3) : values)
        checkPair([base, withSupportedOptions({ ...base, [key]: value })]);
});
