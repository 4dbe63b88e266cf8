/** A network whose parameters are divided among ranks in every way, by tensor parallelism and `fullyShard`. */
import type { Backend } from "../../../src/backends/backend.js";
import { loopbackOver } from "../../../src/collectives/loopback/loopback.js";
import {
  DotProductAttention,
  Embedding,
  fullyShard,
  LayerNormMLP,
  Linear,
  Module,
  type ProcessGroup,
  type WideDType,
} from "../../../src/index.js";
import type { TensorPart } from "../../../src/tensor/part.js";

/** The largest number of ranks. */
export const MOST = 8;

/** Returns the elements of a full tensor that a part has, in order. */
export function elementsOfPart(fullValues: ArrayLike<number>, { shape, ranges }: TensorPart): number[] {
  // dimensions after the second one have size 1
  const [rows = [[0, 1]], columns = [[0, 1]]] = ranges;
  const width = shape[1] ?? 1;
  const upTo = ([begin, end]: readonly [number, number]): number[] =>
    Array.from({ length: end - begin }, (_, i) => begin + i);
  return rows
    .flatMap(upTo)
    .flatMap((row) => columns.flatMap(upTo).map((column) => fullValues[row * width + column] as number));
}

/** Every way in which a layer divides a parameter: by rows in one or two pieces, by columns, by heads, not at all. */
export class DividedNet extends Module {
  constructor(
    backend: Backend,
    group: ProcessGroup | undefined,
    { features, hidden, dtype }: Pick<Division, "features" | "hidden"> & { readonly dtype: WideDType },
  ) {
    super(backend);
    const options = { dtype, group } as const;
    this.addModule("table", new Embedding(backend, hidden, 8, options));
    this.addModule("mlp", new LayerNormMLP(backend, features, hidden, { ...options, activation: "swiglu" }));
    this.addModule(
      "column",
      new Linear(backend, features, hidden, { ...options, ...(group ? { parallelMode: "column" } : {}) }),
    );
    this.addModule(
      "sinks",
      new DotProductAttention(backend, features, 1, { ...options, softmaxType: "learnable" }),
    );
    this.addModule(
      "row",
      new Linear(backend, hidden, 1, { ...options, ...(group ? { parallelMode: "row" } : {}) }),
    );
  }
}

/** The sizes of a network and of a mesh. */
export interface Division {
  readonly tp: number;
  readonly dp: number;
  /** The number of copies of the divided parameters, each on `dp` ranks for each rank along tp. */
  readonly replicate: number;
  readonly isSharded: boolean;
  readonly features: number;
  readonly hidden: number;
}

/** Every way to divide parameters: along each of the two axes, both or none. */
export function divisions(features: number, hidden: number): readonly Division[] {
  return [1, 2].flatMap((tp) =>
    [1, 2].flatMap((dp) =>
      [false, true].map((isSharded) => ({ tp, dp, replicate: tp, isSharded, features, hidden })),
    ),
  );
}

/** Creates the network of each rank. */
export function dividedNets(
  backends: readonly Backend[],
  { tp, dp, replicate, isSharded, ...sizes }: Division,
  dtype: WideDType,
): readonly DividedNet[] {
  return loopbackOver(backends.slice(0, tp * dp * replicate), 20_000).map((group) => {
    const mesh = group.split({ dp: dp * replicate, tp });
    const net = new DividedNet(group.backend, tp > 1 ? mesh.tp : undefined, { ...sizes, dtype });
    if (isSharded) fullyShard(net, mesh.dp, { mesh: { replicate, shard: dp } });
    return net;
  });
}
