/** `lockstep fuzz`: writes a corpus of edge cases with the results of the reference. */

import type { CorpusCase } from "lockstep/conformance";
import type { Backend } from "../../backends/backend.js";
import { ArgumentError } from "../../errors.js";
import { fileDType } from "../../io/dtypes.js";
import { formatRecipe, recipeKey } from "../../io/quantized/recipe.js";
import { MemorySource } from "../../io/source.js";
import { requirePackages } from "../../packages.js";
import { asBytes } from "../../tensor/data.js";
import { elementCount } from "../../tensor/shape.js";
import { defineCommand } from "../command.js";
import { VERSION } from "../manifest.js";
import { integer, type OptionTable, oneOf, optional, type Values, value, withMeanings } from "../options.js";
import { copyPiece, type Piece, withTensorName, writePieces } from "../pieces.js";
import { QUANTIZER_OPTIONS, requireApplicable, specOf, withDialect } from "../quantizer-options.js";
import { RANDOM_BITS, randomBitsName, randomBitsShape, requireStochastic } from "../random-bits.js";
import { toJson } from "../session.js";
import { ENCODING, OUTPUT } from "../shared-options.js";
import { encodePiece } from "./encode.js";
import { operandPair } from "./fuzz-operands.js";
import { Sources } from "./gemm-operands.js";
import { GEMM_OPTIONS, multiply, type Product } from "./gemm-product.js";
import { quantizePiece } from "./quantize.js";

const OPS = ["encode", "quantize", "gemm"] as const;
type Op = (typeof OPS)[number];

const seedOf = integer(0, 2 ** 31 - 1);

const CORPUS = {
  op: {
    ...value<Op>({
      placeholder: OPS.join("|"),
      help: withMeanings("operation to write cases of", {
        encode: "values to codes",
        quantize: "matrices to codes and scales",
        gemm: "products",
      }),
      parse: oneOf(OPS),
      fallback: "encode",
    }),
    required: true,
  },
  output: OUTPUT,
  cases: value({
    placeholder: "N",
    help: "number of cases",
    parse: integer(1, 1_000_000),
    fallback: 100,
    shown: "100",
  }),
  seed: value({
    placeholder: "S",
    help: "seed of the cases and of the random bits for stochastic rounding",
    parse: (text) => BigInt(seedOf(text)),
    fallback: 1n,
    shown: "1",
  }),
} as const;

const OPERANDS = {
  operands: optional({
    placeholder: "KIND[,KIND]",
    help: "gemm: kinds of a and b, or one of both: a dtype, FP8 with the tile of its scales (e4m3:1x128), a quantizer or dialect (mxfp8, mxfp8:e5m2); default: all pairs of a table",
    parse: operandPair,
  }),
} as const;

const OPTIONS = {
  ...CORPUS,
  ...OPERANDS,
  ...GEMM_OPTIONS,
  ...QUANTIZER_OPTIONS,
  ...ENCODING,
  ...CORPUS,
} as const;

/** The options of each operation, in addition to those of the corpus. */
const TAKES: Readonly<Record<Op, readonly string[]>> = {
  encode: ["format", "offset", ...Object.keys({ ...ENCODING, ...RANDOM_BITS })],
  quantize: Object.keys(QUANTIZER_OPTIONS),
  gemm: Object.keys({ ...OPERANDS, ...GEMM_OPTIONS }),
};

function requireOptionsOf(op: Op, table: OptionTable, usedOptions: ReadonlySet<string>): void {
  for (const option of usedOptions) {
    if (!(option in table) || option in CORPUS || TAKES[op].includes(option)) continue;
    throw new ArgumentError(`--${option} is no option of fuzz --op ${op}`);
  }
}

/** The inputs of the cases, and a function that returns the output piece with the reference's result for a case. */
interface Corpus {
  readonly cases: readonly CorpusCase[];
  readonly answer: (source: MemorySource, input: string, output: string) => Promise<Piece | undefined>;
}

type Make = (
  backend: Backend,
  values: Values<typeof OPTIONS>,
  usedOptions: ReadonlySet<string>,
) => Promise<Corpus>;

