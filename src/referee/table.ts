/**
 * The operators of PyTorch that have a model, one row each. `lockstep replay` computes recorded operations by it, and
 * `lockstep.torch.reference` those of a running program.
 */
import type { Call } from "./call.js";
import * as elementwise from "./elementwise.js";
import type { Model } from "./moves.js";
import * as moves from "./moves.js";
import {
  addmmOptions,
  batched,
  hasComparedSize,
  hasTensorScales,
  mmOptions,
  type ProductOptions,
  product,
  scaledOptions,
} from "./products.js";
import * as selections from "./selections.js";

/** A comparison of a row with a GPU. */
export interface Witness {
  readonly chip: string;
  /** The version of PyTorch, up to its minor number. */
  readonly torch: string;
  /** What was compared. */
  readonly inputs: string;
}

export interface OperatorRow {
  /** The names of the parameters that may be given by position, in order. */
  readonly parameters: string;
  /** `moves`: the result is bytes of the inputs, or constants, on every chip. `computes`: it is arithmetic. */
  readonly kind: "moves" | "computes";
  /** How the result is computed, as one phrase. */
  readonly definition: string;
  readonly model: Model;
  /** The GPU that gave the model's bits. Absent if no GPU was compared. */
  readonly witness?: Witness;
  /** Whether the inputs of a call are of the kind and size that were compared. Default: all are. */
  readonly isCompared?: (call: Call) => boolean;
  /** The options of the product, for rows whose model is one product. */
  readonly product?: (call: Call) => ProductOptions;
  /** Whether there is an operator that also writes the result into `self`, with an underscore behind its name. */
  readonly inPlace?: true;
}

const H200: Omit<Witness, "inputs"> = { chip: "h200", torch: "2.11" };

/** What torch-h200-gemm.json in conformance/vectors has of unscaled products. */
const WIDE_PRODUCTS = {
  witness: { ...H200, inputs: "10 products in bf16 and f16 of up to 128x64x2048, with f32 results" },
  isCompared: hasComparedSize,
};

const PRODUCT = "a bf16 or f16 product on Hopper's tensor cores, without split-K";

function moved(parameters: string, definition: string, model: Model): OperatorRow {
  return { parameters, kind: "moves", definition, model };
}

function computed(parameters: string, definition: string, model: Model): OperatorRow {
  return { parameters, kind: "computes", definition, model };
}

const inPlace = (row: OperatorRow): OperatorRow => ({ ...row, inPlace: true });

function multiplied(
  parameters: string,
  definition: string,
  options: (call: Call) => ProductOptions,
): OperatorRow {
  return { ...computed(parameters, definition, product(options)), product: options };
}

/** A math function of CUDA, as nvcc 13.0 compiles it. */
function math(name: Parameters<typeof elementwise.mathFunction>[0]): OperatorRow {
  return inPlace(computed("self", `${name} of CUDA in f32`, elementwise.mathFunction(name)));
}

const comparison = (sign: string, holds: (x: number, y: number) => boolean): OperatorRow =>
  computed("self other", `self ${sign} other`, elementwise.compared(holds));

const COMPARISONS = {
  eq: comparison("==", (x, y) => x === y),
  ne: comparison("!=", (x, y) => x !== y),
  lt: comparison("<", (x, y) => x < y),
  le: comparison("<=", (x, y) => x <= y),
  gt: comparison(">", (x, y) => x > y),
  ge: comparison(">=", (x, y) => x >= y),
} as const;

/** The rows of an operator for a tensor and for a number. */
function overloads(rows: Readonly<Record<string, OperatorRow>>): Readonly<Record<string, OperatorRow>> {
  return Object.fromEntries(
    Object.entries(rows).flatMap(([name, row]) =>
      ["Tensor", "Scalar"].map((overload) => [`aten::${name}.${overload}`, row]),
    ),
  );
}

const copy = moved("self", "the elements of self", moves.copied);
const view = moved("self size", "the elements of self in another shape", moves.viewed);
const zeros = moved("size", "zeros", selections.zerosOf);
const cast = (parameters: string): OperatorRow =>
  computed(
    parameters,
    "self as f32, rounded once to the dtype, with overflow to infinity or NaN",
    elementwise.converted,
  );

