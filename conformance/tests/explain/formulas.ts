/** Evaluates the formulas of explanations from the values of their names, so that a formula and its value can be compared. */
import { SCALAR_FORMATS, type ScalarFormat } from "../../../src/formats/scalar.js";
import { bf16, bitsOf, f16, fma, fromBits, ofNumber } from "../../oracle/core/rational.js";
import { decode, encode } from "../../oracle/core/scalar.js";

/** The values of the names in formulas. */
export type Names = ReadonlyMap<string, number>;

const EPSILONS: Readonly<Record<string, number>> = { f32: 2 ** -23, bf16: 2 ** -7, f16: 2 ** -10 };

const round = Math.fround;
const modulo = (a: number, b: number): number => ((a % b) + b) % b;

/** Rounds a nonnegative number to a format and returns the code or the value. */
function toFormat(x: number, format: ScalarFormat, rounding: "tiesToEven" | "tiesToAway"): number {
  return encode(bitsOf(x), SCALAR_FORMATS[format], rounding, "saturate", 0);
}

const decodeCode = (code: number, format: ScalarFormat): number => decode(code, SCALAR_FORMATS[format]);

/** Rounds a number to a tensor type. */
export function roundTo(x: number, dtype: string): number {
  if (dtype === "f32" || x === 0 || !Number.isFinite(x)) return round(x);
  return dtype === "bf16" ? bf16(ofNumber(x)) : f16(ofNumber(x));
}

/** Rounds a positive number to some bits after its leading 1, ties up. */
function toBits(x: number, bits: number): number {
  if (!(x > 0 && x < Infinity)) return x;
  const unit = 2 ** (Math.floor(Math.log2(x)) - bits);
  return Math.floor(x / unit + 0.5) * unit;
}

type Get = (name: string) => number;

/** Formulas that are words. */
const WORDS: readonly (readonly [RegExp, (get: Get, matchedText: string) => number])[] = [
  [/^m without its mantissa: a power of two$/, (get) => fromBits(bitsOf(get("m")) & 0x7f800000)],
  [/^the epsilon of (\w+), since s is 0$/, (_, dtype) => EPSILONS[dtype] as number],
  [/^the e4m3 value of the code$/, (get) => decodeCode(get("code"), "e4m3")],
  [
    /^e4m3\(raw\), half up; 126 from 120 on$/,
    (get) => {
      const code = toFormat(get("raw"), "e4m3", "tiesToAway");
      return code >= 120 ? 126 : code;
    },
  ],
  [/^e8m0 of p, rounded up$/, (get) => Math.min(Math.max(127 + Math.ceil(Math.log2(get("p"))), 0), 254)],
  [/^amax, rounded up to a power of two$/, (get) => 2 ** Math.ceil(Math.log2(get("amax")))],
  [
    /^the least power of two from s, from 2\^-126 to 2\^127$/,
    (get) => 2 ** Math.min(Math.max(Math.ceil(Math.log2(get("s"))), -126), 127),
  ],
  [/^the largest finite value, since/, (get) => get("largest")],
  [/^the scale that was given$/, (get) => get("given")],
  [/^amaxEpsilon, since amax is smaller$/, (get) => get("epsilon")],
  [
    /^amaxEpsilon, rounded to (bf16|f16), since amax is smaller$/,
    (get, dtype) => roundTo(get("epsilon"), dtype),
  ],
  [/^amax, at most the limit$/, (get) => get("limit")],
  [/^at most 2\^126$/, (get) => Math.min(get("m"), 2 ** 126)],
  [/^x, at most 1\.5 \* 2\^127 in magnitude$/, (get) => Math.sign(get("x")) * 1.5 * 2 ** 127],
  [/^infinity, since SF is 0$/, () => Infinity],
];

/** Clauses that may follow a formula after a comma. */
const CLAUSES: readonly (readonly [RegExp, (value: number, ...bounds: readonly number[]) => number])[] = [
  [/^since .*$|^which .*$|^to nearest even$|^saturating$|^ties up$/, (value) => value],
  [/^(?:at most|up to) (.+)$/, Math.min],
  [/^at least (.+)$/, Math.max],
  [/^from (.+) to (.+)$/, (value, min = 0, max = 0) => Math.min(Math.max(value, min), max)],
  [/^from (.+)$/, Math.max],
  [/^modulo (.+)$/, (value, divisor = 1) => modulo(value, divisor)],
];

