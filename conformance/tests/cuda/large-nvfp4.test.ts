/**
 * NVFP4 of a matrix so large that each block of threads processes many tiles. Its codes and scales equal those of
 * horizontal slabs with the same amax, small enough for one tile per block. The laws compare small matrices with the
 * reference.
 */
import { beforeAll, expect, it } from "vitest";
import { castTo } from "../../../src/ops/cast/cast.js";
import { tensor } from "../../../src/ops/create.js";
import { relayoutScales } from "../../../src/ops/layout/layout.js";
import { NVFP4Quantizer, type NVFP4QuantizerOptions } from "../../../src/quantizers/nvfp4.js";
import { asBytes } from "../../../src/tensor/data.js";
import type { Direction, QuantizedTensor } from "../../../src/tensor/quantized.js";
import { DIRECTIONS } from "../../../src/tensor/quantized.js";
import { Scope } from "../../../src/tensor/scope.js";
import type { WideDType } from "../../../src/tensor/shape.js";
import { splitmix32 } from "../../arbitraries/random.js";
import { describeOnGpu, useGpu } from "../harness/gpu/gpu.js";

const ROWS = 8192;
const COLUMNS = 8192;
const SLAB = 1024;

const BOTH = { rowwise: true, columnwise: true };

const CASES: readonly (readonly [string, WideDType, NVFP4QuantizerOptions])[] = [
  ["bf16", "bf16", BOTH],
  ["bf16, 16x16", "bf16", { ...BOTH, tile: "16x16" }],
  ["bf16, 16x16, columnwise", "bf16", { rowwise: false, columnwise: true, tile: "16x16" }],
  ["bf16, swizzled", "bf16", { ...BOTH, scaleLayout: "swizzled" }],
  ["bf16, transformed", "bf16", { ...BOTH, rht: true }],
  ["f16, 16x16, rowwise", "f16", { tile: "16x16" }],
  ["f32, 16x16", "f32", { ...BOTH, tile: "16x16" }],
];

/** bf16 values of either sign from 2^-9 to 2^2, and a few NaNs. */
function drawn(): Uint16Array {
  const next = splitmix32(7);
  const codes = new Uint16Array(ROWS * COLUMNS);
  for (let i = 0; i < codes.length; i++) {
    const word = next();
    codes[i] =
      word % 5_000_011 === 0 ? 0x7fc0 | (i & 1) : (word & 0x807f) | ((118 + ((word >>> 20) % 11)) << 7);
  }
  return codes;
}

/** The codes and the scales of one copy, line by line. */
function partsOf(t: QuantizedTensor, direction: Direction): readonly Uint8Array[] {
  return [t.copy(direction).data, relayoutScales(t, direction, "logical")].map((part) =>
    asBytes(part.dataSync()),
  );
}

/** The first byte offset at which slab number `i` differs from its part of `whole`; -1 if none does. */
function difference(whole: Uint8Array, slab: Uint8Array, direction: Direction, i: number): number {
  const lines = direction === "rowwise" ? 1 : COLUMNS;
  const [length, pitch] = [slab.length / lines, whole.length / lines];
  for (let line = 0; line < lines; line++) {
    const own = slab.subarray(line * length, (line + 1) * length);
    const first = line * pitch + i * length;
    if (Buffer.compare(own, whole.subarray(first, first + length)) === 0) continue;
    return line * length + own.findIndex((byte, at) => byte !== whole[first + at]);
  }
  return -1;
}

describeOnGpu("NVFP4 of 8192x8192", () => {
  const { gpu } = useGpu();
  let codes: Uint16Array;
  beforeAll(() => {
    codes = drawn();
  });

  it.each(CASES)("gives the results of quantizing its slices one by one: %s", (_name, dtype, options) => {
    using _scope = new Scope();
    const x = castTo(tensor(gpu(), codes, [ROWS, COLUMNS], "bf16"), dtype);
    const whole = new NVFP4Quantizer(options).quantize(x);
    const copies = DIRECTIONS.filter((direction) => whole[direction]);
    const [amax, amaxColumnwise] = [whole.rowwise?.amax, whole.columnwise?.amax];
    const slabbed = new NVFP4Quantizer({
      ...options,
      ...(amax && { amax }),
      ...(amaxColumnwise && { amaxColumnwise }),
    });
    const expected = copies.map((direction) => partsOf(whole, direction));
    for (let i = 0; i < ROWS / SLAB; i++) {
      using _inner = new Scope();
      const slab = slabbed.quantize(x.view(i * SLAB * COLUMNS, [SLAB, COLUMNS]));
      for (const [c, direction] of copies.entries()) {
        const parts = partsOf(slab, direction).map((part, k) =>
          difference(expected[c]?.[k] as Uint8Array, part, direction, i),
        );
        expect([direction, i, parts]).toEqual([direction, i, [-1, -1]]);
      }
    }
  });
});
