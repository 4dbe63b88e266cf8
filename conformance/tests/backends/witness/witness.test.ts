/** The witness finds elements that differ from the reference, and only those. */
import * as fc from "fast-check";
import { afterEach, describe, expect, it } from "vitest";
import type { Backend } from "../../../../src/backends/backend.js";
import { openBackend } from "../../../../src/backends/open.js";
import type { OpName } from "../../../../src/backends/ops.js";
import { interceptRun } from "../../../../src/backends/run.js";
import { openWasm } from "../../../../src/backends/wasm/backend.js";
import type { Witness, WitnessFinding, WitnessOptions } from "../../../../src/backends/witness/options.js";
import { SAMPLERS } from "../../../../src/backends/witness/samplers.js";
import { addWitness, witnessOf } from "../../../../src/backends/witness/witness.js";
import { TENSOR_ROWS } from "../../../../src/backends/writes.js";
import { ArgumentError, BackendError, UnsupportedError } from "../../../../src/errors.js";
import { encode } from "../../../../src/ops/cast/cast.js";
import { tensor } from "../../../../src/ops/create.js";
import { add } from "../../../../src/ops/elementwise/operators.gen.js";
import { gemm } from "../../../../src/ops/gemm/gemm.js";
import { captureGraph } from "../../../../src/ops/graph.js";
import { valueAt } from "../../../../src/options.js";
import { memoryOf } from "../../../../src/tensor/memory.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { storageBits } from "../../../../src/tensor/shape.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { OPERATIONS, type OperationName } from "../../../operations/operations.js";
import { derivedSeed, draws } from "../../harness/draws.js";
import { RECIPE_NAMES, TrainingRun } from "../../harness/training/run.js";

const backends: Backend[] = [];
afterEach(async () => {
  for (const backend of backends.splice(0)) await backend.dispose();
});

/** The bit of an element that a faulty backend flips. */
interface Fault {
  readonly op: OpName;
  readonly result: string;
  /** Chooses elements of each call. */
  readonly elements: (size: number, call: number) => readonly number[];
  /** Called for each call in which a bit was flipped. */
  readonly onFlip?: (call: number) => void;
}

/** A reference under a witness. With a fault, it plays a GPU that gives wrong bits. */
async function openWatched(options: WitnessOptions, fault?: Fault): Promise<[Backend, Witness]> {
  const backend = await openWasm({ threads: 1 });
  backends.push(backend);
  let call = 0;
  if (fault)
    interceptRun(backend, (run) => (op, args) => {
      run(op, args);
      if (op !== fault.op) return;
      call++;
      const result = valueAt(args, fault.result) as Tensor | undefined;
      if (!result) return;
      const flips = fault.elements(result.size, call - 1).map((element) => flip(result, element));
      if (flips.includes(true)) fault.onFlip?.(call - 1);
    });
  return [backend, await addWitnessTo(backend, options)];
}

async function addWitnessTo(backend: Backend, options: WitnessOptions): Promise<Witness> {
  const reference = await openWasm({ threads: 1 });
  backends.push(reference);
  return addWitness(backend, reference, options);
}

/** The bits of infinity. The bits of NaN are larger, apart from the sign. */
const INFINITY: Readonly<Record<string, number>> = { f32: 0x7f800000, bf16: 0x7f80, f16: 0x7c00 };

/** Flips the lowest bit of an element, unless it is NaN, because all NaN are equal. Returns whether it was flipped. */
function flip(result: Tensor, element: number): boolean {
  const memory = memoryOf(result.backend);
  const bits = storageBits(result.dtype);
  const size = Math.ceil(bits / 8);
  // an element of 4 bits is the lower half of a byte, or the upper one
  const address = result.address + Math.floor((element * bits) / 8);
  const bytes = memory.readSync(address, size).slice();
  const value = bytes.reduceRight((sum, byte) => sum * 256 + byte, 0);
  const infinity = INFINITY[result.dtype] ?? Number.POSITIVE_INFINITY;
  if (value % 2 ** (8 * size - 1) > infinity) return false;
  bytes[0] = (bytes[0] as number) ^ (1 << ((element * bits) % 8));
  memory.write(address, bytes);
  return true;
}

const NAMES = Object.keys(SAMPLERS) as (OpName & OperationName)[];

/** Attention without the options with which it is not sampled. */
const plainAttention = OPERATIONS.attention.arbitrary
  .filter(({ layout, pages }) => layout !== "thd" && pages === undefined)
  .map(({ layout, datapath, scale, causal, align, window, plan, softcap, q, k, v }) => ({
    ...{ layout, datapath, scale, causal, align, window, plan, softcap, q, k, v },
  }));

