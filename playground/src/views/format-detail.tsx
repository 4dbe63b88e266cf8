/** One format: the neighbourhood of a number, and its rounding under every mode. */
import {
  explainEncode,
  factsOf,
  OVERFLOWS,
  ROUNDINGS,
  type RoundingExplanation,
  type ScalarFormat,
} from "lockstep";
import { useMemo } from "preact/hooks";
import { Bits } from "../parts/bits.js";
import { NumberLine } from "../parts/number-line.js";
import { codeText, decisionText, exactly, show } from "../words.js";

/** The properties of a format, in a sentence. */
function factsText(format: ScalarFormat): string {
  const { max, minNormal, minPositive, hasInfinity, hasNaN } = factsOf(format);
  const specials = hasInfinity
    ? "It has infinities and NaN."
    : hasNaN
      ? "It has NaN, no infinities."
      : "It has neither infinities nor NaN.";
  return `Largest value ${show(max)}, smallest normal ${show(minNormal)}, smallest ${show(minPositive)}. ${specials}`;
}

export function FormatDetail({ x, chosen }: { readonly x: number; readonly chosen: RoundingExplanation }) {
  const { format, code, result, rounding } = chosen;
  const all = useMemo(
    () =>
      ROUNDINGS.map((each) => ({
        name: each,
        results: OVERFLOWS.map((overflow) => explainEncode(x, { format, rounding: each, overflow })),
      })),
    [x, format],
  );
  return (
    <section class="panel detail" aria-labelledby="detail-title">
      <h2 id="detail-title">{format}</h2>
      <p class="soft">{factsText(format)}</p>
      <div class="result">
        <Bits code={code} format={format} />
        <p>
          <code>{codeText(code, format)}</code> = <span class="digits">{exactly(result)}</span>
        </p>
      </div>
      <NumberLine rounding={chosen} labels />
      <p class="decision" aria-live="polite">
        {decisionText(chosen)}
      </p>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls is reached by keys */}
      <section class="scroll" tabIndex={0} aria-label="Codes by every mode">
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
                    {show(each.result)} <code>{codeText(each.code, format)}</code>
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </section>
    </section>
  );
}
