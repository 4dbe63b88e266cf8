/**
 * Attention and its gradient on a GPU, with heads for which there are kernels on tensor cores: all results equal the
 * reference's. The laws draw narrower heads, which the plain kernels compute.
 */
import * as fc from "fast-check";
import { it } from "vitest";
import { Scope } from "../../../../src/tensor/scope.js";
import {
  type AttentionBackwardCase,
  attentionOperation,
  runBackward,
} from "../../../operations/attention/attention.js";
import type { Answer } from "../../../operations/operation.js";
import { assertSame } from "../../../values/difference.js";
import type { PlainTensor } from "../../../values/plain.js";
import { HEAD_WIDTHS, headCase } from "../../arbitraries/attention-heads.js";
import { describeOnGpu, RUNS, SEED, useGpu } from "../../harness/gpu/gpu.js";
import { record } from "../../harness/gpu/record.js";

/** The number of cases of each pair of widths: 150 by default, 3,000 in the long suite (RUNS=10000). */
const CASES = Math.min(Math.ceil(1.5 * RUNS), 3000);
const MAX_SECONDS_OF_CASE = 2;

function assertSameAnswers(actual: Answer, expected: Answer): void {
  for (const [name, x] of Object.entries(expected)) assertSame(name, actual[name] as PlainTensor, x);
}

/** The options whose cases are counted. */
function featuresOf(each: AttentionBackwardCase): readonly string[] {
  const features = {
    causal: each.causal,
    window: each.window.some((bound) => bound >= 0),
    splits: each.plan.splitKeys > 0,
    pages: each.pages,
    lengths: each.layout !== "thd" && (each.queryLengths || each.keyLengths),
    thd: each.layout === "thd",
    mask: each.mask,
    bias: each.bias,
    ALiBi: each.alibiSlopes,
    softcap: each.softcap,
    dropout: each.dropout,
    sinks: each.sinks,
    "NaN or infinity in keys or values": [each.k, each.v].some((x) => x.hasNaN || x.hasInfinity),
  };
  return Object.entries(features).flatMap(([name, isPresent]) => (isPresent ? [name] : []));
}

describeOnGpu("attention with heads for tensor cores, on a GPU", () => {
  const { gpu, reference } = useGpu();

  function check(each: AttentionBackwardCase): void {
    using _scope = new Scope();
    const expected = attentionOperation.run(reference(), each);
    assertSameAnswers(attentionOperation.run(gpu(), each), expected);
    if (each.pages) return;
    const results = { out: expected.out as PlainTensor, lse: expected.lse as PlainTensor };
    assertSameAnswers(runBackward(gpu(), each, results), runBackward(reference(), each, results));
  }

  it.each(Object.entries(HEAD_WIDTHS))(
    "equals the reference: heads of %s",
    (name, widths) => {
      const counts = new Map<string, number>();
      const property = fc.property(headCase(widths), (each) => {
        check(each);
        for (const feature of featuresOf(each)) counts.set(feature, (counts.get(feature) ?? 0) + 1);
      });
      const seed = SEED + 1000 * widths[0] + widths[1];
      fc.assert(property, { numRuns: CASES, seed, endOnFailure: true });
      const counted = Array.from(counts, ([feature, count]) => `${feature} ${count}`).join(", ");
      process.stdout.write(`attention, heads of ${name}: ${CASES} cases: ${counted}\n`);
      record(gpu(), { group: "large", name: `attention with heads of ${name}`, runs: CASES });
    },
    120_000 + 1000 * MAX_SECONDS_OF_CASE * CASES,
  );
});
