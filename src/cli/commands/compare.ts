/** `lockstep compare`: two files, bit by bit. */
import { ArgumentError } from "../../errors.js";
import { fileBytes } from "../../io/dtypes.js";
import { SafetensorsFile } from "../../io/safetensors.js";
import { defineCommand } from "../command.js";
import { optional } from "../options.js";
import { withFile } from "../pieces.js";
import { diffTensors, onlyOn, type TensorDiff } from "../tensor-diff.js";

/** One line about a tensor that is not equal. */
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

/** How many names an error lists. */
const NAMES_SHOWN = 8;

/** The names of the tensors of either file that begin so. Throws `ArgumentError` where a prefix leaves none. */
function namesOf(a: SafetensorsFile, b: SafetensorsFile, prefix: string): ReadonlySet<string> {
  const all = [...new Set([...a.tensors.keys(), ...b.tensors.keys()])];
  const names = all.filter((name) => name.startsWith(prefix));
  if (names.length > 0 || prefix === "") return new Set(names);
  const some = all.slice(0, NAMES_SHOWN).join(", ") + (all.length > NAMES_SHOWN ? ", …" : "");
  throw new ArgumentError(
    `--prefix: no tensor of ${a.path} or ${b.path} begins with "${prefix}"; there are ${some || "none"}`,
  );
}

export const compare = defineCommand({
  name: "compare",
  summary:
    "compares every tensor of two files bit by bit, NaNs being equal to NaNs; exits 1 where they differ",
  details: [
    "Prints for each tensor that differs how many elements do, and the first: its coordinate, both values, both codes. Elements of integer types, codes in U8 among them, differ where their bits do.",
  ],
  inputs: ["A", "B"],
  options: {
    prefix: optional({
      placeholder: "P",
      help: "compare only tensors whose name begins so, out. for one",
      parse: (text) => text,
    }),
  },
  async run({ session, values: { prefix = "" }, inputs: [pathA = "", pathB = ""] }) {
    const { tensors, compared } = await withFile(SafetensorsFile.open(pathA), (a) =>
      withFile(SafetensorsFile.open(pathB), async (b) => {
        const names = namesOf(a, b, prefix);
        let bytes = 0;
        for (const name of names) {
          const { dtype, shape } = a.tensors.get(name) ?? b.entry(name);
          bytes += fileBytes(dtype, shape);
        }
        const progress = session.progress(bytes, "B");
        const diffs: TensorDiff[] = [];
        let compared = 0;
        // the text names only those that differ, and a file may have a million that do not
        const keep = (diff: TensorDiff): void => {
          compared++;
          if (session.general.json || diff.status !== "equal") diffs.push(diff);
        };
        for (const name of names) {
          const [entryA, entryB] = [a.tensors.get(name), b.tensors.get(name)];
          if (entryA && entryB) {
            const [sideA, sideB] = [
              { file: a, entry: entryA },
              { file: b, entry: entryB },
            ];
            keep(await diffTensors(sideA, sideB, (count) => progress.add(count)));
          } else if (entryA) keep(onlyOn("onlyA", entryA));
          else keep(onlyOn("onlyB", b.entry(name)));
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
