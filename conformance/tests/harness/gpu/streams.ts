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
import { storageOf, type Tensor } from "../../../../src/tensor/tensor.js";

const REGISTERS = 5;
const WIDTH = 64;
const LARGE_SIZE = 2 ** 20;

/** The actions that change no value of a register. */
type StillAction = "read" | "trim" | "slow" | "to host" | "from host";
type Action = StillAction | "add" | "accumulate" | "copy" | "view" | "write" | "sum" | "renew";

/** One operation on registers: it reads `x` and `y`, and writes `target`. */
interface Step {
  readonly action: Action;
  readonly target: number;
  readonly x: number;
  readonly y: number;
}

/** Operations that are enqueued together, on the side stream or on the main stream. */
interface StreamPart {
  readonly onSide: boolean;
  readonly steps: readonly Step[];
}

export interface StreamProgram {
  /** The number of rows of each register. A row has 64 elements. */
  readonly rows: number;
  readonly parts: readonly StreamPart[];
}

const register = fc.nat(REGISTERS - 1);

/** `rows` has the sizes of the registers. */
export function streamProgram(rows: readonly number[]): fc.Arbitrary<StreamProgram> {
  const step = fc.record<Step>({
    action: fc.oneof(
      { weight: 8, arbitrary: fc.constantFrom<Action>("add", "accumulate", "copy", "view", "sum", "renew") },
      { weight: 3, arbitrary: fc.constantFrom<Action>("write", "read", "slow", "to host", "from host") },
      { weight: 1, arbitrary: fc.constant<Action>("trim") },
    ),
    target: register,
    x: register,
    y: register,
  });
  const streamPart = fc.record<StreamPart>({
    onSide: fc.boolean(),
    steps: fc.array(step, { minLength: 1, maxLength: 6 }),
  });
  return fc.record({
    rows: fc.constantFrom(...rows),
    parts: fc.array(streamPart, { minLength: 2, maxLength: 8 }),
  });
}

/** Keeps values finite. */
const scaleDown = (x: Tensor<"f32">): Tensor<"f32"> =>
  scaled(x, 1 / 512, { outDtype: "f32" }) as Tensor<"f32">;

/** Runs a program. Returns the values that it read, and the final contents of its registers. */
export async function runStreams(backend: Backend, { rows, parts }: StreamProgram): Promise<Float32Array[]> {
  const size = rows * WIDTH;
  const values = Float32Array.from({ length: size }, (_, i) => ((i * 7) % 257) - 128);
  const newTensor = (seed: number): Tensor<"f32"> => {
    values[seed % size] = seed;
    return tensor(backend, values);
  };
  const registers = Array.from({ length: REGISTERS }, (_, i) => newTensor(i));
  // this work keeps a stream busy; no result depends on it
  const isReference = backend.name === "wasm";
  const largeTensor = tensor(backend, new Float32Array(isReference ? 0 : LARGE_SIZE).fill(1));
  const reads: Promise<ArrayLike<number>>[] = [];
  const replaceRegister = (index: number, value: Tensor): void => {
    const previous = registers[index] as Tensor;
    disown(value);
    registers[index] = value as Tensor<"f32">;
    previous.dispose();
  };
  const runStep = ({ action, target, x, y }: Step): void => {
    const [a, b] = [registers[x] as Tensor<"f32">, registers[y] as Tensor<"f32">];
    const targetTensor = registers[target] as Tensor<"f32">;
    if (action === "add") replaceRegister(target, scaleDown(add(a, b, { outDtype: "f32" }) as Tensor<"f32">));
    else if (action === "accumulate") add(targetTensor, a, { out: targetTensor });
    else if (action === "copy") targetTensor.paste(a.clone(), 0);
    else if (action === "view") replaceRegister(target, a.view(0, [size]));
    else if (action === "write") targetTensor.write(new Float32Array(size).fill(x - y));
    else if (action === "sum")
      targetTensor.paste(
        columnSum(scaleDown(a).reshape([rows, WIDTH]), "f32") as Tensor<"f32">,
        WIDTH * (y % rows),
      );
    else if (action === "renew") replaceRegister(target, newTensor(x + y));
    else if (action === "read") reads.push(targetTensor.data());
    else if (action === "trim") backend.trim();
    else if (action === "to host" && !isReference) storageOf(a).moveToHost(() => undefined);
    else if (action === "from host" && !isReference) storageOf(a).moveBack();
    else if (action === "slow" && !isReference)
      for (let i = 0; i < 20; i++) scaled(largeTensor, 1, { out: largeTensor });
  };
  for (const { onSide, steps } of parts) {
    const body = (): void => {
      using _ = new Scope();
      for (const step of steps) runStep(step);
    };
    if (onSide) onSideStream(backend, body);
    else body();
  }
  reads.push(...registers.map((x) => x.data()));
  for (const x of [...registers, largeTensor]) x.dispose();
  const contents = await Promise.all(reads);
  return contents.map((elements) => Float32Array.from(elements));
}
