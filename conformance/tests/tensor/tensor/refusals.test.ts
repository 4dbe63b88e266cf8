/** Invalid shapes, element types and data are refused when a tensor is created, and change nothing. */
import * as fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Backend } from "../../../../src/backends/backend.js";
import { openBackend } from "../../../../src/backends/open.js";
import {
  ArgumentError,
  DisposedError,
  DTypeError,
  type LockstepError,
  ShapeError,
} from "../../../../src/errors.js";
import { empty, fromBytes, tensor, zeros } from "../../../../src/ops/create.js";
import { MXFP8Quantizer } from "../../../../src/quantizers/mx.js";
import { arrayOf } from "../../../../src/tensor/data.js";
import { QuantizedTensor } from "../../../../src/tensor/quantized.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { byteLength, DTYPES, elementCount, MAX_BYTES, type Shape } from "../../../../src/tensor/shape.js";
import { Tensor, type TensorData } from "../../../../src/tensor/tensor.js";
import { draws } from "../../harness/draws.js";
import { testInScope, useBackend } from "../../harness/suite.js";

const backend = useBackend();
let otherBackend: Backend;
beforeAll(async () => {
  otherBackend = await openBackend("wasm", { threads: 1 });
});
afterAll(() => otherBackend.dispose());

/** Expects `body` to throw that error, and the live memory and the bytes of `guards` to be unchanged. */
function expectRefusal(
  body: () => unknown,
  type: new (...args: never[]) => LockstepError,
  guards: readonly Tensor[] = [],
): void {
  const { live, blocks } = backend().memoryUse();
  const bytesBefore = guards.map((guard) => Uint8Array.from(bytesIn(guard)));
  expect(body).toThrow(type);
  expect(backend().memoryUse()).toMatchObject({ live, blocks });
  expect(guards.map(bytesIn)).toEqual(bytesBefore);
}

function bytesIn({ backend: { memory }, address, byteLength: bytes }: Tensor): Uint8Array {
  return memory.readSync(address, bytes);
}

/** Any value as an argument of type T, as plain JavaScript can pass it. */
const untyped = <T>(value: unknown): T => value as T;

const NO_SIZES: readonly unknown[] = [
  Number.NaN,
  -0,
  -1,
  1.5,
  1 / 0,
  -1 / 0,
  2 ** 53,
  2n,
  "2",
  true,
  null,
  undefined,
  [2],
  {},
  Symbol("size"),
];

const sparse: unknown[] = new Array(2 ** 32 - 1);
const NO_SHAPES: readonly unknown[] = [
  null,
  4,
  "22",
  true,
  4n,
  { length: 1, 0: 2 },
  Uint32Array.of(2, 2),
  new Set([2]),
  () => [2],
  sparse,
  new Array(3),
  new Array(65).fill(1),
  ...NO_SIZES.flatMap((size) => [[size], [2, size], [size, 0]]),
];

/** Every function that takes a shape and creates a tensor. */
const ENTRANCES: Readonly<Record<string, (shape: Shape) => { readonly shape: Shape }>> = {
  Tensor: (shape) => new Tensor(backend(), "f32", shape),
  empty: (shape) => empty(backend(), "f32", shape),
  zeros: (shape) => zeros(backend(), "f32", shape),
  tensor: (shape) => tensor(backend(), new Float32Array(32 * 64), shape),
  fromBytes: (shape) => fromBytes(backend(), new Uint8Array(32 * 64), shape, "u8"),
  reshape: (shape) => zeros(backend(), "f32", [32, 64]).reshape(shape),
  view: (shape) => zeros(backend(), "f32", [32, 64]).view(0, shape),
  slice: (shape) => zeros(backend(), "f32", [32, 64]).slice(0, shape),
  makeEmpty: (shape) => new MXFP8Quantizer().makeEmpty(backend(), shape),
  QuantizedTensor: (shape) => {
    const x = new MXFP8Quantizer().quantize(zeros(backend(), "f32", [32, 64]));
    const { spec, dtype, scaleLayout, rowwise } = x;
    return new QuantizedTensor({ spec, shape, dtype, scaleLayout, rowwise, ops: new MXFP8Quantizer() });
  },
};

