/** One step of a tensor core: its products, aligned at the largest exponent, and the bits that are cut off. */
import type { ProductAnswer, Step, Term } from "../reference/index.js";
import { show } from "../words.js";

/** How many bits beyond the cut are shown. */
const BEYOND = 12;

/** The binary digit of a magnitude at a power of two. */
function digitAt(magnitude: number, power: number): "0" | "1" {
  return Math.floor(magnitude / 2 ** power) % 2 === 1 ? "1" : "0";
}

interface Digits {
  readonly kept: string;
  readonly lost: string;
  readonly goesOn: boolean;
}

/** The digits of a product from `top` down to the cut, and those beyond it that are not all zero. */
function digitsOf(product: number, top: number, unit: number): Digits {
  const magnitude = Math.abs(product);
  const from = (high: number, count: number) =>
    Array.from({ length: count }, (_, i) => digitAt(magnitude, high - i)).join("");
  const kept = from(top, top - unit + 1);
  const lost = from(unit - 1, BEYOND).replace(/0+$/, "");
  const goesOn = magnitude % 2 ** (unit - BEYOND) !== 0;
  return { kept: kept.replace(/^0+/, (zeros) => " ".repeat(zeros.length)), lost, goesOn };
}

export function AlignmentPanel({
  answer,
  step,
  onStep,
}: {
  readonly answer: ProductAnswer;
  readonly step: number;
  readonly onStep: (step: number) => void;
}) {
  const shown = answer.steps[step];
  if (!shown) return null;
  const { from, to, largest, unit, before, after, exact, accumulator, terms } = shown;
  const top = topOf(shown);
  const cut = terms.filter(({ product, kept }) => product !== kept);
  const lost = exact - after;
  return (
    <section class="panel" aria-labelledby="step-title">
      <div class="head">
        <h2 id="step-title">
          Step {step + 1} of {answer.steps.length}: products {from} to {to - 1}
        </h2>
        <span class="buttons">
          <button type="button" class="chip" disabled={step === 0} onClick={() => onStep(step - 1)}>
            ← step
          </button>
          <button
            type="button"
            class="chip"
            disabled={step === answer.steps.length - 1}
            onClick={() => onStep(step + 1)}
          >
            step →
          </button>
        </span>
      </div>
      <p aria-live="polite">
        The largest exponent is {largest}, so bits below 2<sup>{minus(unit)}</sup> are cut off: {cut.length}{" "}
        of {terms.length} products lose some. The accumulator goes from {show(before, 9)} to{" "}
        <strong>{show(after, 9)}</strong>; exact arithmetic would give {show(exact, 9)}
        {lost === 0 ? ", the same." : `, so the step loses ${show(lost, 4)}.`}
      </p>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls is reached by keys */}
      <section class="scroll" tabIndex={0} aria-label="Aligned products">
        <table class="alignment">
          <thead>
            <tr>
              <th scope="col">k</th>
              <th scope="col" class="aside">
                x
              </th>
              <th scope="col" class="aside">
                w
              </th>
              <th scope="col">x · w</th>
              <th scope="col" class="aside">
                exponent
              </th>
              <th scope="col" class="digits-head">
                2<sup>{minus(top)}</sup> … 2<sup>{minus(unit)}</sup> <span class="lost">cut off</span>
              </th>
              <th scope="col" class="aside">
                lost
              </th>
            </tr>
          </thead>
          <tbody>
            <Row term={accumulator} name="before" top={top} unit={unit} />
            {terms.map((term) => (
              <Row
                key={term.k}
                term={term}
                name={String(term.k)}
                x={term.x}
                w={term.w}
                top={top}
                unit={unit}
              />
            ))}
            <Row
              term={{ product: after, kept: after, exponent: undefined }}
              name="after"
              top={top}
              unit={unit}
            />
          </tbody>
        </table>
      </section>
    </section>
  );
}

/** The highest power of two that a term of a step has. */
function topOf({ largest, accumulator, terms, after }: Step): number {
  const most = [accumulator, ...terms].reduce(
    (value, { product }) => Math.max(value, Math.abs(product)),
    Math.abs(after),
  );
  return Math.max(largest, Number.isFinite(most) && most > 0 ? Math.floor(Math.log2(most)) : largest);
}

function minus(exponent: number): string {
  return exponent < 0 ? `−${-exponent}` : `${exponent}`;
}

function Row({
  term,
  name,
  x,
  w,
  top,
  unit,
}: {
  readonly term: Pick<Term, "product" | "kept" | "exponent">;
  readonly name: string;
  readonly x?: number;
  readonly w?: number;
  readonly top: number;
  readonly unit: number;
}) {
  const { product, kept, exponent } = term;
  const hasValue = Number.isFinite(product);
  const digits = digitsOf(hasValue ? product : 0, top, unit);
  const lost = product - kept;
  return (
    <tr class={x === undefined ? "accumulator" : ""}>
      <th scope="row">{name}</th>
      <td class="number aside">{x === undefined ? "" : show(x, 4)}</td>
      <td class="number aside">{w === undefined ? "" : show(w, 4)}</td>
      <td class="number">{show(product, 5)}</td>
      <td class="number soft aside">{exponent === undefined ? "" : minus(exponent)}</td>
      <td class="aligned">
        <span aria-hidden="true">{product < 0 ? "−" : " "}</span>
        <span class="kept" aria-hidden="true">
          {digits.kept}
        </span>
        <span class="lost" aria-hidden="true">
          {digits.lost}
          {digits.goesOn ? "…" : ""}
        </span>
      </td>
      <td class="number lost aside">{hasValue && lost !== 0 ? show(lost, 3) : ""}</td>
    </tr>
  );
}
