/**
 * Arbitraries of whole matrix products: pairs of operands, shapes one past a kernel's tile, and every valid combination
 * of epilogue options.
 */
import * as fc from "fast-check";
import type { DatapathFamily } from "../../../src/formats/datapath.js";
import type { GemmLayout } from "../../../src/ops/gemm/named-operands.js";
import { isWide } from "../../../src/tensor/shape.js";
import { wideTensor, wideType } from "../../arbitraries/wide.js";
import { type Serving, servingOf } from "../../oracle/gemm/datapath.js";
import type { ResultDType } from "../../values/rounded.js";
import { multipleOf, operandCase, sources } from "./arbitrary-operands.js";
import { type GemmCase, resultShape, resultType } from "./case.js";
import { multiplied, type OperandCase, type Source } from "./operand.js";

const DEFINITIONS: readonly DatapathFamily[] = ["exact", "fp32"];
const HARDWARE: readonly DatapathFamily[] = ["hopper", "blackwell", "ada"];

/** Two operands that can be multiplied, and the layout that they are stored for. */
type Pair = Pick<GemmCase, "a" | "b" | "layout">;

/** Multiples of `step`: one of `edges`, or any up to `most`. */
function sizes(step: number, most: number, edges: readonly number[]): fc.Arbitrary<number> {
  const few = fc.integer({ min: 1, max: Math.max(1, Math.floor(most / step)) }).map((n) => n * step);
  const fitting = edges.filter((edge) => edge % step === 0);
  return fc.oneof(few, fc.constantFrom(...fitting));
}

const lineCount = (step: number): fc.Arbitrary<number> =>
  sizes(step, Math.max(step, 20), step < 16 ? [0, 2, 3, 4, 6, 8, 10, 16, 17, 18, 32, 130] : [0, 16, 32, 64]);
/** Lengths of K: short; one past a step, a block or a tile; or long enough for a second chain. */
const depths = (step: number): fc.Arbitrary<number> =>
  fc.oneof(
    sizes(step, 96, [0, 1, 31, 32, 33, 64, 65, 127, 128, 129, 160, 192, 255, 256, 257, 288]),
    fc.integer({ min: 129, max: 300 }).map((depth) => depth - (depth % step)),
  );

/** The layouts of a pair. Scales that exist only along rows exclude layouts that read columns. */
function layoutsOf([a, b]: readonly [Source, Source]): readonly GemmLayout[] {
  const rowsOnly = (source: Source): boolean => source.kind === "scaled" && source.tile !== "tensor";
  if (rowsOnly(a)) return ["TN"];
  return rowsOnly(b) ? ["TN", "NN"] : ["TN", "NN", "NT"];
}

const pairs: fc.Arbitrary<Pair> = sources.chain((both) => {
  const [ofA, ofB] = both.map(multipleOf) as [number, number];
  const shape = fc.tuple(lineCount(ofA), lineCount(ofB), depths(Math.max(ofA, ofB)));
  return shape.chain(([columns, rows, depth]) =>
    fc.record({
      a: operandCase(both[0], columns, depth),
      b: operandCase(both[1], rows, depth),
      layout: fc.constantFrom(...layoutsOf(both)),
    }),
  );
});

/** A datapath for the pair: usually a hardware datapath that supports it, sometimes one that may refuse it. */
function anyDatapath({ a, b }: Pair): fc.Arbitrary<DatapathFamily> {
  const [x, w] = [multiplied(b), multiplied(a)];
  const serving = HARDWARE.filter((family) => servingOf(family, x, w, false));
  return fc.oneof(
    { weight: 6, arbitrary: fc.constantFrom(...DEFINITIONS) },
    ...(serving.length > 0 ? [{ weight: 14, arbitrary: fc.constantFrom(...serving) }] : []),
    { weight: 1, arbitrary: fc.constantFrom(...HARDWARE) },
  );
}

const factors = fc.oneof(
  { weight: 3, arbitrary: fc.constant(1) },
  fc.constantFrom(0.3, -2, 0, 1.1, 2 ** -100, 2 ** 100, 2 ** -149),
);

/** The options that every product takes. */
const common = fc.record({
  useSplitAccumulator: fc.boolean(),
  alpha: factors,
  outScale: fc.constantFrom(1, 64, 0.3, 2 ** -20, 2 ** 20),
  outDtype: fc.option(fc.constantFrom<ResultDType>("f32", "bf16", "f16", "e4m3", "e5m2"), { freq: 4 }),
  intoOut: fc.boolean(),
  splits: fc.nat({ max: 7 }),
});

/** Epilogue options, before incompatible ones are removed. */
function epilogue({ a, b, layout }: Pair, outDtype: ResultDType | undefined) {
  const shape = resultShape({ a, b, layout });
  return fc.record({
    addend: fc.option(wideTensor(shape), { nil: undefined, freq: 2 }),
    accumulate: fc.boolean(),
    beta: fc.option(fc.constantFrom(0, -0, 1, -1.7, 0.3, 2 ** 100), { nil: undefined }),
    bias: fc.option(wideTensor([a.codes.matrix[0]]), { nil: undefined, freq: 2 }),
    form: fc.constantFrom("linear", "linear", "gelu", "geluInput"),
    auxDtype: fc.option(wideType(), { nil: undefined }),
    pre: wideTensor(shape),
    biasGradient: fc.boolean(),
    outDtype: fc.constant(outDtype),
  });
}

/** Whether the column sums of an operand are defined. */
function isSummable({ source }: OperandCase): boolean {
  if (source.kind === "plain") return source.format !== "tf32" && isWide(source.format);
  return source.kind === "quantized";
}

/** A value of splitK: 1, `auto`, or any number up to the number of tiles of K. */
function partsOf(serving: Serving | undefined, depth: number, drawn: number): number | "auto" {
  const tiles = serving?.splitTile ? Math.ceil(depth / serving.splitTile) : 1;
  if (drawn === 7) return "auto";
  return drawn < 3 || tiles === 0 ? 1 : 1 + ((drawn - 2) % tiles);
}

export function gemmCase(datapaths = anyDatapath): fc.Arbitrary<GemmCase> {
  return pairs.chain((pair) =>
    fc.tuple(datapaths(pair), common).chain(([datapath, { splits, outDtype, ...options }]) =>
      epilogue(pair, outDtype ?? undefined).map((parts): GemmCase => {
        const { a, b } = pair;
        const { addend: c, beta, bias, form, auxDtype, pre } = parts;
        const serving = servingOf(datapath, multiplied(b), multiplied(a), options.useSplitAccumulator);
        const wide = isWide(resultType({ b, outDtype: parts.outDtype }));
        const accumulate = parts.accumulate && c !== undefined && wide;
        const summable = form === "geluInput" || (form === "linear" && isSummable(b));
        return {
          ...pair,
          ...options,
          datapath,
          splitK: partsOf(serving, a.codes.matrix[1], splits),
          accumulate,
          gelu: form === "gelu",
          biasGradient: parts.biasGradient && !bias && summable,
          ...(c ? { c, beta } : {}),
          ...(bias ? { bias } : {}),
          ...(form === "gelu" ? { auxDtype } : {}),
          ...(form === "geluInput" ? { geluInput: pre } : {}),
          outDtype: accumulate && c ? c.dtype : parts.outDtype,
        };
      }),
    ),
  );
}
