/**
 * Attention: independence of rows, hidden keys, heads that are part of all heads, threads and refusals. `laws/operations.test.ts`
 * compares drawn cases with the oracle.
 */
import * as fc from "fast-check";
import { describe, expect, it, test } from "vitest";
import type { Backend } from "../../../src/backends/backend.js";
import { ArgumentError, DTypeError, ShapeError, UnsupportedError } from "../../../src/errors.js";
import { attention, attentionBackward } from "../../../src/ops/attention/attention.js";
import type { AttentionOptions } from "../../../src/ops/attention/options.js";
import { attentionPlan } from "../../../src/ops/attention/rule.js";
import { empty, tensor, zeros } from "../../../src/ops/create.js";
import { Scope } from "../../../src/tensor/scope.js";
import { elementCount, type WideDType } from "../../../src/tensor/shape.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { splitmix32 } from "../../arbitraries/random.js";
import type { CaseAim } from "../../operations/attention/aim.js";
import { attentionCase } from "../../operations/attention/case.js";
import { SMALL } from "../../operations/attention/small-cases.js";
import { philox4x32 } from "../../oracle/core/philox.js";
import { download, fromCodes } from "../../values/plain.js";
import { drawsOr, SEED } from "../harness/draws.js";
import { cast, codesOfTensor } from "../harness/noise.js";
import { describeLaws, testEqualBits, testInScope, useBackend, useThreads } from "../harness/suite.js";

const backend = useBackend();

/** The sizes of heads. */
interface Heads {
  readonly heads: number;
  readonly keyHeads: number;
  readonly width: number;
  readonly valueWidth: number;
  readonly dtype: WideDType;
}

/** One sequence: q, k and v as f32 values, [length][heads][width]. */
interface Sequence {
  readonly length: number;
  readonly q: Float32Array;
  readonly k: Float32Array;
  readonly v: Float32Array;
}

/** Values in steps of 1/32 between -2 and 2, which every wide type holds. */
function values(count: number, seed: number): Float32Array {
  const next = splitmix32(seed);
  return Float32Array.from({ length: count }, () => ((next() % 129) - 64) / 32);
}

function sequence(length: number, { heads, keyHeads, width, valueWidth }: Heads, seed: number): Sequence {
  return {
    length,
    q: values(length * heads * width, seed),
    k: values(length * keyHeads * width, seed + 1),
    v: values(length * keyHeads * valueWidth, seed + 2),
  };
}

function wide(on: Backend, data: Float32Array, shape: readonly number[], dtype: WideDType): Tensor {
  const x = tensor(on, data, shape);
  return dtype === "f32" ? x : cast(x, dtype);
}

/** The results of each row of a sequence: out and lse of all its heads, as codes. */
type Rows = readonly (readonly number[])[];

/** The rows of out [.., heads, V] and lse [heads, ..] from row `first` on, where `lseAt` is the index of a row of lse. */
function rowsOf(
  { out, lse }: { readonly out: Tensor; readonly lse: Tensor },
  { heads, valueWidth }: Heads,
  first: number,
  count: number,
  lseAt: (head: number, row: number) => number,
): Rows {
  const [codes, statistics] = [codesOfTensor(out), codesOfTensor(lse)];
  const line = heads * valueWidth;
  return Array.from({ length: count }, (_, i) => [
    ...codes.slice((first + i) * line, (first + i + 1) * line),
    ...Array.from({ length: heads }, (_, head) => statistics[lseAt(head, i)] as number),
  ]);
}

/** The forward pass of one sequence by itself, with all its queries. */
function alone(each: Sequence, sizes: Heads, options: AttentionOptions): Rows {
  const { heads, keyHeads, width, valueWidth, dtype } = sizes;
  const { length } = each;
  const q = wide(backend(), each.q, [1, length, heads, width], dtype);
  const k = wide(backend(), each.k, [1, length, keyHeads, width], dtype);
  const v = wide(backend(), each.v, [1, length, keyHeads, valueWidth], dtype);
  return rowsOf(attention(q, k, v, options), sizes, 0, length, (head, row) => head * length + row);
}

