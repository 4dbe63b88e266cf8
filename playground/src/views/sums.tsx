/** The running sum of a dot product, compared with exact arithmetic. */
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
  const { sums, fp32Sums, exactSums, steps, explained } = answer;
  const { datapath } = explained.plan;
  // exact sums exist after each product
  const errorsOf = (of: ProductAnswer["sums"]) => [
    [0, 0],
    ...of.map(([end, sum]) => [end, sum - (exactSums[end - 1]?.[1] ?? Number.NaN)]),
  ];
  return (
    <section class="panel detail" aria-labelledby="sums-title">
      <div class="head">
        <h2 id="sums-title">Error of the running sum</h2>
        <p class="soft">
          <span class="name-a">{datapath}</span> and <span class="name-b">fp32</span>, each minus the exact
          sum, along K, before scales of whole tensors
        </p>
      </div>
      <Chart
        label={`Errors of the running sum under ${datapath} and in f32`}
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
        {steps.map(({ step: { to } }, i) => (
          <button type="button" key={to} aria-pressed={i === step} onClick={() => onStep(i)}>
            {to}
          </button>
        ))}
      </fieldset>
    </section>
  );
}