/** The rows by the schema's name and overload; the overload "default" is left out. */
export const OPERATORS: Readonly<Record<string, OperatorRow>> = {
  "aten::mm": { ...multiplied("self mat2", PRODUCT, mmOptions), ...WIDE_PRODUCTS },
  "aten::mm.dtype": { ...multiplied("self mat2 out_dtype", PRODUCT, mmOptions), ...WIDE_PRODUCTS },
  "aten::addmm": multiplied(
    "self mat1 mat2",
    "as mm; a vector is the epilogue's bias, a matrix is multiplied by beta",
    addmmOptions,
  ),
  "aten::bmm": computed("self mat2", "as mm for each matrix", batched),
  "aten::_scaled_mm": {
    ...multiplied(
      "self mat2 scale_a scale_b bias scale_result out_dtype use_fast_accum",
      "an FP8 product on Hopper's tensor cores with scales of tensors, rows or blocks",
      scaledOptions,
    ),
    witness: { ...H200, inputs: "30 products with scales of tensors of up to 128x64x2048, with f32 results" },
    isCompared: (call) => hasTensorScales(call) && hasComparedSize(call),
  },
  "aten::_to_copy": cast("self"),
  "aten::copy_": computed("self src non_blocking", "src, converted as _to_copy does", elementwise.copiedInto),
  ...overloads({
    add: inPlace(computed("self other", "self + other in f32, rounded once", elementwise.added)),
    sub: inPlace(computed("self other alpha", "self - other in f32, rounded once", elementwise.subtracted)),
    mul: inPlace(computed("self other", "self * other in f32, rounded once", elementwise.multiplied)),
    div: inPlace(
      computed(
        "self other",
        "self / other in f32, rounded once; a number's reciprocal is rounded first",
        elementwise.divided,
      ),
    ),
    ...COMPARISONS,
  }),
  "aten::neg": inPlace(computed("self", "the other sign", elementwise.negated)),
  "aten::abs": inPlace(computed("self", "the positive sign", elementwise.absolute)),
  "aten::relu": inPlace(computed("self", "self above 0, else +0", elementwise.relu)),
  "aten::threshold_backward": computed(
    "grad_output self threshold",
    "grad_output where self is above the threshold, else +0",
    elementwise.thresholdBackward,
  ),
  "aten::pow.Tensor_Scalar": computed(
    "self exponent",
    "ones, self, or rounded products, for the exponents 0 to 2, and 3 in f32",
    elementwise.power,
  ),
  "aten::reciprocal": inPlace(computed("self", "1 / self in f32, rounded once", elementwise.reciprocal)),
  "aten::silu": inPlace(
    computed("self", "self / (1 + expf(-self)) in f32, each step rounded", elementwise.silu),
  ),
  "aten::sigmoid": inPlace(
    computed("self", "1 / (1 + expf(-self)) in f32, each step rounded", elementwise.sigmoid),
  ),
  "aten::exp": math("expf"),
  "aten::log": math("logf"),
  "aten::exp2": math("exp2f"),
  "aten::log2": math("log2f"),
  "aten::sqrt": math("sqrtf"),
  "aten::rsqrt": math("rsqrtf"),
  "aten::tanh": math("tanhf"),
  "aten::erf": math("erff"),
  "aten::sin": math("sinf"),
  "aten::cos": math("cosf"),
  "aten::masked_fill.Scalar": inPlace(
    moved("self mask value", "value, rounded, where the mask holds, else self", elementwise.masked),
  ),
  "aten::where.self": moved(
    "condition self other",
    "self where the condition holds, else other",
    selections.where,
  ),
  "aten::view": view,
  "aten::_unsafe_view": view,
  "aten::reshape": { ...view, parameters: "self shape" },
  "aten::expand": moved("self size", "dimensions of size 1 repeated", moves.expanded),
  "aten::t": moved("self", "dimensions reversed", moves.turned),
  "aten::transpose.int": moved("self dim0 dim1", "two dimensions exchanged", moves.exchanged),
  "aten::permute": moved("self dims", "dimensions in another order", moves.permuted),
  "aten::unsqueeze": moved("self dim", "a further dimension of size 1", moves.unsqueezed),
  "aten::squeeze": moved("self", "without dimensions of size 1", moves.squeezed),
  "aten::squeeze.dim": moved("self dim", "without a dimension of size 1", moves.squeezed),
  "aten::squeeze.dims": moved("self dim", "without dimensions of size 1", moves.squeezed),
  "aten::detach": copy,
  "aten::alias": copy,
  "aten::clone": copy,
  "aten::contiguous": copy,
  "aten::lift_fresh": copy,
  "aten::slice.Tensor": moved("self dim start end step", "a part along a dimension", moves.sliced),
  "aten::select.int": moved("self dim index", "one index of a dimension", moves.selected),
  "aten::slice_backward": moved(
    "grad_output input_sizes dim start end step",
    "zeros around the gradient",
    moves.sliceBackward,
  ),
  "aten::select_backward": moved(
    "grad_output input_sizes dim index",
    "zeros around the gradient",
    moves.selectBackward,
  ),
  "aten::split.Tensor": moved("self split_size dim", "parts along a dimension", moves.split),
  "aten::split_with_sizes": moved("self split_sizes dim", "parts along a dimension", moves.splitWithSizes),
  "aten::unbind.int": moved("self dim", "each index of a dimension", moves.unbound),
  "aten::cat": moved("tensors dim", "tensors one after the other", moves.concatenated),
  "aten::stack": moved("tensors dim", "tensors along a further dimension", moves.stacked),
  "aten::embedding": moved(
    "weight indices padding_idx scale_grad_by_freq sparse",
    "rows of weight",
    selections.embedded,
  ),
  "aten::index_select": moved("self dim index", "slices of self", selections.indexSelected),
  "aten::tril": moved(
    "self diagonal",
    "the lower triangle",
    selections.triangle((column, row, k) => column - row <= k),
  ),
  "aten::triu": moved(
    "self diagonal",
    "the upper triangle",
    selections.triangle((column, row, k) => column - row >= k),
  ),
  "aten::flip": moved("self dims", "dimensions in the other order", moves.flipped),
  "aten::zeros": zeros,
  "aten::ones": moved("size", "ones", elementwise.filled(elementwise.bySize)),
  "aten::full": moved(
    "size fill_value",
    "a number, rounded",
    elementwise.filled(elementwise.bySize, "fill_value"),
  ),
  "aten::new_zeros": { ...zeros, parameters: "self size" },
  "aten::zeros_like": moved("self", "zeros", selections.zerosLike),
  "aten::zero_": moved("self", "zeros", selections.zerosLike),
  "aten::ones_like": moved("self", "ones", elementwise.filled(elementwise.likeSelf)),
  "aten::full_like": moved(
    "self fill_value",
    "a number, rounded",
    elementwise.filled(elementwise.likeSelf, "fill_value"),
  ),
  "aten::fill_.Scalar": moved(
    "self value",
    "a number, rounded",
    elementwise.filled(elementwise.likeSelf, "value"),
  ),
};

/** A row and the schema under which it was found. */
export interface FoundRow {
  readonly row: OperatorRow;
  /** Whether the operator writes its result into its first argument. */
  readonly writesSelf: boolean;
}

/** The row of a schema's name; undefined if there is none. `add_.Tensor` has the row of `add.Tensor`. */
export function rowOf(schema: string): FoundRow | undefined {
  const name = schema.replace(/\.default$/, "");
  if (Object.hasOwn(OPERATORS, name))
    return { row: OPERATORS[name] as OperatorRow, writesSelf: /_(\.|$)/.test(name) };
  const base = name.replace(/_(?=\.|$)/, "");
  const row = base !== name && Object.hasOwn(OPERATORS, base) ? OPERATORS[base] : undefined;
  return row?.inPlace ? { row, writesSelf: true } : undefined;
}

/** The witness of a row for one call: undefined if its inputs are not of the kind and size that were compared. */
export function witnessOf({ witness, isCompared }: OperatorRow, call: Call): Witness | undefined {
  return isCompared === undefined || isCompared(call) ? witness : undefined;
}
