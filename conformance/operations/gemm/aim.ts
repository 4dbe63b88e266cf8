/** Draws each part of a matrix product: from everything, or from what a subject supports. */
import * as fc from "fast-check";
import { ArgumentError } from "../../../src/errors.js";
import type { DatapathFamily } from "../../../src/formats/datapath.js";
import type { GemmLayout } from "../../../src/ops/gemm/named-operands.js";
import { isWide, type Shape, WIDE_DTYPES, type WideDType } from "../../../src/tensor/shape.js";
import { allows, among, mayBe, oneAmong, type Supported } from "../../arbitraries/supported.js";
import { wideTensor } from "../../arbitraries/wide.js";
import { type ProductRule, productRule } from "../../oracle/gemm/datapath.js";
import type { PlainTensor } from "../../values/plain.js";
import type { ResultDType } from "../../values/rounded.js";
import { multipleOf, operandCase, type Sources, sourcesAmong } from "./arbitrary-operands.js";
import { allDepths, allLines, anyDepth, anyLines } from "./arbitrary-sizes.js";
import { directionsOf, type GemmCase, resultShape } from "./case.js";
import { multiplied, multipliedAs, type Source, transformOf } from "./operand.js";

const DEFINITIONS: readonly DatapathFamily[] = ["exact", "fp32"];
const HARDWARE: readonly DatapathFamily[] = ["hopper", "blackwell", "ada"];

/** Two operands that can be multiplied, and the layout in which they are stored. */
export type Pair = Pick<GemmCase, "a" | "b" | "layout">;

/** The layouts of an operand. Row-only scales exclude layouts that read columns. */
function layoutsOf(name: "a" | "b", source: Source): readonly GemmLayout[] {
  const rowsOnly = source.kind === "scaled" && source.tile !== "tensor";
  if (!rowsOnly) return ["TN", "NN", "NT"];
  return name === "a" ? ["TN"] : ["TN", "NN"];
}

/** The layouts of two operands. Both must have the same Hadamard transform along K. */
function layoutsOfBoth([a, b]: Sources): readonly GemmLayout[] {
  return layoutsOf("a", a).filter((layout) => {
    const along = directionsOf(layout);
    return layoutsOf("b", b).includes(layout) && transformOf(a, along.a) === transformOf(b, along.b);
  });
}

/** Whether the column sums of an operand are defined. */
export function isSummable(source: Source): boolean {
  if (source.kind === "plain") return source.format !== "tf32" && isWide(source.format);
  return source.kind === "quantized";
}

/** A value of splitK: 1, `auto`, or any number up to the number of tiles of K. */
export function partsOf(serving: ProductRule | undefined, depth: number, drawn: number): number | "auto" {
  const tiles = serving?.splitTile ? Math.ceil(depth / serving.splitTile) : 1;
  if (drawn === 7) return "auto";
  return drawn < 3 || tiles === 0 ? 1 : 1 + ((drawn - 2) % tiles);
}

const PARTS = [0, 1, 2, 3, 4, 5, 6, 7];

const ALPHAS = [0.3, -2, 0, 1.1, 2 ** -100, 2 ** 100, 2 ** -149];
const BETAS = [0, -0, 1, -1.7, 0.3, 2 ** 100];
const OUT_SCALES = [1, 64, 0.3, 2 ** -20, 2 ** 20];
const OUT_DTYPES: readonly ResultDType[] = ["f32", "bf16", "f16", "e4m3", "e5m2"];
const FORMS = ["linear", "linear", "gelu", "geluInput"] as const;
const EITHER = [false, true];

/** The parts of a product that a subject supports. */
export class Aim {
  readonly #sized = new Map<string, boolean>();

  constructor(private readonly supported: Supported) {}

  one<T>(path: string, values: readonly T[], usual?: fc.Arbitrary<T>): fc.Arbitrary<T> {
    return oneAmong(this.supported, path, values, usual);
  }

  flag(path: keyof GemmCase): fc.Arbitrary<boolean> {
    return this.one(path, EITHER, fc.boolean());
  }

  /** Whether `path` must be present. */
  needs(path: string): boolean {
    return !mayBe(this.supported, path, undefined);
  }

  /** Whether `path` must be true. */
  asks(path: keyof GemmCase): boolean {
    return !mayBe(this.supported, path, false);
  }

  /** Whether the codes of these operands may have this size in a dimension. */
  fits(size: number, dimension: 0 | 1, names: readonly ("a" | "b")[]): boolean {
    return names.every((name) =>
      ["shape", "matrix"].every((field) =>
        mayBe(this.supported, `${name}.codes.${field}.${dimension}`, size),
      ),
    );
  }

