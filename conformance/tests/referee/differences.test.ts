// Faults planted in the outputs of recorded runs are reported at their operations, and at no others.
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Backend, gemm, openBackend, Scope } from "../../../src/index.js";
import { MemorySource } from "../../../src/io/source.js";
import { computeOperation } from "../../../src/referee/replay.js";
import { readOperation } from "../../../src/referee/run.js";
import { toValue, type Value } from "../../../src/referee/value.js";
import { useWorkspace } from "../harness/cli.js";
import { type LoggedOperation, RecordedRun } from "../harness/referee/recorded-run.js";

const w = useWorkspace();
let backend: Backend;
beforeAll(async () => {
  backend = await openBackend("wasm", { threads: 1 });
});
afterAll(() => backend.dispose());

function modelResult(run: RecordedRun, operation: LoggedOperation): ReturnType<typeof computeOperation> {
  const file = new MemorySource("memory", [...run.tensors.values()]);
  return computeOperation({ backend, file }, "a fault", readOperation("a fault", operation));
}

/** The result of the model for an operation that differs from the recorded one. */
async function resultOf(run: RecordedRun, operation: LoggedOperation): Promise<Value> {
  return (await modelResult(run, operation)).results[0] as Value;
}

/** A product whose K is in two splits. */
async function inTwoSplits(operation: LoggedOperation, run: RecordedRun): Promise<Value> {
  const { row, call } = await modelResult(run, operation);
  using _ = new Scope();
  if (!row.product) throw new Error(`${operation.schema} is no product`);
  return toValue(gemm({ ...row.product(call), splitK: 2 }).out);
}

type Plant = (operation: LoggedOperation, run: RecordedRun) => Promise<Value> | Value;

/** The output that the model gives for other arguments. */
function withArguments(
  change: (operation: LoggedOperation, run: RecordedRun) => Partial<LoggedOperation>,
): Plant {
  return (operation, run) => resultOf(run, { ...structuredClone(operation), ...change(operation, run) });
}

const args = (change: (list: readonly unknown[]) => unknown[]): Plant =>
  withArguments((operation) => ({ args: change(operation.args) }));

function outputValue({ outputs }: LoggedOperation, run: RecordedRun): Value {
  const [output] = outputs;
  if (!output) throw new Error("no output");
  return { ...output, bytes: run.tensorBytes(output).slice() } as Value;
}

/** The recorded output with changed bytes. */
function bytes(change: (bytes: Uint8Array) => void): Plant {
  return (operation, run) => {
    const value = outputValue(operation, run);
    change(value.bytes);
    return value;
  };
}

/** The elements of the recorded output in 16 bits, one of which is changed. */
const plantWords = (change: (values: Uint16Array) => void): Plant =>
  bytes((data) => change(new Uint16Array(data.buffer, data.byteOffset, data.length / 2)));

/** An operand with the order of its elements along K reversed, so that the same products are summed in another order. */
function reverseValues(run: RecordedRun, operand: unknown, dim: number): unknown {
  const tensor = operand as { dtype: "BF16"; shape: number[] };
  const [rows = 0, columns = 0] = tensor.shape;
  const source = new Uint16Array(run.tensorBytes(tensor).slice().buffer);
  const target = source.map((_, i) => {
    const [row, column] = [Math.floor(i / columns), i % columns];
    return source[
      dim === 1 ? row * columns + (columns - 1 - column) : (rows - 1 - row) * columns + column
    ] as number;
  });
  return run.add({ ...tensor, bytes: new Uint8Array(target.buffer) });
}

/** One ulp toward zero in the first ordinary element, as if the cast truncated. */
const truncateValues: Plant = plantWords((values) => {
  const i = values.findIndex(
    (bits) => (bits & 0x7f80) !== 0x7f80 && (bits & 0x7f) !== 0 && (bits & 0x7f80) !== 0,
  );
  values[i] = (values[i] as number) - 1;
});

interface Fault {
  readonly name: string;
  readonly run: "operators" | "block" | "moves";
  readonly schema: string;
  /** The index among the operations of the schema. Default: the first. */
  readonly occurrence?: number;
  readonly plant: Plant;
  /** The words that the explanation must contain. */
  readonly says?: RegExp;
}

