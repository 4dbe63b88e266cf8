/** The position of a number between its neighbours in a format. */
import { type RoundingExplanation, SCALAR_FORMATS } from "lockstep";
import { codeText, show } from "../words.js";

/** The distance between the number and the only value, on a line without two neighbours. */
const MARK_DISTANCE = 0.4;

/**
 * A line from the smaller neighbour to the larger one, with the midpoint, the number and the result. The adjacent text has the
 * same information.
 */
export function NumberLine({
  rounding,
  labels = false,
}: {
  readonly rounding: RoundingExplanation;
  readonly labels?: boolean;
}) {
  const { lower, upper, fraction, result, code, format } = rounding;
  // a format without sign rounds the magnitude
  const value = SCALAR_FORMATS[format].signed ? rounding.value : Math.abs(rounding.value);
  const isNegative = value < 0;
  const ends = lower && upper && fraction > 0 ? (isNegative ? [upper, lower] : [lower, upper]) : undefined;
  const difference = result === value || Number.isNaN(value) ? 0 : Math.sign(value - result);
  const at = ends ? (isNegative ? 1 - fraction : fraction) : 0.5 + MARK_DISTANCE * difference;
  const mark = (end: number) => (ends?.[end]?.code === code ? "end taken" : "end");
  return (
    <span class={labels ? "number-line labelled" : "number-line"} style={{ "--at": `${100 * at}%` }}>
      <span class="rail" aria-hidden="true">
        {ends ? (
          <>
            <span class={`${mark(0)} low`} />
            <span class="middle" />
            <span class={`${mark(1)} high`} />
          </>
        ) : (
          <span class="end taken only" />
        )}
        {Number.isNaN(value) ? null : <span class="here" />}
      </span>
      {labels ? (
        <span class="ends">
          {(ends ?? [{ code, value: result }]).map((end) => (
            <span key={end.value}>
              {show(end.value, 7)}{" "}
              {end.code === undefined ? "(none)" : <code>{codeText(end.code, format)}</code>}
            </span>
          ))}
        </span>
      ) : null}
    </span>
  );
}
