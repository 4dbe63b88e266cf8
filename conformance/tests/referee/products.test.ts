// The models of mm and _scaled_mm give every bit of the products that PyTorch computed on an H200.
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Backend, openBackend, Scope, type Tensor, tensor } from "../../../src/index.js";
import { castTo } from "../../../src/ops/cast/cast.js";
import { type Argument, Call } from "../../../src/referee/call.js";
import { OPERATORS, type OperatorRow } from "../../../src/referee/table.js";
import { toValue, transposeLastDims, type Value } from "../../../src/referee/value.js";
import { cases, checksum, operand, origin } from "../harness/gemm/torch-h200.js";

let backend: Backend;
beforeAll(async () => {
  backend = await openBackend("wasm");
});
afterAll(() => backend.dispose());

function hostValue(make: () => Tensor): Value {
  using _ = new Scope();
  return toValue(make());
}

/** The result of an operator of the table. */
function resultOf(
  schema: string,
  args: readonly Argument[],
  kwargs: Readonly<Record<string, Argument>>,
): Value {
  const { parameters, model } = OPERATORS[schema] as OperatorRow;
  return model(new Call(backend, parameters.split(" "), args, kwargs))[0] as Value;
}

const ONE: Value = { dtype: "F32", shape: [], bytes: new Uint8Array(Float32Array.of(1).buffer) };
const F32 = { dtype: "F32" } as const;

describe(`products of ${origin.version} on an H200`, () => {
  it.each(cases)(
    "$x x $w, $m x $n x $k, split accumulator $splitAccumulator: the same bits",
    (productCase) => {
      const { m, n, k, x, w, seed, splitAccumulator } = productCase;
      const a = hostValue(() => operand(backend, x, seed, [m, k]));
      const b = transposeLastDims(hostValue(() => operand(backend, w, seed + 1, [n, k])));
      const isWide = x === "bf16" || x === "f16";
      const scaledArgs = { scale_a: ONE, scale_b: ONE, out_dtype: F32, use_fast_accum: !splitAccumulator };
      const { bytes } = isWide
        ? resultOf("aten::mm.dtype", [a, b, F32], {})
        : resultOf("aten::_scaled_mm", [a, b], scaledArgs);
      const bits = new Uint32Array(bytes.slice().buffer);
      const firstDigits = Array.from(bits.subarray(0, 512), (value) =>
        value.toString(16).padStart(8, "0"),
      ).join("");
      expect(firstDigits).toBe(productCase.bits);
      expect(checksum(bits)).toBe(productCase.sum);
    },
  );

  it("are of the chip and the version that the rows name", () => {
    for (const name of ["aten::mm", "aten::_scaled_mm"]) {
      const { chip, torch } = OPERATORS[name]?.witness ?? {};
      expect([chip, origin.version.startsWith(`torch ${torch}.`)]).toEqual(["h200", true]);
    }
  });
});

describe("scales of an FP8 product", () => {
  const codes = (rows: number, columns: number): Value => ({
    dtype: "F8_E4M3",
    shape: [rows, columns],
    bytes: new Uint8Array(rows * columns).fill(0x38),
  });
  const scales = (shape: readonly number[], value: (i: number) => number): Value => {
    const count = shape.reduce((product, size) => product * size, 1);
    const values = Float32Array.from({ length: count }, (_, i) => value(i));
    return { dtype: "F32", shape, bytes: new Uint8Array(values.buffer) };
  };
  const product = (scaleA: Value, scaleB: Value): Float32Array => {
    const b = transposeLastDims(codes(128, 256));
    const kwargs = { scale_a: scaleA, scale_b: scaleB, out_dtype: F32 };
    const { bytes } = resultOf("aten::_scaled_mm", [codes(16, 256), b], kwargs);
    return new Float32Array(bytes.slice().buffer);
  };

  it("of rows belong to the rows of the first operand and the columns of the second", () => {
    const out = product(
      scales([16, 1], (i) => 2 ** i),
      scales([1, 128], (i) => i + 1),
    );
    expect([out[0], out[1], out[128], out[5 * 128 + 7]]).toEqual([256, 512, 512, 256 * 32 * 8]);
  });

  it("of blocks belong to 128 elements along K", () => {
    const out = product(
      scales([16, 2], (i) => (i % 2 === 0 ? 1 : 3)),
      scales([2, 1], (i) => (i === 0 ? 5 : 7)),
    );
    expect(new Set(out)).toEqual(new Set([128 * 5 + 128 * 3 * 7]));
  });

  it("of a row with scales of a block have no model", () => {
    expect(() =>
      product(
        scales([16, 1], () => 1),
        scales([2, 1], () => 1),
      ),
    ).toThrow(/scales \[16,1\] with \[2,1\]/);
  });
});

describe("an addend of addmm", () => {
  const tensorOf = (dtype: "f32" | "bf16" | "f16", shape: readonly number[], value: (i: number) => number) =>
    hostValue(() => {
      const count = shape.reduce((product, size) => product * size, 1);
      const values = Float32Array.from({ length: count }, (_, i) => value(i));
      return castTo(tensor(backend, values, shape), dtype);
    });
  const ADDENDS = [1, -3, Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY] as const;

  // a vector times a matrix whose rows are not aligned runs on CUDA cores in each dtype
  const CASES = (["f32", "bf16", "f16"] as const).flatMap((dtype) =>
    [[4, 8] as const, [1, 9] as const].flatMap(([rows, columns]) =>
      [[columns], [rows, columns], [1, columns], [rows, 1]].flatMap((shape) =>
        [1, -2].map((alpha) => [dtype, rows, columns, shape, alpha] as const),
      ),
    ),
  );
  it.each(CASES)(
    "in %s, [%i, %i], of the shape [%s], is ignored with beta 0 and alpha %d",
    (dtype, rows, columns, shape, alpha) => {
      const [a, b] = [[rows, 16] as const, [16, columns] as const].map((size, salt) =>
        tensorOf(dtype, size, (i) => Math.sin(i * (salt + 0.7))),
      ) as [Value, Value];
      const addmm = (value: (i: number) => number, beta: number): Value =>
        resultOf("aten::addmm", [tensorOf(dtype, shape, value), a, b], { beta, alpha });
      const product = addmm(() => 0, 1);
      for (const beta of [0, -0, 1e-60])
        for (const addend of ADDENDS) expect(addmm((i) => (i % 3 === 0 ? addend : 1), beta)).toEqual(product);
      expect(addmm(() => 1, 0.5)).not.toEqual(product);
    },
  );
});
