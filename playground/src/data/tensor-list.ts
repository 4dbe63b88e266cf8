/** The list of a file's tensors, to choose one from. */
import type { OpenFile } from "./file.js";

/** The maximum number of tensors in the list. A browser takes seconds for a list of all tensors of a large file. */
export const MAX_LISTED = 500;

/** A tensor in the list. */
export interface Listed {
  readonly value: string;
  readonly text: string;
  readonly group: string;
}

type Tensors = Pick<OpenFile, "tensors" | "quantized" | "faults">;

/** The number of tensors to choose from. A quantized tensor may have the name of one of its parts. */
export function countOf({ tensors, quantized }: Tensors): number {
  let count = tensors.size;
  for (const name of quantized.keys()) if (!tensors.has(name)) count++;
  return count;
}

/**
 * The tensors whose names contain a string, quantized ones first, up to `MAX_LISTED`. The chosen tensor is always included, if
 * the file has it.
 */
export function listOf(file: Tensors, part: string, chosen: string): readonly Listed[] {
  const listed: Listed[] = [];
  let hasChosen = false;
  for (const each of all(file)) {
    const isChosen = each.value === chosen;
    const room = MAX_LISTED - (hasChosen || isChosen ? 0 : 1);
    if (!isChosen && (listed.length >= room || !each.value.includes(part))) {
      if (listed.length >= room && hasChosen) break;
      continue;
    }
    hasChosen ||= isChosen;
    listed.push(each);
  }
  return listed;
}

function* all({ tensors, quantized, faults }: Tensors): Generator<Listed, undefined> {
  for (const [name, { kind, shape }] of quantized)
    yield { value: name, text: `${name} ${kind} [${shape.join(", ")}]`, group: "quantized" };
  for (const { name, dtype, shape } of tensors.values())
    if (!quantized.has(name))
      yield {
        value: name,
        text: `${name} ${dtype} [${shape.join(", ")}]`,
        group: faults.has(name) ? "without values of their own" : "as stored",
      };
}
