/** Arbitrary arguments for the addon, and the law that none of them crashes it. */
import * as fc from "fast-check";
import { expect } from "vitest";
import {
  type AddonExports,
  type DeviceHandle,
  namingArguments,
} from "../../../../src/backends/cuda/addon.js";
import { namedWords } from "../../../../src/backends/cuda/gemm/plan.js";
import {
  NATIVE_CALLS,
  NATIVE_OPERATIONS,
  type NativeCall,
} from "../../../../src/backends/cuda/native-calls.js";
import { ABSENT, type Slot, slotsOf } from "../../../../src/backends/cuda/native-slots.js";
import { SCALE_RULE } from "../../../../src/formats/contract.gen.js";
import { factsOf } from "../../../../src/formats/derive.js";
import { CallWatch } from "./watch.js";

/** The sizes in bytes of the blocks that arguments point to. */
const BLOCKS = [1, 8, 64, 100, 4096, 2 ** 20];

/**
 * Addresses of blocks: at their start, inside at any alignment, at and past their end, and addresses of another backend's blocks.
 */
function addressesIn(blocks: readonly number[], foreign: readonly number[]): readonly number[] {
  const nearBlocks = blocks.flatMap((block, i) => {
    const bytes = BLOCKS[i % BLOCKS.length] as number;
    const inside = [1, 2, 4, 8, 15, 16, 17, 32, 48, 256].filter((offset) => offset <= bytes);
    return [
      block,
      block,
      block,
      ...inside.map((offset) => block + offset),
      block + bytes,
      block + bytes + 1,
      block - 1,
    ];
  });
  return [...nearBlocks, ...blocks, ...blocks, ...foreign];
}

/** Numbers: sizes, addresses, and negative, huge or fractional values. */
const numberArguments = (addresses: readonly number[]): fc.Arbitrary<number> =>
  fc.oneof(
    { weight: 6, arbitrary: fc.constantFrom(0, 1, 2, 3, 16, 32, 128, 1000) },
    { weight: 6, arbitrary: fc.constantFrom(...addresses) },
    {
      weight: 2,
      arbitrary: fc.constantFrom(
        ...[-1, -0, 0.5, Number.NaN, Infinity, 2 ** 31, 2 ** 32, 2 ** 40, 2 ** 52, 2 ** 53, 1e300],
      ),
    },
  );

const anyValues = (addresses: readonly number[]): fc.Arbitrary<unknown> =>
  fc.oneof(
    { weight: 9, arbitrary: numberArguments(addresses) },
    { weight: 1, arbitrary: fc.constant(new Uint8Array(8)) },
    {
      weight: 2,
      arbitrary: fc.constantFrom<unknown>(
        undefined,
        null,
        true,
        "16",
        16n,
        {},
        [],
        () => 16,
        Symbol("x"),
        new Uint8Array(8),
        new Uint8Array(new SharedArrayBuffer(8)),
        new Float32Array(2),
      ),
    },
  );

/** Format words, 0 (f32), and an unknown word. */
const FORMAT_WORDS = [
  0,
  0xffffffff,
  ...(["e4m3", "e5m2", "e2m1", "e2m3", "e8m0", "bf16", "f16", "int4"] as const).map(
    (name) => factsOf(name).word,
  ),
];
/** Format words that most quantizers accept. */
const FP8_WORDS = (["e4m3", "e5m2"] as const).map((name) => factsOf(name).word);

/** Scale rules for each type of scale, TransformerEngine's and others. */
const SCALE_RULES = (
  ["f32", "e8m0Up", "twoLevel", "f32Quotient", "e8m0UpLeast", "twoLevelDivisor", "twoLevelProduct"] as const
).map((name) => SCALE_RULE[name]);

/** Sizes from which consistent arguments are derived. */
interface CallSizes {
  readonly addresses: readonly number[];
  readonly workspace: number;
  readonly rows: number;
  readonly columns: number;
  /** The bytes of an element. */
  readonly elementBytes: number;
  readonly word: number;
  readonly rule: number;
  readonly choice: number;
  readonly plan: number;
}

