/**
 * C++ code can read only the arguments that a call declares (native/core/arguments.h); reading any other does not
 * compile.
 */
import { spawnSync } from "node:child_process";
import { expect, it } from "vitest";
import { describeOnStandIn } from "../harness/addon/stand-in.js";
import { ROOT } from "../harness/sources/sources.js";

/** Argument names, and the compiler's error for each; undefined if the name compiles. */
const NAMES: readonly (readonly [name: string, expected: RegExp | undefined])[] = [
  [`Name<calls::Add>("count")`, undefined],
  [`Name<calls::Add, Kind::kCount>("count")`, undefined],
  [`Name<calls::Add, kindOf<Wide>()>("xType")`, undefined],
  [`Name<calls::Relayout, Kind::kCount>("from", ".placement.bytes")`, undefined],
  [`OptionalName<calls::Norm, Kind::kPointer>("beta")`, undefined],
  [`Name<calls::Add>("momentum")`, /does not declare this argument/],
  [`Name<calls::Add>("Count")`, /does not declare this argument/],
  [`Name<calls::Relayout>("from")`, /does not declare this argument/],
  [`Name<calls::Add, Kind::kPointer>("count")`, /as another kind/],
  [`Name<calls::Add, kindOf<Rounding>()>("xType")`, /as another kind/],
  [`OptionalName<calls::Norm>("gamma")`, /always has this argument/],
];

function compile(name: string) {
  const source = `#include "native/core/arguments.h"\nusing namespace lockstep;\nconstexpr Slot slot = ${name};\n`;
  const { LD_PRELOAD: _, ...env } = process.env;
  const args = ["-std=c++20", "-fsyntax-only", "-I.", "-xc++", "-"];
  return spawnSync("c++", args, { cwd: ROOT, env, input: source, encoding: "utf8" });
}

describeOnStandIn("the name of an argument", () => {
  it.each(NAMES)("%s compiles where its call declares it so", (name, expected) => {
    const { status, stderr } = compile(name);
    if (expected) expect(stderr).toMatch(expected);
    expect(status === 0, stderr).toBe(expected === undefined);
  });
});
