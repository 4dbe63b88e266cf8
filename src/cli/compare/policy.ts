/** Options of `compare` that set tolerances. They decide the exit status. */

import { ArgumentError } from "../../errors.js";
import type { ErrorStatistics } from "../../tensor/statistics/statistics.js";
import { integer, optional, type Values } from "../options.js";

/** Parses a number that is at least 0. */
function nonNegative(text: string): number {
  const number = text.trim() === "" ? Number.NaN : Number(text);
  if (number >= 0 && number < Infinity) return number;
  throw new ArgumentError(`"${text}" is not a number from 0`);
}

/** Parses a finite number. */
function decibels(text: string): number {
  const number = text.trim() === "" ? Number.NaN : Number(text);
  if (Number.isFinite(number)) return number;
  throw new ArgumentError(`"${text}" is not a finite number of decibels`);
}

export const POLICY_OPTIONS = {
  ulp: optional({
    placeholder: "N",
    help: "pass if all elements are at most N codes apart; scales that are powers of two must be equal",
    parse: integer(0),
  }),
  "max-abs": optional({
    placeholder: "X",
    help: "pass if no element of B is further than X from that of A",
    parse: nonNegative,
  }),
  "max-rel": optional({
    placeholder: "X",
    help: "pass if no element of B differs from that of A by more than X times its magnitude",
    parse: nonNegative,
  }),
  "min-sqnr": optional({
    placeholder: "DB",
    help: "pass if the signal to quantization noise ratio of each tensor is at least DB decibels",
    parse: decibels,
  }),
} as const;

export type Policy = Values<typeof POLICY_OPTIONS>;

/** Whether any of the options is set. */
export function isGiven(policy: Policy): boolean {
  return Object.values(policy).some((limit) => limit !== undefined);
}

/** The properties of a tensor that a policy judges. */
export interface Judged {
  readonly statistics: ErrorStatistics;
  /** Whether neighbouring codes differ by a factor of two, so that no code distance is small. */
  readonly isExponent: boolean;
}

/** Whether a tensor is within all limits that are set. A NaN in only one of the tensors exceeds every limit. */
export function allows(policy: Policy, { statistics, isExponent }: Judged): boolean {
  const { different, causes, maxUlp, maxAbsError, maxRelError, sqnr } = statistics;
  if (different === 0) return true;
  if (causes.nan > 0) return false;
  const {
    ulp = Infinity,
    "max-abs": abs = Infinity,
    "max-rel": rel = Infinity,
    "min-sqnr": minSqnr,
  } = policy;
  if (policy.ulp !== undefined && isExponent) return false;
  return (
    maxUlp <= ulp && maxAbsError <= abs && maxRelError <= rel && (minSqnr === undefined || sqnr >= minSqnr)
  );
}
