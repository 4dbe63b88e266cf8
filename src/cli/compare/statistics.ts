/** Statistics of tensors in two files, and explanations of the first elements that differ. */
import { formOf } from "../../dialects/quantizer-of.js";
import { DIALECTS, type Dialect, type DialectName } from "../../dialects/table.js";
import type { DialectValues } from "../../explain/dequantized.js";
import { numberText } from "../../explain/text.js";
import { hasPowersOnly, isScalarFormat } from "../../formats/derive.js";
import { unpackCodes } from "../../io/codes.js";
import { compareType } from "../../io/dtypes.js";
import type { TensorEntry } from "../../io/header/header.js";
import { allMembers, recipesOf } from "../../io/quantized/quantized-file.js";
import type { Recipe } from "../../io/quantized/recipe.js";
import type { TensorSource } from "../../io/source.js";
import type { Direction } from "../../tensor/quantized.js";
import { storageBits } from "../../tensor/shape.js";
import { Comparison, type Difference } from "../../tensor/statistics/comparison.js";
import type { ElementType } from "../../tensor/statistics/elements.js";
import type { Cause, ErrorStatistics } from "../../tensor/statistics/statistics.js";
import type { Inputs } from "./inputs.js";
import { QuantizedFollower, type QuantizedPair, readPair } from "./quantized-pair.js";
import { recipeDifferences } from "./recipes.js";
import { coordinateOf, type Follower } from "./tensor-diff.js";

/** An element that differs, in the form of the report. */
export interface Example {
  /** The coordinate among the stored codes. */
  readonly coordinate: readonly number[];
  readonly cause: Cause;
  readonly a: number | string;
  readonly b: number | string;
  /** Explains how the reference quantizes the input element. Absent if the input is unknown. */
  readonly explanation?: string;
}

/** The statistics of a compared tensor. */
export interface TensorStatistics {
  /** The type of the compared elements. */
  readonly elementType: ElementType;
  /** Whether the errors are of dequantized values. */
  readonly scaled: boolean;
  readonly statistics: ErrorStatistics;
  readonly examples: readonly Example[];
}

/** A member of a quantized tensor, such as its codes or scales. The file's metadata determine it. */
interface Part {
  readonly name: string;
  readonly recipe: Recipe;
  readonly direction: Direction;
  readonly field: "data" | "scaleInv" | "amax";
}

/** Collects the statistics of tensors that both files have. */
export class FileStatistics {
  readonly #parts = new Map<string, Part>();
  /** Quantized tensors whose metadata differs: their codes are compared as stored. */
  readonly #unlike: ReadonlySet<string>;

  constructor(
    private readonly a: TensorSource,
    private readonly b: TensorSource,
    private readonly inputs: Inputs | undefined,
    private readonly examples: number,
    private readonly dialect?: DialectName,
  ) {
    this.#unlike = new Set(recipeDifferences(a, b, "").map(({ name }) => name));
    const [ofA, ofB] = [recipesOf(a), recipesOf(b)];
    for (const [name, recipe] of new Map([...ofB, ...ofA])) {
      for (const { field, direction, plan } of allMembers(name, recipe))
        this.#parts.set(plan.name, { name, recipe, direction, field });
    }
  }

  /** Starts the statistics of a tensor of one dtype and shape in both files. */
  async begin(entry: TensorEntry): Promise<Follower & { result(): TensorStatistics }> {
    const part = this.#parts.get(entry.name);
    if (part?.field === "data" && !this.#unlike.has(part.name)) {
      const { name, recipe, direction } = part;
      const pair = await readPair(this.a, this.b, name, recipe, direction, this.#valuesOf(recipe));
      if (pair) return this.#scaled(pair);
    }
    return new PlainFollower(entry, typeOf(entry, part), this.examples);
  }

  /** Returns the dequantization of the dialect. Throws `ArgumentError` if the dialect lacks the quantizer. */
  #valuesOf({ spec }: Recipe): DialectValues | undefined {
    if (this.dialect === undefined) return undefined;
    formOf(this.dialect, spec.quantizer);
    const { values }: Dialect = DIALECTS[this.dialect];
    return values;
  }

