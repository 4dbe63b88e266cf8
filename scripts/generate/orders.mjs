// The table of docs/test-my-kernel.md: intervals of products of any order, compared with tolerances.
import { importSource } from "./source.mjs";

const { roundedTo } = await importSource("src/explain/steps.ts");
const { contains, intervalOf } = await importSource("src/orders/interval.ts");
const { TOLERANCES } = await importSource("src/orders/tolerances.ts");
const { widthsOf } = await importSource("src/orders/widths.ts");

/** The types of operands and results, and the accumulator. */
const KINDS = [
  { operands: "f32", result: "f32", accumulator: "f32" },
  { operands: "bf16", result: "f32", accumulator: "tensor-core" },
  { operands: "bf16", result: "bf16", accumulator: "tensor-core" },
  { operands: "f16", result: "f16", accumulator: "tensor-core" },
];
const DEPTHS = [64, 512, 4096];
const ELEMENTS = 60;

/** Normal numbers from a linear congruence. */
function normals(seed) {
  let state = seed;
  const next = () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return (state + 0.5) / 2 ** 32;
  };
  return () => Math.sqrt(-2 * Math.log(next())) * Math.cos(2 * Math.PI * next());
}

const two = (value) => value.toLocaleString("en-US", { maximumSignificantDigits: 2 });
const percent = (count, of) => `${Math.round((100 * count) / of)} %`;

function row({ operands: operandType, result, accumulator }, depth) {
  const normal = normals(depth);
  const line = () => Float64Array.from({ length: depth }, () => roundedTo(normal(), operandType));
  const operands = { alpha: 1, scaleX: 1, scaleW: 1, beta: 0, addend: 0, dtype: result };
  const elements = Array.from({ length: ELEMENTS }, () => ({
    terms: { x: line(), w: line(), minExponents: operandType === "f16" ? [-14, -14] : [-126, -126] },
    operands,
    actual: 0,
  }));
  const widths = widthsOf(elements, accumulator);
  const [{ rtol, atol }] = TOLERANCES;
  let [outside, beyond] = [0, 0];
  for (const { terms } of elements) {
    const interval = intervalOf(terms, operands, accumulator);
    const last = terms.x[depth - 1] * terms.w[depth - 1];
    const dropped = roundedTo(Math.fround(interval.exact - last), result);
    if (!contains(interval, dropped)) outside++;
    if (Math.abs(dropped - interval.exact) > atol[result] + rtol[result] * Math.abs(interval.exact)) beyond++;
  }
  return [
    `${operandType} into ${result}`,
    String(depth),
    ...widths.map(({ ratio }) => two(ratio)),
    percent(outside, ELEMENTS),
    percent(beyond, ELEMENTS),
  ];
}

/** The header and the rows of the table. */
export function orderWidths() {
  const header = [
    "product",
    "K",
    ...TOLERANCES.map(({ name }) => name),
    "a dropped element is outside the interval",
    `outside ${TOLERANCES[0].name}`,
  ];
  return [header, KINDS.flatMap((kind) => DEPTHS.map((depth) => row(kind, depth)))];
}