const FAULTS: readonly Fault[] = [
  {
    name: "a flipped bit in one element of a product",
    run: "block",
    schema: "aten::mm",
    occurrence: 3,
    plant: plantWords((values) => (values[7] = (values[7] as number) ^ 1)),
    says: /1 of \d+ elements differ; first at \[0,7\]/,
  },
  {
    name: "a flipped sign in the last element",
    run: "block",
    schema: "aten::bmm",
    plant: bytes((data) => (data[data.length - 1] = (data.at(-1) as number) ^ 0x80)),
  },
  {
    name: "another split of K",
    run: "operators",
    schema: "aten::mm.dtype",
    plant: inTwoSplits,
    says: /every recorded element is the product with 2 splits of K/,
  },
  {
    name: "a sum of two halves of K",
    run: "operators",
    schema: "aten::mm.dtype",
    plant: splitProduct,
  },
  {
    name: "a reordered sum",
    run: "operators",
    schema: "aten::mm.dtype",
    plant: withArguments(({ args: [a, b, dtype] }, run) => ({
      args: [reverseValues(run, a, 1), reverseValues(run, b, 0), dtype],
    })),
  },
  {
    name: "swapped operands of a subtraction",
    run: "operators",
    schema: "aten::sub.Tensor",
    plant: args(([x, y]) => [y, x]),
  },
  {
    name: "swapped operands of a division",
    run: "operators",
    schema: "aten::div.Tensor",
    plant: args(([x, y]) => [y, x]),
  },
  {
    name: "a missing bias",
    run: "operators",
    schema: "aten::addmm",
    plant: withArguments(({ args: [, a, b] }) => ({ schema: "aten::mm", args: [a, b] })),
  },
  {
    name: "another alpha",
    run: "operators",
    schema: "aten::addmm",
    occurrence: 1,
    plant: withArguments(() => ({ kwargs: { beta: 0.5, alpha: 1.0 } })),
  },
  {
    name: "a wrong scale",
    run: "operators",
    schema: "aten::_scaled_mm",
    plant: withArguments((operation, run) => changeScale(operation, run)),
  },
  {
    name: "the other accumulator",
    run: "operators",
    schema: "aten::_scaled_mm",
    plant: withArguments(({ kwargs }) => ({ kwargs: { ...kwargs, use_fast_accum: false } })),
    says: /the other kind of accumulator/,
  },
  {
    name: "scales of rows in another order",
    run: "operators",
    schema: "aten::_scaled_mm",
    occurrence: 2,
    plant: withArguments((operation, run) => changeScale(operation, run, true)),
  },
  {
    name: "a cast that truncates",
    run: "block",
    schema: "aten::_to_copy",
    occurrence: 1,
    plant: truncateValues,
  },
  {
    name: "a cast that saturates",
    run: "operators",
    schema: "aten::_to_copy",
    occurrence: 2,
    plant: bytes((data) => (data[data.findIndex((code) => (code & 0x7f) === 0x7f)] = 0x7e)),
    says: /self = /,
  },
  {
    name: "an exponential of another driver",
    run: "operators",
    schema: "aten::exp",
    plant: bytes((data) => (data[4 * 20] = (data[4 * 20] as number) ^ 1)),
  },
  {
    name: "a flushed subnormal",
    run: "operators",
    schema: "aten::add.Tensor",
    plant: bytes((data) => data.fill(0, 4 * 4, 4 * 5)),
  },
  {
    name: "a reciprocal instead of a division",
    run: "operators",
    schema: "aten::div.Tensor",
    plant: async (operation, run) => reciprocalProduct(operation, run),
  },
  {
    name: "an addition instead of a subtraction",
    run: "block",
    schema: "aten::sub.Tensor",
    plant: withArguments(() => ({ schema: "aten::add.Tensor" })),
  },
  {
    name: "a slice that begins one element later",
    run: "moves",
    schema: "aten::slice.Tensor",
    plant: args(([x, dim]) => [x, dim, 0, 2]),
  },
  {
    name: "tensors in another order",
    run: "moves",
    schema: "aten::stack",
    plant: args(([list, ...rest]) => [(list as unknown[]).toReversed(), ...rest]),
    occurrence: 1,
  },
  {
    name: "a transposition that was left out",
    run: "moves",
    schema: "aten::transpose.int",
    plant: (operation, run) => ({
      ...outputValue(operation, run),
      bytes: run.tensorBytes(operation.args[0] as never),
    }),
  },
  {
    name: "an inverted condition",
    run: "moves",
    schema: "aten::where.self",
    plant: args(([condition, x, y]) => [condition, y, x]),
  },
  {
    name: "the row of another index",
    run: "moves",
    schema: "aten::embedding",
    plant: bytes((data) => data.copyWithin(0, 32, 64)),
  },
  {
    name: "a zero that became negative",
    run: "operators",
    schema: "aten::relu",
    plant: bytes((data) => (data[3] = 0x80)),
    says: /recorded -0 \(0x80000000\), computed 0/,
  },
];

