/** Codes with a caller's own scales (`ScaledTensor`) are multiplied like quantized tensors, or refused. */
import fc from "fast-check";
import { expect, it } from "vitest";
import type { Backend } from "../../../src/backends/backend.js";
import {
  ArgumentError,
  DisposedError,
  DTypeError,
  ShapeError,
  UnsupportedError,
} from "../../../src/errors.js";
import { tileSize } from "../../../src/formats/block.js";
import { decode, encode } from "../../../src/ops/cast/cast.js";
import { tensor, zeros } from "../../../src/ops/create.js";
import { gemm } from "../../../src/ops/gemm/gemm.js";
import type { ScaledTensor } from "../../../src/ops/gemm/operand.js";
import { Float8CurrentScalingQuantizer } from "../../../src/quantizers/float8.js";
import { Float8BlockQuantizer } from "../../../src/quantizers/float8-block.js";
import { Float8RowQuantizer } from "../../../src/quantizers/float8-row.js";
import type { QuantizedTensor } from "../../../src/tensor/quantized.js";
import { Scope } from "../../../src/tensor/scope.js";
import type { DType, Shape } from "../../../src/tensor/shape.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { draws } from "../harness/draws.js";
import { gridValues } from "../harness/gradients.js";
import { type Refusal, refusals, untyped } from "../harness/refusals.js";
import { testInScope, useBackend } from "../harness/suite.js";

const exact = useBackend({ threads: 1, datapath: "exact" });
const hopper = useBackend({ threads: 1, datapath: "hopper" });
const blackwell = useBackend({ threads: 1, datapath: "blackwell" });

const bytesOf = (x: Tensor): number[] => {
  const data = x.dataSync();
  return [...new Uint8Array(data.buffer, data.byteOffset, data.byteLength)];
};

/** The codes and scales of a quantized tensor as a `ScaledTensor`. */
function scaledTensorOf(t: QuantizedTensor, tile: NonNullable<ScaledTensor["tile"]>): ScaledTensor {
  const { data, scaleInv } = t.copy("rowwise");
  const scale = scaleInv as Tensor<"f32">;
  return tile === "tensor" ? { data, scaleInv: scale } : { data, scaleInv: scale, tile };
}

it("plain codes and scales of a quantizer give the bits of its quantized tensors", () => {
  const size = fc.integer({ min: 1, max: 140 });
  fc.assert(
    fc.property(
      fc.nat(),
      fc.tuple(
        size,
        size,
        fc.constantFrom(1, 3).map((blocks) => 128 * blocks - 48),
      ),
      fc.constantFrom("tensor", "1xK", "1x128", "128x128"),
      fc.boolean(),
      (seed, [rows, columns, depth], tile, pow2Scales) => {
        for (const backend of [exact(), hopper()]) {
          using _scope = new Scope();
          const x = (by: number, lines: number): Tensor =>
            tensor(backend, gridValues(seed + by, lines * depth, 2), [lines, depth]);
          const quantizer = (of: typeof tile) => {
            if (of === "tensor") return new Float8CurrentScalingQuantizer({ pow2Scales });
            if (of === "1xK") return new Float8RowQuantizer({ pow2Scales });
            return new Float8BlockQuantizer({ tile: of, pow2Scales });
          };
          // at most one operand may have 128x128 tiles
          const other = tile === "128x128" ? "1x128" : tile;
          const [a, b] = [quantizer(tile).quantize(x(0, columns)), quantizer(other).quantize(x(1, rows))];
          const expected = gemm({ a, b, outDtype: "f32" });
          const found = gemm({ a: scaledTensorOf(a, tile), b: scaledTensorOf(b, other), outDtype: "f32" });
          expect(bytesOf(found.out)).toEqual(bytesOf(expected.out));
          expect(gemm({ a: scaledTensorOf(a, tile), b: scaledTensorOf(b, other) }).out.dtype).toBe("f32");
        }
      },
    ),
    { numRuns: draws(32) },
  );
});

