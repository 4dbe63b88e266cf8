/** Prints inputs: tensors by their uncommon elements, and the other fields. */
import { numberText } from "../../src/explain/text.js";
import { valueAt } from "../../src/options.js";
import type { QuantizeSpec } from "../../src/tensor/quantized.js";
import { elementCount, type Shape } from "../../src/tensor/shape.js";
import { makeSpec } from "../../src/tensor/spec.js";
import { QUANTIZERS } from "../arbitraries/specs.js";
import { PlainTensor } from "../values/plain.js";
import { elementValue } from "./suspects/inputs.js";

/** The maximum number of elements shown. */
const SHOWN = 8;

/**
 * Prints the fields of an input that differ from the usual ones, tensors last: `{"spec":{"quantizer":"mxfp8"}}; x = f32 [1, 32],
 * 0 but [0, 3] = 1`. Of a spec it prints the quantizer and the settings that are not defaults.
 */
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
  const fields = JSON.stringify(plain(withoutUsual(input), ""));
  return [...(fields === "{}" ? [] : [fields]), ...tensors].join("; ");
}

/** Fields of inputs with their usual values. */
const USUAL: Readonly<Record<string, unknown>> = {
  usage: { rowwise: true, columnwise: false },
  scaleLayout: "logical",
  random: { seed: 0n, offset: 0n },
  scale: 1,
  records: true,
  noop: undefined,
};

/** A copy without the fields that have usual values, and without an unused seed. */
function withoutUsual(input: object): object {
  const usual = "spec" in input ? USUAL : {};
  const isSeeded = valueAt(input, "spec.stochastic") !== false;
  return Object.fromEntries(
    Object.entries(input).flatMap(([name, value]) => {
      if (name in usual && isSame(value, usual[name])) return [];
      if (name === "random" && !isSeeded) return [];
      return [[name, isSpec(value) ? changedSettings(value) : value]];
    }),
  );
}

function isSame(a: unknown, b: unknown): boolean {
  const isObject = (x: unknown): x is object => typeof x === "object" && x !== null;
  if (!isObject(a) || !isObject(b)) return Object.is(a, b);
  const names = Object.keys({ ...a, ...b });
  return names.every((name) => isSame(valueAt(a, name), valueAt(b, name)));
}

function isSpec(value: unknown): value is QuantizeSpec {
  return QUANTIZERS.some((name) => name === valueAt(value, "quantizer"));
}

/** The quantizer of a spec, and its settings that are not the quantizer's defaults. */
function changedSettings(spec: QuantizeSpec): object {
  const defaults = makeSpec(spec.quantizer, {});
  const changed = Object.entries(spec).filter(([name, value]) => !isSame(value, valueAt(defaults, name)));
  return { quantizer: spec.quantizer, ...Object.fromEntries(changed) };
}

/** Prints type, shape, and the elements that differ from the most common one. */
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
