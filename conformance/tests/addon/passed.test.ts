/**
 * The CUDA backend passes the arguments of an operation to the addon: an argument of a call that has the name of an operation's
 * argument, or an alias of it, has its value, and is absent if the operation's argument is absent.
 */
import * as fc from "fast-check";
import { afterAll, beforeAll, expect, it } from "vitest";
import type { Backend } from "../../../src/backends/backend.js";
import type { AddonExports, DeviceHandle } from "../../../src/backends/cuda/addon.js";
import { openCuda } from "../../../src/backends/cuda/backend.js";
import type { Declaration } from "../../../src/backends/cuda/native-arguments.js";
import { NATIVE_CALLS } from "../../../src/backends/cuda/native-calls.js";
import { ABSENT, type Slot, slotsOf } from "../../../src/backends/cuda/native-slots.js";
import type { AttentionPlan } from "../../../src/backends/ops/attention.js";
import type { OpArgs, OpName } from "../../../src/backends/ops.js";
import { UnsupportedError } from "../../../src/errors.js";
import { ACTIVATION, OVERFLOW, ROUNDING, SCALE_RULE, WIDE } from "../../../src/formats/contract.gen.js";
import { factsOf } from "../../../src/formats/derive.js";
import { scalingBits } from "../../../src/formats/element-scalings.js";
import type { QuantizeSpec } from "../../../src/tensor/quantized.js";
import { Scope } from "../../../src/tensor/scope.js";
import { Tensor } from "../../../src/tensor/tensor.js";
import { matrixShape } from "../../arbitraries/matrices.js";
import type { Inputs } from "../../laws/run-options.js";
import { type Cases, OPERATIONS, type OperationName } from "../../operations/operations.js";
import { PassingBackend } from "../../operations/passing.js";
import { shardInputs } from "../arbitraries/shards.js";
import { describeOnStandIn } from "../harness/addon/stand-in.js";
import { GPU_OPERATIONS } from "../harness/gpu/groups.js";

const RUNS = Number(process.env.RUNS ?? 40);
const SEED = Number(process.env.SEED ?? 1);

const SHARDS = shardInputs((multiple, block) => matrixShape(multiple, block, 2048));

/** The operation's arguments that calls name differently, or by several names. */
const NAMES: Readonly<Record<string, readonly string[]>> = {
  eps: ["epsilon"],
  zeroCenteredGamma: ["zeroCentered"],
  pow2Scales: ["pow2"],
  amaxEpsilon: ["epsilon"],
  amaxLimit: ["limit"],
  rht: ["transforms"],
  startPositions: ["starts"],
  cuSeqlens: ["cumulative"],
  rhtSigns: ["signs"],
  amax: ["amax", "rowwise.givenAmax"],
  amaxRecord: ["amaxOut"],
  randomBits: ["words", "rowwiseWords", "rowwise.words"],
  randomBitsColumnwise: ["columnwiseWords", "columnwise.words"],
};

/** The operation's arguments that are names of an enumeration, each with the call's argument that holds the number. */
const NUMBERED: Readonly<Record<string, readonly [name: string, numbers: Readonly<Record<string, number>>]>> =
  {
    kind: ["kind", ACTIVATION],
    rounding: ["rounding", ROUNDING],
    overflow: ["overflow", OVERFLOW],
    scaleRule: ["rule", SCALE_RULE],
  };

/** The groups in which fused calls pass the arguments of their operations. */
const GROUPS = /^(?:source\.(?:form\.)?|target\.|quantization\.)/;

/** The arguments that calls derive from a spec. */
const OF_SPEC: Readonly<Record<string, (spec: QuantizeSpec) => number>> = {
  word: ({ format }) => factsOf(format).word,
  scaling: ({ elementScaling }) => scalingBits(elementScaling),
  fourOverSix: (spec) => Number(spec.fourOverSix !== "none"),
  squaredError: (spec) => Number(spec.fourOverSix === "mse"),
};