/** Runs drawn cases of an operation. */
function runCases(backend: Backend, name: OperationName, inputs: readonly never[]): void {
  for (const input of inputs) {
    using _scope = new Scope();
    try {
      OPERATIONS[name].run(backend, input);
    } catch (error) {
      if (!(error instanceof UnsupportedError)) throw error;
    }
  }
}

/** Drawn cases of an operation that the witness samples. */
function inputsOf(name: OperationName): readonly never[] {
  const arbitrary = (
    name === "attention" ? plainAttention : OPERATIONS[name].arbitrary
  ) as fc.Arbitrary<never>;
  return fc.sample(arbitrary, { numRuns: draws(300, 40), seed: derivedSeed(77) });
}

// a batch of products is one call of `gemm`, of which one product is compared
it.each([...NAMES.map((name) => [name, name] as const), ["batchedGemm", "gemm"] as const])(
  "%s equals the reference on the reference itself",
  async (name, op) => {
    const [backend, witness] = await openWatched({ every: 1, elements: 200, onMismatch: "record" });
    runCases(backend, name, inputsOf(name));
    await witness.settled();
    const { findings, operations } = witness.report();
    expect(findings).toEqual([]);
    expect(operations[op]?.compared).toBeGreaterThan(0);
    expect(operations[op]?.elements).toBeGreaterThan(0);
  },
);

describe.each(NAMES)("%s", (name) => {
  const inputs = inputsOf(name);

  const [result, reports] = /quantize$/i.test(name)
    ? ["rowwise.data", "codes"]
    : [0, 1].map(() => TENSOR_ROWS.get(name)?.find((row) => row.written && !row.optional)?.name ?? "");

  it("has every flipped bit found, and nothing else, if all elements are compared", async () => {
    const flippedElements: number[] = [];
    const [backend, witness] = await openWatched(
      { every: 1, elements: 1e6, onMismatch: "record" },
      {
        ...{ op: name, result: result as string },
        elements: (size, call) => (size === 0 || call % 3 === 0 ? [] : [(call * 7919) % size]),
        onFlip: (call) => flippedElements.push(call),
      },
    );
    runCases(backend, name, inputs);
    await witness.settled();
    const { findings, operations } = witness.report();
    const { compared: comparedCount = 0, calls = 0 } = operations[name] ?? {};
    expect(comparedCount).toBeGreaterThan(0);
    const signatures = findings.map(({ call }) => call);
    expect(flippedElements).toEqual(expect.arrayContaining(signatures));
    expect(signatures.length).toBeGreaterThanOrEqual(flippedElements.length - (calls - comparedCount));
    for (const { differing: differingCount, differences } of findings) {
      expect(differingCount).toBe(1);
      const [difference] = differences as [WitnessFinding["differences"][number]];
      expect(difference.result).toBe(reports);
      expect(Number.parseInt(difference.actual, 16) ^ Number.parseInt(difference.expected, 16)).toBe(1);
    }
  });
});

/** A product of two drawn matrices, [rows, depth] and [columns, depth]. */
function product(backend: Backend, [rows, columns, depth]: readonly [number, number, number]): void {
  using _scope = new Scope();
  const matrix = (lines: number) =>
    encode(
      tensor(
        backend,
        Float32Array.from({ length: lines * depth }, (_, i) => ((i * 37) % 101) - 50),
        [lines, depth],
      ),
      { format: "bf16" },
    );
  gemm({ x: matrix(rows), w: matrix(columns), outDtype: "f32" });
}

/** Faults of a product [SIZE, SIZE], and the share of calls whose sample of LINES x LINES elements has a wrong one. */
const SIZE = 32;
const LINES = 8;
const FAULTS = {
  "one flipped bit": {
    elements: (call: number) => [(call * 7919) % SIZE ** 2],
    share: (LINES / SIZE) ** 2,
  },
  "a wrong row, as a wrong scale gives it": {
    elements: (call: number) =>
      Array.from({ length: SIZE }, (_, column) => ((call * 5) % SIZE) * SIZE + column),
    share: LINES / SIZE,
  },
  "a lane that always gives a wrong bit": {
    elements: () => Array.from({ length: SIZE * (SIZE / 4) }, (_, i) => 4 * i + 1),
    // no sampled column belongs to the lane
    share: 1 - choices((SIZE * 3) / 4, LINES) / choices(SIZE, LINES),
  },
} as const;

/** The number of ways to choose `count` of `total`. */
function choices(total: number, count: number): number {
  return Array.from({ length: count }, (_, i) => (total - i) / (i + 1)).reduce((a, b) => a * b, 1);
}

