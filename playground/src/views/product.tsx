/** A dot product, step by step under a datapath. */
import { type Backend, type DatapathFamily, SCALAR_FORMATS, type ScalarFormat } from "lockstep";
import { useMemo } from "preact/hooks";
import { drawNumbers } from "../data/distribution.js";
import { MAX_SIZE, parseLines } from "../data/numbers.js";
import { wholeNumber } from "../data/use-matrix.js";
import type { Params, SetParams } from "../params.js";
import { Choose, Example, Examples, TextField } from "../parts/controls.js";
import {
  answerOrReason,
  CHOICES,
  choiceOf,
  explainProduct,
  keyOf,
  type Operand,
  type ProductAnswer,
} from "../reference/index.js";
import { show, stepText } from "../words.js";
import { AlignmentPanel } from "./alignment.js";
import { SumsPanel } from "./sums.js";

const DATAPATHS: readonly { readonly value: DatapathFamily; readonly text: string }[] = [
  { value: "hopper", text: "hopper: H100, H200 (measured)" },
  { value: "ada", text: "ada (published model)" },
  { value: "blackwell", text: "blackwell (published model)" },
  { value: "fp32", text: "fp32: a plain loop" },
  { value: "exact", text: "exact: rounded once" },
];

/** The selectable numbers of splits. */
const SPLITS = ["1", "2", "3", "4", "8"];

const OPERANDS = [
  ...Object.keys(SCALAR_FORMATS).map((value) => ({ value, group: "plain, without scales" })),
  ...CHOICES.map((choice) => ({
    value: keyOf(choice),
    text: `${choice.dialect}: ${choice.format}, ${choice.tile}`,
    group: choice.quantizer,
  })),
];

/** Parses the operand in the address; undefined for any other string. */
function operandOf(text: string): Operand | undefined {
  return Object.hasOwn(SCALAR_FORMATS, text) ? (text as ScalarFormat) : choiceOf(text);
}

const textOf = (operand: Operand) => (typeof operand === "string" ? operand : keyOf(operand));

const PLAIN = { operands: "e4m3", operandsW: "", split: "", splitK: "1", datapath: "hopper" } as const;
const OUTLIERS = { px: "normal(0, 1) + outliers(1%, 60)", pw: "normal(0, 1)", k: "256", ...PLAIN } as const;

const EXAMPLES: readonly (readonly [text: string, changes: Partial<Params>])[] = [
  ["outliers", OUTLIERS],
  ["normal data", { ...OUTLIERS, px: "normal(0, 1)" }],
  ["one large product, many small", { ...OUTLIERS, px: "first(448, 0.5)", pw: "first(16, 0.5)" }],
  [
    "a large one that cancels",
    { ...PLAIN, px: "96, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, -96", pw: "64, 1, 1, 1, 1, 1, 1, 64" },
  ],
  ["bf16", { ...OUTLIERS, px: "normal(0, 1)", operands: "bf16" }],
  ["FP8, a scale for the tensor", { ...OUTLIERS, operands: "te/fp8-current/e4m3/tensor" }],
  [
    "FP8 blocks",
    {
      ...OUTLIERS,
      k: "512",
      operands: "te/fp8-block/e4m3/1x128",
      operandsW: "te/fp8-block/e4m3/128x128",
      split: "1",
    },
  ],
  ["MXFP8", { ...OUTLIERS, operands: "te/mxfp8/e4m3/1x32", datapath: "blackwell" }],
  ["NVFP4", { ...OUTLIERS, operands: "te/nvfp4/e2m1/1x16", datapath: "blackwell" }],
  ["two splits of K", { ...OUTLIERS, splitK: "2" }],
];

