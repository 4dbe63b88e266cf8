/** Where a number lies between its neighbours in a format. */
import type { Decision, Rounded } from "../reference/index.js";
import { codeText, show } from "../words.js";

/** How far the number stands beside the one value of a line without two neighbours. */
const BESIDE: Readonly<Record<Decision, number>> = {
  nan: 0,
  exact: 0,
  tooSmall: -0.4,
  beyond: 0.4,
  down: 0,
  up: 0,
  tie: 0,
  directed: 0,
  drawn: 0,
};

/** A line from the neighbour below to that above, with the midpoint, the number and the result. Text beside it says the same. */
export function NumberLine({
  rounded,
  scale = 1,
  labels = false,
}: {
  readonly rounded: Rounded;
  /** What values are multiplied by where they are shown. */
  readonly scale?: number;
  readonly labels?: boolean;
}) {
  const { below, above, position, result, format, decision } = rounded;
  const isBetween = above.value > below.value;
  const at = isBetween ? position : 0.5 + BESIDE[decision] * Math.sign(rounded.input);
  const wentUp = isBetween && result.value === above.value;
  const mark = (isUp: boolean) => (isBetween && wentUp === isUp ? "end taken" : "end");
  return (
    <span class={labels ? "number-line labelled" : "number-line"} style={`--at: ${100 * at}%`}>
      <span class="rail" aria-hidden="true">
        {isBetween ? (
          <>
            <span class={`${mark(false)} low`} />
            <span class="middle" />
            <span class={`${mark(true)} high`} />
          </>
        ) : (
          <span class="end taken only" />
        )}
        {decision === "nan" ? null : <span class="here" />}
      </span>
      {labels ? (
        <span class="ends">
          {(isBetween ? [below, above] : [result]).map(({ code, value }) => (
            <span key={code}>
              {show(value * scale, 7)} <code>{codeText(code, format)}</code>
            </span>
          ))}
        </span>
      ) : null}
    </span>
  );
}