/** Fields of a consistent placement of scales for [lines, length] elements. */
const placementFields = (
  lines: number,
  length: number,
  elementBytes: number,
): Readonly<Record<string, number>> => {
  const blocks = Math.ceil(length / elementBytes);
  return { bytes: 0, lines, blocks, lineStride: blocks, blockStride: 1, swizzled: 0 };
};

/** A consistent value for an argument, so that a call is likely to launch its kernel. */
function consistentValue({ name, kind }: Slot, i: number, sizes: CallSizes): number {
  const { rows, columns, elementBytes, choice } = sizes;
  const [, field] = /\.placement\.(\w+)$/.exec(name) ?? [];
  if (field) {
    const [lines, length] = name.includes("columnwise.") ? [columns, rows] : [rows, columns];
    const value = placementFields(lines, length, elementBytes)[field] as number;
    return field === "swizzled" && choice === 5 ? 1 : value;
  }
  const consistent: Readonly<Record<string, number>> = {
    rows,
    columns,
    plan: sizes.plan,
    word: sizes.word,
    scaling: 0,
    scaleWord: FORMAT_WORDS[choice] as number,
    "scales.word": FORMAT_WORDS[choice] as number,
    count: rows * columns,
    itemRows: rows,
    lineShift: 0,
    "scales.lineShift": 0,
    blockShift: Math.log2(elementBytes),
    length: elementBytes,
    bits: 4 * 2 ** (choice % 4),
    batch: 1 + (choice % 3),
    outer: choice,
    p: 3,
    middle: 5,
    q: rows % 7,
    unit: 1 + choice * choice,
    comm: 1,
    peer: 0,
    root: 0,
    ranks: 1 + (choice % 4),
    stride: rows * columns,
    ownAt: 0,
  };
  const leafName = name.replace(/^(?:source\.(?:form\.)?|target\.|quantization\.)/, "");
  if (kind !== "pointer" && leafName in consistent) return consistent[leafName] as number;
  if (name === "workspace") return sizes.workspace;
  if (kind === "pointer") return sizes.addresses[i % sizes.addresses.length] as number;
  if (kind === "activation") return choice;
  if (kind === "staging") return choice % 4;
  // the fused kernel has one rule
  if (kind === "scaleRule") return name === "target.rule" ? SCALE_RULE.e8m0Up : sizes.rule;
  if (kind !== "count" && kind !== "word" && kind !== "float" && kind !== "flag") return choice % 3;
  if (kind === "flag") return choice === 5 ? 1 : 0;
  return /Offset$|^sumsSkipped$/.test(name) ? 16 * (choice % 2) : 32;
}

/**
 * Draws the argument slots of a call, some of them absent. In some draws all values are arbitrary. In other draws all but a few
 * values are consistent, so that calls launch their kernels.
 */
