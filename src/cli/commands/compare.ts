/** `lockstep compare`: compares two files bit by bit. */
import { ArgumentError } from "../../errors.js";
import type { TensorEntry } from "../../io/header/header.js";
import { someNames, type TensorSource } from "../../io/source.js";
import { defineCommand } from "../command.js";
import { optional } from "../options.js";
import { withFile } from "../pieces.js";
import { diffTensors, onlyOn, type TensorDiff } from "../tensor-diff.js";

/** Describes a tensor that is not equal, in one line. */
function describe(diff: TensorDiff, [pathA, pathB]: readonly [string, string]): string {
  const { name, dtype, shape, other, first, different, elements } = diff;
  const what = `${dtype} [${shape}]`;
  if (diff.status === "onlyA") return `${name}: ${what}, missing in ${pathB}`;
  if (diff.status === "onlyB") return `${name}: ${what}, missing in ${pathA}`;
  if (other) return `${name}: ${what} against ${other.dtype} [${other.shape}]`;
  const at = first
    ? `; first at [${first.coordinate}]: ${first.a.value} (${first.a.code}) against ${first.b.value} (${first.b.code})`
    : "";
  return `${name}: ${what}, ${different} of ${elements} elements differ${at}`;
}

/** A tensor of both files, or of only one of them. */
type Pair =
  | { readonly only?: never; readonly entry: TensorEntry; readonly other: TensorEntry }
  | { readonly only: "onlyA" | "onlyB"; readonly entry: TensorEntry };

/** Yields the tensors whose names begin with `prefix`: those of `a` in its order, then those that only `b` has. */
function* pairs(a: TensorSource, b: TensorSource, prefix: string): Generator<Pair, undefined> {
  for (const entry of a.tensors.values()) {
    if (!entry.name.startsWith(prefix)) continue;
    const other = b.tensors.get(entry.name);
    yield other ? { entry, other } : { only: "onlyA", entry };
  }
  for (const entry of b.tensors.values())
    if (entry.name.startsWith(prefix) && !a.tensors.has(entry.name)) yield { only: "onlyB", entry };
}

function* names(a: TensorSource, b: TensorSource): Generator<string, undefined> {
  for (const { entry } of pairs(a, b, "")) yield entry.name;
}

/** Returns the number of bytes to compare. Throws `ArgumentError` if no name begins with `prefix`. */
function bytesOf(a: TensorSource, b: TensorSource, prefix: string): number {
  let bytes = 0;
  let count = 0;
  for (const { entry } of pairs(a, b, prefix)) {
    bytes += entry.end - entry.begin;
    count++;
  }
  if (count > 0 || prefix === "") return bytes;
  throw new ArgumentError(
    `--prefix: no tensor of ${a.path} or ${b.path} begins with "${prefix}"; there are ${someNames(names(a, b))}`,
  );
}

export const compare = defineCommand({
  name: "compare",
  summary:
    "compares all tensors of two files bit by bit, where all NaNs are equal; exits with 1 if any differ",
  details: [
    "For each tensor that differs, prints the number of elements that differ, and the coordinate, the values and the codes of the first one. Integers, including codes in U8, are compared by their bits.",
  ],
  example: "mine.safetensors product.safetensors",
  inputs: ["A", "B"],
  options: {
    prefix: optional({
      placeholder: "P",
      help: "compare only tensors whose names begin with P, for example out.",
      parse: (text) => text,
    }),
  },
  async run({ session, values: { prefix = "" }, inputs: [pathA = "", pathB = ""] }) {
    const { tensors, compared } = await withFile(session.files.open(pathA), (a) =>
      withFile(session.files.open(pathB), async (b) => {
        const progress = session.progress(bytesOf(a, b, prefix), "B");
        const diffs: TensorDiff[] = [];
        let compared = 0;
        for (const pair of pairs(a, b, prefix)) {
          const diff = pair.only
            ? onlyOn(pair.only, pair.entry)
            : await diffTensors({ file: a, entry: pair.entry }, { file: b, entry: pair.other }, (count) =>
                progress.add(count),
              );
          compared++;
          // only tensors that differ are kept for the text output, because a file may have a million equal ones
          if (session.general.json || diff.status !== "equal") diffs.push(diff);
        }
        progress.finish();
        return { tensors: diffs, compared };
      }),
    );
    const unequal = tensors.filter(({ status }) => status !== "equal");
    const count = `${compared - unequal.length} of ${compared} tensors equal`;
    const report = { a: pathA, b: pathB, equal: unequal.length === 0, tensors };
    const lines = unequal.map((diff) => describe(diff, [pathA, pathB]));
    if (unequal.length > 0) session.result(report, [...lines, count]);
    else session.summary(report, [count]);
    return unequal.length > 0 ? 1 : 0;
  },
});
