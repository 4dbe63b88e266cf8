/** Histograms of inputs, and of the errors of both dialects. */
import { useMemo } from "preact/hooks";
import { countMagnitudes, octaveEdges } from "../../../examples/shared/charts/bins.mjs";
import { histogramChart } from "../../../examples/shared/charts/charts.mjs";
import { powerText } from "../../../examples/shared/charts/ticks.mjs";
import { Chart } from "../parts/chart.js";
import type { Pair, Quantization } from "../reference/index.js";
import { percent } from "../words.js";

const HEIGHT = 118;
const INPUT_EDGES = octaveEdges(-12, 6);
const ERROR_EDGES = octaveEdges(-20, 2);

/** Ticks at every fourth power of two of the edges, except the first. */
const ticksOf = (edges: readonly number[]) =>
  edges.filter((_, i) => i % 8 === 0 && i > 0).map((at) => ({ at, text: powerText(2, Math.log2(at)) }));

function rootMeanSquare(values: Float32Array): number {
  return Math.sqrt(values.reduce((sum, x) => sum + (Number.isFinite(x) ? x * x : 0), 0) / values.length) || 1;
}

export function Histograms({ pair }: { readonly pair: Pair }) {
  const { a, b } = pair;
  const [inputs, errors] = useMemo(() => {
    const unit = rootMeanSquare(a.inputs);
    const errorsOf = ({ values, inputs: from }: Quantization) =>
      countMagnitudes(
        values.map((value, at) => (value - (from[at] as number)) / unit),
        ERROR_EDGES,
      );
    return [
      countMagnitudes(
        a.inputs.map((x) => x / unit),
        INPUT_EDGES,
      ),
      [errorsOf(a), errorsOf(b)],
    ] as const;
  }, [a, b]);
  const count = a.inputs.length;
  return (
    <div>
      <figure>
        <figcaption>Magnitudes of the inputs, in units of their root mean square</figcaption>
        <Chart
          label="Histogram of the magnitudes of the inputs"
          inputs={[inputs]}
          draw={(width) =>
            histogramChart([{ bins: inputs.bins, kind: "area" }], {
              edges: INPUT_EDGES,
              ticks: ticksOf(INPUT_EDGES),
              width,
              height: HEIGHT,
              label: "inputs",
            })
          }
        />
      </figure>
      <figure>
        <figcaption>
          Errors in the same unit: <span class="name-a">A filled</span>,{" "}
          <span class="name-b">B as a line</span>. Exact: {percent((errors[0]?.zeros ?? 0) / count)} of A,{" "}
          {percent((errors[1]?.zeros ?? 0) / count)} of B
        </figcaption>
        <Chart
          label="Histograms of the errors of both dialects"
          inputs={[errors]}
          draw={(width) =>
            histogramChart(
              [
                { bins: errors[0]?.bins, kind: "area" },
                { bins: errors[1]?.bins, kind: "outline" },
              ],
              { edges: ERROR_EDGES, ticks: ticksOf(ERROR_EDGES), width, height: HEIGHT, label: "errors" },
            )
          }
        />
      </figure>
    </div>
  );
}