const concatenated = (parts: readonly Float32Array[]): Float32Array =>
  Float32Array.from(parts.flatMap((part) => [...part]));
const sums = (lengths: readonly number[]): Int32Array =>
  Int32Array.from([0, ...lengths.map((_, i) => lengths.slice(0, i + 1).reduce((a, b) => a + b, 0))]);

/** All sequences one after the other, in the layout "thd". */
function together(all: readonly Sequence[], sizes: Heads, options: AttentionOptions): readonly Rows[] {
  const { heads, keyHeads, width, valueWidth, dtype } = sizes;
  const cu = sums(all.map(({ length }) => length));
  const total = cu.at(-1) as number;
  const q = wide(backend(), concatenated(all.map((each) => each.q)), [total, heads, width], dtype);
  const k = wide(backend(), concatenated(all.map((each) => each.k)), [total, keyHeads, width], dtype);
  const v = wide(backend(), concatenated(all.map((each) => each.v)), [total, keyHeads, valueWidth], dtype);
  const places = {
    cuQueries: tensor(backend(), cu, undefined, "i32"),
    cuKeys: tensor(backend(), cu, undefined, "i32"),
  };
  const result = attention(q, k, v, { ...options, layout: "thd", ...places });
  return all.map(({ length }, b) => {
    const first = cu[b] as number;
    return rowsOf(result, sizes, first, length, (head, row) => head * total + first + row);
  });
}

/** All sequences in one batch, padded by NaN. */
function padded(all: readonly Sequence[], sizes: Heads, options: AttentionOptions): readonly Rows[] {
  const { heads, keyHeads, width, valueWidth, dtype } = sizes;
  const longest = Math.max(...all.map(({ length }) => length)) + 3;
  const pad = (name: "q" | "k" | "v", line: number): Float32Array => {
    const data = new Float32Array(all.length * longest * line).fill(Number.NaN);
    for (const [b, each] of all.entries()) data.set(each[name], b * longest * line);
    return data;
  };
  const shape = (count: number, size: number) => [all.length, longest, count, size];
  const q = wide(backend(), pad("q", heads * width), shape(heads, width), dtype);
  const k = wide(backend(), pad("k", keyHeads * width), shape(keyHeads, width), dtype);
  const v = wide(backend(), pad("v", keyHeads * valueWidth), shape(keyHeads, valueWidth), dtype);
  const lengths = tensor(
    backend(),
    Int32Array.from(all, ({ length }) => length),
    undefined,
    "i32",
  );
  const result = attention(q, k, v, { ...options, queryLengths: lengths, keyLengths: lengths });
  return all.map(({ length }, b) =>
    rowsOf(result, sizes, b * longest, length, (head, row) => (b * heads + head) * longest + row),
  );
}

/** A sequence in chunks of queries, each against a cache of all keys so far, which lies in pages in another order. */
function inChunks(
  each: Sequence,
  sizes: Heads,
  options: AttentionOptions,
  chunk: number,
  page: number,
): Rows {
  const { heads, keyHeads, width, valueWidth, dtype } = sizes;
  const count = Math.ceil(each.length / page);
  // page n of the sequence is page count - 1 - n of the cache, and unused elements are NaN
  const cache = (data: Float32Array, line: number): Float32Array => {
    const pages = new Float32Array(count * page * line).fill(Number.NaN);
    for (let row = 0; row < each.length; row++) {
      const place = (count - 1 - Math.floor(row / page)) * page + (row % page);
      pages.set(data.subarray(row * line, (row + 1) * line), place * line);
    }
    return pages;
  };
  const k = wide(backend(), cache(each.k, keyHeads * width), [count, page, keyHeads, width], dtype);
  const v = wide(backend(), cache(each.v, keyHeads * valueWidth), [count, page, keyHeads, valueWidth], dtype);
  const pages = tensor(
    backend(),
    Int32Array.from({ length: count }, (_, n) => count - 1 - n),
    [1, count],
    "i32",
  );
  const rows: (readonly number[])[] = [];
  for (let first = 0; first < each.length; first += chunk) {
    const last = Math.min(first + chunk, each.length);
    const line = heads * width;
    const q = wide(
      backend(),
      each.q.subarray(first * line, last * line),
      [1, last - first, heads, width],
      dtype,
    );
    const keyLengths = tensor(backend(), Int32Array.of(last), undefined, "i32");
    const result = attention(q, k, v, { ...options, align: "end", pages, keyLengths });
    rows.push(...rowsOf(result, sizes, 0, last - first, (head, row) => head * (last - first) + row));
  }
  return rows;
}