  #sizes(dimension: 0 | 1, names: readonly ("a" | "b")[], all: readonly number[]): readonly number[] {
    return all.filter((size) => this.fits(size, dimension, names));
  }

  lines(name: "a" | "b", step: number): fc.Arbitrary<number> {
    const all = allLines(step);
    const left = this.#sizes(0, [name], all);
    return left.length < all.length && left.length > 0 ? fc.constantFrom(...left) : anyLines(step);
  }

  /**
   * The drawn lengths of K that are multiples of `step`; with operands, those for which some datapath has a supported number of
   * splits.
   */
  #depths(step: number, both?: Sources): readonly number[] {
    const left = this.#sizes(1, ["a", "b"], allDepths(step));
    return both ? left.filter((depth) => this.#families(both, depth).length > 0) : left;
  }

  depth(step: number, both: Sources): fc.Arbitrary<number> {
    const [all, sized, served] = [allDepths(step), this.#depths(step), this.#depths(step, both)];
    const left = served.length > 0 ? served : sized;
    return left.length === all.length || left.length === 0 ? anyDepth(step) : fc.constantFrom(...left);
  }

  /** The datapaths that multiply the operands with some supported number of splits. */
  #families(both: Sources, depth: number): readonly DatapathFamily[] {
    const [w, x] = both.map((source) => multipliedAs(source, () => true));
    return this.families().filter((family) => {
      const serving = productRule(family, x as NonNullable<typeof x>, w as NonNullable<typeof w>, false);
      return serving && this.parts(serving, depth).length > 0;
    });
  }

  families(all: readonly DatapathFamily[] = [...DEFINITIONS, ...HARDWARE]): readonly DatapathFamily[] {
    return among(this.supported, "datapath", all);
  }

  parts(serving: ProductRule | undefined, depth: number): readonly (number | "auto")[] {
    return among(
      this.supported,
      "splitK",
      PARTS.map((drawn) => partsOf(serving, depth, drawn)),
    );
  }

  /** Whether an operand whose sizes are multiples of `step` has a supported size. */
  #hasSize(name: "a" | "b", step: number): boolean {
    const key = `${name} ${step}`;
    const cached = this.#sized.get(key);
    if (cached !== undefined) return cached;
    const has = this.#sizes(0, [name], allLines(step)).length * this.#depths(step).length > 0;
    this.#sized.set(key, has);
    return has;
  }

  /** Whether an operand may be of this kind. */
  #accepts(name: "a" | "b", source: Source): boolean {
    const { supported } = this;
    if (!allows(supported, source, `${name}.source.`)) return false;
    if (!this.#hasSize(name, multipleOf(source))) return false;
    if (among(supported, "layout", layoutsOf(name, source)).length === 0) return false;
    return (
      name === "a" || !this.asks("biasGradient") || this.forms().includes("geluInput") || isSummable(source)
    );
  }

  /** The supported forms of the epilogue. */
  forms(): readonly (typeof FORMS)[number][] {
    const { supported } = this;
    const left = FORMS.filter((form) => {
      if (!mayBe(supported, "gelu", form === "gelu")) return false;
      if (form !== "gelu" && this.needs("auxDtype")) return false;
      return form === "geluInput"
        ? supported.geluInput === undefined && this.types("geluInput").length > 0
        : !this.needs("geluInput") && !this.needs("geluInput.dtype");
    });
    return left.length > 0 ? left : FORMS;
  }

  /** The supported types of a tensor. */
  types(path: "c" | "bias" | "geluInput"): readonly WideDType[] {
    const supportedTypes = among(this.supported, `${path}.dtype`, WIDE_DTYPES);
    return path === "c" && this.asks("accumulate")
      ? among(this.supported, "outDtype", supportedTypes)
      : supportedTypes;
  }

  /** Whether a product may be added to a result of this type. */
  accumulates(dtype: WideDType): boolean {
    return mayBe(this.supported, "outDtype", dtype);
  }

  tensor(path: "c" | "bias" | "geluInput", shape: Shape): fc.Arbitrary<PlainTensor<WideDType>> {
    const types = this.types(path);
    if (types.length === 0 || types.length === WIDE_DTYPES.length) return wideTensor(shape);
    return fc.constantFrom(...types).chain((dtype) => wideTensor(shape, { dtype }));
  }

  /** A tensor that may be absent. */
  optional(path: "c" | "bias", shape: Shape): fc.Arbitrary<PlainTensor<WideDType> | undefined> {
    const isLeftOut = this.supported[path] !== undefined || (path === "bias" && this.asks("biasGradient"));
    if (isLeftOut || this.types(path).length === 0) return fc.constant(undefined);
    const tensor = this.tensor(path, shape);
    const isAdded = path === "c" && (this.asks("accumulate") || this.needs("beta"));
    const isNeeded = this.needs(`${path}.dtype`) || isAdded;
    return isNeeded ? tensor : fc.option(tensor, { nil: undefined, freq: 2 });
  }

  /** The kinds of the operands. */
  sources(): fc.Arbitrary<Sources> {
    const drawnSources = sourcesAmong(
      (source) => this.#accepts("a", source),
      (source) => this.#accepts("b", source),
    );
    if (!drawnSources)
      throw new ArgumentError(
        `no input of gemm is supported: ${JSON.stringify(this.supported)}; no operands are of these kinds and sizes`,
      );
    const { datapath, splitK, layout } = this.supported;
    const isMultiplied = (both: Sources): boolean =>
      among(this.supported, "layout", layoutsOfBoth(both)).length > 0 &&
      this.#depths(Math.max(...both.map(multipleOf)), both).length > 0;
    const isFree = datapath === undefined && splitK === undefined && layout === undefined;
    // fast-check would search forever if no pair passed the filter
    if (isFree || !fc.sample(drawnSources, { numRuns: 500, seed: 1 }).some(isMultiplied)) return drawnSources;
    return drawnSources.filter(isMultiplied);
  }

  /** Two operands that can be multiplied, and their layout. */
  pairs(): fc.Arbitrary<Pair> {
    return this.sources().chain((sources) => {
      const [multipleA, multipleB] = sources.map(multipleOf) as [number, number];
      const depth = this.depth(Math.max(multipleA, multipleB), sources);
      const sizes = fc.tuple(this.lines("a", multipleA), this.lines("b", multipleB), depth);
      return sizes.chain(([columns, rows, k]) =>
        fc.record({
          a: operandCase(sources[0], columns, k),
          b: operandCase(sources[1], rows, k),
          layout: this.one("layout", layoutsOfBoth(sources)),
        }),
      );
    });
  }

  /** A datapath for the pair: usually a hardware datapath that supports it, sometimes one that may refuse it. */
  datapath({ a, b }: Pair): fc.Arbitrary<DatapathFamily> {
    const [x, w] = [multiplied(b), multiplied(a)];
    const depth = a.codes.matrix[1];
    const fitting = (all: readonly DatapathFamily[]): readonly DatapathFamily[] =>
      this.families(all).filter((family) => this.parts(productRule(family, x, w, false), depth).length > 0);
    const serving = HARDWARE.filter((family) => productRule(family, x, w, false));
    const some = (
      [
        [6, DEFINITIONS],
        [14, serving],
        [1, HARDWARE],
      ] as const
    ).flatMap(([weight, all]) => {
      const left = fitting(all);
      return left.length > 0 ? [{ weight, arbitrary: fc.constantFrom(...left) }] : [];
    });
    return some.length > 0 ? fc.oneof(...some) : fc.constantFrom(...HARDWARE);
  }

  /** The options common to all products. */
  common() {
    const alpha = fc.oneof({ weight: 3, arbitrary: fc.constant(1) }, fc.constantFrom(...ALPHAS));
    const outDtype = fc.option(fc.constantFrom(...OUT_DTYPES), { nil: undefined, freq: 4 });
    return fc.record({
      useSplitAccumulator: this.flag("useSplitAccumulator"),
      alpha: this.one("alpha", [1, ...ALPHAS], alpha),
      outScale: this.one("outScale", OUT_SCALES),
      outDtype: this.one("outDtype", [undefined, ...OUT_DTYPES], outDtype),
      intoOut: this.flag("intoOut"),
      splits: fc.nat({ max: 7 }),
    });
  }

  /** Epilogue options, before incompatible ones are removed. */
  epilogue({ a, b, layout }: Pair, outDtype: ResultDType | undefined) {
    const shape = resultShape({ a, b, layout });
    const beta = fc.option(fc.constantFrom(...BETAS), { nil: undefined });
    const auxDtype = fc.option(fc.constantFrom(...WIDE_DTYPES), { nil: undefined });
    return fc.record({
      addend: this.optional("c", shape),
      accumulate: this.flag("accumulate"),
      beta: this.one("beta", [undefined, ...BETAS], beta),
      bias: this.optional("bias", [a.codes.matrix[0]]),
      form: fc.constantFrom(...this.forms()),
      auxDtype: this.one("auxDtype", [undefined, ...WIDE_DTYPES], auxDtype),
      pre: this.tensor("geluInput", shape),
      biasGradient: this.flag("biasGradient"),
      outDtype: fc.constant(outDtype),
    });
  }
}
