/** The windows of a text that is longer than a model's context, and the progress over them. */

/** The tokens [begin, end) of one forward pass. It scores the tokens [first, end), each from the tokens before it. */
export interface TextWindow {
  readonly begin: number;
  readonly first: number;
  readonly end: number;
}

/**
 * The windows of a text of `tokens` tokens. A window has `context` tokens, or fewer at the end of the text, and begins `stride`
 * tokens after the previous window. A token is scored once, in the first window that has it after the first position. If `stride`
 * is less than `context`, all tokens but the first of the text are scored; if they are equal, the first token of each window is
 * not scored.
 */
export function windowsOf(tokens: number, context: number, stride: number): readonly TextWindow[] {
  const windows: TextWindow[] = [];
  for (let begin = 0, scored = 0; scored < tokens; begin += stride) {
    const end = Math.min(tokens, begin + context);
    const first = Math.max(scored, begin + 1);
    if (first < end) windows.push({ begin, first, end });
    scored = end;
  }
  return windows;
}

/** The progress of `perplexity`. */
export interface PerplexityProgress {
  /** The tokens that forward passes have seen so far, over all models. */
  readonly tokens: number;
  /** The tokens at the end. */
  readonly totalTokens: number;
}

/** Returns a function that adds tokens to the progress. Reports 0 tokens at once. */
export function progressOf(
  windows: readonly TextWindow[],
  models: number,
  onProgress: ((progress: PerplexityProgress) => void) | undefined,
): (tokens: number) => void {
  const totalTokens = models * windows.reduce((sum, { begin, end }) => sum + end - begin, 0);
  let tokens = 0;
  const report = (count: number): void => {
    tokens += count;
    onProgress?.({ tokens, totalTokens });
  };
  report(0);
  return report;
}