const sizesOfHeads: fc.Arbitrary<Heads> = fc.record({
  heads: fc.constant(4),
  keyHeads: fc.constantFrom(1, 2, 4),
  width: fc.constantFrom(8, 16, 20),
  valueWidth: fc.constantFrom(8, 12),
  dtype: fc.constantFrom<WideDType>("bf16", "f16", "f32"),
});

const rules = fc.record({
  window: fc.constantFrom([-1, -1] as const, [10, 0] as const, [33, -1] as const),
  softcap: fc.constantFrom(undefined, 2),
  hasSinks: fc.boolean(),
  hasSlopes: fc.boolean(),
  plan: fc.constantFrom(
    { blockKeys: 16, splitKeys: 0 },
    { blockKeys: 16, splitKeys: 32 },
    { blockKeys: 64, splitKeys: 64 },
    undefined,
  ),
});

describeLaws(backend, ["attention", "attentionBackward"], { runs: 300, seed: SEED });

describe("a row has the same bits", () => {
  it("in its sequence alone, among others, beside padding, and as a query against a cache of pages", () => {
    const draw = fc.record({
      sizes: sizesOfHeads,
      rule: rules,
      lengths: fc.array(fc.constantFrom(1, 2, 15, 16, 17, 40, 70, 100), { minLength: 1, maxLength: 3 }),
      chunk: fc.constantFrom(1, 7, 16, 64),
      page: fc.constantFrom(3, 16),
      seed: fc.nat(),
    });
    const property = fc.property(draw, ({ sizes, rule, lengths, chunk, page, seed }) => {
      inScope(() => {
        const all = lengths.map((length, i) => sequence(length, sizes, seed + 10 * i));
        const { hasSinks, hasSlopes, ...others } = rule;
        const options: AttentionOptions = {
          ...others,
          causal: true,
          sinks: hasSinks ? tensor(backend(), Float32Array.of(0, 1, -2, 3)) : undefined,
          alibiSlopes: hasSlopes ? tensor(backend(), Float32Array.of(0.5, 0.25, 0.125, 1)) : undefined,
        };
        const expected = all.map((each) => alone(each, sizes, options));
        expect(together(all, sizes, options)).toEqual(expected);
        expect(padded(all, sizes, options)).toEqual(expected);
        expect(all.map((each) => inChunks(each, sizes, options, chunk, page))).toEqual(expected);
      });
    });
    fc.assert(property, { numRuns: drawsOr(100), seed: SEED });
  });
});

