/** `lockstep compare`: compares two files bit by bit. */
import { DIALECT_NAMES, type DialectName } from "../../dialects/table.js";
import { ArgumentError } from "../../errors.js";
import type { TensorEntry } from "../../io/header/header.js";
import { someNames, type TensorSource } from "../../io/source.js";
import { sameShape } from "../../tensor/shape.js";
import { defineCommand } from "../command.js";
import { Inputs } from "../compare/inputs.js";
import { allows, isGiven, POLICY_OPTIONS, type Policy } from "../compare/policy.js";
import { recipeDifferences, recipeLine } from "../compare/recipes.js";
import { FileStatistics, isExponent, statisticsLines, type TensorStatistics } from "../compare/statistics.js";
import { diffTensors, onlyOn, type SideFile, type TensorDiff } from "../compare/tensor-diff.js";
import { flag, integer, oneOf, optional, someText, value } from "../options.js";
import { withFile } from "../pieces.js";

/** Describes a tensor that is not equal, in one line. */
function describe(diff: TensorDiff, [pathA, pathB]: readonly [string, string]): string {
  const { name, dtype, shape, other, first, different, elements } = diff;
  const description = `${dtype} [${shape}]`;
  if (diff.status === "onlyA") return `${name}: ${description}, missing in ${pathB}`;
  if (diff.status === "onlyB") return `${name}: ${description}, missing in ${pathA}`;
  if (other) return `${name}: ${description} against ${other.dtype} [${other.shape}]`;
  const position = first
    ? `; first at [${first.coordinate}]: ${first.a.value} (${first.a.code}) against ${first.b.value} (${first.b.code})`
    : "";
  return `${name}: ${description}, ${different} of ${elements} elements differ${position}`;
}

/** A tensor of both files, or of only one of them. */
type Pair =
  | { readonly only?: never; readonly entry: TensorEntry; readonly other: TensorEntry }
  | { readonly only: "onlyA" | "onlyB"; readonly entry: TensorEntry };

/**
 * Yields the tensors whose names begin with `prefix`: first the tensors of `a` in their order, then the tensors that only `b`
 * has.
 */
