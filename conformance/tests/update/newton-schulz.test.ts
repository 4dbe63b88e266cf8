/** The Newton–Schulz iteration is bitwise equal to its definition, and gives a nearly orthogonal matrix. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ArgumentError, DTypeError, ShapeError } from "../../../src/errors.js";
import { tensor, zeros } from "../../../src/ops/create.js";
import { gemm } from "../../../src/ops/gemm/gemm.js";
import { transpose } from "../../../src/ops/layout/layout.js";
import { type NewtonSchulzOptions, newtonSchulz } from "../../../src/ops/update/newton-schulz.js";
import { Scope } from "../../../src/tensor/scope.js";
import type { WideDType } from "../../../src/tensor/shape.js";
import { wideTensor, wideType } from "../../arbitraries/wide.js";
import type { Matrix } from "../../oracle/training/matrix.js";
import * as oracle from "../../oracle/training/newton-schulz.js";
import { assertSame } from "../../values/difference.js";
import { download, type PlainTensor, upload, wideValues } from "../../values/plain.js";
import { rounded } from "../../values/rounded.js";
import { numberBetween } from "../arbitraries/share.js";
import { drawnTensor } from "../harness/drawn-tensor.js";
import { draws } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });

const size = fc.integer({ min: 1, max: 20 });
const shapes = fc.oneof(
  fc.tuple(size, size),
  size.map((n) => [n, n] as const),
  size.map((n) => [1, n] as const),
  size.map((n) => [n, 1] as const),
  fc.constantFrom([0, 3] as const, [3, 0] as const, [0, 0] as const, [7, 70] as const, [70, 7] as const),
);
const number = fc.oneof(numberBetween(-8, 8), fc.float({ noNaN: true, min: -8, max: 8 }));
const schedules = fc.oneof(
  fc.record({ set: fc.constantFrom(...oracle.SET_NAMES), steps: fc.integer({ min: 1, max: 10 }) }),
  fc.array(fc.tuple(number, number, number), { minLength: 1, maxLength: 3 }).map((rows) => ({ rows })),
);
/** Ordinary magnitudes, or all bits with infinities, NaN and elements whose squares overflow. */
const inputs = fc.tuple(shapes, fc.boolean(), fc.nat()).chain(([shape, isOrdinary, seed]) =>
  isOrdinary
    ? wideType().map((dtype) => {
        using _ = new Scope();
        return download(drawnTensor(backend(), seed, shape, dtype)) as PlainTensor<WideDType>;
      })
    : wideTensor([...shape], { edges: [0, 2 ** -70, 2 ** 64, 1] }),
);

const matrixOf = (x: PlainTensor<WideDType>): Matrix => ({
  data: Float32Array.from(wideValues(x)),
  shape: x.shape as [number, number],
  dtype: x.dtype,
});

describe("newtonSchulz", () => {
  it("has the bits of the definition, for every shape, type, set of coefficients and datapath", () => {
    const property = fc.property(
      inputs,
      schedules,
      fc.option(wideType(), { nil: undefined }),
      fc.constantFrom("hopper" as const, "blackwell" as const, "fp32" as const, "exact" as const, undefined),
      fc.option(fc.constantFrom(0, 1e-7, 0.1), { nil: undefined }),
      (x, schedule, outDtype, datapath, eps) => {
        using _ = new Scope();
        const given: NewtonSchulzOptions =
          "set" in schedule
            ? { coefficients: schedule.set, steps: schedule.steps }
            : { coefficients: schedule.rows };
        const rows =
          "set" in schedule ? oracle.stepCoefficients(schedule.set, schedule.steps) : schedule.rows;
        const before = backend().memoryUse().live;
        const source = upload(backend(), x);
        const bytes = backend().memoryUse().live - before;
        const result = newtonSchulz(source, { ...given, dtype: outDtype, datapath, eps });
        const dtype = outDtype ?? x.dtype;
        const expected = oracle.newtonSchulz(matrixOf(x), {
          ...{ coefficients: rows, eps: eps ?? 1e-7, dtype, datapath: datapath ?? "hopper" },
        });
        assertSame("result", download(result), rounded(dtype, x.shape, Array.from(expected.data)));
        assertSame("x", download(source), x);
        result.dispose();
        expect(backend().memoryUse().live - before).toBe(bytes);
      },
    );
    fc.assert(property, { numRuns: draws(60) });
  });

  it("has five steps of the quintic set by default", () => {
    using _ = new Scope();
    const x = drawnTensor(backend(), 3, [5, 9], "bf16");
    const expected = newtonSchulz(x, { coefficients: oracle.stepCoefficients("quintic", 5) });
    assertSame("result", download(newtonSchulz(x)), download(expected));
  });

  it("gives rows of length near 1, orthogonal to each other, with every set", () => {
    using _ = new Scope();
    for (const shape of [
      [12, 30],
      [30, 12],
    ] as const) {
      for (const set of oracle.SET_NAMES) {
        const y = newtonSchulz(drawnTensor(backend(), 7, shape, "f32"), { coefficients: set, steps: 8 });
        const rows = shape[0] > shape[1] ? transpose(y) : y;
        const gram = gemm({ x: rows, w: rows, datapath: "fp32" }).out.dataSync() as Float32Array;
        for (const [i, value] of gram.entries()) {
          const isDiagonal = Math.floor(i / 12) === i % 12;
          expect(Math.abs(Number(value) - (isDiagonal ? 1 : 0)), `${set} ${shape} ${i}`).toBeLessThan(0.6);
        }
      }
    }
  });

  it("refuses a tensor that is no matrix, unknown coefficients, and a schedule of another length", () => {
    using _ = new Scope();
    const x = zeros(backend(), "f32", [2, 3]);
    for (const shape of [[], [3], [2, 3, 4]])
      expect(() => newtonSchulz(zeros(backend(), "f32", shape))).toThrow(ShapeError);
    expect(() => newtonSchulz(zeros(backend(), "i32", [2, 3]))).toThrow(DTypeError);
    const row = [1, 2, 3] as const;
    const faults: readonly object[] = [
      ...[{ coefficients: [row], steps: 2 }, { coefficients: [] }, { coefficients: [[1, 2]] }],
      ...[{ coefficients: "cubic" }, { coefficients: [[1, 2, Number.NaN]] }, { steps: 101 }, { eps: -1 }],
    ];
    for (const fault of faults)
      expect(() => newtonSchulz(x, fault as NewtonSchulzOptions), JSON.stringify(fault)).toThrow(
        ArgumentError,
      );
  });

  it("divides by the norm plus eps, 1e-7 by default", () => {
    using _ = new Scope();
    const eps = Math.fround(1e-7);
    const small = newtonSchulz(tensor(backend(), [eps], [1, 1]), { coefficients: [[1, 0, 0]] });
    expect([...small.dataSync()]).toEqual([0.5]);
    const identity = { coefficients: [[1, 0, 0]], eps: 1 } as const;
    const y = newtonSchulz(tensor(backend(), [3, 4], [1, 2]), identity);
    expect([...y.dataSync()]).toEqual([0.5, Math.fround(4 / 6)]);
  });
});
