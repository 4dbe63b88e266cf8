/** Findings about packed tensors of GGUF files, whose values are read as F32. */
import { countNotFinite } from "../../../dialects/packed/not-finite.js";
import { PACKED_LAYOUTS } from "../../../dialects/packed/packed.js";
import { GgufFile, packedAs } from "../../gguf/file.js";
import type { StoredTensor } from "../../stored/tensors.js";
import { type Finding, finding } from "../findings.js";

/** The approximate number of block bytes to read at a time. */
const CHUNK_BYTES = 1 << 20;

/** The size of a packed tensor's values as F32, the unit in which `judgePacked` reports progress. */
export function packedBytes({ shard, entry }: StoredTensor): number {
  return packedAs(shard, entry.name) ? entry.end - entry.begin : 0;
}

/** A finding about NaN or infinite values of a packed tensor. Only NaN or infinite scales cause such values. */
export async function judgePacked(
  { shard, entry }: StoredTensor,
  onBytes: (count: number) => void = () => {},
): Promise<Finding[]> {
  const packed = packedAs(shard, entry.name);
  if (!packed || !(shard instanceof GgufFile)) return [];
  const { elements, bytes } = PACKED_LAYOUTS[packed.layout];
  const values = (entry.end - entry.begin) / 4;
  const blocks = values / elements;
  const step = Math.floor(CHUNK_BYTES / bytes);
  let notFinite = 0;
  for (let first = 0; first < blocks; first += step) {
    const last = Math.min(blocks, first + step);
    notFinite += countNotFinite(await shard.readBlocks(entry.name, first, last), packed.layout);
    onBytes(4 * elements * (last - first));
  }
  const problem = `${notFinite} of ${values} values of ${packed.layout} are NaN or infinite, as scales of their blocks are`;
  return notFinite > 0 ? [finding("scale-not-finite", entry.name, problem)] : [];
}