const slotArrays = (
  declaredSlots: readonly Slot[],
  addresses: readonly number[],
  largeAddresses: readonly number[],
  workspace: number,
): fc.Arbitrary<Float64Array> => {
  const size = declaredSlots.length;
  const address = fc.oneof(
    { weight: 12, arbitrary: fc.constantFrom(...largeAddresses) },
    { weight: 1, arbitrary: fc.constantFrom(...addresses) },
  );
  const dimension = fc.constantFrom(0, 1, 3, 16, 17, 32, 32, 32, 64, 64, 64, 96, 100, 128, 128);
  const arbitraryValues = fc.array(numberArguments(addresses), { minLength: 1, maxLength: 40 });
  const sizes = fc.record({
    addresses: fc.array(address, { minLength: 1, maxLength: 7 }),
    workspace: fc.oneof({ weight: 4, arbitrary: fc.constant(workspace) }, { weight: 1, arbitrary: address }),
    rows: dimension,
    columns: dimension,
    elementBytes: fc.constantFrom(32, 16, 32, 32, 128),
    word: fc.oneof(fc.constantFrom(...FORMAT_WORDS), fc.constantFrom(...FP8_WORDS), {
      weight: 2,
      arbitrary: fc.constant(factsOf("int4").word),
    }),
    rule: fc.constantFrom(SCALE_RULE.f32, ...SCALE_RULES),
    choice: fc.integer({ min: 0, max: 5 }),
    plan: fc.integer({ min: 1, max: 4 }),
  });
  const slotIndex = fc.nat({ max: size - 1 });
  const strayValues = fc.array(fc.tuple(slotIndex, numberArguments(addresses)), { maxLength: 2 });
  const absentSlots = fc.tuple(fc.integer({ min: 0, max: 9 }), slotIndex, fc.nat({ max: 8 }));
  // optional arguments are sometimes absent
  const presence = fc.array(fc.boolean(), { minLength: size, maxLength: size });
  return fc
    .tuple(fc.integer({ min: 0, max: 3 }), arbitraryValues, sizes, strayValues, absentSlots, presence)
    .map(([mode, values, callSizes, strays, [stride, start, length], isAbsent]) => {
      const slotValues = Float64Array.from({ length: size }, (_, i) =>
        mode === 0
          ? (values[i % values.length] as number)
          : consistentValue(declaredSlots[i] as Slot, i, callSizes),
      );
      const slotBits = new BigUint64Array(slotValues.buffer);
      if (mode === 0) for (let i = 0; stride > 0 && i < size; i += stride) slotBits[i] = ABSENT;
      if (mode > 1) for (const [i, value] of strays) slotValues[i] = value;
      if (mode === 2)
        for (const [i, { optional }] of declaredSlots.entries())
          if (optional && isAbsent[i]) slotBits[i] = ABSENT;
      if (mode > 2) slotBits.fill(ABSENT, start, Math.min(start + length, size));
      return slotValues;
    });
};

/** Values that native code must refuse in place of the argument array, and argument arrays in other kinds of memory. */
function replaceArguments(args: Float64Array, kind: number): unknown {
  const { length } = args;
  const shared = new Float64Array(new SharedArrayBuffer(8 * length));
  shared.set(args);
  const detached = args.slice();
  structuredClone(detached, { transfer: [detached.buffer] });
  const replacements = [
    shared,
    detached,
    args.subarray(1),
    new Float64Array(length + 1),
    new Float64Array(0),
    new Float32Array(length),
    new BigUint64Array(length),
    new Uint8Array(8 * length),
    new DataView(args.buffer),
    args.buffer,
    Array.from(args),
    new Proxy(args, {}),
    Object.create(args),
    { length },
    undefined,
    7,
  ];
  return replacements[kind] ?? args;
}

type AddonFunction = (typeof NATIVE_OPERATIONS)[number] | (typeof DIRECT)[number];

const DIRECT = ["write", "read", "readSync", "copy", "free", "allocate", "memory", "trim"] as const;

/** Prepares a product and returns its number, with an algorithm if cuBLASLt proposes one. */
function preparedPlan(exports: AddonExports, device: DeviceHandle, transposeA: boolean): number {
  const addon = namingArguments(exports);
  const pitches = { aPitch: 32, bPitch: 32, cPitch: 32, dPitch: 32 };
  const types = { aType: 14, bType: 14, cType: 14, dType: 14 };
  const options = { transposeB: false, tf32: false, fastAccumulation: false, deviceScalars: false };
  const plan = addon.gemmPlan(device, {
    m: 32,
    n: 32,
    k: 32,
    batch: 1,
    transposeA,
    ...options,
    ...pitches,
    ...types,
  });
  const search = { plan, count: 8, schemes: 7, alignment: 256, workspace: 2 ** 26 };
  const algorithm = addon.gemmCandidates(device, search).at(-1);
  if (algorithm) addon.gemmChoose(device, { plan, ...namedWords(algorithm.words) });
  return plan;
}

/**
 * Opens a communicator of one rank, as number 1. Only for the stand-in for NCCL: on a GPU, invalid calls could break other
 * communicators.
 */
function prepareCommunicator(addon: AddonExports, device: DeviceHandle): void {
  if (!process.env.LOCKSTEP_STAND_IN) return;
  const failed = new Int32Array(new SharedArrayBuffer(4));
  addon.ncclOpen(device, addon.ncclId(), 0, 1, failed, 60_000);
}

