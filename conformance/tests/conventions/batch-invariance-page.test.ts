// The page about batch invariance agrees with the recorded cases.
import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { ROOT } from "../harness/sources/sources.js";

const readText = (path: string): string => readFileSync(`${ROOT}/${path}`, "utf8");
const { cases } = JSON.parse(readText("conformance/vectors/torch-batches.json")) as {
  readonly cases: Readonly<Record<string, readonly (readonly number[])[]>>;
};
const page = readText("docs/referee.md");

/** The number of invariant cases whose names match, and the number of all cases whose names match. */
function countVerdicts(pattern: RegExp): readonly [invariant: number, all: number] {
  const matchingCases = Object.entries(cases).filter(([name]) => pattern.test(name));
  return [matchingCases.filter(([, groups]) => groups.length === 1).length, matchingCases.length];
}

it("has the numbers of all cases", () => {
  const [invariant, all] = countVerdicts(/./);
  expect(page).toMatch(
    new RegExp(`Of ${all} cases that PyTorch\\n2\\.11 ran .*, ${invariant} are invariant`),
  );
});

it.each([
  [/^(rms_norm|layer_norm|softmax|log_softmax|logsumexp) /, /50,257 columns \| all 60 \|/],
  [/^_scaled_mm rows/, /scales of rows \| all 6 \|/],
  [/^_scaled_mm tensor/, /scales of tensors \| 5 of 6:/],
  [/^(mm|linear\+bias) bf16/, /`linear` in bf16 \| 4 of 12:/],
  [/^mm f32/, /`mm` in f32 \| none of 4 \|/],
  [/^(sum|mean|norm) bfloat16/, /norms in bf16 \| all 18;/],
  [/^(sum|mean) float32/, /f32 sums and means none of 12,/],
  [/^norm float32/, /f32 norms 5 of 6,/],
  [/^mean f32 /, /f32 means of squares 7 of 12 \|/],
  [/^cumsum/, /`cumsum` \| none of 12 \|/],
  [/^sdpa EFFICIENT/, /EFFICIENT_ATTENTION \| all 8,/],
])("has the numbers of %s", (pattern, text) => {
  const [sentence = ""] = text.exec(page) ?? [];
  const [invariant, all] = countVerdicts(pattern);
  const expected =
    invariant === all ? `all ${all}` : invariant === 0 ? `none of ${all}` : `${invariant} of ${all}`;
  expect(sentence).toContain(expected);
});
