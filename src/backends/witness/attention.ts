/** Samples of attention: some queries of one head of one sequence, with all of its keys. */
import { Scope } from "../../tensor/scope.js";
import type { Shape, WideDType } from "../../tensor/shape.js";
import { Tensor } from "../../tensor/tensor.js";
import type { AttentionArgs } from "../ops/attention.js";
import { attentionSizes } from "../ops/attention-sizes.js";
import { runOn } from "../run.js";
import { bytesOf } from "./rows.js";
import {
  type Compare,
  compareResults,
  readRanges,
  readWhole,
  type SampledCall,
  type Sampler,
  tensorOfBytes,
} from "./sample.js";

/** Arguments with which attention is not sampled. */
const REFUSED = [
  ...(["queryLengths", "keyLengths", "queryStarts", "keyStarts", "pages"] as const),
  ...(["mask", "bias", "slopes", "sinks", "dropout"] as const),
] satisfies readonly (keyof AttentionArgs)[];

export const sampleAttention: Sampler<"attention"> = (call) => {
  const { args, elements, choose } = call;
  const { q, k, v, layout, out, lse } = args;
  const refused = REFUSED.find((name) => args[name] !== undefined);
  if (refused) return `attention with ${refused} is not sampled`;
  if (out.size === 0) return "its result is empty";
  if (layout === "thd") return "attention of packed sequences is not sampled";
  const { batch, heads, keyHeads, queries, keys } = attentionSizes(args);
  const [depth, width] = [q.shape.at(-1) as number, v.shape.at(-1) as number];
  const [pair] = choose(batch * heads, 1) as readonly [number];
  const [sequence, head] = [Math.floor(pair / heads), pair % heads];
  const chosen = choose(queries, Math.max(1, Math.ceil(elements / width)));
  const rowsOf = (size: number): readonly number[] =>
    chosen.map((i) => {
      const token = layout === "bshd" ? sequence * queries + i : i * batch + sequence;
      return (token * heads + head) * size;
    });
  const keyHead = { sequence, head: Math.floor((head * keyHeads) / heads) };
  const inputs = [
    readRanges(q, rowsOf(depth), depth),
    readHead(call, k, keyHead),
    readHead(call, v, keyHead),
  ] as const;
  const visible = visibility(args, chosen, { queries, keys });
  return {
    results: async (): Promise<Compare> => {
      const statistics = chosen.map((i) => pair * queries + i);
      const outputs = [readRanges(out, rowsOf(width), width), readRanges(lse, statistics, 1)] as const;
      const [qBytes, kBytes, vBytes] = await Promise.all(inputs);
      const [outBytes, lseBytes] = await Promise.all(outputs);
      return (reference) => {
        using _scope = new Scope();
        const count = chosen.length;
        const input = (bytes: Uint8Array, shape: Shape, { dtype }: Tensor<WideDType>): Tensor<WideDType> =>
          tensorOfBytes(reference, bytes, shape, dtype);
        const result = new Tensor(reference, out.dtype, [1, count, 1, width]);
        const sums = new Tensor(reference, "f32", [1, 1, count]);
        runOn(reference, "attention", {
          ...args,
          ...{ layout: "bshd", batch: 1, alignsEnd: false, left: -1, right: -1 },
          q: input(qBytes, [1, count, 1, depth], q),
          k: input(kBytes, [1, keys, 1, depth], k),
          v: input(vBytes, [1, keys, 1, width], v),
          mask: tensorOfBytes(reference, visible, [1, 1, count, keys], "u8"),
          ...{ out: result, lse: sums, maxLogits: undefined },
        });
        return compareResults([
          {
            ...{ name: "out", dtype: out.dtype, actual: outBytes, expected: bytesOf(result) },
            indexOf: (i) => {
              const query = chosen[Math.floor(i / width)] as number;
              const token = layout === "bshd" ? [sequence, query] : [query, sequence];
              return [...token, head, i % width];
            },
          },
          {
            ...{ name: "lse", dtype: lse.dtype, actual: lseBytes, expected: bytesOf(sums) },
            indexOf: (i) => [sequence, head, chosen[i] as number],
          },
        ]);
      };
    },
  };
};

/** A byte for each pair of a sampled query and a key: 1 if the key is hidden from the query. */
function visibility(
  { alignsEnd, left, right }: AttentionArgs,
  chosen: readonly number[],
  { queries, keys }: { readonly queries: number; readonly keys: number },
): Uint8Array {
  const hidden = new Uint8Array(chosen.length * keys);
  for (const [row, query] of chosen.entries()) {
    const position = query + (alignsEnd ? keys - queries : 0);
    for (let key = 0; key < keys; key++) {
      const isHidden = (left >= 0 && key < position - left) || (right >= 0 && key > position + right);
      hidden[row * keys + key] = Number(isHidden);
    }
  }
  return hidden;
}

/** Reads one head of one sequence of keys or values, [keys, elements]. */
async function readHead(
  { backend, run, args }: SampledCall<"attention">,
  x: Tensor,
  { sequence, head }: { readonly sequence: number; readonly head: number },
): Promise<Uint8Array> {
  const { batch, keyHeads, keys } = attentionSizes(args);
  const inner = x.shape.at(-1) as number;
  const isBatchFirst = args.layout === "bshd";
  const outer = isBatchFirst ? batch * keys : keys;
  using slices = new Tensor(backend, x.dtype, [outer, inner]);
  run("copySlice", {
    x,
    xLength: isBatchFirst ? keyHeads : batch * keyHeads,
    xFirst: isBatchFirst ? head : sequence * keyHeads + head,
    ...{ out: slices, outLength: 1, outFirst: 0, count: 1, outer, inner },
  });
  return isBatchFirst
    ? await readRanges(slices, [sequence * keys * inner], keys * inner)
    : await readWhole(slices);
}
