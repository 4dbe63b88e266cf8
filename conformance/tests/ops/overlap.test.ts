/**
 * An output of an operation may not share a byte with its other tensors, unless the operation supports working in place
 * and both are the same tensor.
 */

import { describe, expect, it } from "vitest";
import type { Backend } from "../../../src/backends/backend.js";
import type { OpArgs, OpName } from "../../../src/backends/ops.js";
import { runOn } from "../../../src/backends/run.js";
import { TENSOR_ROWS } from "../../../src/backends/writes.js";
import { ArgumentError } from "../../../src/errors.js";
import { empty, zeros } from "../../../src/ops/create.js";
import { add } from "../../../src/ops/elementwise/operators.gen.js";
import { execute } from "../../../src/ops/execute.js";
import { gemm } from "../../../src/ops/gemm/gemm.js";
import { Float8CurrentScalingQuantizer } from "../../../src/quantizers/float8.js";
import { DIRECTIONS, type QuantizedTensor } from "../../../src/tensor/quantized.js";
import { Scope } from "../../../src/tensor/scope.js";
import { Storage } from "../../../src/tensor/storage.js";
import { Tensor, tensorAt } from "../../../src/tensor/tensor.js";
import { GuardedBackend } from "../../operations/guarded.js";
import { OPERATION_NAMES } from "../../operations/operations.js";
import { distances } from "../harness/arguments/candidates.js";
import { runDrawn, useWitness } from "../harness/arguments/every-operation.js";

const RUNS = 24;

/**
 * The arguments that each operation may overwrite in place. For `gemm` it is the addend; a test below checks what the function
 * `gemm()` accepts.
 */
const IN_PLACE = [...TENSOR_ROWS].flatMap(([op, rows]) =>
  rows.flatMap(({ name, inPlace }) => (inPlace ? [`${op}.${name}`] : [])),
);

/** All tensors in the arguments, each with its path of keys. */
function tensorsIn(args: object): readonly { readonly keys: readonly string[]; readonly x: Tensor }[] {
  return Object.entries(args).flatMap(([key, value]: [string, unknown]) => {
    if (value instanceof Tensor) return [{ keys: [key], x: value }];
    if (typeof value !== "object" || value === null || ArrayBuffer.isView(value)) return [];
    return tensorsIn(value).map(({ keys, x }) => ({ keys: [key, ...keys], x }));
  });
}

/** A copy of `args` with another tensor at that path. */
function withTensorAt<A extends object>(args: A, [key = "", ...rest]: readonly string[], x: Tensor): A {
  const inner: unknown = Reflect.get(args, key);
  return { ...args, [key]: rest.length === 0 ? x : withTensorAt(inner as object, rest, x) };
}

const bytesOf = (x: Tensor): Uint8Array => {
  const { buffer, byteOffset, byteLength } = x.dataSync();
  return new Uint8Array(buffer, byteOffset, byteLength).slice();
};

/** Whether the message names both tensors, by the keys that lead to them. */
function namesBoth(op: OpName, pair: readonly [FoundTensor, FoundTensor], message: string): boolean {
  const [out, otherName] = pair.map(({ keys }) => keys.filter((key) => key !== "tensor").join("."));
  const reasons = [`${out} shares memory with ${otherName}`, `${otherName} shares memory with ${out}`];
  return reasons.some((reason) => [" ", ","].some((end) => message.startsWith(`${op}: ${reason}${end}`)));
}

/** Repeats every operation that runs on it with tensors that share memory. */
class Witness extends GuardedBackend {
  readonly faults = new Set<string>();
  readonly refusedNames = new Set<OpName>();
  readonly inPlace = new Set<string>();
  #trying = false;
  #ran = false;

  override supports<K extends OpName>(op: K, args: OpArgs[K]): ReturnType<Backend["supports"]> {
    return this.#trying ? { ok: true, agrees: "bits" } : super.supports(op, args);
  }

