/**
 * Operations refuse tensors whose dtype their kernels would misread: each tensor with a rule is replaced by one of every other
 * dtype, and the call must throw before anything runs.
 */
import * as fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Backend } from "../../../src/backends/backend.js";
import { openBackend } from "../../../src/backends/open.js";
import { isGemmOut } from "../../../src/backends/ops/gemm.js";
import type { OpArgs, OpName } from "../../../src/backends/ops.js";
import type { TensorRule } from "../../../src/backends/tensors.js";
import { TENSOR_ROWS, type TensorRow } from "../../../src/backends/writes.js";
import { DTypeError } from "../../../src/errors.js";
import { encode, formatWordOf } from "../../../src/ops/cast/cast.js";
import { empty } from "../../../src/ops/create.js";
import { execute } from "../../../src/ops/execute.js";
import { gemm } from "../../../src/ops/gemm/gemm.js";
import { Float8Quantizer } from "../../../src/quantizers/float8.js";
import { Scope } from "../../../src/tensor/scope.js";
import { DTYPES, type DType, isWide, storageBits } from "../../../src/tensor/shape.js";
import { Tensor } from "../../../src/tensor/tensor.js";
import { GuardedBackend } from "../../operations/guarded.js";
import { OPERATION_NAMES, OPERATIONS, type OperationName } from "../../operations/operations.js";
import { derivedSeed } from "../harness/draws.js";

const RUNS = 8;

/** A tensor of a call and, if its rule refers to another tensor, that other tensor. */
interface Subject {
  readonly tensor: Tensor;
  readonly values?: Tensor | undefined;
  readonly x: unknown;
}

/** The dtypes that each rule allows. The tensors that a law passes have one of them. */
const TAKEN: Readonly<Record<Exclude<TensorRule, "checked">, (dtype: DType, subject: Subject) => boolean>> = {
  wide: isWide,
  half: (dtype) => dtype === "bf16" || dtype === "f16",
  f32: (dtype) => dtype === "f32",
  scalar: (dtype) => dtype === "f32",
  i32: (dtype: DType) => dtype === "i32",
  u32: (dtype) => dtype === "u32",
  "as x": (dtype, { x }) => x instanceof Tensor && dtype === x.dtype,
  // only in u8 do two 4-bit codes share an element
  codes: (dtype, { tensor, values }) =>
    tensor.size === values?.size ? storageBits(dtype) === storageBits(tensor.dtype) : dtype === "u8",
  product: isGemmOut,
  copy: (dtype, { tensor }) => dtype === tensor.dtype,
};

/** Repeats every operation that runs on it, with each tensor that has a rule replaced by one of each other dtype. */
class Witness extends GuardedBackend {
  readonly faults = new Set<string>();
  readonly refusedNames = new Set<string>();
  #trying = false;

  override supports<K extends OpName>(op: K, args: OpArgs[K]): ReturnType<Backend["supports"]> {
    return this.#trying ? { ok: true, agrees: "bits" } : super.supports(op, args);
  }

  override run<K extends OpName>(op: K, args: OpArgs[K]): void {
    if (this.#trying) return;
    for (const row of TENSOR_ROWS.get(op) as readonly TensorRow[]) {
      const value: unknown = Reflect.get(args, row.name);
      if (row.rule === "checked" || value === undefined) continue;
      if (value instanceof Tensor)
        this.#try(op, row, value, args, (otherTensor) => ({ ...args, [row.name]: otherTensor }));
      else
        for (const [field, tensor] of Object.entries(value as object))
          if (tensor instanceof Tensor)
            this.#try(op, row, tensor, args, (otherTensor) => ({
              ...args,
              [row.name]: { ...(value as object), [field]: otherTensor },
            }));
    }
    super.run(op, args);
  }

  #try<K extends OpName>(
    op: K,
    { name, rule }: TensorRow,
    tensor: Tensor,
    args: OpArgs[K],
    put: (otherTensor: Tensor) => OpArgs[K],
  ): void {
    const otherTensor: unknown = Reflect.get(args, name === "x" ? "out" : "x");
    const subject = {
      tensor,
      values: otherTensor instanceof Tensor ? otherTensor : undefined,
      x: Reflect.get(args, "x"),
    };
    // an empty tensor may hold codes of any size
    for (const dtype of tensor.size === 0 ? [] : DTYPES) {
      if (storageBits(dtype) < 8 && (tensor.shape.at(-1) ?? 1) % 2 !== 0) continue;
      using _ = new Scope();
      const replacement = empty(this, dtype, tensor.shape);
      const isTaken = this.#take(op, put(replacement));
      if (isTaken !== TAKEN[rule as keyof typeof TAKEN](dtype, subject))
        this.faults.add(
          `${op}.${name} (${rule}), in place of ${tensor.dtype} ${dtype}: ${isTaken ? "taken" : "refused"}`,
        );
      if (!isTaken) this.refusedNames.add(`${op}.${name}`);
    }
  }

  #take<K extends OpName>(op: K, args: OpArgs[K]): boolean {
    this.#trying = true;
    try {
      execute(this, op, args);
      return true;
    } catch (error) {
      if (!(error instanceof DTypeError)) this.faults.add(`${op}: ${error}`);
      return false;
    } finally {
      this.#trying = false;
    }
  }
}