/** Arguments that calls compute, or take from elsewhere, although an operation's argument has the same name. */
const COMPUTED =
  /\.(rows|columns|workspace|columnwise\.givenAmax)$|^(?:norm|activation|gated|clampedSwiglu)\w*\.amax$/;

type Values = Map<string, number>;

function addRandom(values: Values, random: { readonly seed: bigint; readonly offset: bigint }): void {
  for (const [name, value] of Object.entries({ seed: random.seed, offset: random.offset })) {
    values.set(`random.${name}Low`, Number(BigInt.asUintN(32, value)));
    values.set(`random.${name}High`, Number(BigInt.asUintN(32, value >> 32n)));
  }
}

/** Adds the values of an argument's parts, by their names in calls. */
function addValues(values: Values, key: string, value: unknown, prefix = ""): void {
  const numbered = NUMBERED[key];
  if (typeof value === "string" && numbered) values.set(numbered[0], numbered[1][value] as number);
  else if (typeof value === "object" && value !== null && !(value instanceof Tensor))
    addGroup(values, key, value);
  for (const name of (NAMES[key] ?? [key]).map((key) => prefix + key)) {
    if (value instanceof Tensor) {
      for (const key of [name, `${name}.data`]) values.set(key, value.address);
      if (!(value.dtype in WIDE)) continue;
      for (const field of [`${name}Type`, `${name}.type`])
        values.set(field, WIDE[value.dtype as keyof typeof WIDE]);
    } else if (typeof value === "number" || typeof value === "boolean") values.set(name, Number(value));
  }
}

function addGroup(values: Values, key: string, value: object): void {
  if ("seed" in value) addRandom(values, value as never);
  else if (key === "spec" || key === "clamp") {
    for (const [name, field] of Object.entries(value)) {
      addValues(values, name, field);
      if (key === "clamp") addValues(values, name, field, "clamp.");
    }
  } else if (key === "part") {
    for (const [name, field] of Object.entries(value)) addValues(values, name, field, "part.");
  } else if ("data" in value && "scaleInv" in value) addCopy(values, key, value as never);
}

function addCopy(
  values: Values,
  key: string,
  copy: { readonly data: Tensor; readonly scaleInv: Tensor; readonly amax?: Tensor | undefined },
): void {
  const prefix = key === "copy" ? "" : `${key}.`;
  values.set(key, copy.data.address);
  values.set(`${key}ScaleInv`, copy.scaleInv.address);
  values.set(`${prefix}codes`, copy.data.address);
  for (const name of ["scales", "scales.data"]) values.set(prefix + name, copy.scaleInv.address);
  if (copy.amax) values.set(`${prefix}amax`, copy.amax.address);
}

/** The values of an operation's arguments, by their names in calls. */
function valuesOf(args: object): Values {
  const values: Values = new Map();
  if ("spec" in args) {
    const spec = args.spec as QuantizeSpec;
    addValues(values, "spec", spec);
    for (const [name, derived] of Object.entries(OF_SPEC)) values.set(name, derived(spec));
  }
  for (const [key, value] of Object.entries(args)) if (key !== "spec") addValues(values, key, value);
  if ("plan" in args)
    for (const [key, value] of Object.entries({ ...args, ...(args.plan as AttentionPlan) }))
      addValues(values, key, value, "rule.");
  if ("causal" in args) {
    const { shape } = ("y" in args ? args.y : (args as OpArgs["softmax"]).x) as Tensor;
    values.set("period", args.causal ? (shape.at(-2) ?? 1) : 0);
  }
  // parts of a copy that is not requested are not passed
  for (const name of values.keys()) {
    const [copy, member] = name.split(".");
    if (member && copy?.endsWith("wise") && !values.has(copy)) values.delete(name);
  }
  return values;
}

/**
 * Describes the fault of the value of one slot; undefined if the value is right. A temporary tensor may replace a tensor; its
 * address is not in `values`.
 */
