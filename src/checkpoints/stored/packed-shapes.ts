/** Reads the small integer tensors that record shapes of packed weights. */
import type { FileDType } from "../../io/dtypes.js";
import type { CheckpointTensors } from "./tensors.js";

/** Shapes before packing, by the names of the tensors that record them. */
export type PackedShapes = ReadonlyMap<string, readonly number[]>;

const SHAPE_END = ".weight_shape";
/** The largest number of dimensions of a shape. */
const MAX_NUMBERS = 8;
const WIDTHS: Readonly<Partial<Record<FileDType, 4 | 8>>> = { I32: 4, I64: 8 };

/** Reads the recorded shapes of weights before packing. */
export async function readPackedShapes({ tensors }: CheckpointTensors): Promise<PackedShapes> {
  const facts = new Map<string, readonly number[]>();
  for (const [name, { entry, shard }] of tensors) {
    const width = name.endsWith(SHAPE_END) ? WIDTHS[entry.dtype] : undefined;
    if (!width || entry.end - entry.begin > width * MAX_NUMBERS) continue;
    const { buffer, byteOffset, byteLength } = await shard.read(entry);
    const view = new DataView(buffer, byteOffset, byteLength);
    const numbers = Array.from({ length: byteLength / width }, (_, i) =>
      width === 4 ? view.getInt32(4 * i, true) : Number(view.getBigInt64(8 * i, true)),
    );
    facts.set(name, numbers);
  }
  return facts;
}
