/** `lockstep explain`: explains the bits of one element of a quantization or product, or of one value of a special function. */
import { ArgumentError, FileError } from "../../errors.js";
import { f32OfBits } from "../../explain/binary.js";
import { explainQuantize } from "../../explain/explain-quantize.js";
import { explainGemm } from "../../explain/gemm.js";
import { explainSpecialFunction } from "../../explain/special-function.js";
import { gemmText, quantizeText, specialFunctionText } from "../../explain/text.js";
import { hasGivenScale } from "../../formats/block.js";
import { hasTwoArguments } from "../../formats/special-functions.js";
import type { TensorEntry } from "../../io/header/header.js";
import { someNames, type TensorSource } from "../../io/source.js";
import { alignBytes, viewAs } from "../../tensor/data.js";
import { defineCommand } from "../command.js";
import type { OpenFile } from "../files.js";
import { integer, oneOf, optional, someText, type Values, value, withMeanings } from "../options.js";
import { withTensorName } from "../pieces.js";
import { QUANTIZER_OPTIONS, requireApplicable, specOf, withDialect } from "../quantizer-options.js";
import { readRandomBits } from "../random-bits.js";
import type { Session } from "../session.js";
import { SPECIAL_FUNCTION } from "../shared-options.js";
import { wideDType } from "./encode.js";
import { Sources } from "./gemm-operands.js";
import { readPlan, requireUnplanned } from "./gemm-plan.js";
import { GEMM_OPTIONS, withProduct } from "./gemm-product.js";

const OPS = ["quantize", "gemm", "function"] as const;
type Op = (typeof OPS)[number];

const index = integer(0);
const indices = (text: string): readonly number[] => text.split(",").map(index);

const { scales: _, ...QUANTIZER } = QUANTIZER_OPTIONS;

const GEMM = {
  ...GEMM_OPTIONS,
  plan: optional({
    placeholder: "FILE",
    help: "explain the product by the plan in this file, which gemm --print-plan printed",
    parse: someText,
    file: "read",
  }),
  products: value({
    placeholder: "K,…",
    help: "print all products of the steps that contain these elements along K",
    parse: indices,
    fallback: [] as readonly number[],
    shown: "none",
  }),
} as const;

const QUANTIZE = {
  tensor: optional({
    placeholder: "NAME",
    help: "the tensor; needed if the file has several of F32, F16 and BF16",
    parse: someText,
  }),
  ...QUANTIZER,
} as const;

const OWN = {
  op: value<Op>({
    placeholder: OPS.join("|"),
    help: withMeanings("operation to explain", {
      quantize: "a code and its scale",
      gemm: "an element of a product",
      function:
        "a value of --function, in place of a file: a decimal number, or the bits of an f32 as 0x and 8 digits; two values of powf and divide",
    }),
    parse: oneOf(OPS),
    fallback: "quantize",
    shown: "quantize, or function if --function is given",
  }),
} as const;

const AT = {
  at: value({
    placeholder: "I,J",
    help: "the element, which quantize and gemm need: an index for each dimension of the tensor, or the row and the column of a product",
    parse: indices,
    fallback: [] as readonly number[],
  }),
} as const;

const FUNCTION = { function: SPECIAL_FUNCTION } as const;

const OPTIONS = { ...OWN, ...AT, ...GEMM, ...QUANTIZE, ...FUNCTION } as const;

/** The options that belong to each operation. */
const OPTIONS_OF = {
  quantize: { ...AT, ...QUANTIZE },
  gemm: { ...AT, ...GEMM },
  function: FUNCTION,
} as const satisfies Readonly<Record<Op, object>>;

type Given = Values<typeof OPTIONS>;

/** Throws `ArgumentError` for an option of another operation, and for a missing option. */
function requireOptionsOf(op: Op, usedOptions: ReadonlySet<string>): void {
  if (op !== "function" && !usedOptions.has("at")) throw new ArgumentError("--at I,J is needed");
  if (op === "function" && !usedOptions.has("function")) throw new ArgumentError("--function NAME is needed");
  const modeOptions = Object.values(OPTIONS_OF).flatMap((options) => Object.keys(options));
  const unsupportedOption = [...usedOptions].find(
    (option) => modeOptions.includes(option) && !(option in OPTIONS_OF[op]),
  );
  if (unsupportedOption !== undefined)
    throw new ArgumentError(`--${unsupportedOption} is no option of explain --op ${op}`);
}

/** Parses the argument of a function. */
function argumentOf(text: string): number {
  const word = /^0x([\da-fA-F]{8})$/.exec(text);
  if (word) return f32OfBits(Number.parseInt(word[1] as string, 16));
  const special = {
    NaN: Number.NaN,
    Infinity: Number.POSITIVE_INFINITY,
    "-Infinity": Number.NEGATIVE_INFINITY,
  };
  const number = text in special ? special[text as keyof typeof special] : Number(text.trim() || "none");
  if (!Number.isNaN(number) || text === "NaN") return number;
  throw new ArgumentError(`"${text}" is neither a number nor the bits of an f32 as 0x and 8 digits`);
}