  override run<K extends OpName>(op: K, args: OpArgs[K]): void {
    this.#ran = true;
    if (this.#trying) return;
    const rows = new Map((TENSOR_ROWS.get(op) ?? []).map((row) => [row.name, row]));
    const tensors = tensorsIn(args);
    for (const { keys } of tensors)
      if (!rows.has(keys[0] as string)) this.faults.add(`${op}.${keys.join(".")} is in no row`);
    for (const [i, firstTensor] of tensors.entries()) {
      for (const secondTensor of tensors.slice(i + 1)) {
        const written = [firstTensor, secondTensor].filter(
          ({ keys }) => rows.get(keys[0] as string)?.written,
        );
        if (written.length === 0) continue;
        this.#try(
          op,
          args,
          written[0] === firstTensor ? [firstTensor, secondTensor] : [secondTensor, firstTensor],
        );
      }
    }
    super.run(op, args);
  }

  #try<K extends OpName>(op: K, args: OpArgs[K], [out, input]: readonly [FoundTensor, FoundTensor]): void {
    const [name, root] = [`${op}.${input.keys.join(".")}`, out.keys.join(".")];
    const alike = out.x.dtype === input.x.dtype && out.x.byteLength === input.x.byteLength;
    const { byteLength: inputBytes } = input.x;
    const { byteLength: outBytes } = out.x;
    // ranges that are adjacent do not overlap
    for (const distance of [...distances(out.x, input.x), outBytes, -inputBytes]) {
      const isApart = distance >= outBytes || -distance >= inputBytes;
      const isDeclared = root === "out" && IN_PLACE.includes(name) && alike && distance === 0;
      const isTaken = this.#take(op, args, [out, input], distance);
      if (isTaken !== (isApart || isDeclared))
        this.faults.add(`${name} and ${root}, ${distance} bytes apart: ${isTaken ? "taken" : "refused"}`);
      if (!isTaken) this.refusedNames.add(op);
    }
    if (root === "out" && alike && IN_PLACE.includes(name)) this.#same(op, args, name, input);
  }

  /** Returns whether `execute` accepts the call with both tensors in one block of memory, at that distance. */
  #take<K extends OpName>(
    op: K,
    args: OpArgs[K],
    pair: readonly [FoundTensor, FoundTensor],
    distance: number,
  ): boolean {
    const [out, input] = pair;
    const begin = [Math.max(0, -distance), Math.max(0, distance)];
    const lastBytes = pair.map(({ x }, i) => (begin[i] as number) + x.byteLength);
    const storage = new Storage(this.memory, Math.max(...lastBytes));
    using _ = new Scope();
    const [a, b] = pair.map(({ x }, i) => tensorAt(this, x.dtype, x.shape, storage.retain(), begin[i] ?? 0));
    storage.release();
    this.#ran = false;
    this.#trying = true;
    try {
      execute(this, op, withTensorAt(withTensorAt(args, out.keys, a as Tensor), input.keys, b as Tensor));
      return true;
    } catch (error) {
      if (!(error instanceof ArgumentError) || this.#ran || !namesBoth(op, pair, error.message))
        this.faults.add(`${op}: ${error}`);
      return false;
    } finally {
      this.#trying = false;
    }
  }

  /** Compares the result in place with the result in separate memory. */
  #same<K extends OpName>(op: K, args: OpArgs[K], name: string, input: FoundTensor): void {
    if (input.x.byteLength === 0) return;
    using _ = new Scope();
    const [separateOut, overlappingOut] = [empty(this, input.x.dtype, input.x.shape), input.x.clone()];
    runOn(
      this.inner,
      op,
      withTensorAt(args, ["out"], separateOut.reshape((Reflect.get(args, "out") as Tensor).shape)),
    );
    runOn(
      this.inner,
      op,
      withTensorAt(withTensorAt(args, ["out"], overlappingOut), input.keys, overlappingOut),
    );
    this.inPlace.add(name);
    if (Buffer.compare(bytesOf(separateOut), bytesOf(overlappingOut)) !== 0)
      this.faults.add(`${name} in place differs`);
  }
}

type FoundTensor = ReturnType<typeof tensorsIn>[number];

