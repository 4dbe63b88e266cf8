/** Where a number lies between its neighbours in a format. */
import type { Rounded } from "../reference/index.js";
import { codeText, show } from "../words.js";

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
  const at = Math.min(1, Math.max(0, isBetween ? position : 0.5));
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
