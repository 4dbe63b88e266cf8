/** How inputs of elementwise operators are drawn, and how an operator runs: into a new tensor, another one, or in place. */
import * as fc from "fast-check";
import {
  OPERATOR_NAMES,
  OPERATORS,
  type Operator,
  type OperatorName,
} from "../../../src/backends/elementwise.js";
import { type Shape, storageBits, type WideDType } from "../../../src/tensor/shape.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { words } from "../../arbitraries/random.js";
import { laneShape, wideTensor, wideType } from "../../arbitraries/wide.js";
import { OPERATORS as RULES } from "../../oracle/elementwise/operators.js";
import { download, fromCodes, type PlainTensor, upload, wideValues } from "../../values/plain.js";
import { rounded } from "../../values/rounded.js";
import { SPECIALS } from "../../values/samples.js";
import type { Operation } from "../operation.js";

type Row<K extends OperatorName> = (typeof OPERATORS)[K];
type Inputs<K extends OperatorName> = keyof Row<K>["inputs"];
type Numbers<K extends OperatorName> = Row<K> extends { readonly numbers: infer N } ? keyof N : never;

/** Any f64 as a number; the operator rounds it to f32. */
export type OperatorCase<K extends OperatorName> = {
  readonly [N in Inputs<K>]: PlainTensor<WideDType>;
} & { readonly [N in Numbers<K>]: number } & {
  /** The output: a new tensor of `outDtype`, an existing tensor of `outDtype`, or one of the inputs. */
  readonly into: "new" | "given" | Inputs<K>;
  readonly outDtype: WideDType;
};

/** The arguments of an operator's function: tensors and numbers by name. */
type Arguments<K extends OperatorName> = { readonly [N in Inputs<K>]: Tensor } & {
  readonly [N in Numbers<K>]: number;
};

interface Result {
  readonly out?: Tensor | undefined;
  readonly outDtype?: WideDType | undefined;
}

/** Ties in the last place, the limits of f32, values beyond them, and values that f32 rounds. */
const NUMBERS = [
  0.1,
  1 / 3,
  1 + 2 ** -23,
  2 ** -24,
  2 ** -126,
  2 ** 127,
  3.4e38,
  1e300,
  -1e-300,
  ...SPECIALS,
];

const namesOf = (operator: OperatorName) => {
  const { inputs, numbers = {} }: Operator = OPERATORS[operator];
  return { inputs: Object.keys(inputs), numbers: Object.keys(numbers) };
};

/** The tensor with zeros of both signs in about half of its elements. */
function withZeros({ dtype, shape, codes }: PlainTensor<WideDType>): fc.Arbitrary<PlainTensor<WideDType>> {
  const minusZero = 2 ** (storageBits(dtype) - 1);
  return fc.nat().map((seed) => {
    const drawn = words(seed, codes.length);
    const replacements = [0, minusZero];
    return fromCodes(
      dtype,
      shape,
      Array.from(codes, (code, i) => replacements[(drawn[i] as number) % 4] ?? code),
    );
  });
}

/** Calls of an operator whose inputs have this shape; `tensor` draws them. */
function operatorCase<K extends OperatorName>(
  operator: K,
  shape: Shape,
  tensor: (shape: Shape) => fc.Arbitrary<PlainTensor<WideDType>>,
): fc.Arbitrary<OperatorCase<K>> {
  const { inputs, numbers } = namesOf(operator);
  const number = fc.oneof(fc.constantFrom(...NUMBERS), fc.double());
  return fc
    .record({
      ...Object.fromEntries(
        inputs.map((name) => [name, name === "condition" ? tensor(shape).chain(withZeros) : tensor(shape)]),
      ),
      ...Object.fromEntries(numbers.map((name) => [name, number])),
      into: fc.constantFrom("new", "given", ...inputs),
      outDtype: wideType(),
    })
    .map((input) => {
      const target = (input as Readonly<Record<string, unknown>>)[input.into] as
        | PlainTensor<WideDType>
        | undefined;
      return (target ? { ...input, outDtype: target.dtype } : input) as OperatorCase<K>;
    });
}

/** Calls of every operator, by name. */
export function operatorCases(
  shapes: fc.Arbitrary<Shape>,
  tensor: (shape: Shape) => fc.Arbitrary<PlainTensor<WideDType>>,
): { readonly [K in OperatorName]: fc.Arbitrary<OperatorCase<K>> } {
  const cases = OPERATOR_NAMES.map((name) => [
    name,
    shapes.chain((shape) => operatorCase(name, shape, tensor)),
  ]);
  return Object.fromEntries(cases);
}

/** The row of an operator; `run` calls its function. */
export function operatorOperation<K extends OperatorName>(
  operator: K,
  run: (args: Arguments<K>, options: Result) => Tensor,
): Operation<OperatorCase<K>> {
  const { inputs, numbers } = namesOf(operator);
  const tensorsOf = (input: OperatorCase<K>) =>
    inputs.map((name) => input[name as keyof typeof input] as PlainTensor<WideDType>);
  const numbersOf = (input: OperatorCase<K>) =>
    numbers.map((name) => input[name as keyof typeof input] as number);
  return {
    arbitrary: laneShape(2048).chain((shape) =>
      operatorCase(operator, shape, (of) => wideTensor(of, { edges: RULES[operator].edges })),
    ),
    run(backend, input) {
      const { into, outDtype } = input;
      const plain = tensorsOf(input);
      const tensors = plain.map((each) => upload(backend, each));
      const args = Object.fromEntries([
        ...inputs.map((name, i) => [name, tensors[i]]),
        ...numbers.map((name, i) => [name, numbersOf(input)[i]]),
      ]) as Arguments<K>;
      if (into === "new") return { out: download(run(args, { outDtype })) };
      const [first] = plain as [PlainTensor<WideDType>];
      const out =
        into === "given"
          ? upload(backend, rounded(outDtype, first.shape, [...wideValues(first)]))
          : (args[into as keyof typeof args] as Tensor);
      run(args, { out });
      return { out: download(out) };
    },
    oracle(input) {
      const [first, ...others] = tensorsOf(input) as [PlainTensor<WideDType>];
      const rest = others.map((each) => wideValues(each));
      const value: (...values: readonly number[]) => number = RULES[operator].value;
      const values = Array.from(wideValues(first), (x, i) =>
        value(x, ...rest.map((each) => each[i] as number), ...numbersOf(input)),
      );
      return { out: rounded(input.outDtype, first.shape, values) };
    },
  };
}
