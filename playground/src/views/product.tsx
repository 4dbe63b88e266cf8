/** A dot product, step by step under a datapath. */
import { type Backend, type DatapathFamily, SCALAR_FORMATS, type ScalarFormat } from "lockstep";
import { useMemo } from "preact/hooks";
import { drawNumbers } from "../data/distribution.js";
import { MAX_SIZE, parseLines } from "../data/numbers.js";
import { wholeNumber } from "../data/use-matrix.js";
import type { Params, SetParams } from "../params.js";
import { Choose, Example, Examples, TextField } from "../parts/controls.js";
import { answerOrReason, explainProduct, type ProductAnswer } from "../reference/index.js";
import { show } from "../words.js";
import { AlignmentPanel } from "./alignment.js";
import { SumsPanel } from "./sums.js";

const DATAPATHS: readonly { readonly value: DatapathFamily; readonly text: string }[] = [
  { value: "hopper", text: "hopper: H100, H200 (measured)" },
  { value: "ada", text: "ada (published model)" },
  { value: "blackwell", text: "blackwell (published model)" },
  { value: "fp32", text: "fp32: a plain loop" },
  { value: "exact", text: "exact: rounded once" },
];

const EXAMPLES: readonly (readonly [text: string, changes: Partial<Params>])[] = [
  ["outliers", { px: "normal(0, 1) + outliers(1%, 60)", pw: "normal(0, 1)", operands: "e4m3", k: "256" }],
  ["normal data", { px: "normal(0, 1)", pw: "normal(0, 1)", operands: "e4m3", k: "256" }],
  [
    "one large product, many small",
    { px: "first(448, 0.5)", pw: "first(16, 0.5)", operands: "e4m3", k: "256" },
  ],
  [
    "a large one that cancels",
    { px: "96, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, -96", pw: "64, 1, 1, 1, 1, 1, 1, 64", operands: "e4m3" },
  ],
  ["bf16", { px: "normal(0, 1)", pw: "normal(0, 1)", operands: "bf16", k: "256" }],
];

/** A vector: numbers, or draws of a distribution. */
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

/** The step of the address; without one, that which loses most. */
function stepOf({ steps, ends }: ProductAnswer, text: string): number {
  if (text !== "") return wholeNumber(text, 0, ends.length - 1);
  const losses = steps.map(({ exact, after }) => Math.abs(exact - after));
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
  const format = (Object.hasOwn(SCALAR_FORMATS, params.operands) ? params.operands : "e4m3") as ScalarFormat;
  const splitAccumulator = params.split === "1";
  const answer = useMemo(
    () => attempt(backend, x, w, { format, datapath, splitAccumulator }),
    [backend, x, w, format, datapath, splitAccumulator],
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
            value={format}
            onChange={(operands) => set({ operands, step: "" })}
            options={Object.keys(SCALAR_FORMATS).map((value) => ({ value }))}
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
  const { result, exact, fp32, plan, row, x } = answer;
  const rows = [
    [plan, result],
    ["fp32, a plain loop", fp32],
    ["exact, rounded once", exact],
  ] as const;
  return (
    <>
      <table class="plain results">
        <thead>
          <tr>
            <th scope="col">{x.length} products under</th>
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
              <td class="number">{show(value - exact, 4)}</td>
              <td class="number">{exact === 0 ? "" : show(Math.abs(value - exact) / Math.abs(exact), 3)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <p class="soft">
        {row.dotAdd
          ? `${plan} adds ${row.dotAdd.step} products a step, aligned to ${row.dotAdd.alignBits} bits below the largest exponent; the sum keeps ${row.dotAdd.fractionBits} fraction bits. Source: ${row.source}.`
          : `${plan} is defined by arithmetic and has no steps of a tensor core.`}
      </p>
    </>
  );
}
