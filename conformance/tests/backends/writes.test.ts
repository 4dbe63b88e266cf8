/** Operations write exactly the arguments that the table of writes names. */
import { describe, expect, it } from "vitest";
import type { Backend } from "../../../src/backends/backend.js";
import type { OpArgs, OpName } from "../../../src/backends/ops.js";
import { TENSOR_ROWS } from "../../../src/backends/writes.js";
import { DTypeError } from "../../../src/errors.js";
import { sweepChunk } from "../../../src/ops/cast/sweep.js";
import { execute } from "../../../src/ops/execute.js";
import { Scope } from "../../../src/tensor/scope.js";
import { DTYPES, storageBits } from "../../../src/tensor/shape.js";
import { Tensor } from "../../../src/tensor/tensor.js";
import { GuardedBackend } from "../../operations/guarded.js";
import { OPERATION_NAMES } from "../../operations/operations.js";
import { runDrawn, useWitness } from "../harness/arguments/every-operation.js";

const RUNS = 40;

/** Outputs that the reference computes by a separate operation. */
const BY_GPUS = new Set(["gemm.preGelu"]);

/** All tensors in the arguments, by path. */
function tensorsIn(args: object, path = ""): ReadonlyMap<string, Tensor> {
  const tensorFields = Object.entries(args).flatMap(([key, value]): (readonly [string, Tensor])[] => {
    if (value instanceof Tensor) return [[path + key, value]];
    const isPlain = typeof value === "object" && value !== null && !ArrayBuffer.isView(value);
    return isPlain ? [...tensorsIn(value as object, `${path}${key}.`)] : [];
  });
  return new Map(tensorFields);
}

const bytes = (x: Tensor): string => {
  const { buffer, byteOffset, byteLength } = x.dataSync();
  return Buffer.from(buffer, byteOffset, byteLength).toString("latin1");
};

/** Records which arguments change when an operation runs, and tries outputs of other types. */
class Witness extends GuardedBackend {
  readonly writtenArguments = new Map<OpName, Set<string>>();
  readonly undeclared = new Set<string>();
  readonly operations = new Set<string>();
  trying = false;

  override run<K extends OpName>(op: K, args: OpArgs[K]): void {
    if (this.trying) return;
    const tensors = [...tensorsIn(args)];
    const bytesBefore = tensors.map(([, x]) => bytes(x));
    super.run(op, args);
    const changedTensors = tensors.filter(([, x], i) => bytes(x) !== bytesBefore[i]);
    const rows = (TENSOR_ROWS.get(op) ?? []).filter(({ written }) => written);
    const written = tensors.filter(([path]) => rows.some(({ name }) => path.split(".")[0] === name));
    const addresses = new Set(written.map(([, x]) => x.address));
    for (const [path, x] of changedTensors)
      if (!addresses.has(x.address)) this.undeclared.add(`${op}.${path}`);
    const names = this.writtenArguments.get(op) ?? new Set();
    // an input that is overwritten in place has the name of the output
    for (const { name } of rows)
      if (changedTensors.some(([path]) => path.split(".")[0] === name)) names.add(name);
    this.writtenArguments.set(op, names);
  }

  /** Calls `supports` with outputs of types that cannot hold the results. */
  override supports<K extends OpName>(op: K, args: OpArgs[K]): ReturnType<Backend["supports"]> {
    if (this.trying) return { ok: true, agrees: "bits" };
    for (const { name, rule, written } of TENSOR_ROWS.get(op) ?? []) {
      const x: unknown = Reflect.get(args, name);
      if (!written || !(x instanceof Tensor)) continue;
      const smaller = DTYPES.filter(
        (dtype) => storageBits(dtype) < storageBits(x.dtype) && !["bf16", "f16"].includes(dtype),
      );
      for (const dtype of smaller) {
        using otherTensor = new Tensor(this, dtype, storageBits(dtype) < 8 ? [2] : [1]);
        const takes = rule === "product" && (dtype === "e4m3" || dtype === "e5m2");
        if (takes || otherTensor.byteLength >= x.byteLength) continue;
        this.#try(op, { ...args, [name]: otherTensor }, `${op}.${name} of ${dtype} in place of ${x.dtype}`);
      }
    }
    return super.supports(op, args);
  }

  #try<K extends OpName>(op: K, args: OpArgs[K], label: string): void {
    this.trying = true;
    try {
      execute(this, op, args);
      this.operations.add(label);
    } catch (error) {
      if (!(error instanceof DTypeError)) this.operations.add(`${label}: ${error}`);
    } finally {
      this.trying = false;
    }
  }
}

describe("the table of outputs of operations", () => {
  const witness = useWitness((reference) => new Witness(reference));

  it.each(OPERATION_NAMES)("%s writes only its listed outputs, and writes each of them fully", (name) => {
    witness().undeclared.clear();
    witness().operations.clear();
    runDrawn(witness(), name, RUNS);
    expect([...witness().undeclared]).toEqual([]);
    expect([...witness().operations]).toEqual([]);
  });

  it("a sweep writes no tensor except its digest", () => {
    using _ = new Scope();
    sweepChunk(witness(), 0, { format: "e4m3", rounding: "tiesToEven", overflow: "saturate" });
    expect([...witness().undeclared, ...witness().operations]).toEqual([]);
  });

  it("lists every operation, with the arguments that changed when it ran", () => {
    const rows = [...TENSOR_ROWS].map(([op, tensors]) => [
      op,
      tensors.flatMap(({ name, written }) => (written && !BY_GPUS.has(`${op}.${name}`) ? [name] : [])).sort(),
    ]);
    const changes = [...TENSOR_ROWS.keys()].map((op) => [
      op,
      [...(witness().writtenArguments.get(op) ?? [])].sort(),
    ]);
    expect(changes).toEqual(rows);
  });
});