it.each(Object.entries(FAULTS))("%s is found as often as the sample's size predicts", async (_, fault) => {
  const CALLS = 400;
  const [backend, witness] = await openWatched(
    { every: 1, elements: LINES ** 2, onMismatch: "record" },
    { op: "gemm", result: "out", elements: (_size, call) => fault.elements(call) },
  );
  for (let call = 0; call < CALLS; call++) product(backend, [SIZE, SIZE, 8]);
  await witness.settled();
  const deviation = Math.sqrt(CALLS * fault.share * (1 - fault.share));
  expect(Math.abs(witness.report().findings.length - CALLS * fault.share)).toBeLessThan(5 * deviation);
});

describe("a report", () => {
  const run = async (seed: bigint) => {
    const [backend, witness] = await openWatched(
      { every: 2, elements: 16, onMismatch: "record", seed },
      { op: "gemm", result: "out", elements: (size, call) => [(call * 7919) % size] },
    );
    for (let call = 0; call < 60; call++) product(backend, [8, 8, 4]);
    await witness.settled();
    return witness.report();
  };

  it("is equal for equal calls and seeds, and another seed samples other elements", async () => {
    const [firstRun, secondRun, otherSeed] = [await run(5n), await run(5n), await run(6n)];
    expect(firstRun.findings.length).toBeGreaterThan(0);
    expect(secondRun).toEqual(firstRun);
    expect(otherSeed.findings).not.toEqual(firstRun.findings);
  });

  it("counts calls, and compares one in `every`", async () => {
    const { operations } = await run(5n);
    expect(operations.gemm).toEqual({ calls: 60, compared: 30, elements: 30 * 16, skipped: {} });
  });
});

describe("a mismatch", () => {
  const fault: Fault = { op: "gemm", result: "out", elements: () => [5] };
  const shape = [4, 4, 4] as const;

  it("is thrown by the next operation, once", async () => {
    const [backend, witness] = await openWatched({ every: 1 }, fault);
    product(backend, shape);
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(() => product(backend, shape)).toThrow(BackendError);
    await expect(witness.settled()).resolves.toBeUndefined();
  });

  it("is thrown by `settled`, with the place and both values", async () => {
    const [backend, witness] = await openWatched({ every: 1 }, fault);
    product(backend, shape);
    await expect(witness.settled()).rejects.toThrow(
      /call 0 of gemm differs from the reference in 1 of 16 elements; out\[1, 1\] is 0x[0-9a-f]{8}, the reference gives 0x[0-9a-f]{8}/,
    );
  });

  it("is given to a function", async () => {
    const findings: WitnessFinding[] = [];
    const [backend, witness] = await openWatched(
      { every: 1, onMismatch: (finding) => findings.push(finding) },
      fault,
    );
    product(backend, shape);
    await witness.settled();
    expect(findings).toEqual(witness.report().findings);
    expect(findings[0]?.tensors).toEqual({
      "x.data": "bf16 [4, 4]",
      "w.data": "bf16 [4, 4]",
      out: "f32 [4, 4]",
    });
  });
});

it.each(RECIPE_NAMES)(
  "training under %s has the same bits with a witness, and no finding",
  async (recipe) => {
    const hashes = (backend: Backend): readonly string[] => {
      using run = new TrainingRun(backend, "mlp", recipe);
      return [run.advance().hash, run.advance().hash];
    };
    const plainBackend = await openWasm({ threads: 1 });
    backends.push(plainBackend);
    const [backend, witness] = await openWatched({ every: 3, elements: 500 });
    expect(hashes(backend)).toEqual(hashes(plainBackend));
    await witness.settled();
    const { operations, findings } = witness.report();
    expect(findings).toEqual([]);
    expect(operations.gemm?.compared).toBeGreaterThan(0);
  },
);

it("operations of a captured graph are not sampled, and are counted as skipped", async () => {
  const [backend, witness] = await openWatched({ every: 1 });
  using x = tensor(backend, new Float32Array(256), [1, 256]);
  using y = tensor(backend, new Float32Array(256), [1, 256]);
  using graph = captureGraph(backend, () => add(x, y));
  graph.replay();
  await witness.settled();
  expect(witness.report().operations.add?.skipped).toEqual({ "a graph is captured": 1 });
});

describe("openBackend", () => {
  it("adds a witness by its option only", async () => {
    const [plainBackend, backend] = [await openBackend("wasm"), await openBackend("wasm", { witness: {} })];
    backends.push(plainBackend, backend);
    expect(witnessOf(plainBackend)).toBeUndefined();
    product(backend, [2, 2, 2]);
    await witnessOf(backend)?.settled();
    expect(witnessOf(backend)?.report().operations.gemm?.compared).toBe(1);
  });

  it.each([
    { elements: 0 },
    { elements: 1.5 },
    { every: 0 },
    { onMismatch: "ignore" },
    { seed: 1 },
    { sample: 3 },
    null,
  ])("refuses %j", async (witness) => {
    await expect(openBackend("wasm", { witness: witness as WitnessOptions })).rejects.toThrow(ArgumentError);
  });
});