/** A vector: parsed numbers, or draws from a distribution. */
function vectorOf(text: string, count: number, seed: bigint): Float32Array | string {
  if (/[a-z]\(|^[a-z]+$/i.test(text.trim())) return drawNumbers(text, count, seed);
  const lines = parseLines(text);
  return typeof lines === "string" ? lines : lines.values;
}

function attempt(
  backend: Backend,
  x: Float32Array | string,
  w: Float32Array | string,
  settings: Parameters<typeof explainProduct>[3],
): ProductAnswer | string | undefined {
  if (typeof x === "string" || typeof w === "string") return undefined;
  return answerOrReason(() => explainProduct(backend, x, w, settings));
}

/** The step in the address; by default the step that loses most. */
function stepOf({ steps }: ProductAnswer, text: string): number {
  if (text !== "") return wholeNumber(text, 0, Math.max(0, steps.length - 1));
  const losses = steps.map(({ step: { exact, result } }) => Math.abs(exact - result));
  return Math.max(0, losses.indexOf(Math.max(...losses)));
}

export function ProductView({
  backend,
  params,
  set,
}: {
  readonly backend: Backend;
  readonly params: Params;
  readonly set: SetParams;
}) {
  const count = wholeNumber(params.k, 1, MAX_SIZE);
  const x = useMemo(() => vectorOf(params.px, count, 1n), [params.px, count]);
  const w = useMemo(() => vectorOf(params.pw, count, 2n), [params.pw, count]);
  const datapath = DATAPATHS.find(({ value }) => value === params.datapath)?.value ?? "hopper";
  const operand = operandOf(params.operands) ?? "e4m3";
  const operandW = operandOf(params.operandsW);
  const splitAccumulator = params.split === "1";
  const splitK = SPLITS.includes(params.splitK) ? Number(params.splitK) : 1;
  const answer = useMemo(
    () => attempt(backend, x, w, { x: operand, w: operandW ?? operand, datapath, splitAccumulator, splitK }),
    [backend, x, w, operand, operandW, datapath, splitAccumulator, splitK],
  );
  const step = typeof answer === "object" ? stepOf(answer, params.step) : 0;
  const fault = (vector: Float32Array | string) => (typeof vector === "string" ? vector : undefined);
  return (
    <>
      <section class="panel" aria-labelledby="product-title">
        <h2 id="product-title">A dot product</h2>
        <div class="controls">
          <TextField
            label="x: numbers or a distribution"
            value={params.px}
            onChange={(px) => set({ px, step: "" })}
            fault={fault(x)}
            wide
          />
          <TextField
            label="w: numbers or a distribution"
            value={params.pw}
            onChange={(pw) => set({ pw, step: "" })}
            fault={fault(w)}
            wide
          />
          <TextField
            label="K, of a distribution"
            kind="number"
            value={params.k}
            onChange={(k) => set({ k, step: "" })}
          />
          <Choose
            label="Operands"
            value={textOf(operand)}
            onChange={(operands) => set({ operands, step: "" })}
            options={OPERANDS}
          />
          <Choose
            label="Operands of w"
            value={operandW ? textOf(operandW) : ""}
            onChange={(operandsW) => set({ operandsW, step: "" })}
            options={[{ value: "", text: "as those of x" }, ...OPERANDS]}
          />
          <Choose
            label="Datapath"
            value={datapath}
            onChange={(to) => set({ datapath: to, step: "" })}
            options={DATAPATHS}
          />
          <Choose
            label="Accumulator"
            value={splitAccumulator ? "1" : ""}
            onChange={(split) => set({ split, step: "" })}
            options={[
              { value: "", text: "one chain" },
              { value: "1", text: "split: chains of 128 in f32" },
            ]}
          />
          <Choose
            label="Splits of K"
            value={String(splitK)}
            onChange={(to) => set({ splitK: to, step: "" })}
            options={SPLITS.map((value) => ({ value }))}
          />
        </div>
        <Examples>
          {EXAMPLES.map(([text, changes]) => (
            <Example key={text} text={text} onPick={() => set({ ...changes, step: "" })} />
          ))}
        </Examples>
        {typeof answer === "string" ? <p class="fault">{answer}</p> : null}
        {typeof answer === "object" ? <Results answer={answer} /> : null}
      </section>
      {typeof answer === "object" ? (
        <div class="beside reversed">
          <SumsPanel
            answer={answer}
            step={step}
            onStep={(to) => set({ step: String(to) })}
            theme={params.theme}
          />
          <AlignmentPanel answer={answer} step={step} onStep={(to) => set({ step: String(to) })} />
        </div>
      ) : null}
    </>
  );
}

function Results({ answer }: { readonly answer: ProductAnswer }) {
  const { depth, explained, fp32, exact, row } = answer;
  const { datapath, splitK } = explained.plan;
  const rows = [
    [splitK > 1 ? `${datapath}, ${splitK} splits` : datapath, explained.out.value],
    ["fp32, a plain loop", fp32.out.value],
    ["exact, rounded once", exact.out.value],
  ] as const;
  const whole = exact.out.value;
  return (
    <>
      <table class="plain results">
        <thead>
          <tr>
            <th scope="col">{depth} products under</th>
            <th scope="col">sum</th>
            <th scope="col">minus exact</th>
            <th scope="col">relative</th>
          </tr>
        </thead>
        <tbody>
          {rows.map(([name, value]) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              <td class="number">{show(value, 9)}</td>
              <td class="number">{show(value - whole, 4)}</td>
              <td class="number">{whole === 0 ? "" : show(Math.abs(value - whole) / Math.abs(whole), 3)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <p class="soft">
        {row.dotAdd
          ? `${datapath} adds ${row.dotAdd.step} products a step, aligned to ${row.dotAdd.alignBits} bits below the largest exponent; the sum keeps ${row.dotAdd.fractionBits} fraction bits. Source: ${row.source}.`
          : `${datapath} is defined by arithmetic and has no steps of a tensor core.`}{" "}
        {STAGINGS[explained.staging]}
      </p>
      <Ending explained={explained} />
    </>
  );
}

/** How scaled elements become the multiplied values. */
const STAGINGS: Readonly<Partial<Record<ProductAnswer["explained"]["staging"], string>>> = {
  bf16: "It has no instruction for these operands: elements times scales are rounded to bf16 and multiplied.",
  tf32: "Elements are rounded to tf32.",
  scaled: "Scales are exponents of what is multiplied.",
  grouped: "The products of a group are summed exactly, and the scales of its blocks align it.",
};

/** The operations after the steps: splits are added, and per-tensor scales multiply the sum. */
function Ending({ explained: { sum, epilogue } }: { readonly explained: ProductAnswer["explained"] }) {
  const splits = sum.kind === "tensorCore" ? sum.steps : [];
  // omit factors of 1
  const factors = epilogue.steps.filter(({ name, value }) => name !== "d" && value !== 1);
  if (splits.length + factors.length === 0) return null;
  return (
    <details class="ending">
      <summary>After the steps: {splits.length > 0 ? "splits are added" : "scales of the tensors"}</summary>
      <ul>
        {[...splits, ...epilogue.steps].map((step) => (
          <li key={stepText(step)}>{stepText(step)}</li>
        ))}
      </ul>
    </details>
  );
}
