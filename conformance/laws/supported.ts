/** Draws inputs that a subject supports, if it does not support all. */
import * as fc from "fast-check";
import { ArgumentError } from "../../src/errors.js";
import { named, oneOf } from "../../src/options.js";
import type { QuantizeSpec } from "../../src/tensor/quantized.js";
import { format } from "../arbitraries/formats.js";
import { QUANTIZERS, sourceTypes, specsWithin } from "../arbitraries/specs.js";
import { allows, mayBe, type Supported } from "../arbitraries/supported.js";
import { replaced } from "../arbitraries/wide.js";
import { encodeCase } from "../operations/cast/encode.js";
import { specialFunctionCase } from "../operations/elementwise/special-function.js";
import { gemmCase } from "../operations/gemm/arbitrary.js";
import { batchedCase } from "../operations/gemm/arbitrary-batched.js";
import { OPERATION_NAMES, OPERATIONS, type OperationName } from "../operations/operations.js";
import { type DequantizeCase, dequantizeCaseBy } from "../operations/quantize/dequantize.js";
import { type QuantizeCase, quantizeCaseBy } from "../operations/quantize/quantize.js";
import { type Inputs, type SupportedInputs, supportedFields } from "./run-options.js";

const operationName = oneOf(OPERATION_NAMES);
/** The search for a supported input draws `inputs` inputs in each of `rounds` rounds. */
const DRAWS = { rounds: 1000, inputs: 5 };

/** Specs and types are chosen among the supported ones; the other fields are redrawn until they are supported. */
function supportedQuantizations(supported: Supported): fc.Arbitrary<QuantizeCase> {
  const typesOf = (spec: QuantizeSpec) =>
    sourceTypes(spec).filter((dtype) => allows(supported, { dtype }, "x.", ["x.dtype"]));
  const specs = QUANTIZERS.flatMap((name) => specsWithin(name, supported)).filter(
    (spec) => typesOf(spec).length > 0,
  );
  if (specs.length === 0) throw unsupported("quantize", supported);
  const exclusions = {
    nan: !mayBe(supported, "x.hasNaN", true),
    infinity: !mayBe(supported, "x.hasInfinity", true),
  };
  return quantizeCaseBy(
    fc.constantFrom(...specs),
    undefined,
    (spec) => fc.constantFrom(...typesOf(spec)),
    exclusions.nan || exclusions.infinity ? (x) => replaced(x, exclusions) : undefined,
  );
}

/** Specs and directions are chosen among the supported ones; the other fields are redrawn until they are supported. */
function supportedDequantizations(supported: Supported): fc.Arbitrary<DequantizeCase> {
  const specs = QUANTIZERS.flatMap((name) => specsWithin(name, supported));
  if (specs.length === 0) throw unsupported("dequantize", supported);
  return dequantizeCaseBy(fc.constantFrom(...specs), undefined, supported);
}

type Draw = (supported: Supported) => fc.Arbitrary<unknown>;

/** Operations for which redrawing alone would find too few inputs. */
const AIMED: { readonly [K in OperationName]?: Draw } = {
  quantize: supportedQuantizations,
  dequantize: supportedDequantizations,
  gemm: (supported) => gemmCase({ supported }),
  batchedGemm: (supported) => batchedCase({ supported }),
  specialFunction: specialFunctionCase,
  encode: (supported) => {
    const isOne = (each: unknown): boolean => allows(supported, { format: each }, "", ["format"]);
    // fast-check would search forever if no input passed the filter
    if (!fc.sample(format(), { numRuns: 2000, seed: 1 }).some(isOne)) throw unsupported("encode", supported);
    return encodeCase(format().filter(isOne));
  },
};

/** Inputs aimed at what a subject supports. Most, but not all, are supported. */
export function aimedInputs(operation: OperationName, supported: Supported): fc.Arbitrary<unknown> {
  return AIMED[operation]?.(supported) ?? OPERATIONS[operation].arbitrary;
}

/**
 * Supported inputs of an operation. Throws `ArgumentError` if there are none, for example because a field is misspelt, for an
 * unknown operation, and for values that are not in lists.
 */
export function supportedInputs(operation: OperationName, supported: Supported): Inputs {
  operationName("supportedInputs", "operation", operation);
  const checked = supportedFields("supportedInputs", "supported", supported) as Supported;
  if (Object.keys(checked).length === 0) return {};
  const drawn = aimedInputs(operation, checked);
  for (let seed = 0; seed < DRAWS.rounds; seed++) {
    const sample = fc.sample(drawn, { numRuns: DRAWS.inputs, seed });
    // fast-check would search forever if no input passed the filter
    if (sample.some((input) => allows(checked, input)))
      return { [operation]: drawn.filter((input) => allows(checked, input)) };
  }
  throw unsupported(operation, checked);
}

/** Inputs of all operations that a subject supports in part. */
export function inputsWithin(supported: SupportedInputs): Inputs {
  return Object.assign({}, ...OPERATION_NAMES.map((name) => supportedInputs(name, supported[name] ?? {})));
}

/** The maximum number of fields, values and characters in a message. */
const MAX_SHOWN = 8;
const MAX_NAME = 60;

function unsupported(operation: OperationName, supported: Supported): ArgumentError {
  const fields = Object.entries(supported)
    .slice(0, MAX_SHOWN)
    .map(
      ([path, values]) =>
        `${path.slice(0, MAX_NAME)} among ${values.slice(0, MAX_SHOWN).map(named).join(", ")}`,
    )
    .join("; ");
  return new ArgumentError(
    `no input of ${operation} is supported: ${fields}; check the fields' names and values`,
  );
}