describe("a shape", () => {
  for (const [name, make] of Object.entries(ENTRANCES)) {
    testInScope(
      `of ${name} is the tensor's own: what the caller does with the array afterwards changes nothing`,
      () => {
        const shape = [32, 64];
        const createdTensor = make(shape);
        shape[0] = 2 ** 20;
        shape.push(7);
        expect(createdTensor.shape).toEqual([32, 64]);
        expect(() => Object.assign(createdTensor.shape, { 0: 8 })).toThrow(TypeError);
        expect(createdTensor.shape).toEqual([32, 64]);
      },
    );

    testInScope(`an invalid ${name} is refused`, () => {
      for (const shape of NO_SHAPES) {
        if (shape === undefined) continue;
        const { live, blocks } = backend().memoryUse();
        using _scope = new Scope();
        expect(() => make(untyped(shape)), typeof shape).toThrow(ShapeError);
        _scope.dispose();
        expect(backend().memoryUse()).toMatchObject({ live, blocks });
      }
    });
  }

  testInScope(
    "and an element type cannot be assigned to a tensor, so neither can disagree with its memory",
    () => {
      const x = zeros(backend(), "u8", [4]);
      for (const change of [
        { shape: [400] },
        { dtype: "f32" },
        { backend: otherBackend },
        { byteLength: 400 },
      ])
        expect(() => Object.assign(x, change)).toThrow(TypeError);
      expect(x).toMatchObject({ shape: [4], dtype: "u8", byteLength: 4 });
    },
  );

  it("given as a frozen array is copied and checked, because its elements may be accessors", () => {
    const shape = Object.freeze([2, 3]);
    using x = empty(backend(), "u8", shape);
    expect(x.shape).toEqual(shape);
    expect(x.shape).not.toBe(shape);
    expect(Object.isFrozen(x.shape)).toBe(true);
    expectRefusal(() => empty(backend(), "u8", Object.freeze([2, -3])), ShapeError);
  });

  testInScope("is read once, so that a size that changes between two reads cannot pass the check", () => {
    let reads = 0;
    const shifty = new Proxy([4, 4], {
      get: (target, key, self) => (key === "0" && reads++ > 0 ? 2 ** 20 : Reflect.get(target, key, self)),
    });
    const x = empty(backend(), "u8", shifty);
    expect(x.shape).toEqual([4, 4]);
  });

  it("is refused if its byte count is not exact, even if another size is zero", () => {
    const size = fc.oneof(
      fc.nat(9),
      fc.nat(2 ** 31),
      fc.maxSafeNat(),
      fc.constantFrom(2 ** 31, 2 ** 32, 2 ** 53 - 1),
    );
    fc.assert(
      fc.property(fc.constantFrom(...DTYPES), fc.array(size, { maxLength: 6 }), (dtype, shape) => {
        const bits = BigInt(8 * byteLength(dtype, [2])) / 2n;
        const extent = shape.reduce((product, size) => product * BigInt(size || 1), bits);
        const exactBytes = shape.reduce((product, size) => product * BigInt(size), bits) / 8n;
        const isOdd = bits < 8n && (shape.at(-1) ?? 1) % 2 !== 0;
        if (isOdd || extent > 8n * BigInt(MAX_BYTES))
          expect(() => byteLength(dtype, shape)).toThrow(ShapeError);
        else expect(BigInt(byteLength(dtype, shape))).toBe(exactBytes);
      }),
      {
        examples: [
          ["f32", [0, 2 ** 53 - 1]],
          ["u8", [0, 2 ** 53 - 1]],
          ["u8", [2 ** 27, 2 ** 26, 0]],
        ],
        numRuns: draws(500),
      },
    );
  });
});

const NO_DTYPES: readonly unknown[] = [
  "",
  "f64",
  "F32",
  "nonsense",
  "toString",
  "__proto__",
  "constructor",
  0,
  Number.NaN,
  null,
  {},
  ["f32"],
  1n,
  Symbol("f32"),
  true,
];

describe("an unknown element type", () => {
  for (const dtype of NO_DTYPES) {
    it(`is refused wherever a tensor is made: ${String(dtype)} (${typeof dtype})`, () => {
      const guard = tensor(backend(), [1, 2]);
      for (const make of [
        () => new Tensor(backend(), untyped<"f32">(dtype), [1]),
        () => empty(backend(), untyped<"f32">(dtype), [1]),
        () => zeros(backend(), untyped<"f32">(dtype), [0]),
        () => fromBytes(backend(), new Uint8Array(4), [1], untyped<"f32">(dtype)),
      ])
        expectRefusal(make, DTypeError, [guard]);
      expectRefusal(() => tensor(backend(), [1], [1], untyped<"f32">(dtype)), DTypeError, [guard]);
      guard.dispose();
    });
  }
});