describe("heads that share keys and values", () => {
  it("have the bits of heads with copies of these keys and values", () => {
    const draw = fc.record({
      sizes: sizesOfHeads,
      rule: rules,
      queries: fc.constantFrom(1, 3, 20, 70),
      dropsKeys: fc.boolean(),
      hides: fc.boolean(),
      hasBias: fc.boolean(),
      causal: fc.boolean(),
      seed: fc.nat(),
    });
    const property = fc.property(draw, ({ sizes, rule, queries, seed, ...drawn }) => {
      inScope(() => {
        const { heads, keyHeads, width, valueWidth, dtype } = sizes;
        const [keys, { hasSinks, hasSlopes, ...others }] = [70, rule];
        const { q, k, v } = sequence(keys, sizes, seed);
        const pairs = [1, heads, queries, keys];
        const hidden = Uint8Array.from(values(elementCount(pairs), seed + 3), (x) => (x > 1 ? 1 : 0));
        const options: AttentionOptions = {
          ...{ ...others, causal: drawn.causal, align: "end" },
          sinks: hasSinks ? tensor(backend(), Float32Array.of(0, 1, -2, 3)) : undefined,
          alibiSlopes: hasSlopes ? tensor(backend(), Float32Array.of(0.5, 0.25, 0.125, 1)) : undefined,
          dropout: drawn.dropsKeys ? { probability: 0.3, seed: BigInt(seed) } : undefined,
          mask: drawn.hides ? tensor(backend(), hidden, pairs, "u8") : undefined,
          bias: drawn.hasBias ? tensor(backend(), values(elementCount(pairs), seed + 4), pairs) : undefined,
        };
        const query = wide(
          backend(),
          q.subarray(0, queries * heads * width),
          [1, queries, heads, width],
          dtype,
        );
        const run = (count: number) => {
          const head = (data: Float32Array, size: number) =>
            Float32Array.from({ length: keys * count * size }, (_, at) => {
              const [row, i] = [Math.floor(at / (count * size)), Math.floor(at / size) % count];
              return data[
                (row * keyHeads + Math.floor((i * keyHeads) / count)) * size + (at % size)
              ] as number;
            });
          const key = wide(backend(), head(k, width), [1, keys, count, width], dtype);
          const value = wide(backend(), head(v, valueWidth), [1, keys, count, valueWidth], dtype);
          const { out, lse } = attention(query, key, value, options);
          return [codesOfTensor(out), codesOfTensor(lse)];
        };
        expect(run(keyHeads)).toEqual(run(heads));
      });
    });
    fc.assert(property, { numRuns: drawsOr(100), seed: SEED });
  });
});

/** Runs `body` and disposes of the tensors that it leaves. */
function inScope(body: () => void): void {
  using _scope = new Scope();
  body();
}

/** Random codes of q, k, v and of the gradient of out: [1, 40, 4, 16], [1, 40, 2, 16], [1, 40, 2, 8], [1, 40, 4, 8]. */
function projections(on: Backend): { q: Tensor; k: Tensor; v: Tensor; grad: Tensor } {
  const sizes: Heads = { heads: 4, keyHeads: 2, width: 16, valueWidth: 8, dtype: "bf16" };
  const { q, k, v } = sequence(40, sizes, 5);
  return {
    q: wide(on, q, [1, 40, 4, 16], "bf16"),
    k: wide(on, k, [1, 40, 2, 16], "bf16"),
    v: wide(on, v, [1, 40, 2, 8], "bf16"),
    grad: wide(on, values(40 * 4 * 8, 9), [1, 40, 4, 8], "bf16"),
  };
}

const DROPOUT = { probability: 0.3, seed: 3n, offset: 4n };

testEqualBits("the bits do not depend on the number of threads", useThreads(), (on) => {
  const { q, k, v, grad } = projections(on);
  const { out, lse } = attention(q, k, v, { causal: true, dropout: DROPOUT });
  const grads = attentionBackward(grad, q, k, v, out, lse, { causal: true, dropout: DROPOUT });
  return { out: download(out), dq: download(grads.dq), dk: download(grads.dk), dv: download(grads.dv) };
});

testInScope("hidden keys do not change gradients, whatever they and their values hold", () => {
  const { q, k, v, grad } = projections(backend());
  const hidden = Uint8Array.from({ length: 1600 }, (_, at) => (at % 40 < 7 || at % 40 === 20 ? 1 : 0));
  const mask = tensor(backend(), hidden, [1, 1, 40, 40], "u8");
  const spoilt = (x: Tensor): Tensor => {
    const codes = x.dataSync().slice() as Uint16Array;
    const line = x.size / 40;
    for (let key = 0; key < 40; key++)
      if (hidden[key]) codes.fill(key % 2 ? 0x7fff : 0x7f80, key * line, (key + 1) * line);
    return tensor(backend(), codes, x.shape, "bf16");
  };
  const run = (keys: Tensor, inputs: Tensor): readonly number[][] => {
    const { out, lse } = attention(q, keys, inputs, { mask });
    const { dq, dk, dv } = attentionBackward(grad, q, keys, inputs, out, lse, { mask });
    return [out, lse, dq, dk, dv].map(codesOfTensor);
  };
  expect(run(spoilt(k), spoilt(v))).toEqual(run(k, v));
});

