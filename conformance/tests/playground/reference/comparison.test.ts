/** The page's counts for a quantization follow from the library's values, for every dialect. */
import * as fc from "fast-check";
import {
  dequantizeAs,
  encode,
  quantizerOf,
  SCALAR_FORMATS,
  type ScalarLayout,
  Scope,
  type Tensor,
  tensor,
} from "lockstep";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import {
  CHOICES,
  compare,
  costOf,
  type Matrix,
  openReference,
  quantize,
} from "../../../../playground/src/reference/index.js";
import { words } from "../../../arbitraries/random.js";
import { decode, maxCode } from "../../../oracle/core/scalar.js";
import { draws } from "../../harness/draws.js";

type Backend = Awaited<ReturnType<typeof openReference>>;

let backend: Backend;
beforeAll(async () => {
  backend = await openReference();
});
afterAll(() => backend.dispose());

const COLUMNS = 128;

/** Large numbers next to small ones that vanish, zeros of both signs, subnormal numbers, infinities and NaN. */
function mixedValues(seed: number, rows: number, dtype: Matrix["dtype"]): Matrix {
  const rare = [
    0,
    -0,
    2 ** -149,
    -(2 ** -127),
    3e38,
    Number.POSITIVE_INFINITY,
    Number.NEGATIVE_INFINITY,
    Number.NaN,
  ];
  const values = Float32Array.from(words(seed, rows * COLUMNS), (bits) => {
    if (bits % 37 === 0 && seed % 3 === 0) return rare[(bits >>> 8) % rare.length] as number;
    const exponent = ((bits >>> 4) % 30) - 26;
    return (bits & 1 ? -1 : 1) * (1 + ((bits >>> 12) % 8) / 8) * 2 ** exponent;
  });
  return { rows, columns: COLUMNS, values, dtype };
}

/** The values of a matrix in its type, and the values of its quantization, computed by the library only. */
function byLibrary({ rows, columns, values, dtype }: Matrix, choice: (typeof CHOICES)[number]) {
  const scope = new Scope();
  try {
    const x = tensor(backend, values, [rows, columns]);
    const { dialect, quantizer, format, tile } = choice;
    const source =
      dtype === "f32" ? x : (encode(x, { format: dtype, overflow: "nonfinite" }) as Tensor<"bf16" | "f16">);
    const quantizedTensor = quantizerOf({ dialect, quantizer, format, tile }).quantize(source);
    const layout: ScalarLayout | undefined = dtype === "f32" ? undefined : SCALAR_FORMATS[dtype];
    const inputs = Array.from(source.dataSync() as ArrayLike<number>, (value) =>
      layout ? decode(value, layout) : value,
    );
    return {
      inputs,
      outputs: [...(dequantizeAs(quantizedTensor, { dialect, dtype: "f32" }).dataSync() as Float32Array)],
    };
  } finally {
    scope.dispose();
  }
}

const parameters = [fc.nat(), fc.constantFrom(1, 16, 128), fc.constantFrom("f32", "bf16", "f16")] as const;
const byTensor = (a: (typeof CHOICES)[number]) => `${a.dialect} ${a.quantizer} ${a.format} ${a.tile}`;

describe("the page counts", () => {
  it.each(CHOICES.map((choice) => [byTensor(choice), choice] as const))(
    "%s: counts of elements that became zero, and errors, are the library's",
    (_name, choice) => {
      fc.assert(
        fc.property(...parameters, (seed, rows, dtype) => {
          const matrix = mixedValues(seed, rows, dtype);
          const { inputs, outputs } = byLibrary(matrix, choice);
          const quantization = quantize(backend, matrix, choice);
          const cost = costOf(quantization);
          const finite = inputs.flatMap((input, i) =>
            Number.isFinite(input) ? [[input, outputs[i] as number] as const] : [],
          );
          expect(cost.vanished).toBe(finite.filter(([input, output]) => input !== 0 && output === 0).length);
          const errors = finite.map(([input, output]) => Math.abs(output - input));
          expect(cost.largestError).toBe(errors.reduce((a, b) => Math.max(a, b), 0));
          const layout: ScalarLayout = SCALAR_FORMATS[choice.format];
          const largest = decode(maxCode(layout), layout);
          const codes = inputs.map(
            (input, i) => [input, decode(quantization.codes[i] as number, layout)] as const,
          );
          expect(cost.largest).toBe(
            codes.filter(([input, element]) => Number.isFinite(input) && Math.abs(element) === largest)
              .length,
          );
        }),
        { numRuns: draws(3, 1) },
      );
    },
  );

  it("where two quantizations have other values, and where only other codes", () => {
    const choices = fc.constantFrom(...CHOICES);
    fc.assert(
      fc.property(...parameters, choices, choices, (seed, rows, dtype, firstChoice, secondChoice) => {
        const matrix = mixedValues(seed, rows, dtype);
        const [a, b] = [byLibrary(matrix, firstChoice).outputs, byLibrary(matrix, secondChoice).outputs];
        const pair = compare(quantize(backend, matrix, firstChoice), quantize(backend, matrix, secondChoice));
        const different = a.flatMap((value, i) => (Object.is(value, b[i]) ? [] : [i]));
        expect(pair.different).toEqual(different);
        const isOther = (i: number) => pair.a.codes[i] !== pair.b.codes[i];
        const sameIndices = [...a.keys()].filter((i) => Object.is(a[i], b[i]));
        expect(pair.recoded).toBe(
          firstChoice.format === secondChoice.format ? sameIndices.filter(isOther).length : 0,
        );
      }),
      { numRuns: draws(30) },
    );
  });
});