  async #scaled(pair: QuantizedPair): Promise<Follower & { result(): TensorStatistics }> {
    const suspicions = await this.inputs?.suspicionsOf(pair);
    const { geometry } = pair;
    const columns = geometry.dataShape[1] as number;
    const sourceOf = (index: number): readonly [row: number, column: number] => {
      const [r, c] = [Math.floor(index / columns), index % columns];
      return geometry.data === "transposed" ? [c, r] : [r, c];
    };
    const follower = new QuantizedFollower(pair, {
      examples: this.examples,
      ...(suspicions ? { isTie: (index, a, b) => suspicions.isTie(...sourceOf(index), a, b) } : {}),
    });
    const explainExample = (example: Difference): Example => {
      const { index } = example;
      const codeExample = exampleOf(example, geometry.dataShape);
      if (!suspicions) return codeExample;
      const scaleIndex = follower.scaleIndexOf(index);
      const elementOf = (code: bigint, scales: QuantizedPair["a"]) => ({
        code: Number(code),
        scale: scales.bits[scaleIndex] as number,
      });
      const text = suspicions.describe(
        ...sourceOf(index),
        elementOf(example.a, pair.a),
        elementOf(example.b, pair.b),
      );
      return { ...codeExample, explanation: text };
    };
    return {
      chunk: (a, b, offset) => follower.chunk(a, b, offset),
      result: () => ({
        elementType: pair.recipe.spec.format,
        scaled: true,
        statistics: follower.comparison.result(),
        examples: follower.comparison.examples.map(explainExample),
      }),
    };
  }
}

/** The type of the elements. The metadata determine the type of codes and scales in U8. */
function typeOf({ dtype, name }: TensorEntry, part: Part | undefined): ElementType {
  if (!part || dtype !== "U8") return compareType(dtype);
  const member = allMembers(part.name, part.recipe).find(({ plan }) => plan.name === name);
  return member && storageBits(member.dtype) >= 8 ? (member.dtype as ElementType) : "u8";
}

/** Compares the elements of a plain tensor. */
class PlainFollower implements Follower {
  readonly #comparison: Comparison;

  constructor(
    private readonly entry: TensorEntry,
    private readonly type: ElementType,
    examples: number,
  ) {
    this.#comparison = new Comparison(type, { examples });
  }

  chunk(a: Uint8Array, b: Uint8Array): void {
    const { dtype } = this.entry;
    this.#comparison.add(unpackCodes(dtype, a), unpackCodes(dtype, b));
  }

  result(): TensorStatistics {
    return {
      elementType: this.type,
      scaled: false,
      statistics: this.#comparison.result(),
      examples: this.#comparison.examples.map((each) => exampleOf(each, this.entry.shape)),
    };
  }
}

function exampleOf({ index, a, b, cause }: Difference, shape: readonly number[]): Example {
  const number = (code: bigint) => (code <= Number.MAX_SAFE_INTEGER ? Number(code) : String(code));
  return { coordinate: coordinateOf(shape, index), cause, a: number(a), b: number(b) };
}

/** Whether neighbouring codes of an element type differ by a factor of two. */
export function isExponent({ elementType }: TensorStatistics): boolean {
  return isScalarFormat(elementType) && hasPowersOnly(elementType);
}

const CAUSE_TEXTS: Readonly<Record<Cause, string>> = {
  scale: "under another scale",
  tie: "exact ties",
  offByOne: "off by one code",
  signOfZero: "zeros of the other sign",
  nan: "NaN on one side",
  wrong: "further off",
};

/** The lines of the statistics of a tensor that differs. */
export function statisticsLines({
  elementType,
  scaled,
  statistics,
  examples,
}: TensorStatistics): readonly string[] {
  const { causes, ulps, maxUlp, maxAbsError, maxRelError, sqnr, elements, different } = statistics;
  const counts = Object.entries(causes).flatMap(([cause, count]) =>
    count > 0 ? [`${count} ${CAUSE_TEXTS[cause as Cause]}`] : [],
  );
  const buckets = ulps.map(({ from, to, count }) => `${from === to ? from : `${from}-${to}`}: ${count}`);
  return [
    `  ${elementType}${scaled ? " times scales" : ""}: ${different} of ${elements} differ${counts.length > 0 ? `: ${counts.join(", ")}` : ""}`,
    ...(buckets.length > 0 ? [`  codes apart: ${buckets.join(", ")}; at most ${maxUlp}`] : []),
    `  largest error ${numberText(maxAbsError)}, relative ${Number(maxRelError.toPrecision(4))}, SQNR ${Number.isFinite(sqnr) ? sqnr.toFixed(2) : sqnr} dB`,
    ...examples.flatMap(({ coordinate, explanation }) =>
      explanation === undefined ? [] : [`  [${coordinate}]: ${explanation}`],
    ),
  ];
}