const ARRAYS = [
  Int8Array,
  Uint8Array,
  Uint8ClampedArray,
  Int16Array,
  Uint16Array,
  Int32Array,
  Uint32Array,
  Float32Array,
  Float64Array,
  BigInt64Array,
  BigUint64Array,
  DataView,
] as const;

describe("values that are written to a tensor", () => {
  for (const dtype of DTYPES) {
    testInScope(
      `of ${dtype} are an array of the type that data() returns, or its bytes; other arrays are refused, not reinterpreted`,
      () => {
        const x = zeros(backend(), dtype, [16]);
        for (const array of ARRAYS) {
          const data: unknown = Reflect.construct(array, [new ArrayBuffer(x.byteLength)]);
          const fits = array.name === arrayOf(dtype);
          if (fits) tensor(backend(), untyped<TensorData>(data), [16], dtype);
          else
            expectRefusal(() => tensor(backend(), untyped<TensorData>(data), [16], dtype), DTypeError, [x]);
          if (fits || array === Uint8Array) x.write(untyped<TensorData>(data));
          else expectRefusal(() => x.write(untyped<TensorData>(data)), DTypeError, [x]);
        }
        expect(x.dataSync().constructor.name).toBe(arrayOf(dtype));
      },
    );

    testInScope(`of ${dtype} whose memory was transferred are refused`, () => {
      const x = zeros(backend(), dtype, [16]);
      for (const data of [x.dataSync(), new Uint8Array(x.byteLength)]) {
        structuredClone(data, { transfer: [data.buffer as ArrayBuffer] });
        expectRefusal(() => x.write(untyped<TensorData>(data)), ArgumentError, [x]);
        if (data.constructor.name !== arrayOf(dtype)) continue;
        for (const shape of [undefined, [0], [16]])
          expectRefusal(() => tensor(backend(), data, shape, dtype), ArgumentError, [x]);
      }
    });
  }

  testInScope("are read with the same bits, for every type and length, from any offset in a buffer", () => {
    fc.assert(
      fc.property(
        fc.constantFrom(...DTYPES),
        fc.uint8Array({ maxLength: 64 }),
        fc.nat(3),
        (dtype, random, skip) => {
          using _scope = new Scope();
          const bytes = random.subarray(0, random.length - (random.length % 4));
          const shiftedBytes = new Uint8Array(bytes.length + skip);
          shiftedBytes.set(bytes, skip);
          const x = fromBytes(backend(), shiftedBytes.subarray(skip), undefined, dtype);
          expect(bytesIn(x)).toEqual(bytes);
          expect(bytesIn(tensor(backend(), x.dataSync(), x.shape, dtype))).toEqual(bytes);
        },
      ),
    );
  });

  it("may be plain numbers only for f32, since converting to another type is encoding", () => {
    using x = tensor(backend(), [1, 2], [2], "f32");
    expect(x.dtype).toBe("f32");
    for (const dtype of DTYPES.filter((dtype) => dtype !== "f32"))
      for (const count of [0, 2, 8])
        expectRefusal(
          () => tensor(backend(), new Array<number>(count).fill(1), [count], dtype),
          ArgumentError,
        );
  });

  it("are refused if they are not an array of numbers: nested, sparse, text, null", () => {
    const nestedShapes = [
      [1, 2],
      [3, 4],
    ];
    for (const data of [
      nestedShapes,
      [Float32Array.of(1)],
      [1, "2"],
      [1, null],
      [undefined],
      new Array(2),
      [1n],
      [true],
      [{}],
    ])
      expectRefusal(() => tensor(backend(), untyped<number[]>(data)), ArgumentError);
    for (const data of ["12", 5, null, undefined, {}, new ArrayBuffer(8), new Set([1]), true, 1n])
      expectRefusal(() => tensor(backend(), untyped<number[]>(data)), DTypeError);
    expect(() => tensor(backend(), untyped<number[]>(nestedShapes))).toThrow("data.flat()");
  });

  testInScope("are refused if their number differs from the tensor's, and leave the tensor unchanged", () => {
    const x = tensor(backend(), [1, 2, 3]);
    for (const length of [0, 2, 4]) expectRefusal(() => x.write(new Float32Array(length)), ShapeError, [x]);
    for (const value of [
      null,
      undefined,
      3,
      "abc",
      [1, 2, 3],
      { byteLength: 12, buffer: new ArrayBuffer(12), byteOffset: 0 },
    ])
      expectRefusal(() => x.write(untyped<TensorData>(value)), DTypeError, [x]);
  });
});

