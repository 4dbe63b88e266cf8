/** The gradient of attention on a GPU: which kernels compute it, and the size of their workspace. */
import { describe, expect, it } from "vitest";
import { attentionBackward } from "../../../../../src/backends/cuda/attention/attention.js";

const [BATCH, QUERIES, HEADS, KEY_HEADS] = [2, 5000, 8, 2];

interface Sizes {
  readonly keys?: number;
  readonly width?: number;
  readonly dtype?: "bf16" | "f16" | "f32";
}

const tensorOf = (dtype: string, shape: readonly number[]) => ({
  dtype,
  shape,
  size: shape.reduce((a, b) => a * b, 1),
});

function argsOf({ keys = 5000, width = 128, dtype = "bf16" }: Sizes) {
  return {
    q: tensorOf(dtype, [BATCH, QUERIES, HEADS, width]),
    k: tensorOf(dtype, [BATCH, keys, KEY_HEADS, width]),
    v: tensorOf(dtype, [BATCH, keys, KEY_HEADS, width]),
    lse: tensorOf("f32", [BATCH, HEADS, QUERIES]),
    layout: "bshd",
    batch: BATCH,
    datapath: "hopper",
    plan: { blockKeys: 128, splitKeys: 0 },
    scale: 1,
    alignsEnd: false,
    left: -1,
    right: 0,
    biasBeforeScale: false,
    softcap: 0,
  };
}

/** The arguments of the addon's call on a GPU of this compute capability. */
function callOf(args: object, [major, minor] = [9, 0]) {
  let call: { readonly sumsQueries: boolean; readonly tiles: number } | undefined;
  let bytes = 0;
  const context = {
    addon: {
      attentionBackward(_device: unknown, args: typeof call) {
        call = args;
      },
    },
    facts: { major, minor },
    withTemporary(count: number, body: (address: number) => void) {
      bytes = count;
      body(256);
    },
  };
  attentionBackward.run(context as never, args as never);
  return { sumsQueries: call?.sumsQueries, numbers: call?.tiles as number, bytes };
}

describe("one kernel computes all gradients", () => {
  it("of long causal attention on a Hopper GPU, with a sum for each element of dq", () => {
    const { sumsQueries, numbers, bytes } = callOf(argsOf({}));
    const tiles = BATCH * HEADS * Math.ceil(QUERIES / 64);
    const keyTiles = BATCH * KEY_HEADS * Math.ceil(5000 / 64);
    const lists = BATCH * HEADS * QUERIES + (1 + tiles) + (1 + keyTiles);
    expect(sumsQueries).toBe(true);
    expect(bytes).toBe(4 * numbers);
    // a ticket and a count for each tile, rounded up to a multiple of 4, then 64 rows of each tile
    const sums = Math.ceil((lists + 1 + tiles) / 4) * 4 + tiles * 64 * 128;
    expect(numbers).toBeGreaterThanOrEqual(sums);
    expect(numbers).toBeLessThan(sums + 4);
  });

  it.each<readonly [string, object]>([
    ["with few keys", argsOf({ keys: 4095 })],
    ["with other widths", argsOf({ width: 64 })],
    ["in f32", argsOf({ dtype: "f32" })],
    ["with another block", { ...argsOf({}), plan: { blockKeys: 64, splitKeys: 0 } }],
    ["with a window", { ...argsOf({}), left: 7 }],
    ["without a causal mask", { ...argsOf({}), right: -1 }],
    ["without padding", { ...argsOf({}), layout: "thd" }],
    ["with a softcap", { ...argsOf({}), softcap: 30 }],
    ["with a mask", { ...argsOf({}), mask: tensorOf("u8", [1, 1, QUERIES, 5000]) }],
    ["with slopes", { ...argsOf({}), slopes: tensorOf("f32", [HEADS]) }],
  ])("but not %s", (_, args) => {
    expect(callOf(args).sumsQueries).toBe(false);
  });

  it("but not on another GPU", () => {
    expect(callOf(argsOf({}), [8, 9]).sumsQueries).toBe(false);
    expect(callOf(argsOf({}), [10, 0]).sumsQueries).toBe(false);
  });
});
