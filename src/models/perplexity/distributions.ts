/** Statistics of logits in f64, with the sums in ascending order of the vocabulary (docs/models.md). */

/** The logarithm of the sum of the exponentials of logits: m + log(sum of exp(x - m)), where m is the largest logit. */
export function logSumExp(logits: Float32Array): number {
  let max = Number.NEGATIVE_INFINITY;
  for (let i = 0; i < logits.length; i++) if ((logits[i] as number) > max) max = logits[i] as number;
  let sum = 0;
  for (let i = 0; i < logits.length; i++) sum += Math.exp((logits[i] as number) - max);
  return max + Math.log(sum);
}

/** The index of the largest logit, the lowest one of equal logits. NaN is never the largest. */
export function top1(logits: Float32Array): number {
  let best = 0;
  for (let i = 1; i < logits.length; i++) if ((logits[i] as number) > (logits[best] as number)) best = i;
  return best;
}

/** A row of logits, and their `logSumExp`. */
export interface Distribution {
  readonly logits: Float32Array;
  readonly logSum: number;
}

/** The KL divergence of q from p in nats: the sum of p (log p - log q). The term of a probability p of 0 is 0. */
export function klDivergence(p: Distribution, q: Distribution): number {
  const { length } = p.logits;
  let sum = 0;
  for (let i = 0; i < length; i++) {
    const logP = (p.logits[i] as number) - p.logSum;
    const probability = Math.exp(logP);
    if (probability === 0) continue;
    const logQ = (q.logits[i] as number) - q.logSum;
    sum += probability * (logP - logQ);
  }
  return sum;
}