testInScope("an empty sum is +0, without a scale of its line, because there is none", () => {
  for (const backend of [exact(), hopper()]) {
    const codes = (rows: number): Tensor => zeros(backend, "e4m3", [rows, 0]);
    const lines = (rows: number): ScaledTensor => {
      return { data: codes(rows), scaleInv: zeros(backend, "f32", [rows, 0]), tile: "1xK" };
    };
    const whole = { data: codes(3), scaleInv: tensor(backend, [1]) };
    for (const w of [lines(3), whole]) {
      const { out } = gemm({ x: lines(2), w, outDtype: "f32" });
      expect([...out.dataSync()]).toEqual(new Array(6).fill(0));
    }
  }
});

const LAYOUTS = { TN: [false, false], NN: [true, false], NT: [true, true] } as const;
it("one scale is accepted with every layout, and with codes of any leading dimensions", () => {
  fc.assert(
    fc.property(
      fc.nat(),
      fc.constantFrom(...(Object.keys(LAYOUTS) as (keyof typeof LAYOUTS)[])),
      (seed, layout) => {
        using _scope = new Scope();
        const [rows, depth, columns] = [8, 32, 16];
        const codes = (by: number, shape: Shape, size: number): Tensor =>
          encode(tensor(exact(), gridValues(seed + by, size, 2), shape), { format: "e4m3" });
        const scales = [0.5, 3].map((scale) => tensor(exact(), [scale])) as [Tensor<"f32">, Tensor<"f32">];
        const [transposesA, transposesB] = LAYOUTS[layout];
        const a = codes(0, transposesA ? [depth, columns] : [columns, depth], columns * depth);
        const b = codes(1, transposesB ? [2, depth / 2, rows] : [2, rows / 2, depth], rows * depth);
        const found = gemm({
          a: { data: a, scaleInv: scales[0] },
          b: { data: b, scaleInv: scales[1] },
          layout,
          outDtype: "f32",
        });
        const [x, y] = [decode(a), decode(b)].map((each) => [...(each.dataSync() as Float32Array)]) as [
          number[],
          number[],
        ];
        const at = (values: number[], line: number, k: number, lines: number, transposes: boolean): number =>
          values[transposes ? k * lines + line : line * depth + k] as number;
        const expected = Array.from({ length: rows * columns }, (_, i) => {
          const [row, column] = [Math.floor(i / columns), i % columns];
          let sum = 0;
          for (let k = 0; k < depth; k++)
            sum += at(x, column, k, columns, transposesA) * at(y, row, k, rows, transposesB);
          return Math.fround(sum * 1.5);
        });
        expect([...(found.out.dataSync() as Float32Array)]).toEqual(expected);
      },
    ),
    { numRuns: draws(30) },
  );
});

testInScope(
  "a chip that multiplies only by power-of-two scales accepts those, and refuses all others",
  () => {
    const backend: Backend = blackwell();
    const depth = 256;
    const data = (rows: number): Tensor => zeros(backend, "e4m3", [rows, depth]);
    for (const at of [0, 1, 2, 3])
      for (const [value, isPower] of [
        [1, true],
        [2 ** -20, true],
        [2 ** 60, true],
        [3, false],
        [1.5, false],
        [0, false],
        [-2, false],
        [Number.NaN, false],
        [Number.POSITIVE_INFINITY, false],
      ] as const) {
        const scales = [1, 2, 4, 0.5].with(at, value);
        const ones = tensor(backend, new Float32Array(4).fill(1), [2, 2]);
        const scaleInv = tensor(backend, scales, [2, 2]);
        for (const swap of [false, true]) {
          const [first, second] = swap ? [ones, scaleInv] : [scaleInv, ones];
          const run = () =>
            gemm({
              a: { data: data(2), scaleInv: first, tile: "1x128" },
              b: { data: data(2), scaleInv: second, tile: "1x128" },
            });
          if (isPower) expect(run().out.shape).toEqual([2, 2]);
          else expect(run, `${value} at ${at}`).toThrow(UnsupportedError);
        }
      }
  },
);

