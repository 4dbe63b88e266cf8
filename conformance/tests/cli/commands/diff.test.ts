/** The command line: diff. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type DialectDiff, type DiffDialectsOptions, diffDialects } from "../../../../src/dialects/diff.js";
import { DIALECT_NAMES, DIALECTS, type Dialect, type DialectName } from "../../../../src/dialects/table.js";
import { blockFormat } from "../../../../src/formats/block.js";
import { tensor } from "../../../../src/ops/create.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { f32, raw, useWorkspace } from "../../harness/cli.js";
import { draws } from "../../harness/draws.js";
import { useBackend } from "../../harness/suite.js";

const w = useWorkspace();
const backend = useBackend({ threads: 1 });
const SIZE = [32, 128] as const;
/** Values of both signs and of several binades; some are zeros, infinite or NaN. */
const VALUES = Float32Array.from({ length: SIZE[0] * SIZE[1] }, (_, i) => Math.sin(i) * (64 + (i >> 5)));
const ODD = VALUES.map(
  (value, i) => [value, -0, value, Number.NaN, Number.NEGATIVE_INFINITY][i % 5] as number,
);
const ZEROS = new Float32Array(VALUES.length);
const INPUTS = { ordinary: VALUES, odd: ODD, zeros: ZEROS } as const;
type InputName = keyof typeof INPUTS;

/** The forms that two dialects share: a quantizer, a format and a tile. */
function formsOf(a: DialectName, b: DialectName): readonly Partial<DiffDialectsOptions>[] {
  return (DIALECTS[a] as Dialect).forms.flatMap((form) => {
    const otherForm = (DIALECTS[b] as Dialect).forms.find(({ quantizer }) => quantizer === form.quantizer);
    if (!otherForm) return [];
    const { elements, tiles } = blockFormat(form.quantizer);
    return (form.formats ?? elements)
      .filter((format) => (otherForm.formats ?? elements).includes(format))
      .flatMap((format) =>
        (form.tiles ?? tiles)
          .filter((tile) => (otherForm.tiles ?? tiles).includes(tile))
          .map((tile) => ({ quantizer: form.quantizer, format, tile })),
      );
  });
}

const PAIRS = DIALECT_NAMES.flatMap((a) =>
  DIALECT_NAMES.filter((b) => formsOf(a, b).length > 0).map((b) => [a, b] as const),
);
interface Report {
  readonly a: string;
  readonly b: string;
  readonly equal: boolean;
  readonly tensors: readonly (DialectDiff & { readonly name: string })[];
}

/** The numbers that JSON strings stand for. */
const NUMBERS: ReadonlyMap<unknown, number> = new Map([
  ["NaN", Number.NaN],
  ["Infinity", Number.POSITIVE_INFINITY],
  ["-Infinity", Number.NEGATIVE_INFINITY],
  ["-0", -0],
]);
const parseReport = (text: string): Report =>
  JSON.parse(text, (_, value) => NUMBERS.get(value) ?? value) as Report;

const write = (names: readonly InputName[]): Promise<void> =>
  w.write("in", [
    ...names.map((name, i) => f32(`x${i}`, SIZE, INPUTS[name])),
    raw("ids", "U8", [1], new Uint8Array(1)),
  ]);

/** The differences by the library. */
function expectedOf(name: InputName, options: DiffDialectsOptions): DialectDiff {
  using _scope = new Scope();
  return diffDialects(tensor(backend(), INPUTS[name], SIZE), options);
}

const isEqual = ({ scales, codes, values }: DialectDiff): boolean =>
  scales.different + codes.different + values.different === 0;

