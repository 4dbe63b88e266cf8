/** Recognizes tensors that are meaningless by themselves: codes and scales of another library's convention. */
import type { FileDType } from "../../io/dtypes.js";
import type { TensorSource } from "../../io/source.js";
import { conventionOf } from "../stored/conventions.js";
import type { StoredTensor } from "../stored/tensors.js";
import { hasNameOfScale } from "./leftovers.js";
import { recognize } from "./recognize.js";

/** The element types of codes or scales under any convention. */
const SUSPECT: ReadonlySet<FileDType> = new Set([
  ...(["F4", "F6_E2M3", "F6_E3M2", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"] as const),
  ...(["U8", "I8", "I32"] as const),
]);

const PLAIN: ReadonlySet<FileDType> = new Set(["U8", "I8", "I32"]);

/** The reason why a tensor is meaningless by itself. */
export interface Foreign {
  readonly name: string;
  /**
   * `part`: a tensor of a recognized weight, or a tensor with the name of a convention's scales. `codes`: a tensor with a type of
   * codes or scales, whose counterpart (scales or codes) is absent. `bytes`: as `codes`, but possibly plain bytes, for example
   * codes that `encode` wrote.
   */
  readonly kind: "part" | "codes" | "bytes";
  readonly why: string;
}

/** The tensors of a file that are parts of another library's weights, or codes and scales without their counterparts. */
export function foreignTensors(file: TensorSource): ReadonlyMap<string, Foreign> {
  const foreign = new Map<string, Foreign>();
  const add = (name: string, reason: string, kind: Foreign["kind"] = "part"): void => {
    if (!foreign.has(name) && file.tensors.has(name)) foreign.set(name, { name, why: reason, kind });
  };
  let suspect = false;
  for (const { dtype } of file.tensors.values()) suspect ||= SUSPECT.has(dtype);
  if (!suspect) return foreign;
  const tensors = new Map<string, StoredTensor>();
  for (const entry of file.tensors.values()) tensors.set(entry.name, { entry, shard: file });
  const { weights, unfit, findings } = recognize(
    { shards: [file], tensors, metadata: file.metadata },
    undefined,
  );
  for (const { convention, codes, scale, global, name } of weights) {
    const { summary } = conventionOf(convention);
    for (const { entry } of [codes, scale, ...(global ? [global] : [])])
      add(entry.name, `is part of the quantized weight "${name}" (${convention}: ${summary})`);
  }
  for (const { name, convention, parts } of unfit) {
    const { summary } = conventionOf(convention);
    for (const part of parts)
      add(
        part,
        `is part of the quantized weight "${name}", whose scales do not fit (${convention}: ${summary})`,
      );
  }
  for (const { name, subject, what } of findings) {
    if (name !== "scale-missing" && name !== "scale-dtype" && name !== "scale-orphan") continue;
    const isPlain = PLAIN.has(file.tensors.get(subject)?.dtype ?? "BOOL");
    if (name === "scale-orphan")
      add(subject, what, hasNameOfScale(subject) ? "part" : isPlain ? "bytes" : "codes");
    else add(subject, what, isPlain && subject.endsWith(".weight") ? "bytes" : "codes");
  }
  return foreign;
}
