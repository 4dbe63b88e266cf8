/** An omitted option has its documented default: the backend receives the same calls. Any other value changes the calls. */
import ts from "typescript";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { autocast } from "../../../src/autocast.js";
import * as lockstep from "../../../src/index.js";
import { InferenceParams } from "../../../src/modules/attention/inference-params.js";
import { Inspector } from "../../../src/modules/inspection/inspector.js";
import { Module } from "../../../src/modules/module.js";
import type { Parameter } from "../../../src/modules/parameter.js";
import { Optimizer } from "../../../src/optimizers/optimizer.js";
import { Quantizer } from "../../../src/quantizers/quantizer.js";
import { RandomState } from "../../../src/quantizers/random-state.js";
import { Float8CurrentScaling } from "../../../src/recipes/per-tensor.js";
import { Recipe } from "../../../src/recipes/recipe.js";
import { Variable } from "../../../src/tape/variable.js";
import { QuantizedTensor } from "../../../src/tensor/quantized.js";
import { Scope } from "../../../src/tensor/scope.js";
import { Tensor } from "../../../src/tensor/tensor.js";
import { type Callable, readDeclarations } from "../harness/arguments/declared.js";
import { completeRows } from "../harness/arguments/derived.js";
import { inWorld } from "../harness/arguments/law.js";
import { domainOf, type Row, type Rows } from "../harness/arguments/row.js";
import { MODULE_ROWS, RECIPE_ROWS } from "../harness/arguments/rows-modules.js";
import { OPERATION_ROWS } from "../harness/arguments/rows-ops.js";
import { QUANTIZER_ROWS } from "../harness/arguments/rows-quantizers.js";
import { acceptedTypes } from "../harness/arguments/types.js";
import { type Backends, openBackends, type World } from "../harness/arguments/world.js";
import { combineResults } from "../harness/modules/calls.js";
import { wrapModule } from "../harness/modules/table.js";
import { RecordingBackend } from "../harness/surface/asked-backend.js";

/** Functions and classes. Methods are not listed, because they have no options of their own. */
const declarations = readDeclarations("dist/src/index.d.ts");
const { checker, callables } = declarations;

const ROWS: Rows = completeRows(declarations, {
  ...OPERATION_ROWS,
  ...QUANTIZER_ROWS,
  ...MODULE_ROWS,
  ...RECIPE_ROWS,
});

type Literal = string | number | boolean | bigint;

/** An option of a call that may be omitted. */
interface Option {
  readonly callable: Callable;
  readonly row: Row;
  /** The index of the argument, and the name of the option in it. */
  readonly argumentIndex: number;
  readonly key: string;
  readonly path: string;
  readonly value: Literal;
  readonly otherValues: readonly Literal[];
}

const OTHERS: Readonly<Record<string, (value: number) => number>> = {
  count: (value) => value + 1,
  index: (value) => value + 1,
  integer: (value) => value + 1,
  int32: (value) => value + 1,
};