function* pairs(a: TensorSource, b: TensorSource, prefix: string): Generator<Pair, undefined> {
  for (const entry of a.tensors.values()) {
    if (!entry.name.startsWith(prefix)) continue;
    const otherEntry = b.tensors.get(entry.name);
    yield otherEntry ? { entry, other: otherEntry } : { only: "onlyA", entry };
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

/** The comparison of a tensor, with statistics if requested. */
type Compared = TensorDiff & Partial<TensorStatistics> & { readonly passes?: boolean };

/** Compares two tensors, and collects statistics where they apply. */
async function compareTensors(
  a: SideFile,
  b: SideFile,
  onBytes: (count: number) => void,
  collected: FileStatistics | undefined,
  policy: Policy,
): Promise<Compared> {
  const isSame = a.entry.dtype === b.entry.dtype && sameShape(a.entry.shape, b.entry.shape);
  const follower = isSame ? await collected?.begin(a.entry) : undefined;
  const diff = await diffTensors(a, b, onBytes, follower);
  if (!follower) return collected ? { ...diff, passes: false } : diff;
  const statistics = follower.result();
  const passes = isGiven(policy)
    ? allows(policy, { statistics: statistics.statistics, isExponent: isExponent(statistics) })
    : diff.status === "equal";
  return { ...diff, ...statistics, passes };
}

export const compare = defineCommand({
  name: "compare",
  summary:
    "compares all tensors of two files bit by bit, where all NaNs are equal; exits with 1 if any differ",
  details: [
    "For each tensor that differs, prints the number of elements that differ, and the coordinate, the values and the codes of the first one. Integers, including codes in U8, are compared by their bits. Quantized tensors also differ if the metadata of the files read their codes and scales as other values: another tile, layout, format, role of the amax, or Hadamard transform.",
    "With --stats, A is the reference: prints why elements of B differ, how many codes they are apart, and their errors. Of files that quantize wrote, values are codes times scales. With --ulp, --max-abs, --max-rel or --min-sqnr the exit status is 0 if all tensors are within these limits. With --inputs, the first elements that differ are explained from the tensors that were quantized.",
  ],
  example: "product.safetensors mine.safetensors --stats --ulp 1",
  inputs: ["A", "B"],
  without: ["backend", "threads"],
  options: {
    prefix: optional({
      placeholder: "P",
      help: "compare only tensors whose names begin with P, for example out.",
      parse: (text) => text,
    }),
    stats: flag("print statistics of the differences of B from A"),
    ...POLICY_OPTIONS,
    inputs: optional({
      placeholder: "FILE",
      help: "explain differences of codes by the tensors in this file, which were quantized",
      parse: someText,
      file: "read",
    }),
    dialect: optional<DialectName>({
      placeholder: "NAME",
      help: "statistics of the values that another library computes from codes and scales: one of lockstep dialects",
      parse: oneOf(DIALECT_NAMES),
    }),
    examples: value({
      placeholder: "N",
      help: "number of elements of each cause to show of a tensor",
      parse: integer(0, 1000),
      fallback: 3,
      shown: "3",
    }),
  },
  async run({ session, values, inputs: [pathA = "", pathB = ""] }) {
    const { prefix = "", stats, inputs, examples, dialect, ...policy } = values;
    const needsStatistics = stats || inputs !== undefined || dialect !== undefined || isGiven(policy);
    const { tensors, compared, recipes } = await withFile(session.files.open(pathA), (a) =>
      withFile(session.files.open(pathB), async (b) => {
        const source = inputs === undefined ? undefined : await session.files.open(inputs);
        try {
          const explained = source && new Inputs(source, [a, b]);
          const collected = needsStatistics
            ? new FileStatistics(a, b, explained, examples, dialect)
            : undefined;
          const progress = session.progress(bytesOf(a, b, prefix), "B");
          const diffs: Compared[] = [];
          let comparedCount = 0;
          for (const pair of pairs(a, b, prefix)) {
            const diff = pair.only
              ? { ...onlyOn(pair.only, pair.entry), ...(needsStatistics ? { passes: false } : {}) }
              : await compareTensors(
                  { file: a, entry: pair.entry },
                  { file: b, entry: pair.other },
                  (count) => progress.add(count),
                  collected,
                  policy,
                );
            comparedCount++;
            // the text output keeps only tensors that differ, because a file may have a million equal tensors
            if (session.general.json || diff.status !== "equal" || isUnequal(diff)) diffs.push(diff);
          }
          progress.finish();
          return { tensors: diffs, compared: comparedCount, recipes: recipeDifferences(a, b, prefix) };
        } finally {
          await source?.close();
        }
      }),
    );
    const unequal = tensors.filter(({ status }) => status !== "equal");
    const failedTensors = needsStatistics ? tensors.filter(({ passes }) => passes === false) : unequal;
    const passCount = isGiven(policy) ? `, ${compared - failedTensors.length} within the limits` : "";
    const count = `${compared - unequal.length} of ${compared} tensors equal${passCount}`;
    const report = {
      a: pathA,
      b: pathB,
      equal: unequal.length + recipes.length === 0,
      ...(needsStatistics ? { passes: failedTensors.length + recipes.length === 0 } : {}),
      tensors,
      ...(recipes.length > 0 ? { recipes } : {}),
    };
    const listedTensors = tensors.filter((diff) => diff.status !== "equal" || isUnequal(diff));
    const lines = [
      ...recipes.map(recipeLine),
      ...listedTensors.flatMap((diff) => [
        describe(diff, [pathA, pathB]),
        ...(isCounted(diff) ? statisticsLines(diff) : []),
      ]),
    ];
    if (lines.length > 0) session.result(report, [...lines, count]);
    else session.summary(report, [count]);
    return failedTensors.length + recipes.length > 0 ? 1 : 0;
  },
});

function isCounted(diff: Compared): diff is Compared & TensorStatistics {
  return diff.statistics !== undefined;
}

/** Whether the codes are equal but the values differ, because the scales differ. */
function isUnequal({ statistics }: Compared): boolean {
  return statistics !== undefined && statistics.different > 0;
}