/** The value of a formula; undefined for a formula in words that is not listed above. */
export function evaluate(formula: string, names: Names): number | undefined {
  const get: Get = (name) => {
    const value = names.get(name);
    if (value === undefined) throw new Error(`the formula "${formula}" has no name ${name}`);
    return value;
  };
  for (const [wordPattern, compute] of WORDS) {
    const matchedWords = wordPattern.exec(formula);
    if (matchedWords) return compute(get, matchedWords[1] ?? "");
  }
  const [head = "", ...clauses] = splitClauses(
    formula.replace(/: the rule has .*$/, "").replace("half of the range", "half"),
  );
  if (!/^[-\d.\w⊗⊘⊕⊖+*/^(), ]+$/.test(head) || /^(sum|the) /.test(head)) return undefined;
  let value = new Expression(head, get).value();
  for (const clause of clauses) {
    const [, dtype] = /^rounded to (f32|bf16|f16)$/.exec(clause) ?? [];
    const [, bits] = /^rounded to (\d+) mantissa bits$/.exec(clause) ?? [];
    if (dtype) value = roundTo(value, dtype);
    else if (bits) value = toBits(value, Number(bits));
    else {
      const [pattern, apply] = CLAUSES.find(([clausePattern]) => clausePattern.test(clause)) ?? [];
      if (!pattern || !apply) return undefined;
      const bounds = (pattern.exec(clause) ?? []).slice(1).filter((group) => group !== undefined);
      value = apply(value, ...bounds.map((bound) => new Expression(bound, get).value()));
    }
  }
  return value;
}

/** Splits a formula at its commas outside parentheses. */
function splitClauses(formula: string): string[] {
  const names = [""];
  let depth = 0;
  for (const character of formula) {
    if (character === "(") depth++;
    if (character === ")") depth--;
    if (character === "," && depth === 0) names.push("");
    else names.push(`${names.pop()}${character}`);
  }
  return names.map((name) => name.trim());
}

const BINARY: readonly Readonly<Record<string, (a: number, b: number) => number>>[] = [
  {
    "⊕": (a, b) => round(a + b),
    "⊖": (a, b) => round(a - b),
    "+": (a, b) => a + b,
    "-": (a, b) => a - b,
  },
  {
    "⊗": (a, b) => round(a * b),
    "⊘": (a, b) => round(a / b),
    "*": (a, b) => a * b,
    "/": (a, b) => a / b,
  },
];

const FUNCTIONS: Readonly<Record<string, (...values: readonly number[]) => number>> = {
  fl: (x = 0) => round(x),
  floor: (x = 0) => Math.floor(x),
  ceil: (x = 0) => Math.ceil(x),
  max: Math.max,
  fma: (a = 0, b = 0, c = 0) => fma(a, b, c),
  e4m3: (x = 0) => decodeCode(toFormat(x, "e4m3", "tiesToEven"), "e4m3"),
  ue5m3: (x = 0) => decodeCode(toFormat(x, "ue5m3", "tiesToEven"), "ue5m3"),
};

/** An expression of numbers, names, functions and operators. */
class Expression {
  readonly #tokens: string[];

  constructor(
    text: string,
    private readonly get: Get,
  ) {
    this.#tokens = text.match(/\d+(?:\.\d+)?|[A-Za-z]\w*|[^\s]/g) ?? [];
  }

  value(): number {
    const value = this.#level(0);
    if (this.#tokens.length > 0) throw new Error(`cannot compute from "${this.#tokens.join(" ")}" on`);
    return value;
  }

  #level(level: number): number {
    const operators = BINARY[level];
    if (!operators) return this.#power();
    let value = this.#level(level + 1);
    for (let apply = operators[this.#tokens[0] ?? ""]; apply; apply = operators[this.#tokens[0] ?? ""]) {
      this.#tokens.shift();
      value = apply(value, this.#level(level + 1));
    }
    return value;
  }

  #power(): number {
    if (this.#takes("-")) return -this.#power();
    const base = this.#atom();
    return this.#takes("^") ? base ** this.#power() : base;
  }

  #atom(): number {
    const token = this.#tokens.shift() ?? "";
    if (/^\d/.test(token)) return Number(token);
    if (token === "(") return this.#closed();
    if (token === "log2") return Math.log2(this.#atom());
    const call = FUNCTIONS[token];
    if (!call || this.#tokens[0] !== "(") return this.get(token);
    const values: number[] = [];
    this.#tokens.shift();
    do values.push(this.#level(0));
    while (this.#takes(","));
    this.#tokens.shift();
    return call(...values);
  }

  #closed(): number {
    const value = this.#level(0);
    this.#tokens.shift();
    return value;
  }

  #takes(token: string): boolean {
    if (this.#tokens[0] !== token) return false;
    this.#tokens.shift();
    return true;
  }
}