/** A placeholder slot for functions without slots. */
const NO_SLOT: Slot = { name: "none", kind: "count", optional: false };

interface ArgumentRuns {
  readonly numRuns: number;
  readonly seed?: number;
  /** The functions to call. Default: all. */
  readonly names?: readonly AddonFunction[];
}

/**
 * Calls functions with arbitrary arguments. Each call has to return or throw an Error, and later calls have to work.
 * Waits for each accepted call, so that a kernel fault is attributed to it, and names a call that does not return. Returns the
 * names of functions that only threw.
 */
export async function survivesAnyArguments(
  addon: AddonExports,
  { names = [...NATIVE_OPERATIONS, ...DIRECT], ...runs }: ArgumentRuns,
): Promise<readonly AddonFunction[]> {
  const [device, otherDevice] = [new addon.Device(0), new addon.Device(0)] as [DeviceHandle, DeviceHandle];
  const allocateBlocks = (handle: DeviceHandle) => BLOCKS.map((bytes) => addon.allocate(handle, bytes));
  const freedAddress = addon.allocate(device, 2 ** 21);
  addon.free(device, freedAddress);
  const addresses = addressesIn(allocateBlocks(device), [...allocateBlocks(otherDevice), freedAddress]);
  const largeAddresses = [0, 1, 2].map((i) => addon.allocate(device, 2 ** 20) + 256 * i);
  const workspace = addon.allocate(device, 2 ** 20);
  const plans = [preparedPlan(addon, device, false), preparedPlan(addon, device, true)];
  prepareCommunicator(addon, device);
  const returned = new Set<string>();
  const promises: Promise<unknown>[] = [];
  let throwCount = 0;
  // few arbitrary values are valid for these functions
  const directNames = names.filter((name) => (DIRECT as readonly string[]).includes(name));
  const functionName = fc.constantFrom(...names, ...directNames, ...directNames, ...directNames);
  const slotArraysFor = (name: AddonFunction) =>
    slotArrays(
      name in NATIVE_CALLS ? slotsOf(NATIVE_CALLS[name as NativeCall]) : [NO_SLOT],
      addresses,
      largeAddresses,
      workspace,
    );
  const handles = fc.constantFrom<unknown>(...new Array(12).fill(device), {}, undefined, 7);
  const direct = fc.array(anyValues(addresses), { minLength: 3, maxLength: 3 });
  const watch = new CallWatch();
  try {
    fc.assert(
      fc.property(
        functionName.chain((name) => fc.tuple(fc.constant(name), slotArraysFor(name))),
        handles,
        fc.integer({ min: 0, max: 199 }),
        direct,
        ([name, slotArray], handle, kind, directArguments) => {
          // the blocks and plans that other calls use are not freed
          if (name === "free" && typeof directArguments[0] === "number")
            directArguments[0] = addon.allocate(device, directArguments[0] & 0xfff);
          if (name === "gemmForget" && plans.includes(slotArray[0] ?? 0))
            slotArray[0] = preparedPlan(addon, device, false);
          const isDirect = (DIRECT as readonly string[]).includes(name);
          const args = isDirect ? directArguments : [replaceArguments(slotArray, kind)];
          watch.begin(
            `${name}(${(isDirect ? directArguments : [...slotArray]).map(String).join(", ")}), kind ${kind}`,
          );
          try {
            const result = Reflect.apply(addon[name] as (...args: unknown[]) => unknown, addon, [
              handle,
              ...args,
            ]);
            if (result instanceof Promise)
              promises.push(result.catch((error) => expect(error).toBeInstanceOf(Error)));
            returned.add(name);
          } catch (error) {
            expect(error).toBeInstanceOf(Error);
            throwCount++;
            return;
          }
          addon.synchronize(device);
        },
      ),
      { endOnFailure: true, ...runs },
    );
  } finally {
    await watch.end();
  }
  await Promise.all(promises);
  expect(throwCount).toBeGreaterThan(runs.numRuns / 20);
  addon.close(device);
  addon.close(otherDevice);
  return names.filter((name) => !returned.has(name));
}