function mistakeIn(
  { name, kind, optional }: Slot,
  slot: number | undefined,
  values: Values,
): string | undefined {
  const key = name.replace(/^source\.form\.(?=alpha|limit|offset)/, "clamp.").replace(GROUPS, "");
  const expected = values.get(key);
  if (expected === undefined) {
    const isGiven = optional && kind === "pointer" && slot !== undefined;
    return isGiven ? `${name} is ${slot}, which was not given` : undefined;
  }
  if (Object.is(slot, kind === "word" ? expected >>> 0 : expected)) return undefined;
  const isTemporary = kind === "pointer" && slot !== undefined && ![...values.values()].includes(slot);
  return isTemporary ? undefined : `${name} is ${slot} where ${expected} was given`;
}

/** Records the running operation, among the operations that a lowering may run. */
class Watched extends PassingBackend {
  readonly running: object[] = [];

  override run<K extends OpName>(op: K, args: OpArgs[K]): void {
    this.running.push(args);
    try {
      this.inner.run(op, args);
    } finally {
      this.running.pop();
    }
  }
}

/** The addon, with `onCall` called before each operation. */
function recordedAddon(
  addon: AddonExports,
  onCall: (name: string, slots: Float64Array) => void,
): AddonExports {
  const entries = Object.keys(NATIVE_CALLS).map((name) => {
    const native = addon[name as keyof typeof NATIVE_CALLS] as (
      device: DeviceHandle,
      slots: Float64Array,
    ) => unknown;
    return [
      name,
      (device: DeviceHandle, slots: Float64Array) => {
        onCall(name, slots);
        return native(device, slots);
      },
    ];
  });
  return { ...addon, ...Object.fromEntries(entries) };
}

describeOnStandIn("the CUDA backend passes to the addon what", (addon) => {
  let gpu: Backend;
  let watchedBackend: Watched;
  let mistakes: string[] = [];
  let count = 0;
  beforeAll(() => {
    gpu = openCuda(
      recordedAddon(addon, (call, slots) => {
        const args = watchedBackend.running.at(-1);
        if (!args || call.startsWith("gemm")) return;
        const bits = new BigUint64Array(slots.buffer);
        const values = valuesOf(args);
        for (const [i, slot] of slotsOf(NATIVE_CALLS[call as never] as Declaration).entries()) {
          count++;
          if (COMPUTED.test(`${call}.${slot.name}`)) continue;
          const mistake = mistakeIn(slot, bits[i] === ABSENT ? undefined : slots[i], values);
          if (mistake) mistakes.push(`${call}: ${mistake}`);
        }
      }),
    );
    watchedBackend = new Watched(gpu);
  });
  afterAll(() => gpu.dispose());

  const runs = <K extends OperationName>(name: K, inputs: Inputs = {}) => {
    const { arbitrary, run } = OPERATIONS[name];
    const inputArbitrary: fc.Arbitrary<Cases[K]> = inputs[name] ?? arbitrary;
    count = 0;
    fc.assert(
      fc.property(inputArbitrary, (input: Cases[K]) => {
        using _scope = new Scope();
        mistakes = [];
        try {
          run(watchedBackend, input);
        } catch (error) {
          if (!(error instanceof UnsupportedError)) throw error;
        }
        expect(mistakes).toEqual([]);
      }),
      // a fused kernel supports few of the cases
      { numRuns: name.endsWith("Quantize") ? 8 * RUNS : RUNS, seed: SEED },
    );
    expect(count).toBeGreaterThan(RUNS / 2);
  };

  it.each(GPU_OPERATIONS.filter((name) => !/gemm/i.test(name)))(
    "%s passes its arguments to the addon",
    (name) => runs(name),
  );

  it.each(Object.keys(SHARDS) as (keyof typeof SHARDS)[])(
    "%s of a part of a matrix passes its arguments to the addon",
    (name) => runs(name, SHARDS),
  );
});