const CORPORA: Readonly<Record<Op, Make>> = {
  async encode(backend, values) {
    const { format, rounding, overflow, seed, offset, cases, "random-bits": isGiven } = values;
    if (!format) throw new ArgumentError("--format is needed with --op encode");
    requireStochastic(isGiven, rounding === "stochastic", "--rounding stochastic");
    const { encodeCases, fromCodes, words } = await import("lockstep/conformance");
    const options = { format, rounding, overflow, seed, offset, "random-bits": isGiven };
    return {
      cases: encodeCases(format, { cases, seed: Number(seed) }).map((x, i) => ({
        tensors: {
          "": x,
          ...(isGiven
            ? {
                [randomBitsName("", "rowwise")]: fromCodes(
                  "u32",
                  x.shape,
                  words((Number(seed) * 4099 + i) | 0, x.codes.length),
                ),
              }
            : {}),
        },
      })),
      answer: async (source, input, output) =>
        encodePiece(backend, source, source.entry(input), options, output),
    };
  },
  async quantize(backend, options, usedOptions) {
    const values = withDialect(options, usedOptions);
    requireApplicable(values, usedOptions);
    const { fromCodes, quantizeCases, words } = await import("lockstep/conformance");
    const draw = { cases: values.cases, seed: Number(values.seed) };
    const spec = specOf(backend, values);
    const directions = values["random-bits"] ? values.usage : [];
    return {
      cases: quantizeCases(spec, draw).map((x, i) => {
        const bits = directions.map((direction) => {
          const shape = randomBitsShape(spec, x.matrix, direction);
          const seed = (Number(values.seed) * 4099 + 2 * i + Number(direction === "columnwise")) | 0;
          return [
            randomBitsName("", direction),
            fromCodes("u32", shape, words(seed, elementCount(shape))),
          ] as const;
        });
        return { tensors: { "": x, ...Object.fromEntries(bits) } };
      }),
      answer: async (source, input, output) =>
        quantizePiece(backend, source, source.entry(input), values, output),
    };
  },
  async gemm(backend, values) {
    const { gemmCases } = await import("lockstep/conformance");
    const { datapath = backend.datapath, cases, seed, beta, bias, operands } = values;
    const aim = {
      datapath,
      splitAccumulator: values["split-accumulator"],
      splitK: values["split-k"],
      c: beta !== undefined,
      bias,
      operands,
    };
    return {
      cases: gemmCases(aim, { cases, seed: Number(seed) }),
      answer: async (source, input, output) => {
        const sources = new Sources([source]);
        const { tensors } = await multiply(backend, { sources, settings: values, prefix: `${input}.` });
        return productPiece(
          input,
          tensors.map((tensor) => ({ ...tensor, name: `${output}.${tensor.name}` })),
        );
      },
    };
  },
};

function productPiece(subject: string, tensors: Product["tensors"]): Piece {
  return {
    subject,
    outputs: tensors,
    async produce(put) {
      for (const { name, bytes } of tensors) await put(name, bytes);
    },
  };
}

export const fuzz = defineCommand({
  name: "fuzz",
  summary: "writes edge cases with the results of the reference, to test a kernel in any language",
  details: [
    "The cases contain ties and their neighbours, subnormals, points where a scale changes, blocks of zeros, infinities and NaNs, and ragged shapes. Run your kernel on the tensors in.*, write its results to a file under the names of the tensors out.*, and run: lockstep compare OUT YOURS --prefix out. The same options and seed give the same file. Only the options of the chosen operation are allowed.",
  ],
  example: "--op quantize --quantizer nvfp4 --cases 20 -o cases.safetensors",
  inputs: [],
  options: OPTIONS,
  async run({ session, values, usedOptions }) {
    const { op, output, cases: count, seed } = values;
    requireOptionsOf(op, OPTIONS, usedOptions);
    requirePackages("the corpus", "fast-check");
    const backend = await session.backend();
    const corpus = await CORPORA[op](backend, values, usedOptions);
    const width = String(count - 1).length;
    const names = corpus.cases.map((_, i) => String(i).padStart(width, "0"));
    const inputs = corpus.cases.flatMap(({ tensors }, i) =>
      Object.entries(tensors).map(([suffix, tensor]) => {
        const plan = { name: `in.${names[i]}${suffix}`, dtype: fileDType(tensor.dtype), shape: tensor.shape };
        return { ...plan, bytes: asBytes(tensor.data) };
      }),
    );
    const recipes = Object.fromEntries(
      corpus.cases.flatMap(({ recipes = {} }, i) =>
        Object.entries(recipes).map(([suffix, recipe]) => {
          return [
            recipeKey(`in.${names[i]}${suffix}`),
            formatRecipe(recipe, { backend: backend.name, version: VERSION }),
          ];
        }),
      ),
    );
    const source = new MemorySource(output, inputs, recipes);
    const pieces: Piece[] = [...source.tensors.values()].map((entry) => copyPiece(source, entry));
    for (const name of names) {
      const piece = await withTensorName(`in.${name}`, () =>
        corpus.answer(source, `in.${name}`, `out.${name}`),
      );
      if (piece) pieces.push(piece);
    }
    const options = Object.fromEntries(
      Object.entries(values).filter(([name]) => name !== "output" && usedOptions.has(name)),
    );
    const record = {
      ...options,
      op,
      cases: count,
      seed: Number(seed),
      backend: backend.name,
      version: VERSION,
    };
    await writePieces(session, output, pieces, { ...recipes, "lockstep-fuzz": toJson(record) });
    session.summary({ output, ...record }, [`${output}: ${count} cases of ${op}, seed ${seed}`]);
    return 0;
  },
});