const f32 = (shape: Shape): Tensor<"f32"> => zeros(exact(), "f32", shape);
const codes = (shape: Shape, dtype: DType = "e4m3"): Tensor => zeros(exact(), dtype, shape);
const gone = (): Tensor<"f32"> => {
  const scale = f32([1]);
  scale.dispose();
  return scale;
};
/** A product of an operand with a compatible second operand. */
const by = (a: unknown, options: object = {}, b: unknown = { data: codes([4, 256]), scaleInv: f32([1]) }) =>
  gemm({ a: untyped(a), b: untyped(b), ...options });
const blocks = (tile: "1x128" | "128x128", rows: number) => {
  const [lines, length] = tileSize(tile);
  return [Math.ceil(rows / lines), Math.ceil(256 / length)] as const;
};
const other = () => ({ data: codes([4, 256]), scaleInv: f32([4, 2]), tile: "1x128" });
refusals("an operand of the caller's own is refused", [
  ["that is null", () => by(null), ArgumentError, ["a", "null"]],
  ["that is a number", () => by(1), DTypeError, ["a", "1"]],
  ["without codes", () => by({ scaleInv: f32([1]) }), ArgumentError, ["a.data"]],
  ["without scales", () => by({ data: codes([2, 256]) }), ArgumentError, ["a.scaleInv"]],
  [
    "with a key too many",
    () => by({ data: codes([2, 256]), scaleInv: f32([1]), scale: 1 }),
    ArgumentError,
    ["scale"],
  ],
  [
    "with a scale that is gone",
    () => by({ data: codes([2, 256]), scaleInv: gone() }),
    DisposedError,
    ["disposed"],
  ],
  [
    "with two scales for a tensor",
    () => by({ data: codes([2, 256]), scaleInv: f32([2]) }),
    ShapeError,
    ["[2]", "[1]"],
  ],
  [
    "with no scale for a tensor",
    () => by({ data: codes([2, 256]), scaleInv: f32([0]) }),
    ShapeError,
    ["[0]", "[1]"],
  ],
  [
    "with a tile that there is not",
    () => by({ data: codes([2, 256]), scaleInv: f32([1]), tile: "1x32" }),
    ArgumentError,
    ["tile", "1x32"],
  ],
  ["of no sign", () => by({ data: codes([2, 256], "e8m0"), scaleInv: f32([1]) }), DTypeError, ["e8m0"]],
  ...(["1x128", "128x128"] as const).flatMap((tile) => {
    const [high, across] = blocks(tile, 130);
    return [
      [high + 1, across],
      [high - 1, across],
      [high, across + 1],
      [high, across - 1],
      [high * across],
      [high + 1, across + 1],
    ].map(
      (shape): Refusal => [
        `with scales [${shape}] for 130x256 in tiles of ${tile}`,
        () => by({ data: codes([130, 256]), scaleInv: f32(shape), tile }, {}, other()),
        ShapeError,
        [`[${high},${across}]`, tile],
      ],
    );
  }),
  [
    "of blocks along rows, for a sum along columns",
    () => by({ data: codes([256, 128]), scaleInv: f32([256, 1]), tile: "1x128" }, { layout: "NN" }, other()),
    ArgumentError,
    ["1x128", "TN"],
  ],
  [
    "of an odd number of rows whose codes share bytes, for a sum along them",
    () => by(codes([3, 4], "e2m1"), { layout: "NT" }, codes([3, 2], "e2m1")),
    ShapeError,
    ["3", "4"],
  ],
]);

testInScope("an even number of rows of such codes, and an odd number of whole bytes, is summed along", () => {
  for (const [dtype, depth] of [
    ["e2m1", 4],
    ["e4m3", 3],
    ["bf16", 3],
    ["f32", 3],
  ] as const)
    expect(
      by(codes([depth, 4], dtype), { layout: "NN", outDtype: "f32" }, codes([2, depth], dtype)).out.shape,
    ).toEqual([2, 4]);
});
