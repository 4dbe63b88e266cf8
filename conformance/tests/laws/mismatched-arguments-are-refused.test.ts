/**
 * Every operation refuses arguments that do not match: in each place of each valid call, one mistake of each class is refused
 * with an error of the operation that states the wrong value. invalid-arguments-are-refused.test.ts tries many more values, but
 * no shapes.
 */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Backend } from "../../../src/backends/backend.js";
import {
  ArgumentError,
  DisposedError,
  DTypeError,
  type LockstepError,
  ShapeError,
} from "../../../src/errors.js";
import * as creations from "../../../src/ops/create.js";
import { empty } from "../../../src/ops/create.js";
import { captureGraph } from "../../../src/ops/graph.js";
import * as operations from "../../../src/ops/index.gen.js";
import { onSideStream } from "../../../src/ops/side-stream.js";
import { QuantizedTensor } from "../../../src/tensor/quantized.js";
import { Tensor } from "../../../src/tensor/tensor.js";
import { GuardedBackend } from "../../operations/guarded.js";
import { isPlain } from "../harness/arguments/candidates.js";
import { type Callable, readDeclarations } from "../harness/arguments/declared.js";
import { completeRows } from "../harness/arguments/derived.js";
import { inWorld } from "../harness/arguments/law.js";
import type { Row } from "../harness/arguments/row.js";
import { OPERATION_ROWS } from "../harness/arguments/rows-ops.js";
import { QUANTIZER_ROWS } from "../harness/arguments/rows-quantizers.js";
import { type Backends, fillTensor, openBackends, type World } from "../harness/arguments/world.js";

const declarations = readDeclarations("dist/src/index.d.ts");
const ROWS = completeRows(declarations, { ...OPERATION_ROWS, ...QUANTIZER_ROWS });
const FUNCTIONS: Readonly<Record<string, unknown>> = {
  ...operations,
  ...creations,
  captureGraph,
  onSideStream,
};

/** Sizes that no other argument shares: the argument, and the index of the size. */
const OWN: Readonly<Record<string, readonly string[]>> = {
  attention: ["q 0", "q 1", "q 2", "v 2", "v 3", "options.bias 0", "options.pages 1"],
  attentionBackward: ["options.bias 0"],
  updateScales: ["inputs.amaxHistory 0"],
  embedding: ["table 0", "table 1", "ids 0"],
  embeddingBackward: ["grad 1"],
  concatenate: ["tensors.0 1", "tensors.1 1"],
  gather: ["x 1", "index 1"],
  takeRows: ["x 0", "x 1", "sources 0"],
  combineRows: ["x 0", "x 1"],
  rowDots: ["x 0", "rows 1"],
  rotaryEmbedding: ["x 0", "x 1", "x 2", "x 3"],
  gemm: ["a", "b", "a.data", "b.data", "x.data", "w.data"].map((name) => `options.${name} 0`),
  groupedGemm: ["products.0.x 0", "products.0.w 0"],
  gradNorm: ["grads.0 0", "grads.0 1", "grads.1 0", "grads.1 1"],
  layerNorm: ["x 0"],
  rmsNorm: ["x 0"],
  crossEntropy: ["logits 1"],
  crossEntropyBackward: ["inputs.logits 1"],
};

/** The function that takes numbers only. */
const NUMBERS_ONLY = "attentionPlan";

/** A position in the arguments of a valid call. */
interface Place {
  readonly keys: readonly string[];
  readonly path: string;
  readonly valid: unknown;
}

/** A mistake in one position, and its expected error. */
interface Mistake {
  readonly title: string;
  readonly value: unknown;
  readonly error: new (...args: never[]) => LockstepError;
  /** The words in the message. */
  readonly path: string;
  /** The index of the wrong size, for a shape mistake. */
  readonly size?: number;
}

const [FOREIGN, TYPED] = ["of another backend", "of u16"];

const isTensor = (x: unknown): x is Tensor | QuantizedTensor =>
  x instanceof Tensor || x instanceof QuantizedTensor;

function placesIn({ parameters }: Callable, args: readonly unknown[]): readonly Place[] {
  const visit = (valid: unknown, keys: readonly string[], path: string): readonly Place[] => {
    const entries = Array.isArray(valid) || isPlain(valid) ? Object.entries(valid) : [];
    return [
      { keys, path, valid },
      ...entries.flatMap(([key, element]) => visit(element, [...keys, key], `${path}.${key}`)),
    ];
  };
  return args.flatMap((valid, i) => visit(valid, [String(i)], parameters[i]?.name ?? ""));
}

/** A copy of the arguments with another value in this position. */
function replaceAt(target: unknown, [key, ...innerKeys]: readonly string[], replacement: unknown): unknown {
  if (key === undefined) return replacement;
  const alteredTarget = replaceAt(Reflect.get(target as object, key), innerKeys, replacement);
  return Object.assign(Array.isArray(target) ? [...target] : { ...(target as object) }, {
    [key]: alteredTarget,
  });
}

/** A tensor of the same type and shape on another backend or with other bytes. */
const emptyLike = (x: Tensor, backend: Backend, shape = x.shape): Tensor =>
  fillTensor(empty(backend, x.dtype, shape));

