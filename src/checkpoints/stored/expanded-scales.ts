/** Expands scales of groups that are not consecutive columns to one scale for each element. */
import type { TensorEntry } from "../../io/header/header.js";
import { rangeOf, TensorSource } from "../../io/source.js";
import { asBytes } from "../../tensor/data.js";
import { elementCount } from "../../tensor/shape.js";
import { readFloats } from "./scales.js";
import type { StoredTensor } from "./tensors.js";
import { matricesOf, type QuantizedWeight } from "./weight.js";

/** The scales of a weight, one F32 for each element. */
export class ExpandedScales extends TensorSource {
  private constructor(
    private readonly view: TensorEntry,
    private readonly from: StoredTensor,
    private readonly groups: Int32Array,
    private readonly lineScales: number,
  ) {
    super(from.shard.path, { tensors: new Map([[view.name, view]]), metadata: {} });
  }

  /** The expanded scales of a weight and their geometry. `groups`: the group of each column. */
  static of(
    { scale, shape, geometry }: QuantizedWeight,
    groups: Int32Array,
  ): Pick<QuantizedWeight, "scale" | "geometry"> {
    const [, rows, columns] = matricesOf(shape);
    const entry: TensorEntry = {
      name: scale.entry.name,
      dtype: "F32",
      shape,
      begin: 0,
      end: 4 * elementCount(shape),
    };
    const shard = new ExpandedScales(entry, scale, groups, geometry.grid[1]);
    return {
      scale: { entry, shard },
      geometry: { kind: "group", block: [1, 1], grid: [rows, columns], swizzled: false },
    };
  }

  override async read(entry: TensorEntry, from?: number, to?: number): Promise<Uint8Array> {
    const [begin, end] = rangeOf(this.path, entry, from, to);
    const storedScales = await readFloats(this.from);
    const columns = this.groups.length;
    const expanded = new Float32Array(elementCount(this.view.shape));
    for (let index = 0; index < expanded.length; index++) {
      const line = Math.floor(index / columns);
      expanded[index] =
        storedScales[line * this.lineScales + (this.groups[index % columns] as number)] ?? Number.NaN;
    }
    return asBytes(expanded).subarray(begin, end);
  }
}