testInScope("a query without visible keys passes no gradient, even if its gradient is NaN", () => {
  const { q, k, v, grad } = projections(backend());
  const options = {
    causal: true,
    align: "end",
    queryLengths: tensor(backend(), Int32Array.of(40), undefined, "i32"),
  } as const;
  const keyLengths = tensor(backend(), Int32Array.of(30), undefined, "i32");
  const { out, lse } = attention(q, k, v, { ...options, keyLengths });
  expect(codesOfTensor(out).slice(0, 10 * 32)).toEqual(Array(10 * 32).fill(0));
  expect(Array.from(lse.dataSync()).slice(0, 10)).toEqual(Array(10).fill(Number.NEGATIVE_INFINITY));
  const run = (gradient: Tensor): readonly number[][] => {
    const { dq, dk, dv } = attentionBackward(gradient, q, k, v, out, lse, { ...options, keyLengths });
    return [dq, dk, dv].map(codesOfTensor);
  };
  const codes = grad.dataSync().slice() as Uint16Array;
  codes.fill(0x7fff, 0, 10 * 32);
  expect(run(tensor(backend(), codes, grad.shape, "bf16"))).toEqual(run(grad));
});

testInScope("heads that are a part of all heads drop what the whole drops", () => {
  const { q, k, v } = projections(backend());
  const whole = attention(q, k, v, { dropout: DROPOUT });
  const part = (x: Tensor, first: number, count: number): Tensor => {
    const [, rows, heads, width] = x.shape as readonly [number, number, number, number];
    const codes = x.dataSync() as Uint16Array;
    const rowOf = (row: number): number[] =>
      Array.from(codes.slice((row * heads + first) * width, (row * heads + first + count) * width));
    const own = Uint16Array.from(Array.from({ length: rows }, (_, row) => rowOf(row)).flat());
    return tensor(backend(), own, [1, rows, count, width], "bf16");
  };
  const dropout = { ...DROPOUT, allHeads: 4, firstHead: 2 };
  const second = attention(part(q, 2, 2), part(k, 1, 1), part(v, 1, 1), { dropout });
  expect(codesOfTensor(second.out)).toEqual(codesOfTensor(part(whole.out, 2, 2)));
});

testInScope(
  "a key is dropped if its 16 random bits are below the threshold, and kept if they equal it",
  () => {
    const key = 5;
    // key 5 of query 0 and head 0 reads half 1 of draw 2 (numerics.md §10.5)
    const words = philox4x32([2n, 0n, 0n, DROPOUT.offset], [DROPOUT.seed, 0n]);
    const bits = Number((words[0] as bigint) >> 16n);
    const q = zeros(backend(), "f32", [1, 1, 1, 4]);
    const k = zeros(backend(), "f32", [1, 8, 1, 4]);
    const v = tensor(
      backend(),
      Float32Array.from({ length: 8 }, (_, j) => Number(j === key)),
      [1, 8, 1, 1],
    );
    const outOf = (threshold: number): number =>
      Number(
        attention(q, k, v, { dropout: { ...DROPOUT, probability: threshold / 65536 } }).out.dataSync()[0],
      );
    expect(outOf(bits)).toBeGreaterThan(0);
    expect(outOf(bits + 1)).toBe(0);
  },
);

/** The small cases with zeros as elements. Drawing elements takes most of the time, and options do not depend on them. */
const OPTIONS_ONLY: CaseAim = {
  ...SMALL,
  elements: (shape, dtype) => fc.constant(fromCodes(dtype, shape, new Uint8Array(elementCount(shape)))),
  mask: (shape) => fc.constant(fromCodes("u8", shape, new Uint8Array(elementCount(shape)))),
};

