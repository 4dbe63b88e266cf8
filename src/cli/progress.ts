/** A progress bar. */

/** A stream that text is written to. */
export interface Sink {
  write(text: string): unknown;
  readonly isTTY?: boolean | undefined;
  readonly columns?: number | undefined;
}

const CELLS = 30;
const INTERVAL_MS = 100;

/** A progress bar in one line of a terminal, drawn at most ten times per second. Without a sink it draws nothing. */
export class Progress {
  #done = 0;
  #drawnAt = 0;
  readonly #startedAt = Date.now();

  constructor(
    private readonly sink: Sink | undefined,
    private readonly label: string,
    private readonly total: number,
    /** The unit of `total`. If it is "", the bar shows only the completed fraction. */
    private readonly unit: string,
  ) {}

  /** Adds `amount` to the completed amount. */
  add(amount: number): void {
    this.set(this.#done + amount);
  }

  /** Sets the completed amount. */
  set(completed: number): void {
    this.#done = completed;
    const time = Date.now();
    if (!this.sink || time - this.#drawnAt < INTERVAL_MS) return;
    this.#drawnAt = time;
    this.sink.write(`\r${this.#line(time)}\x1b[K`);
  }

  #line(time: number): string {
    const share = this.total > 0 ? Math.min(1, this.#done / this.total) : 1;
    const filled = Math.round(share * CELLS);
    const seconds = (time - this.#startedAt) / 1000;
    const remainingText = share > 0.01 ? `, ${(seconds / share - seconds).toFixed(0)} s left` : "";
    const bar = "█".repeat(filled) + "░".repeat(CELLS - filled);
    const amount = this.unit === "" ? "" : ` of ${scaled(this.total)}${this.unit}`;
    const line = `${this.label} ${bar} ${(share * 100).toFixed(0).padStart(3)} %${amount}${remainingText}`;
    return line.slice(0, (this.sink?.columns ?? 80) - 1);
  }

  /** Clears the line. */
  finish(): void {
    if (this.sink && this.#drawnAt > 0) this.sink.write("\r\x1b[K");
  }
}

/** Formats a number with a metric prefix, such as 1.5 G. */
function scaled(amount: number): string {
  const prefixes = ["", "k", "M", "G", "T", "P"];
  const step = amount < 1000 ? 0 : Math.min(prefixes.length - 1, Math.floor(Math.log10(amount) / 3));
  const digits = step === 0 ? amount.toString() : (amount / 1000 ** step).toPrecision(3);
  return `${digits} ${prefixes[step]}`;
}