/** The literal that a docstring states as the default, or undefined if the default is described in words. */
function defaultIn(doc: string, literals: ReadonlySet<string | number>): Literal | undefined {
  const documentedDefault = /Default:? [`"]?([\w.+-]+?)[`"]?(?:[.;]\s|\.?$)/m.exec(doc)?.[1];
  if (documentedDefault === undefined) return undefined;
  if (documentedDefault === "true" || documentedDefault === "false") return documentedDefault === "true";
  if (literals.has(documentedDefault)) return documentedDefault;
  return documentedDefault !== "" && Number.isFinite(Number(documentedDefault))
    ? Number(documentedDefault)
    : undefined;
}

function optionsOf(callable: Callable): readonly Option[] {
  const row = ROWS[callable.name];
  if (!row || row.self) return [];
  return callable.parameters.flatMap(({ name, type }, argumentIndex) =>
    checker.getPropertiesOfType(checker.getNonNullableType(type)).flatMap((property): Option[] => {
      const field = acceptedTypes(checker, type).fields.get(property.name);
      if (!field?.optional) return [];
      const { literals, kinds } = acceptedTypes(checker, field.type);
      const doc = ts.displayPartsToString(property.getDocumentationComment(checker));
      const documentedDefault = defaultIn(doc, literals);
      if (documentedDefault === undefined) return [];
      const path = `${name}.${property.name}`;
      const value = kinds.has("bigint") ? BigInt(documentedDefault) : documentedDefault;
      const otherNumber = OTHERS[String(domainOf(row, path))] ?? ((x: number): number => x / 2 + 0.125);
      const numbers =
        typeof documentedDefault !== "number"
          ? []
          : kinds.has("bigint")
            ? [5n]
            : [otherNumber(documentedDefault)];
      const otherValues =
        typeof value === "boolean"
          ? [!value]
          : [...[...literals].filter((literal) => literal !== value), ...numbers];
      return [{ callable, row, argumentIndex, key: property.name, path, value, otherValues }];
    }),
  );
}

const options = callables.flatMap(optionsOf);

let backends: Backends;
beforeAll(async () => {
  backends = await openBackends((backend) => new RecordingBackend(backend));
});
afterAll(async () => {
  for (const recordingBackend of [backends.backend, backends.otherBackend])
    await (recordingBackend as RecordingBackend).inner.dispose();
});

/**
 * Converts anything to plain data: tensors to type and shape, parameters to their values, quantizers and recipes to their
 * settings.
 */
function toPlain(value: unknown): unknown {
  if (value instanceof Tensor) return `${value.dtype} [${value.shape}]`;
  if (value instanceof QuantizedTensor) return [value.spec, value.dtype, value.members.map(toPlain)];
  if (value instanceof Variable) return toPlain(value.value);
  if (value instanceof RandomState) return [value.seed, value.offset];
  if (value instanceof Inspector) return value.step;
  if (value instanceof Quantizer) return [value.spec, value.usage];
  // functions of the caller are numbered differently in each call
  if (value instanceof Recipe) return value.key.replaceAll(/#\d+/g, "a function");
  if (value instanceof Module)
    return [...value.namedParameters()].map(([name, parameter]) => [
      name,
      toPlain(parameter),
      [...parameter.tensor.dataSync()],
    ]);
  if (value instanceof Optimizer || value instanceof RecordingBackend) return value.constructor.name;
  if (typeof value === "function") return "a function";
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map(toPlain);
  return Object.fromEntries(Object.entries(value).map(([key, element]) => [key, toPlain(element)]));
}

/**
 * Uses the result of a call, so that its options have an effect: a quantizer once, an optimizer for two steps, a module forward
 * and backward under a recipe.
 */
function useResult(result: unknown, [firstArgument]: readonly unknown[], world: World): void {
  if (result instanceof Quantizer) result.quantize(world.tensor());
  if (result instanceof Optimizer) {
    for (const parameter of (firstArgument as ReadonlyMap<string, Parameter>).values())
      parameter.mainGrad = world.tensor("f32", parameter.shape);
    // the first step of momentum differs from later ones
    for (let step = 0; step < 2; step++) result.step();
  }
  if (result instanceof InferenceParams) {
    result.preStep(new Map([[0, 1]]));
    const heads = (width: number) => world.tensor("bf16", [1, 1, 1, width]);
    result.append(1, heads(16), heads(8));
  }
  if (result instanceof Module) trained(result, world);
}

/** Runs a module forward and backward, if it has a row in the table of modules. */
function trained(module: Module, world: World): void {
  const wrapper = wrapModule(module);
  if (!wrapper) return;
  const inputs = wrapper.inputs(16).map(({ shape, ids }) => {
    const x = world.tensor(ids === undefined ? "bf16" : "i32", shape);
    return new Variable(x, ids === undefined);
  });
  const recipe = new Float8CurrentScaling();
  const y = autocast({ recipe }, () => combineResults(wrapper.run(inputs)));
  y.backward(world.tensor(y.tensor.dtype, y.shape));
}

/** The learning rates of some steps. */
function ratesOf(rate: (step: number) => number): readonly number[] {
  return Array.from({ length: 9 }, (_, i) => rate(i + 1));
}

/** Returns whether the host reads what a function or constructor computes: parameters of a module, codes of dialects. */
function isRead(target: unknown): boolean {
  return target === lockstep.diffDialects || Object.prototype.isPrototypeOf.call(Module, target as object);
}

/** Records the effects of a call with one option set or omitted. */
function outcome(
  { callable, row, argumentIndex, key }: Option,
  call: number,
  value: Literal | undefined,
): unknown {
  return inWorld(backends, (world) => {
    using _scope = new Scope();
    const backend = world.backend as RecordingBackend;
    const { calls } = backend;
    const args = [...(row.calls[call] as Row["calls"][0])(world)];
    calls.length = 0;
    const { [key]: _, ...otherOptions } = (args[argumentIndex] ?? {}) as Record<string, unknown>;
    args[argumentIndex] = value === undefined ? otherOptions : { ...otherOptions, [key]: value };
    const target = callable.name
      .split(".")
      .reduce<unknown>((from, name) => Reflect.get(from as object, name), lockstep);
    backend.computes = isRead(target);
    let result: unknown;
    try {
      result = /^class\b/.test(String(target))
        ? Reflect.construct(target as new () => object, args)
        : Reflect.apply(target as () => unknown, undefined, args);
      useResult(result, args, world);
      if (callable.name === "learningRateSchedule") result = ratesOf(result as (step: number) => number);
      return toPlain({ result, asked: calls });
    } catch (error) {
      return `${error}`;
    } finally {
      if (result instanceof Module) result.dispose();
    }
  });
}

function namesInput({ row, argumentIndex }: Option, call: number): boolean {
  return inWorld(
    backends,
    (world) => "x" in ((row.calls[call] as Row["calls"][0])(world)[argumentIndex] as object),
  );
}

/** The effects of calls with an option set to its default, which the two laws share. */
const defaults = new Map<string, unknown>();

function withDefault(option: Option, call: number): unknown {
  const key = `${option.callable.name} ${option.path} ${call}`;
  if (!defaults.has(key)) defaults.set(key, outcome(option, call, option.value));
  return defaults.get(key);
}

const callsOf = ({ row }: Option): readonly number[] => [...row.calls.keys()];
const titled = options.map(
  (option) => [`${option.callable.name} ${option.path} = ${option.value}`, option] as const,
);

describe("an option that is left out", () => {
  it.each(titled)("%s: is its default", (_, option) => {
    // operands named x and w have no layout
    const calls = callsOf(option).filter((call) => option.key !== "layout" || !namesInput(option, call));
    const outcomes = calls.map((call) => withDefault(option, call));
    expect(calls.map((call) => outcome(option, call, undefined))).toEqual(outcomes);
    expect(outcomes.some((result) => typeof result !== "string")).toBe(true);
  });
});

/** Options whose other values have no visible effect, with the reason. */
const BODY =
  "what is made in the body is of that kind: tests/autocast.test.ts, tests/modules/quantized-init.test.ts";
const ALONE = "a group of one rank divides nothing: tests/modules/tensor-parallel";
const POSITIONS = "a group of one rank divides nothing: tests/functional/context-parallel.test.ts";
const IN_CACHE = "a number of a cache: tests/modules/attention/inference-params.test.ts";
const NO_ROPE = "without a rotary embedding nothing changes: tests/modules/multihead-attention.test.ts";
const TENSOR_ELEMENT = "it is the element of a tensor: tests/update/newton-schulz.test.ts";
const UNSEEN: Readonly<Record<string, string>> = {
  "newtonSchulz options.eps = 1e-7": TENSOR_ELEMENT,
  "Muon options.eps = 1e-7": TENSOR_ELEMENT,
  "autocast options.enabled = true": BODY,
  "autocast options.calibrating = false": BODY,
  "autocastScope options.enabled = true": BODY,
  "autocastScope options.calibrating = false": BODY,
  "LayerNormLinear options.pieces = 1": ALONE,
  "learningRateSchedule options.warmupSteps = 0":
    "a warmup of one step begins with the full rate: tests/optimizers/schedule.test.ts",
  "Linear options.pieces = 1": ALONE,
  "MultiheadAttention options.qkNormBeforeRope = false": NO_ROPE,
  "TransformerLayer options.qkNormBeforeRope = false": NO_ROPE,
  "DotProductAttention options.layerNumber = 1": IN_CACHE,
  "MultiheadAttention options.layerNumber = 1": IN_CACHE,
  "TransformerLayer options.layerNumber = 1": IN_CACHE,
  "DotProductAttention options.dtype = bf16": "its parameter is f32, as TransformerEngine's",
  "functional.attention options.cpCommType = p2p": POSITIONS,
  "DotProductAttention options.cpCommType = p2p": POSITIONS,
  "MultiheadAttention options.cpCommType = p2p": POSITIONS,
  "TransformerLayer options.cpCommType = p2p": POSITIONS,
  "quantizedModelInit options.enabled = true": BODY,
  "quantizedModelInit options.preserveHighPrecisionInitVal = false": BODY,
};

describe("an option with another value than its default", () => {
  it.each(titled)("%s: any other value does something else", (name, option) => {
    for (const otherValue of option.otherValues) {
      const isObservable = callsOf(option).some(
        (call) =>
          JSON.stringify(outcome(option, call, otherValue), big) !==
          JSON.stringify(withDefault(option, call), big),
      );
      expect(isObservable, `${otherValue}`).toBe(UNSEEN[name] === undefined);
    }
  });
});

const big = (_key: string, value: unknown): unknown => (typeof value === "bigint" ? `${value}n` : value);

it("more than 60 options with defaults are checked", () => {
  console.log(
    `defaults: ${options.length} options of ${new Set(options.map((testedOption) => testedOption.callable.name)).size} callables`,
  );
  expect(options.length).toBeGreaterThan(60);
});