test("draws have every pair of options", () => {
  const present = (value: unknown): boolean => value !== undefined;
  const seen = new Set<string>();
  const all = new Map<string, Set<unknown>>();
  for (const each of fc.sample(attentionCase(false, OPTIONS_ONLY), { numRuns: 1500, seed: SEED })) {
    const features = Object.entries({
      ...{ layout: each.layout, dtype: each.q.dtype, datapath: each.datapath, causal: each.causal },
      ...{
        align: each.align,
        window: `${each.window}`,
        plan: `${each.plan.blockKeys} ${each.plan.splitKeys}`,
      },
      ...{
        mask: present(each.mask),
        bias: present(each.bias) && each.biasPlace,
        softcap: present(each.softcap),
      },
      ...{ slopes: present(each.alibiSlopes), sinks: present(each.sinks), dropout: present(each.dropout) },
    }).map(([name, value]) => `${name} ${value}`);
    for (const [i, feature] of features.entries()) {
      const name = feature.split(" ")[0] as string;
      all.set(name, (all.get(name) ?? new Set()).add(feature));
      for (const other of features.slice(i + 1)) seen.add(`${feature} & ${other}`);
    }
  }
  const groups = [...all.values()].map((group) => [...group] as string[]);
  const missing = groups.flatMap((group, i) =>
    groups
      .slice(i + 1)
      .flatMap((later) =>
        group.flatMap((a) => later.map((b) => `${a} & ${b}`)).filter((pair) => !seen.has(pair)),
      ),
  );
  // "thd" has neither a mask nor a bias
  expect(missing.filter((pair) => !/^layout thd & (mask true|bias (be|af))/.test(pair))).toEqual([]);
});

describe("refuses", () => {
  const [small, five] = [
    [1, 3, 2, 8],
    [1, 5, 2, 8],
  ] as const;
  const call = (
    options: AttentionOptions,
    shapes = [small, five, five] as readonly (readonly number[])[],
  ) => {
    const [q, k, v] = shapes.map((shape) => zeros(backend(), "bf16", shape)) as [Tensor, Tensor, Tensor];
    return () => attention(q, k, v, options);
  };
  const cu = () => tensor(backend(), Int32Array.of(0, 3), undefined, "i32");

  testInScope("tensors of two dtypes", () => {
    const q = empty(backend(), "f16", small);
    const k = empty(backend(), "bf16", five);
    expect(() => attention(q, k, k)).toThrow(DTypeError);
  });
  testInScope("heads, widths and ranks that do not fit", () => {
    expect(call({}, [[1, 3, 3, 8], five, five])).toThrow("a multiple of those of k");
    expect(call({}, [small, [1, 5, 2, 9], five])).toThrow("last dimensions must be equal");
    expect(call({}, [small, five, [1, 6, 2, 8]])).toThrow("equal but for the last dimension");
    expect(call({}, [[3, 2, 8], five, five])).toThrow(ShapeError);
    expect(call({}, [[2, 3, 2, 8], five, five])).toThrow("sequences");
    expect(call({}, [[1, 3, 2, 0], [1, 5, 2, 0], five])).toThrow("at least one element");
  });
  testInScope("options that do not go together", () => {
    expect(call({ cuQueries: cu() })).toThrow('goes with layout "thd"');
    expect(
      call({ layout: "thd" }, [
        [3, 2, 8],
        [5, 2, 8],
        [5, 2, 8],
      ]),
    ).toThrow("needs cuQueries and cuKeys");
    expect(call({ pages: zeros(backend(), "i32", [1, 1]) })).toThrow("needs keyLengths");
    expect(call({ plan: { blockKeys: 24, splitKeys: 0 } })).toThrow("a multiple of 16");
    expect(call({ plan: { blockKeys: 32, splitKeys: 48 } })).toThrow("a multiple of blockKeys");
    expect(call({ dropout: { probability: 0.1, seed: 1n, allHeads: 3, firstHead: 2 } })).toThrow(
      ArgumentError,
    );
    expect(call({ bias: zeros(backend(), "f32", [1, 2, 3, 4]) })).toThrow("[1 or 1, 1 or 2, 3, 5]");
    expect(call({ datapath: "exact" })).toThrow(UnsupportedError);
  });
});

test("the plan depends on widths only", () => {
  expect(attentionPlan(128, 128)).toEqual({ blockKeys: 128, splitKeys: 0 });
  expect(attentionPlan(192, 128)).toEqual({ blockKeys: 128, splitKeys: 0 });
  expect(attentionPlan(256, 256)).toEqual({ blockKeys: 64, splitKeys: 0 });
});
