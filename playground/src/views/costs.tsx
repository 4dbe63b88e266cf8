/** The costs of two quantizations, side by side. */
import type { Cost, Pair } from "../reference/index.js";
import { percent, show } from "../words.js";

const ROWS: readonly { readonly text: string; readonly of: (cost: Cost) => string }[] = [
  { text: "bits a value, scales included", of: ({ bitsPerValue }) => show(bitsPerValue, 4) },
  { text: "error, |quantized − input| / |input|", of: ({ error }) => percent(error) },
  { text: "largest error", of: ({ largestError }) => show(largestError, 4) },
  { text: "elements at the largest magnitude", of: ({ largest }) => show(largest) },
  { text: "elements that became zero", of: ({ vanished }) => show(vanished) },
  { text: "codes that occur", of: ({ codesUsed }) => show(codesUsed) },
  {
    text: "scales",
    of: ({ scaleRange: [low, high] }) =>
      low === high ? show(low, 4) : `${show(low, 4)} to ${show(high, 4)}`,
  },
];

export function CostTable({ pair, costs }: { readonly pair: Pair; readonly costs: readonly [Cost, Cost] }) {
  const count = pair.a.inputs.length;
  return (
    <div>
      <table class="plain costs">
        <caption class="hidden">What each costs</caption>
        <thead>
          <tr>
            <td />
            <th scope="col" class="name-a">
              A
            </th>
            <th scope="col" class="name-b">
              B
            </th>
          </tr>
        </thead>
        <tbody>
          {ROWS.map(({ text, of }) => (
            <tr key={text}>
              <th scope="row">{text}</th>
              {costs.map((cost, i) => (
                <td class="number" key={i === 0 ? "a" : "b"}>
                  {of(cost)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      <p aria-live="polite">
        <strong>{pair.different.length.toLocaleString("en")}</strong> of {count.toLocaleString("en")} elements
        have another value ({percent(pair.different.length / count)}), and {pair.recoded.toLocaleString("en")}{" "}
        another code for the same value.
      </p>
    </div>
  );
}