async function splitProduct(operation: LoggedOperation, run: RecordedRun): Promise<Value> {
  const half = (operand: unknown, dim: number, index: number): unknown => {
    const tensor = operand as { dtype: "BF16"; shape: number[] };
    const depth = (tensor.shape[dim] as number) / 2;
    const [rows = 0, columns = 0] = tensor.shape.with(dim, depth);
    const source = new Uint16Array(run.tensorBytes(tensor).slice().buffer);
    const width = tensor.shape[1] as number;
    const target = Uint16Array.from({ length: rows * columns }, (_, i) => {
      const [row, column] = [Math.floor(i / columns), i % columns];
      return source[
        (row + (dim === 0 ? index * depth : 0)) * width + column + (dim === 1 ? index * depth : 0)
      ] as number;
    });
    return run.add({ dtype: "BF16", shape: [rows, columns], bytes: new Uint8Array(target.buffer) });
  };
  const [a, b, dtype] = operation.args;
  const halves = [0, 1].map((index) =>
    resultOf(run, { ...structuredClone(operation), args: [half(a, 1, index), half(b, 0, index), dtype] }),
  );
  const [x, y] = (await Promise.all(halves)).map(({ bytes: data }) => new Float32Array(data.slice().buffer));
  const sums = x?.map((value, i) => value + (y?.[i] as number)) ?? new Float32Array();
  return { ...outputValue(operation, run), bytes: new Uint8Array(sums.buffer) };
}

function changeScale(
  operation: LoggedOperation,
  run: RecordedRun,
  isReversed = false,
): Partial<LoggedOperation> {
  const inKwargs = "scale_a" in operation.kwargs;
  const scale = (inKwargs ? operation.kwargs.scale_a : operation.args[2]) as Value;
  const values = new Float32Array(run.tensorBytes(scale as never).slice().buffer);
  const changedValues = isReversed ? values.toReversed() : values.map((value) => value * 2);
  const changedScale = run.add({
    dtype: "F32",
    shape: scale.shape,
    bytes: new Uint8Array(changedValues.buffer),
  });
  return inKwargs
    ? { kwargs: { ...operation.kwargs, scale_a: changedScale } }
    : { args: operation.args.with(2, changedScale) };
}

async function reciprocalProduct(operation: LoggedOperation, run: RecordedRun): Promise<Value> {
  const [x, y] = operation.args.map(
    (argument) => new Float32Array(run.tensorBytes(argument as never).slice().buffer),
  );
  const values = x?.map((value, i) => value * Math.fround(1 / (y?.[i] as number))) ?? new Float32Array();
  return { ...outputValue(operation, run), bytes: new Uint8Array(values.buffer) };
}

describe("a planted fault", () => {
  it("is of twenty kinds or more", () => {
    expect(new Set(FAULTS.map(({ name }) => name)).size).toBeGreaterThanOrEqual(20);
  });

  it.each(FAULTS.map((fault) => [fault.name, fault] as const))(
    "%s is named",
    async (_, { run: name, schema, occurrence = 0, plant, says: message }) => {
      const run = await RecordedRun.read(name);
      const positions = run.operations.flatMap((operation, i) => (operation.schema === schema ? [i] : []));
      const index = positions[occurrence] as number;
      const operation = run.operations[index] as LoggedOperation;
      operation.outputs = [run.add(await plant(operation, run)), ...operation.outputs.slice(1)];
      await run.write(w.path("run"));
      const { status, stdout } = await w.run("replay", "@run", "--json");
      expect(status).toBe(1);
      const report = JSON.parse(stdout);
      expect({ first: report.first, differs: report.differs }).toEqual({ first: index, differs: 1 });
      expect(report.verdicts[index].schema).toBe(schema);
      const text = (await w.run("replay", "@run")).stdout;
      expect(text).toContain(`operation ${index}, ${schema}: differs`);
      if (message) expect(text).toMatch(message);
    },
  );
});