describe("diff", () => {
  const inputName = fc.constantFrom(...(Object.keys(INPUTS) as InputName[]));
  const cases = fc.constantFrom(...PAIRS).chain(([a, b]) =>
    fc.record({
      pair: fc.constant([a, b] as const),
      form: fc.constantFrom(...formsOf(a, b)),
      namedSettings: fc.subarray(["quantizer", "format", "tile"] as const),
      examples: fc.constantFrom(undefined, 0, 1, 3),
      names: fc.array(inputName, { minLength: 1, maxLength: 2 }),
      onlyIndex: fc.option(fc.nat(1), { nil: undefined }),
    }),
  );

  it("prints what the library finds, and exits with 1 exactly if a tensor differs, for any options", async () => {
    await fc.assert(
      fc.asyncProperty(cases, async ({ pair: [a, b], form, namedSettings, examples, names, onlyIndex }) => {
        await write(names);
        // a tile or a format of another quantizer than the first requires the quantizer's name
        const settingNames = new Set(namedSettings.length > 0 ? ["quantizer", ...namedSettings] : []);
        const settings = Object.fromEntries(Object.entries(form).filter(([name]) => settingNames.has(name)));
        const options: DiffDialectsOptions = { a, b, ...settings, examples };
        const tensorIndex = onlyIndex === undefined ? undefined : onlyIndex % names.length;
        const args = [
          ...Object.entries({ ...settings, examples }).flatMap(([name, value]) =>
            value === undefined ? [] : [`--${name}`, String(value)],
          ),
          ...(tensorIndex === undefined ? [] : [`--tensor=x${tensorIndex}`]),
        ];
        const { status, stdout } = await w.run("diff", a, b, "@in", "--json", ...args);
        const expected = names.flatMap((name, i) =>
          tensorIndex === undefined || tensorIndex === i
            ? [{ name: `x${i}`, ...expectedOf(name, options) }]
            : [],
        );
        const areEqual = expected.every(isEqual);
        expect(parseReport(stdout)).toEqual({ a, b, equal: areEqual, tensors: expected });
        const text = await w.run("diff", a, b, "@in", ...args);
        expect([status, text.status]).toEqual(areEqual ? [0, 0] : [1, 1]);
        const lines = text.stdout.trimEnd().split("\n");
        expect(lines).toHaveLength(
          expected.reduce((sum, difference) => sum + 2 + difference.examples.length, 0),
        );
        for (const { name, examples: shownExamples } of expected) {
          expect(lines.filter((line) => line.startsWith(`${name}: `))).toHaveLength(1);
          for (const example of shownExamples) expect(lines).toContain(`  ${example.words}`);
        }
      }),
      { numRuns: draws(60, 8) },
    );
  });

  it("exits with 1 if only scales differ, only values, or the last of several tensors", async () => {
    const cases: readonly (readonly [readonly [DialectName, DialectName], readonly InputName[]])[] = [
      [["ocp-mxfp4", "deepseek-mxfp4"], ["zeros"]],
      [
        ["te", "torchao-mxfp8-floor"],
        ["zeros", "ordinary"],
      ],
      [
        ["ocp-mxfp8", "torchao-mxfp8-floor"],
        ["ordinary", "zeros"],
      ],
      [["te", "modelopt-nvfp4"], ["ordinary"]],
    ];
    const kindsSeen = new Set<string>();
    for (const [pair, names] of cases) {
      await write(names);
      const { status, stdout } = await w.run("diff", ...pair, "@in", "--json");
      const { tensors, equal } = parseReport(stdout);
      const differingKinds = (["scales", "codes", "values"] as const).filter((name) =>
        tensors.some((tensorDiff) => tensorDiff[name].different > 0),
      );
      kindsSeen.add(differingKinds.join());
      expect([status, equal], `${pair}`).toEqual(differingKinds.length > 0 ? [1, false] : [0, true]);
    }
    expect([...kindsSeen]).toEqual(expect.arrayContaining(["scales", "values", ""]));
  });

  it.each([
    [["te", "nothing", "@in"], /"nothing" is not one of te/],
    [["te", "ct-mxfp4", "@in"], /do not both have a quantizer/],
    [["te", "te", "@in", "--tensor", "none"], /none/],
    [["te", "te", "@in", "--tensor", "ids"], /in: has no F32, F16 or BF16 tensor; it has /],
    [["te", "te", "@in", "--format", "e9m9"], /--format: .*e9m9/],
    [["te", "te", "@in", "--tile", "2x2"], /--tile: "2x2" is not one of/],
    [["te", "te", "@in", "--quantizer", "mx"], /--quantizer: "mx" is not one of/],
    [["te", "te", "@in", "--examples", "1001"], /--examples: "1001" is not an integer from 0 to 1000/],
    [["te", "te", "@absent"], /absent: cannot be read: there is no such file/],
    [["te", "te", "@small"], /tensor "x": quantize: last dimension 5 is not a multiple/],
    [["te", "te"], /IN/],
    [["te", "te", "@in", "@in"], /one argument too many/],
  ] as const)("refuses %j, also as JSON", async (args, message) => {
    await write(["ordinary"]);
    await w.write("small", [f32("x", [3, 5], new Float32Array(15))]);
    const { status, stdout, stderr } = await w.run("diff", ...args);
    expect({ status, stdout, stderr }).toEqual({
      status: 2,
      stdout: "",
      stderr: expect.stringMatching(message),
    });
    const json = await w.run("diff", ...args, "--json");
    expect([json.status, JSON.parse(json.stdout)]).toMatchObject([
      2,
      { ok: false, error: { code: expect.any(String) } },
    ]);
  });
});
