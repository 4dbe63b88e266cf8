/** One format: the neighbourhood of a number, and what every rounding mode makes of it. */
import { type Backend, factsOf, OVERFLOWS, ROUNDINGS, type RoundingName, type ScalarFormat } from "lockstep";
import { useMemo } from "preact/hooks";
import { Bits } from "../parts/bits.js";
import { NumberLine } from "../parts/number-line.js";
import { type Rounded, roundAll } from "../reference/index.js";
import { codeText, decisionText, exactly, show } from "../words.js";

/** What a format is, in a sentence. */
function factsText(format: ScalarFormat): string {
  const { max, minNormal, minPositive, hasInfinity, hasNaN } = factsOf(format);
  const specials = hasInfinity
    ? "It has infinities and NaN."
    : hasNaN
      ? "It has NaN, no infinities."
      : "It has neither infinities nor NaN.";
  return `Largest value ${show(max)}, smallest normal ${show(minNormal)}, smallest ${show(minPositive)}. ${specials}`;
}

export function FormatDetail({
  backend,
  x,
  chosen,
  rounding,
}: {
  readonly backend: Backend;
  readonly x: number;
  readonly chosen: Rounded;
  readonly rounding: RoundingName;
}) {
  const { format, result } = chosen;
  const all = useMemo(
    () =>
      ROUNDINGS.map((each) => ({
        name: each,
        results: OVERFLOWS.map(
          (overflow) => roundAll(backend, [x], format, { rounding: each, overflow })[0] as Rounded,
        ),
      })),
    [backend, x, format],
  );
  return (
    <section class="panel detail" aria-labelledby="detail-title">
      <h2 id="detail-title">{format}</h2>
      <p class="soft">{factsText(format)}</p>
      <div class="result">
        <Bits code={result.code} format={format} />
        <p>
          <code>{codeText(result.code, format)}</code> = <span class="digits">{exactly(result.value)}</span>
        </p>
      </div>
      <NumberLine rounded={chosen} labels />
      <p class="decision" aria-live="polite">
        {decisionText(chosen, rounding)}
      </p>
      <table class="plain">
        <caption class="hidden">Every rounding mode</caption>
        <thead>
          <tr>
            <th scope="col">rounding</th>
            {OVERFLOWS.map((name) => (
              <th scope="col" key={name}>
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {all.map(({ name, results }) => (
            <tr key={name} class={name === rounding ? "chosen" : ""}>
              <th scope="row">{name}</th>
              {results.map((each, i) => (
                <td key={OVERFLOWS[i]} class="number">
                  {show(each.result.value)} <code>{codeText(each.result.code, format)}</code>
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
