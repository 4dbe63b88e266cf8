/**
 * FP8 attention on a GPU: over every pair of options, two steps give the results and gradients of the reference, and so its
 * scales. It consists of operations whose bits other tests compare; this test compares their composition, and reads on the host.
 */
import { it } from "vitest";
import { autocast } from "../../../../src/autocast.js";
import type { Backend } from "../../../../src/backends/backend.js";
import { DotProductAttention } from "../../../../src/modules/dot-product-attention.js";
import { RandomState } from "../../../../src/quantizers/random-state.js";
import { Variable } from "../../../../src/tape/variable.js";
import { Scope } from "../../../../src/tensor/scope.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { pairwise } from "../../../arbitraries/covering.js";
import { splitmix32 } from "../../../arbitraries/random.js";
import { assertSameAnswer } from "../../../laws/laws.js";
import type { Answer } from "../../../operations/operation.js";
import { download } from "../../../values/plain.js";
import { describeOnGpu, SEED, useGpu } from "../../harness/gpu/gpu.js";
import { waves } from "../../modules/attention/drawn.js";
import {
  argumentsOf,
  type Case,
  HEADS,
  headsOf,
  RECIPES,
  rowsOf,
  TABLE,
  widthOf,
  withAllowedOptions,
} from "../../modules/dot-product-attention/fp8-case.js";

const next = splitmix32(SEED);
const CASES = pairwise(TABLE, (count) => next() % count).map(withAllowedOptions);

/** The results of two steps on a backend. */
function resultsOn(backend: Backend, of: Case): Answer {
  using _scope = new Scope();
  const { options, call, bias } = argumentsOf(backend, of);
  const random = new RandomState(BigInt(SEED));
  using module = new DotProductAttention(backend, HEADS, of.widths, { ...options, random });
  const [make] = RECIPES[of.recipe];
  const answer: Record<string, ReturnType<typeof download>> = {};
  for (let step = 0; step < 2; step++) {
    const inputs = (["q", "k", "v"] as const).map((which, i) => {
      const shape = rowsOf(of, which).shape(headsOf(of, which), widthOf(of, which));
      return new Variable(waves(backend, 10 * step + i + 1, shape, of.dtype), true);
    }) as [Variable, Variable, Variable];
    const out = autocast({ recipe: make() }, () => module.forward(...inputs, call));
    out.backward(waves(backend, 10 * step + 6, out.shape, of.dtype));
    answer[`${step} result`] = download(out.tensor);
    const leaves = [...inputs, bias, module.softmaxOffset].filter((each) => each !== undefined);
    for (const [i, each] of leaves.entries()) {
      answer[`${step} gradient ${i}`] = download(each.grad as Tensor);
      each.zeroGrad();
    }
  }
  return answer;
}

describeOnGpu("FP8 attention on a GPU", () => {
  const { gpu, reference } = useGpu();
  const titled = CASES.map(
    (of) => [`${of.recipe}, ${of.mask}, ${of.format}, ${of.bias}, ${of.dtype}`, of] as const,
  );
  it.each(titled)("%s", { timeout: 60_000 }, (_name, of) => {
    assertSameAnswer(resultsOn(gpu(), of), resultsOn(reference(), of));
  });
});
