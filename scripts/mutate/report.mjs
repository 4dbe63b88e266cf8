/** Reports the mutants that no test killed, without those that are listed as equivalent. */
import { readFileSync } from "node:fs";
import { readState } from "./state.mjs";

const EQUIVALENT = new URL("./equivalent.json", import.meta.url);

const short = (text) => text.replace(/\s+/g, " ").slice(0, 110);

const described = ({ original, replacement }) => `${short(original)} -> ${short(replacement)}`;

/** Prints the counts and every survivor. Returns true if there are no survivors and no outdated entries in the list. */
export function report(sources, folder, kind) {
  const mutants = JSON.parse(readFileSync(`${folder}/mutants.json`, "utf8"));
  const { killed, refused, tests, static: loaded } = readState(folder);
  const covered = new Set([...tests.values()].flatMap((test) => Object.keys(test.covered)));
  for (const each of loaded.values()) for (const mutant of each) covered.add(mutant);
  const named = JSON.parse(readFileSync(EQUIVALENT, "utf8")).filter(
    (each) => each.file.startsWith(sources) && (each.kind ?? "usual") === kind,
  );
  const used = new Set();
  const survivors = mutants.filter((mutant) => !killed.has(mutant.id) && !refused.has(mutant.id));
  const left = survivors.filter((mutant) => {
    const name = named.find(
      (each) =>
        each.file === mutant.fileName &&
        each.line === mutant.line &&
        (each.mutants === undefined || each.mutants.includes(described(mutant))),
    );
    if (name) used.add(name);
    return !name;
  });
  for (const mutant of left) {
    const { start } = mutant.location;
    console.log(
      `${mutant.fileName}:${start.line + 1}:${start.column + 1} #${mutant.id} ${mutant.mutatorName}${covered.has(mutant.id) ? "" : " (not covered)"}\n  ${mutant.line}\n  - ${short(mutant.original)}\n  + ${short(mutant.replacement)}`,
    );
  }
  for (const name of named)
    if (!used.has(name)) console.log(`equivalent.json names no survivor: ${JSON.stringify(name)}`);
  console.log(
    `${sources}: ${mutants.length} mutants, ${killed.size} killed, ${refused.size} refused by the compiler, ${survivors.length - left.length} equivalent, ${left.length} survived`,
  );
  return left.length === 0;
}
