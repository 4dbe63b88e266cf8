/** Counts how often each pair of option values was drawn, to detect combinations that a long run missed. */
import type { Arbitrary } from "fast-check";
import { PlainTensor } from "../../../values/plain.js";

type Options = Readonly<Record<string, string>>;

/**
 * The options of an input: strings and booleans, the types of tensors, and the fields of a spec, without sizes and
 * data.
 */
function collectOptions(input: unknown, prefix = ""): Options {
  const options: Record<string, string> = {};
  for (const [key, value] of Object.entries(input as object)) {
    const name = prefix + key;
    if (typeof value === "string" || typeof value === "boolean") options[name] = String(value);
    else if (value instanceof PlainTensor) options[name] = value.dtype;
    else if (key === "spec" || key === "usage") Object.assign(options, collectOptions(value, `${name}.`));
    else if (key === "a" || key === "b") options[name] = operandKind(value);
    else if (key === "format") options[name] = "any layout";
  }
  return options;
}

/** The kind of a product's operand: plain, scaled or quantized. */
function operandKind(operand: unknown): string {
  return String((operand as { readonly source?: { readonly kind?: string } }).source?.kind);
}

/** Counts the pairs of option values in the inputs that an arbitrary draws. */
export class OptionPairs {
  readonly #counts = new Map<string, number>();

  /** Returns an arbitrary with the same draws, which are counted. */
  countDraws<T>(arbitrary: Arbitrary<T>): Arbitrary<T> {
    return arbitrary.map((input) => {
      this.#count(collectOptions(input));
      return input;
    });
  }

  #count(options: Options): void {
    const entries = Object.entries(options).map(([name, value]) => `${name}=${value}`);
    for (const [i, firstOption] of entries.entries()) {
      for (const secondOption of entries.slice(i + 1)) {
        const pair = `${firstOption} & ${secondOption}`;
        this.#counts.set(pair, (this.#counts.get(pair) ?? 0) + 1);
      }
    }
  }

  get pairs(): number {
    return this.#counts.size;
  }

  /** The pair that was drawn least often; undefined if there are no pairs. */
  get rarest(): { readonly pair: string; readonly count: number } | undefined {
    let rarest: { pair: string; count: number } | undefined;
    for (const [pair, count] of this.#counts) if (!rarest || count < rarest.count) rarest = { pair, count };
    return rarest;
  }
}
