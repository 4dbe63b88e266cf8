// The reference's `hopper` datapath equals an H200 in every bit of every element of recorded products.
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Backend, gemm, openBackend, Scope } from "../../../../src/index.js";
import { cases, checksum, operand, origin } from "../../harness/gemm/torch-h200.js";

describe(`the hopper datapath, against ${origin.version} on an H200`, () => {
  let backend: Backend;
  beforeAll(async () => {
    backend = await openBackend("wasm");
  });
  afterAll(() => backend.dispose());

  it.each(cases)(
    "$x x $w, $m x $n x $k, split accumulator $splitAccumulator: the same bits",
    async (given) => {
      using _scope = new Scope();
      const b = operand(backend, given.x, given.seed, [given.m, given.k]);
      const a = operand(backend, given.w, given.seed + 1, [given.n, given.k]);
      const { out } = gemm({
        a,
        b,
        outDtype: "f32",
        datapath: "hopper",
        useSplitAccumulator: given.splitAccumulator,
      });
      const bits = new Uint32Array((await out.data()).buffer);
      const first = Array.from(bits.subarray(0, 512), (value) => value.toString(16).padStart(8, "0")).join(
        "",
      );
      expect(first).toBe(given.bits);
      expect(checksum(bits)).toBe(given.sum);
    },
  );
});
