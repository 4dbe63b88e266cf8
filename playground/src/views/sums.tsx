/** The running sum of a dot product, against exact arithmetic. */
import { curveChart } from "../../../examples/shared/charts/charts.mjs";
import { Chart } from "../parts/chart.js";
import type { ProductAnswer } from "../reference/index.js";
import { show } from "../words.js";

const HEIGHT = 200;

export function SumsPanel({
  answer,
  step,
  onStep,
  theme,
}: {
  readonly answer: ProductAnswer;
  readonly step: number;
  readonly onStep: (step: number) => void;
  readonly theme: string;
}) {
  const { ends, sums, fp32Sums, exactSums, plan } = answer;
  const errorsOf = (of: Float32Array) => [
    [0, 0],
    ...ends.map((end, i) => [end, (of[i] as number) - (exactSums[i] as number)]),
  ];
  return (
    <section class="panel detail" aria-labelledby="sums-title">
      <div class="head">
        <h2 id="sums-title">Error of the running sum</h2>
        <p class="soft">
          <span class="name-a">{plan}</span> and <span class="name-b">fp32</span>, each minus the exact sum,
          along K
        </p>
      </div>
      <Chart
        label={`Errors of the running sum under ${plan} and in f32`}
        inputs={[answer, theme]}
        draw={(width) =>
          curveChart(
            [
              { points: errorsOf(fp32Sums), colour: "var(--series-b)" },
              { points: errorsOf(sums), colour: "var(--series-a)" },
            ],
            {
              width,
              height: HEIGHT,
              label: "errors",
              x: {},
              y: { axis: { ticks: 5, tickFormat: (y: number) => show(y, 3) } },
            },
          )
        }
      />
      <fieldset class="segments steps">
        <legend class="hidden">Step</legend>
        {ends.map((end, i) => (
          <button type="button" key={end} aria-pressed={i === step} onClick={() => onStep(i)}>
            {end}
          </button>
        ))}
      </fieldset>
    </section>
  );
}
