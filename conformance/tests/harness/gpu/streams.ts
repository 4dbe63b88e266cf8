/**
 * Random programs with parts on the side stream. The results must equal those of a single stream, whichever stream uses which
 * memory.
 */
import * as fc from "fast-check";
import type { Backend } from "../../../../src/backends/backend.js";
import { tensor } from "../../../../src/ops/create.js";
import { add, scaled } from "../../../../src/ops/elementwise/operators.gen.js";
import { columnSum } from "../../../../src/ops/rows/norm.js";
import { onSideStream } from "../../../../src/ops/side-stream.js";
import { disown, Scope } from "../../../../src/tensor/scope.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";

const REGISTERS = 5;
const WIDTH = 64;
const LARGE = 2 ** 20;

type Action = "add" | "accumulate" | "copy" | "view" | "write" | "sum" | "renew" | "read" | "trim" | "slow";

/** One operation on registers: it reads `x` and `y`, and writes `to`. */
interface Step {
  readonly action: Action;
  readonly to: number;
  readonly x: number;
  readonly y: number;
}

/** Operations that are enqueued together, on the side stream or on the main stream. */
interface Part {
  readonly aside: boolean;
  readonly steps: readonly Step[];
}

export interface StreamProgram {
  /** The number of rows of each register. A row has 64 elements. */
  readonly rows: number;
  readonly parts: readonly Part[];
}

const register = fc.nat(REGISTERS - 1);

/** `rows` has the sizes of the registers. */
export function streamProgram(rows: readonly number[]): fc.Arbitrary<StreamProgram> {
  const step = fc.record<Step>({
    action: fc.oneof(
      { weight: 8, arbitrary: fc.constantFrom<Action>("add", "accumulate", "copy", "view", "sum", "renew") },
      { weight: 2, arbitrary: fc.constantFrom<Action>("write", "read", "slow") },
      { weight: 1, arbitrary: fc.constant<Action>("trim") },
    ),
    to: register,
    x: register,
    y: register,
  });
  const part = fc.record<Part>({
    aside: fc.boolean(),
    steps: fc.array(step, { minLength: 1, maxLength: 6 }),
  });
  return fc.record({ rows: fc.constantFrom(...rows), parts: fc.array(part, { minLength: 2, maxLength: 8 }) });
}

/** Keeps values finite. */
const small = (x: Tensor<"f32">): Tensor<"f32"> => scaled(x, 1 / 512, { outDtype: "f32" }) as Tensor<"f32">;

/** Runs a program. Returns the values that it read, and the final contents of its registers. */
export async function runStreams(backend: Backend, { rows, parts }: StreamProgram): Promise<Float32Array[]> {
  const size = rows * WIDTH;
  const values = Float32Array.from({ length: size }, (_, i) => ((i * 7) % 257) - 128);
  const fresh = (seed: number): Tensor<"f32"> => {
    values[seed % size] = seed;
    return tensor(backend, values);
  };
  const registers = Array.from({ length: REGISTERS }, (_, i) => fresh(i));
  // this work keeps a stream busy; no result depends on it
  const isReference = backend.name === "wasm";
  const large = tensor(backend, new Float32Array(isReference ? 0 : LARGE).fill(1));
  const reads: Promise<ArrayLike<number>>[] = [];
  const become = (at: number, value: Tensor): void => {
    const before = registers[at] as Tensor;
    disown(value);
    registers[at] = value as Tensor<"f32">;
    before.dispose();
  };
  const run = ({ action, to, x, y }: Step): void => {
    const [a, b] = [registers[x] as Tensor<"f32">, registers[y] as Tensor<"f32">];
    const out = registers[to] as Tensor<"f32">;
    if (action === "add") become(to, small(add(a, b, { outDtype: "f32" }) as Tensor<"f32">));
    else if (action === "accumulate") add(out, a, { out });
    else if (action === "copy") out.paste(a.clone(), 0);
    else if (action === "view") become(to, a.view(0, [size]));
    else if (action === "write") out.write(new Float32Array(size).fill(x - y));
    else if (action === "sum")
      out.paste(columnSum(small(a).reshape([rows, WIDTH]), "f32") as Tensor<"f32">, WIDTH * (y % rows));
    else if (action === "renew") become(to, fresh(x + y));
    else if (action === "read") reads.push(out.data());
    else if (action === "trim") backend.trim();
    else if (action === "slow" && !isReference) for (let i = 0; i < 20; i++) scaled(large, 1, { out: large });
  };
  for (const { aside, steps } of parts) {
    const body = (): void => {
      using _ = new Scope();
      for (const step of steps) run(step);
    };
    if (aside) onSideStream(backend, body);
    else body();
  }
  reads.push(...registers.map((each) => each.data()));
  for (const each of [...registers, large]) each.dispose();
  const read = await Promise.all(reads);
  return read.map((each) => Float32Array.from(each));
}