/** Mistakes in place of a valid argument. */
function mistakesFor(world: World, { valid, keys, path }: Place): readonly Mistake[] {
  const { backend, otherBackend, disposedBackend } = world.backends;
  const disposedMistake = <T extends Tensor | QuantizedTensor>(x: T): Mistake => {
    x.dispose();
    return { title: "disposed", value: x, error: DisposedError, path: "disposed" };
  };
  const onOtherBackend = (tensorLike: Tensor | QuantizedTensor): Mistake => {
    return { title: FOREIGN, value: tensorLike, error: ArgumentError, path: "different backends" };
  };
  const none: Mistake = {
    title: "no tensor",
    value: Symbol("none"),
    error: DTypeError,
    path: "Symbol(none)",
  };
  if (valid instanceof QuantizedTensor)
    return [none, disposedMistake(world.quantize()), onOtherBackend(world.quantize(undefined, otherBackend))];
  if (valid instanceof Tensor) {
    const otherDtype = { value: empty(backend, "u16", valid.shape), error: DTypeError, path: "u16" };
    const otherSizes = valid.shape.map((_, size): Mistake => {
      const shape = valid.shape.map((length, i) => (i === size ? 2 * length : length));
      return {
        title: `of [${shape}]`,
        value: emptyLike(valid, backend, shape),
        error: ShapeError,
        path: "[",
        size,
      };
    });
    const unusableTensors = [
      disposedMistake(emptyLike(valid, backend)),
      onOtherBackend(emptyLike(valid, otherBackend)),
    ];
    return [none, ...unusableTensors, { title: TYPED, ...otherDtype }, ...otherSizes];
  }
  if (valid instanceof Object && "supports" in valid)
    return [
      { title: "an object", value: {}, error: ArgumentError, path: "backend is a plain object" },
      { title: "disposed", value: disposedBackend, error: DisposedError, path: "backend" },
    ];
  if (!isPlain(valid)) return [];
  const name = keys.length === 1 || keys.at(-1) === "format" ? "nonsense" : `${keys.at(-1)}.nonsense`;
  const unknownKey: Mistake = {
    title: "an unknown key",
    value: { ...valid, nonsense: 1 },
    error: ArgumentError,
    path: name,
  };
  if (keys.length > 1) return [unknownKey];
  return [unknownKey, { title: "a list", value: [], error: ArgumentError, path: `${path} is an array of 0` }];
}

/** Whether the mistake in this position must be refused. */
function isRefused({ title, size }: Mistake, { path }: Place, row: Row, tensors: number): boolean {
  if (title === TYPED) return !row.anyType?.includes(path);
  // a single tensor determines the backend and the shape
  return tensors > 1 || (title !== FOREIGN && size === undefined);
}

const rows = declarations.callables.flatMap((callable) => {
  const [row, run] = [ROWS[callable.name], FUNCTIONS[callable.name]];
  return row && typeof run === "function" && callable.name !== NUMBERS_ONLY
    ? [[callable.name, { callable, row, run }] as const]
    : [];
});

let backends: Backends;
beforeAll(async () => {
  backends = await openBackends((backend) => new GuardedBackend(backend));
});
afterAll(async () => {
  await backends.backend.dispose();
  await backends.otherBackend.dispose();
});

/** The error of a call or of its promise, or its result. */
async function outcomeOf(call: () => unknown): Promise<unknown> {
  try {
    return await call();
  } catch (error) {
    return error;
  }
}

describe("an argument that does not go with the others", () => {
  it.each(rows)("is refused by %s", async (name, { callable, row, run }) => {
    const outcomes = row.calls.flatMap((call) =>
      inWorld(backends, (world) => {
        const args = call(world);
        const places = placesIn(callable, args);
        const tensors = places.filter(({ valid }) => isTensor(valid)).length;
        return places.flatMap((place) =>
          mistakesFor(world, place)
            .filter((mistake) => isRefused(mistake, place, row, tensors))
            .map((mistake) => {
              const invalidArguments = replaceAt(args, place.keys, mistake.value) as readonly unknown[];
              const outcome = outcomeOf(() => Reflect.apply(run, undefined, invalidArguments));
              return { outcome, place, mistake };
            }),
        );
      }),
    );
    const [faults, checkedNames]: [string[], Set<string>] = [[], new Set()];
    for (const { outcome, place, mistake } of outcomes) {
      const { title, error, path, size } = mistake;
      const thrown = await outcome;
      const caller = place.path.endsWith(".format") ? "format" : `${row.refusingFunction ?? name}:`;
      // another function does not know where its argument was in the call
      const namedPath = row.refusingFunction ? (path.split(".").at(-1) as string) : path;
      if (thrown instanceof error && thrown.message.startsWith(caller) && thrown.message.includes(namedPath))
        continue;
      const argumentName = `${place.path} ${size}`;
      if (OWN[name]?.includes(argumentName) && !(thrown instanceof Error)) checkedNames.add(argumentName);
      else faults.push(`${place.path} ${title}: ${thrown}`);
    }
    expect(faults).toEqual([]);
    expect([...checkedNames].sort()).toEqual([...(OWN[name] ?? [])].sort());
    expect(outcomes.length).toBeGreaterThan(0);
  });

  it("is tried of every operation", () => {
    const functions = Object.entries(FUNCTIONS).filter(([, exported]) => typeof exported === "function");
    const uncoveredNames = functions
      .map(([name]) => name)
      .filter((name) => !rows.some(([rowName]) => rowName === name));
    expect(uncoveredNames.sort()).toEqual([NUMBERS_ONLY, "fromBytes", "setZero"]);
  });
});
