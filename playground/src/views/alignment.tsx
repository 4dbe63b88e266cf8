/** One step of a tensor core: its products, aligned to the largest exponent, and the bits that are truncated. */
import type { ExplainedDotAdd, ExplainedFactor, ExplainedTerm } from "lockstep";
import type { PlacedStep, ProductAnswer } from "../reference/index.js";
import { show, stepText } from "../words.js";

/** The number of truncated bits to show. */
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

/** The digits of a product from `top` down to the cut, and the digits below it unless all are zero. */
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
  answer: { steps },
  step: index,
  onStep,
}: {
  readonly answer: ProductAnswer;
  readonly step: number;
  readonly onStep: (step: number) => void;
}) {
  const placed = steps[index];
  if (!placed) return null;
  const { from, to } = placed.step;
  return (
    <section class="panel" aria-labelledby="step-title">
      <div class="head">
        <h2 id="step-title">
          Step {index + 1} of {steps.length}: products {from} to {to - 1}
        </h2>
        <span class="buttons">
          <button type="button" class="chip" disabled={index === 0} onClick={() => onStep(index - 1)}>
            ← step
          </button>
          <button
            type="button"
            class="chip"
            disabled={index === steps.length - 1}
            onClick={() => onStep(index + 1)}
          >
            step →
          </button>
        </span>
      </div>
      <Aligned placed={placed} />
    </section>
  );
}

function Aligned({ placed: { step, chain, split } }: { readonly placed: PlacedStep }) {
  const { exponent, grid, accumulator, terms, result, exact } = step;
  if (exponent === undefined || grid === undefined)
    return (
      <p>
        A product or the accumulator is infinite or NaN, so nothing is aligned; the sum is {show(result)}.
      </p>
    );
  const top = topOf(step, exponent);
  const cut = terms.filter((term) => term.cut !== 0);
  const lost = exact - result;
  return (
    <>
      <p aria-live="polite">
        The largest exponent is {exponent}, so bits below 2<sup>{minus(grid)}</sup> are cut off: {cut.length}{" "}
        of {terms.length} terms lose some. The accumulator goes from {show(accumulator.value, 9)} to{" "}
        <strong>{show(result, 9)}</strong>; exact arithmetic would give {show(exact, 9)}
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
                2<sup>{minus(top)}</sup> … 2<sup>{minus(grid)}</sup> <span class="lost">cut off</span>
              </th>
              <th scope="col" class="aside">
                lost
              </th>
            </tr>
          </thead>
          <tbody>
            <Row term={accumulator} name="before" top={top} unit={grid} />
            {terms.map((term) => (
              <Row
                key={term.products[0]?.k}
                term={term}
                name={nameOf(term)}
                factors={term.products.length === 1 ? term.products[0] : undefined}
                top={top}
                unit={grid}
              />
            ))}
            <Row term={{ value: result, cut: 0 }} name="after" top={top} unit={grid} />
          </tbody>
        </table>
      </section>
      {chain.promotion ? (
        <p class="soft">
          The chain of products {chain.from} to {chain.to - 1}
          {split > 0 ? ` of split ${split}` : ""} has the sum {show(chain.sum, 9)}, which joins the total in
          f32: {chain.promotion.steps.map(stepText).join(", ")}.
        </p>
      ) : null}
    </>
  );
}

/** The products of a term along K. */
function nameOf({ products }: ExplainedTerm): string {
  const [first, last] = [products[0]?.k, products.at(-1)?.k];
  return first === last ? `${first}` : `${first}–${last}`;
}

/** The highest power of two in the terms of a step. */
function topOf({ accumulator, terms, result }: ExplainedDotAdd, largest: number): number {
  const most = [accumulator, ...terms].reduce(
    (most, { value }) => Math.max(most, Math.abs(value)),
    Math.abs(result),
  );
  return Math.max(largest, Number.isFinite(most) && most > 0 ? Math.floor(Math.log2(most)) : largest);
}

function minus(exponent: number): string {
  return exponent < 0 ? `−${-exponent}` : `${exponent}`;
}

/** An element, its block scale if the product includes it, and the multiplied value if it differs. */
function factorText({ element, scale, value }: ExplainedFactor): string {
  if (scale === undefined || value === element) return show(value, 4);
  const product = `${show(element, 4)} × ${show(scale, 4)}`;
  return value === element * scale ? product : `${product} → ${show(value, 4)}`;
}

function Row({
  term,
  name,
  factors,
  top,
  unit,
}: {
  readonly term: Pick<ExplainedTerm, "value" | "cut" | "exponent">;
  readonly name: string;
  readonly factors?: { readonly x: ExplainedFactor; readonly w: ExplainedFactor } | undefined;
  readonly top: number;
  readonly unit: number;
}) {
  const { value, cut, exponent } = term;
  const hasValue = Number.isFinite(value);
  const digits = digitsOf(hasValue ? value : 0, top, unit);
  const isSum = name === "before" || name === "after";
  return (
    <tr class={isSum ? "accumulator" : ""}>
      <th scope="row">{name}</th>
      <td class="number aside">{factors ? factorText(factors.x) : ""}</td>
      <td class="number aside">{factors ? factorText(factors.w) : ""}</td>
      <td class="number">{show(value, 5)}</td>
      <td class="number soft aside">{exponent === undefined || isSum ? "" : minus(exponent)}</td>
      <td class="aligned">
        <span aria-hidden="true">{value < 0 ? "−" : " "}</span>
        <span class="kept" aria-hidden="true">
          {digits.kept}
        </span>
        <span class="lost" aria-hidden="true">
          {digits.lost}
          {digits.goesOn ? "…" : ""}
        </span>
      </td>
      <td class="number lost aside">{cut === 0 ? "" : show(cut, 3)}</td>
    </tr>
  );
}