describe("slice, view and paste", () => {
  testInScope("refuse a first element that is not an integer within the tensor", () => {
    const x = tensor(
      backend(),
      Float32Array.from({ length: 256 }, (_, i) => i),
    );
    const oneElement = tensor(backend(), [-1]);
    for (const firstIndex of [
      Number.NaN,
      -1,
      -0,
      0.5,
      1 / 0,
      2 ** 53,
      2 ** 52,
      257,
      "0",
      null,
      undefined,
      1n,
      [0],
      {},
    ]) {
      expectRefusal(() => x.slice(untyped(firstIndex), [1]), ShapeError, [x]);
      expectRefusal(() => x.view(untyped(firstIndex), [1]), ShapeError, [x]);
      expectRefusal(() => x.paste(oneElement, untyped(firstIndex)), ShapeError, [x, oneElement]);
    }
  });

  testInScope("refuse a pasted tensor of another type", () => {
    for (const dtype of DTYPES) {
      const target = zeros(backend(), dtype, [16]);
      for (const type of DTYPES) {
        const source = zeros(backend(), type, [16]);
        if (dtype === type) target.paste(untyped(source), 0);
        else expectRefusal(() => target.paste(untyped(source), 0), DTypeError, [target]);
      }
    }
  });

  testInScope("refuse a pasted tensor of another backend", () => {
    const x = tensor(backend(), [1, 2]);
    using foreign = tensor(otherBackend, [3, 4]);
    expectRefusal(() => x.paste(foreign, 0), ArgumentError, [x]);
    for (const source of [null, undefined, [1, 2], Float32Array.of(1, 2), {}, { dtype: "f32", shape: [2] }])
      expectRefusal(() => x.paste(untyped(source), 0), DTypeError, [x]);
  });

  testInScope("refuse to paste elements over some of themselves", () => {
    fc.assert(
      fc.property(fc.nat(3), fc.nat(3), fc.nat(200), fc.nat(200), (from, to, length, position) => {
        using _scope = new Scope();
        const x = tensor(
          backend(),
          Float32Array.from({ length: 512 }, (_, i) => i),
        );
        const source = x.view(64 * from, [length]);
        const target = x.view(64 * to, [512 - 64 * to]);
        const begin = Math.min(position, target.size - length);
        const start = 64 * to + begin;
        const areSeparate = start + length <= 64 * from || 64 * from + length <= start || length === 0;
        const paste = () => target.paste(source, begin);
        if (!areSeparate) return expectRefusal(paste, ArgumentError, [x]);
        const expected = x.dataSync();
        expected.copyWithin(start, 64 * from, 64 * from + length);
        paste();
        expect(x.dataSync()).toEqual(expected);
      }),
    );
  });

  it("refuse a disposed tensor, even while a view of it lives", () => {
    const x = tensor(backend(), [1, 2, 3, 4]);
    const empties = zeros(backend(), "f32", [0]);
    const views = [x.reshape([2, 2]), empties.reshape([0, 3])];
    for (const disposedTensor of [x, empties]) {
      disposedTensor.dispose();
      for (const use of [
        () => disposedTensor.reshape(disposedTensor.shape),
        () => disposedTensor.view(0, disposedTensor.shape),
        () => disposedTensor.slice(0, [0]),
        () => disposedTensor.clone(),
        () => disposedTensor.paste(views[0] as Tensor<"f32">, 0),
        () => (views[0] as Tensor<"f32">).paste(disposedTensor, 0),
        () => disposedTensor.write(new Float32Array(disposedTensor.size)),
        () => disposedTensor.dataSync(),
      ])
        expectRefusal(use, DisposedError, views);
    }
    expect(views[0]?.dataSync()).toEqual(Float32Array.of(1, 2, 3, 4));
    for (const view of views) view.dispose();
    expect(elementCount(x.shape)).toBe(4);
  });
});

it("a value that is not a backend is refused wherever a tensor is made", () => {
  for (const nonBackend of [undefined, null, "wasm", 5, {}, { memory: {} }, openBackend])
    for (const make of [
      () => new Tensor(untyped(nonBackend), "f32", [1]),
      () => empty(untyped(nonBackend), "f32", [1]),
      () => zeros(untyped(nonBackend), "f32", [1]),
      () => tensor(untyped(nonBackend), [1]),
      () => fromBytes(untyped(nonBackend), new Uint8Array(4), [1], "f32"),
    ])
      expectRefusal(make, ArgumentError);
  const invalidBackend = untyped<Backend>({});
  expect(() => fromBytes(invalidBackend, new Uint8Array(4), [1], "f32")).toThrow(
    /^tensor: backend is a plain object/,
  );
});