describe("outputs, and arguments that share their memory", () => {
  const witness = useWitness((reference) => new Witness(reference));

  it.each(OPERATION_NAMES)(
    "%s refuses every overlap except of the arguments that it accepts in place",
    (name) => {
      witness().faults.clear();
      runDrawn(witness(), name, RUNS);
      expect([...witness().faults]).toEqual([]);
    },
  );

  it("were tested: refused overlaps for every operation with inputs, and in-place use for every operation that allows it", () => {
    const readingOperations = [...TENSOR_ROWS].filter(([, rows]) => rows.length > 1).map(([op]) => op);
    expect(readingOperations.filter((op) => !witness().refusedNames.has(op))).toEqual([]);
    expect([...witness().inPlace].sort()).toEqual([...IN_PLACE].sort());
  });

  it("do not overlap if either is empty", () => {
    using _ = new Scope();
    const x = empty(witness(), "f32", [64, 0]);
    expect(() => add(x, x.view(0, [64, 0]), { out: x })).not.toThrow();
  });

  it("a product is refused before any of its operations has run", () => {
    using _ = new Scope();
    const block = empty(witness(), "bf16", [512]);
    const [a, b] = [empty(witness(), "bf16", [16, 16]), empty(witness(), "bf16", [16, 16])];
    const [out, later] = [block.view(0, [16, 16]), block.view(128, [16, 16])];
    for (const [name, options] of [
      ["a", { a: out, b }],
      ["b", { a, b: out, biasGradient: true }],
      ["c", { a, b, c: later }],
      ["c", { a, b, c: later, gelu: true }],
      ["bias", { a, b, bias: out.view(0, [16]), gelu: true }],
      ["geluInput", { a, b, geluInput: later }],
    ] as const) {
      const bytesBefore = bytesOf(block);
      expect(() => gemm({ ...options, out })).toThrow(new RegExp(`gemm: out shares memory with ${name}\\b`));
      expect(bytesOf(block)).toEqual(bytesBefore);
    }
    expect(() => gemm({ a, b, out, geluInput: out })).not.toThrow();
    // of one type, and only the beginning or only the end coincides
    for (const offset of [0, 256]) {
      const multiplyInPart = () =>
        gemm({ a, b, out: block.view(offset, [16, 16]), geluInput: block.reshape([32, 16]) });
      expect(multiplyInPart).toThrow(
        /gemm: out shares memory with geluInput and is not that tensor, element for element/,
      );
    }
  });

  it("a product is refused for either copy of a quantized operand, also one that it does not read", () => {
    using _ = new Scope();
    const quantizer = new Float8CurrentScalingQuantizer({ columnwise: true });
    const [x, w] = [zeros(witness(), "bf16", [16, 16]), zeros(witness(), "bf16", [16, 16])].map((tensor) =>
      quantizer.quantize(tensor),
    ) as [QuantizedTensor, QuantizedTensor];
    for (const direction of DIRECTIONS) {
      const out = x.copy(direction).data;
      expect(() => gemm({ x, w, out })).toThrow(`gemm: out shares memory with x.${direction}.data, and is`);
      expect(() => gemm({ a: x, b: w, out })).toThrow(
        `gemm: out shares memory with a.${direction}.data, and`,
      );
    }
  });

  it("only the result of a product may be its addend: its amax may not, although both are one f32", () => {
    using _ = new Scope();
    const [line, scalar] = [zeros(witness(), "bf16", [1, 16]), zeros(witness(), "f32", [1, 1])];
    const operand = { data: line, traits: { format: "bf16" } } as const;
    const options = {
      datapath: "exact",
      splitAccumulator: false,
      splitK: 1,
      alpha: 1,
      beta: 1,
      outScale: 1,
    } as const;
    const args = { x: operand, w: operand, ...options, c: scalar, out: empty(witness(), "e4m3", [1, 1]) };
    expect(() => execute(witness(), "gemm", args)).not.toThrow();
    expect(() => execute(witness(), "gemm", { ...args, amax: scalar.reshape([1]) })).toThrow(
      "gemm: amax shares memory with c, and is written while that is used",
    );
  });
});
