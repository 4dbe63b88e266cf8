/** The matrices of a model: their forms, bits, errors and scales. */
import type { MeasuredWeight, ScaleOctaves } from "lockstep/checkpoints/portable";
import { useState } from "preact/hooks";
import { layerOf, scalesText } from "../data/layers.js";
import { TextField } from "../parts/controls.js";
import { percent, show } from "../words.js";

/** The maximum number of rows. A browser takes seconds for a table of all weights of a model with many experts. */
const MAX_ROWS = 500;

/** The bars of a histogram of scales, one for each octave. */
function Octaves({ scales }: { readonly scales: ScaleOctaves | undefined }) {
  if (!scales) return <span class="soft">none</span>;
  const largest = Math.max(1, ...scales.counts);
  const width = Math.max(1, scales.counts.length);
  return (
    <span class="octaves">
      <svg viewBox={`0 0 ${width} 1`} preserveAspectRatio="none" role="img" aria-label={scalesText(scales)}>
        {scales.counts.map((count, i) => (
          <rect
            key={scales.first + i}
            x={i + 0.1}
            y={1 - count / largest}
            width={0.8}
            height={count / largest}
          />
        ))}
      </svg>
      <span class="soft">
        2^{show(scales.first)} … 2^{show(scales.first + scales.counts.length)}
      </span>
    </span>
  );
}

function Row({ weight }: { readonly weight: MeasuredWeight }) {
  const { name, shape, stored, converted, reason } = weight;
  return (
    <tr>
      <td class="number">{layerOf(name) ?? ""}</td>
      <th scope="row">
        {name} <span class="soft">[{shape.join(", ")}]</span>
      </th>
      <td>{stored.format}</td>
      <td class="number">{show(stored.bits, 4)}</td>
      <td class="number">{converted ? show(converted.bits, 4) : "–"}</td>
      <td class="number">{converted ? percent(converted.error) : "–"}</td>
      <td>
        {converted ? (
          <Octaves scales={converted.scales ?? stored.scales} />
        ) : (
          <span class="soft">{reason ?? "not converted"}</span>
        )}
      </td>
    </tr>
  );
}

export function WeightTable({
  weights,
  form,
}: {
  readonly weights: readonly MeasuredWeight[];
  readonly form: string;
}) {
  const [part, setPart] = useState("");
  const listed = weights.filter(({ name }) => name.includes(part));
  const rows = listed
    .slice(0, MAX_ROWS)
    .toSorted(
      (a, b) => (layerOf(a.name) ?? Number.MAX_SAFE_INTEGER) - (layerOf(b.name) ?? Number.MAX_SAFE_INTEGER),
    );
  return (
    <section class="panel" aria-labelledby="weights-title">
      <div class="head">
        <h2 id="weights-title">Matrices</h2>
        <TextField
          label={`Part of a name: ${listed.length > MAX_ROWS ? "the first " : ""}${rows.length} of ${weights.length}`}
          value={part}
          onChange={setPart}
        />
      </div>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: keys scroll it */}
      <section class="scroll" tabIndex={0} aria-label="Matrices of the model">
        <table class="plain weights">
          <caption class="hidden">Matrices as stored and as {form}</caption>
          <thead>
            <tr>
              <th scope="col">layer</th>
              <th scope="col">matrix</th>
              <th scope="col">stored as</th>
              <th scope="col">bits</th>
              <th scope="col">bits as {form}</th>
              <th scope="col">error as {form}</th>
              <th scope="col">scales by octave</th>
            </tr>
          </thead>
          <tbody>
            {rows.map((weight) => (
              <Row key={weight.name} weight={weight} />
            ))}
          </tbody>
        </table>
      </section>
    </section>
  );
}