describe("a tensor of a type that the operation cannot have", () => {
  let backend: Backend;
  let witness: Witness;
  beforeAll(async () => {
    backend = await openBackend("wasm", { threads: 1, datapath: "hopper" });
    witness = new Witness(backend);
  });
  afterAll(() => backend.dispose());

  const run = <K extends OperationName>(name: K): void => {
    const { arbitrary, run: operate } = OPERATIONS[name];
    for (const input of fc.sample(arbitrary, { numRuns: RUNS, seed: derivedSeed(1) })) {
      using _ = new Scope();
      try {
        operate(witness, input);
      } catch (error) {
        if (!(error instanceof Error && error.name === "UnsupportedError")) throw error;
      }
    }
  };

  it.each(OPERATION_NAMES)("is refused by %s, and every other type is accepted", (name) => {
    witness.faults.clear();
    run(name);
    expect([...witness.faults]).toEqual([]);
  });

  it("is refused as the digest of a sweep", () => {
    using _ = new Scope();
    const random = { seed: 0n, offset: 0n };
    const rest = { word: 0, rounding: "tiesToEven", overflow: "saturate", random, chunk: 0 } as const;
    for (const dtype of DTYPES.filter((dtype) => dtype !== "u32")) {
      const out: Tensor = empty(witness, dtype, [2]);
      const args = { ...rest, out } as OpArgs["sweep"];
      expect(() => execute(witness, "sweep", args), dtype).toThrow(DTypeError);
    }
    witness.refusedNames.add("sweep.out");
  });

  it("is refused as an amax, of a product or recorded by a quantization", () => {
    using _ = new Scope();
    witness.faults.clear();
    const [x, oneElement] = [
      empty(witness, "bf16", [32, 32]),
      (): Tensor<"f32"> => empty(witness, "f32", [1]),
    ];
    gemm({ x, w: x, outDtype: "e4m3" });
    const quantizer = new Float8Quantizer({ scale: oneElement(), amax: oneElement() });
    quantizer.quantize(x);
    quantizer.normQuantize(x, { gamma: empty(witness, "bf16", [32]) });
    quantizer.activationQuantize(x, { kind: "relu" });
    quantizer.biasGradQuantize(x);
    expect([...witness.faults]).toEqual([]);
  });

  it("is refused as codes of more than 4 bits, if it has their bytes in elements of u8", () => {
    using _ = new Scope();
    for (const [format, bytes] of Object.entries({ bf16: 2, tf32: 4 })) {
      const [x, out] = [empty(witness, "u8", [32 * bytes]), empty(witness, "f32", [32])];
      const decodes = () => execute(witness, "decode", { x, word: formatWordOf(format), out });
      expect(decodes).toThrow(DTypeError);
      expect(decodes).toThrow(/x is u8 .* must hold 32 codes/);
    }
  });

  it("is refused as random bits of encode", () => {
    using _ = new Scope();
    witness.faults.clear();
    const [x, randomBits] = [empty(witness, "bf16", [32, 32]), empty(witness, "u32", [32, 32])];
    encode(x, { format: "e4m3", rounding: "stochastic", randomBits });
    expect([...witness.faults]).toEqual([]);
  });

  it("was refused for every output whose type is restricted", () => {
    const argumentNames = [...TENSOR_ROWS].flatMap(([op, rows]) =>
      rows.filter(({ rule }) => rule !== "checked").map(({ name }) => `${op}.${name}`),
    );
    // the reference does not fuse GELU
    expect(argumentNames.filter((argumentName) => !witness.refusedNames.has(argumentName))).toEqual([
      "gemm.preGelu",
    ]);
  });
});