function specialFunction(session: Session, inputs: readonly string[], { function: name }: Given): void {
  if (name === undefined) throw new ArgumentError("--function NAME is needed");
  const isOfTwo = hasTwoArguments(name);
  const [first = "", second] = inputs;
  const surplusInput = inputs[isOfTwo ? 2 : 1];
  if (surplusInput !== undefined)
    throw new ArgumentError(
      `"${surplusInput}" is one argument too many; ${isOfTwo ? `${name} has two values` : "a function has one value"}`,
    );
  if (isOfTwo && second === undefined) throw new ArgumentError(`${name} needs two values`);
  const y = second === undefined ? {} : { y: argumentOf(second) };
  const explanation = explainSpecialFunction(argumentOf(first), { function: name, ...y });
  const lines = specialFunctionText(explanation);
  session.result({ op: "function", explanation, text: lines }, lines);
}

/** The tensor to explain: the named tensor, or the only tensor that can be quantized. */
function entryOf(file: TensorSource, name: string | undefined): TensorEntry {
  if (name !== undefined) {
    const entry = file.entry(name);
    if (wideDType(entry)) return entry;
    throw new FileError(
      `${file.path}: tensor "${name}": is ${entry.dtype}; quantize takes F32, F16 and BF16`,
    );
  }
  const wide = [...file.tensors.values()].filter((entry) => wideDType(entry));
  const [first, second] = wide;
  if (first && !second) return first;
  const names = wide.map((entry) => entry.name);
  throw new FileError(
    first
      ? `${file.path}: has several tensors to quantize, ${someNames(names)}; name one by --tensor`
      : `${file.path}: has no tensor of F32, F16 or BF16; there are ${someNames(file.tensors.keys())}`,
  );
}

async function quantization(
  session: Session,
  file: OpenFile,
  values: Given,
  usedOptions: ReadonlySet<string>,
) {
  const settings = withDialect({ ...values, scales: "logical" as const }, usedOptions);
  requireApplicable(settings, usedOptions);
  const [direction, second] = settings.usage;
  if (direction === undefined || second !== undefined)
    throw new ArgumentError("--usage: one copy is explained; give rowwise or columnwise");
  const entry = entryOf(file, values.tensor);
  const dtype = wideDType(entry) ?? "f32";
  const spec = specOf(await session.backend(), settings);
  const bytes = await file.read(entry);
  const data = viewAs(dtype, alignBytes(bytes, 4));
  const { seed, offset, scale } = settings;
  const explanation = await withTensorName(entry.name, async () =>
    explainQuantize(
      { data, dtype, shape: entry.shape },
      {
        spec,
        at: values.at,
        direction,
        ...(hasGivenScale(spec) ? { scale } : {}),
        ...(spec.stochastic ? { random: { seed, offset } } : {}),
        ...(settings["random-bits"] ? { randomBits: await readRandomBits(file, entry.name, direction) } : {}),
      },
    ),
  );
  const text = quantizeText(explanation);
  session.result({ op: "quantize", tensor: entry.name, explanation, text }, text);
}

async function product(
  session: Session,
  files: readonly OpenFile[],
  values: Given,
  usedOptions: ReadonlySet<string>,
) {
  const { at, plan: planPath, products, ...settings } = values;
  requireUnplanned(planPath, usedOptions);
  const plan = planPath === undefined ? undefined : await readPlan(session.files, planPath);
  const backend = await session.backend();
  const request = { sources: new Sources(files), settings, plan };
  const explanation = await withProduct(backend, request, (options) => explainGemm({ ...options, at }));
  const outOfRange = products.find((k) => k >= explanation.depth);
  if (outOfRange !== undefined)
    throw new ArgumentError(`--products: ${outOfRange} is beyond K, which is ${explanation.depth}`);
  const text = gemmText(explanation, { products });
  session.result({ op: "gemm", explanation, text }, text);
}

export const explain = defineCommand({
  name: "explain",
  summary:
    "explains how one element of a quantization or of a product, or one value of a special function, becomes its bits, step by step",
  details: [
    "Of a quantization: the amax of the block, each step of the scale, the scaled value, its two neighbours in the format, whether it is an exact tie, the code, and the error. Of a product (--op gemm), from the files that gemm takes: each step of the datapath, what the alignment cuts, chains, splits, scales and the cast. Of a function (--op function): the row of the table, the terms of the quadratic and the result, or the operations of a math function of CUDA. Only the options of the operation are allowed.",
  ],
  example: "model.safetensors --tensor x --at 3,17 --quantizer mxfp8",
  inputs: ["IN…"],
  options: OPTIONS,
  async run({ session, values, inputs, usedOptions }) {
    const op = usedOptions.has("function") && !usedOptions.has("op") ? "function" : values.op;
    requireOptionsOf(op, usedOptions);
    const [, second] = inputs;
    if (op === "quantize" && second !== undefined)
      throw new ArgumentError(`"${second}" is one argument too many; a quantization has one file`);
    if (op === "function") {
      specialFunction(session, inputs, values);
      return 0;
    }
    const files: OpenFile[] = [];
    try {
      for (const input of inputs) files.push(await session.files.open(input));
      if (op === "gemm") await product(session, files, values, usedOptions);
      else await quantization(session, files[0] as OpenFile, values, usedOptions);
    } finally {
      for (const file of files) await file.close();
    }
    return 0;
  },
});
