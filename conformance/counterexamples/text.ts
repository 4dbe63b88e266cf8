/** Inputs as text: tensors by the elements that are not zero, and the other fields. */
import { numberText } from "../../src/explain/text.js";
import { elementCount, type Shape } from "../../src/tensor/shape.js";
import { PlainTensor } from "../values/plain.js";
import { elementValue } from "./suspects/inputs.js";

/** How many elements are shown. */
const SHOWN = 8;

/** The fields of an input, tensors last: `x = f32 [1, 32], 0 but [0, 3] = 1`. */
export function inputText(input: object): string {
  const tensors: string[] = [];
  const plain = (value: unknown, path: string): unknown => {
    if (value instanceof PlainTensor) {
      tensors.push(`${path} = ${tensorText(value)}`);
      return undefined;
    }
    if (typeof value === "bigint") return Number(value);
    if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
    return Object.fromEntries(
      Object.entries(value).map(([name, each]) => [
        name,
        plain(each, path === "" ? name : `${path}.${name}`),
      ]),
    );
  };
  const fields = JSON.stringify(plain(input, ""));
  return [fields, ...tensors].join("; ");
}

/** The type, the shape, and the elements that are not the usual one. */
function tensorText(x: PlainTensor): string {
  const { dtype, shape, codes } = x;
  const type = `${dtype} [${shape.join(", ")}]`;
  const text = (code: number) => numberText(elementValue(dtype, code));
  if (codes.length === 0) return type;
  const usual = mostCommon(codes);
  const others = Array.from(codes.keys()).filter((i) => codes[i] !== usual);
  if (others.length === 0) return `${type}, all ${text(usual)}`;
  const shown = others.slice(0, SHOWN).map((i) => `[${placeOf(i, shape)}] = ${text(codes[i] as number)}`);
  const more = others.length > SHOWN ? ` and ${others.length - SHOWN} more` : "";
  return `${type}, ${others.length === codes.length ? "" : `${text(usual)} but `}${shown.join(", ")}${more}`;
}

function mostCommon(codes: Iterable<number>): number {
  const counts = new Map<number, number>();
  for (const code of codes) counts.set(code, (counts.get(code) ?? 0) + 1);
  return [...counts].reduce((best, each) => (each[1] > best[1] ? each : best))[0];
}

function placeOf(index: number, shape: Shape): string {
  return shape.map((size, axis) => Math.floor(index / elementCount(shape.slice(axis + 1))) % size).join(", ");
}
