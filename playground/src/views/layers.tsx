/** The error of a form in each decoder layer. */
import type { MeasuredWeight } from "lockstep/checkpoints/portable";
import { useMemo } from "preact/hooks";
import { curveChart } from "../../../examples/shared/charts/charts.mjs";
import { layerErrors } from "../data/layers.js";
import { Chart } from "../parts/chart.js";
import { percent } from "../words.js";

const HEIGHT = 200;
/** The largest number of labels on the axis of layers. */
const MAX_LABELS = 16;

export function LayerPanel({
  weights,
  form,
  theme,
}: {
  readonly weights: readonly MeasuredWeight[];
  readonly form: string;
  readonly theme: string;
}) {
  const errors = useMemo(() => layerErrors(weights), [weights]);
  if (errors.length === 0) return null;
  const largest = errors.reduce((best, each) => (each[1] > best[1] ? each : best));
  const last = errors.at(-1)?.[0] ?? 0;
  const step = Math.max(1, Math.ceil((last + 1) / MAX_LABELS));
  const ticks = Array.from({ length: Math.floor(last / step) + 1 }, (_, i) => i * step);
  return (
    <section class="panel" aria-labelledby="layers-title">
      <div class="head">
        <h2 id="layers-title">Error of each layer as {form}</h2>
        <p class="soft">
          relative root mean square error of the weights that change, by decoder layer; the largest,{" "}
          {percent(largest[1])}, in layer {largest[0]}
        </p>
      </div>
      <Chart
        label={`Errors of the decoder layers as ${form}`}
        inputs={[errors, theme]}
        draw={(width) =>
          curveChart([{ points: errors, colour: "var(--series-a)" }], {
            width,
            height: HEIGHT,
            label: "errors",
            x: { axis: { ticks, tickFormat: String } },
            y: {
              scale: { domain: [0, Math.max(largest[1] * 1.05, 1e-9)] },
              axis: { ticks: 5, tickFormat: (y: number) => percent(y) },
            },
          })
        }
      />
    </section>
  );
}
