/** A tensor under two dialects: costs, maps, codes next to each other, and the explanation of an element. */
import { type Backend, DIALECTS } from "lockstep";
import { useMemo } from "preact/hooks";
import { pairOf, useMatrix } from "../data/use-matrix.js";
import type { Params, SetParams } from "../params.js";
import { Choose } from "../parts/controls.js";
import {
  answerOrReason,
  CHOICES,
  type Choice,
  choiceOf,
  compare,
  costOf,
  keyOf,
  type Matrix,
  type Pair,
  type Quantization,
  quantize,
} from "../reference/index.js";
import { CellPanel } from "./cells.js";
import { CostTable } from "./costs.js";
import { ElementPanel } from "./element.js";
import { Histograms } from "./histograms.js";
import { MapPanel } from "./maps.js";
import { SourcePanel } from "./source.js";
import { StoredPanel } from "./stored.js";

const OPTIONS = CHOICES.map((choice) => ({
  value: keyOf(choice),
  text: `${choice.dialect}: ${choice.format}, ${choice.tile}`,
  group: choice.quantizer,
}));

function attempt(
  backend: Backend,
  matrix: Matrix | undefined,
  choice: Choice,
): Quantization | string | undefined {
  if (!matrix) return undefined;
  return answerOrReason(() => quantize(backend, matrix, choice));
}

export function TensorView({
  backend,
  params,
  set,
}: {
  readonly backend: Backend;
  readonly params: Params;
  readonly set: SetParams;
}) {
  const source = useMatrix(backend, params);
  const { matrix } = source;
  const [first, second] = [params.a, params.b].map((key) => choiceOf(key) ?? CHOICES[0]) as [Choice, Choice];
  const a = useMemo(() => attempt(backend, matrix, first), [backend, matrix, first]);
  const b = useMemo(() => attempt(backend, matrix, second), [backend, matrix, second]);
  const pair = useMemo(
    () => (typeof a === "object" && typeof b === "object" ? compare(a, b) : undefined),
    [a, b],
  );
  const costs = useMemo(() => (pair ? ([costOf(pair.a), costOf(pair.b)] as const) : undefined), [pair]);
  const fault = [a, b].find((each) => typeof each === "string");
  return (
    <>
      <SourcePanel source={source} params={params} set={set} />
      {source.stored ? <StoredPanel stored={source.stored} params={params} set={set} /> : null}
      <section class="panel" aria-labelledby="dialects-title">
        <h2 id="dialects-title">Under two dialects</h2>
        <div class="pair">
          {[["a", "A", first] as const, ["b", "B", second] as const].map(([key, name, choice]) => (
            <div class={`side side-${key}`} key={key}>
              <Choose
                label={`Dialect ${name}`}
                value={keyOf(choice)}
                onChange={(value) => set({ [key]: value })}
                options={OPTIONS}
              />
              <p class="soft">
                {DIALECTS[choice.dialect].summary}.{" "}
                <span class="source">{DIALECTS[choice.dialect].source}</span>
              </p>
            </div>
          ))}
        </div>
        {typeof fault === "string" ? <p class="fault">{fault}</p> : null}
        {pair && costs ? (
          <div class="pair">
            <CostTable pair={pair} costs={costs} />
            <Histograms pair={pair} />
          </div>
        ) : null}
      </section>
      {pair ? <Shown pair={pair} params={params} set={set} /> : null}
    </>
  );
}

function Shown({
  pair,
  params,
  set,
}: {
  readonly pair: Pair;
  readonly params: Params;
  readonly set: SetParams;
}) {
  const { rows, columns } = pair.a;
  const first = pair.different[0] ?? 0;
  const [row, column] = params.at === "" ? [Math.floor(first / columns), first % columns] : pairOf(params.at);
  const at = { row: Math.min(row, rows - 1), column: Math.min(column, columns - 1) };
  const select = (to: { readonly row: number; readonly column: number }) =>
    set({ at: `${to.row},${to.column}` });
  return (
    <>
      <MapPanel
        pair={pair}
        at={at}
        onSelect={select}
        map={params.map}
        onMap={(map) => set({ map })}
        theme={params.theme}
      />
      <div class="beside">
        <CellPanel pair={pair} at={at} onSelect={select} />
        <ElementPanel pair={pair} at={at} />
      </div>
    </>
  );
}
