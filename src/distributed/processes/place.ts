/**
 * The rank of this process and the address of the others, from options and from the environment variables of torchrun, mpirun,
 * srun and `lockstep launch`.
 */
import { ArgumentError } from "../../errors.js";
import { domain, integer, oneOf, optionsOf } from "../../options.js";
import { DEFAULT_TIMEOUT_MS, timeout } from "../timeout.js";

/** Options of `openProcessGroup`. An option that is left out is read from the environment. */
export interface ProcessGroupOptions {
  /** The rank of this process, from 0. Default: `RANK`. */
  readonly rank?: number | undefined;
  /** The number of processes. Default: `WORLD_SIZE`, or 1 if neither it nor `RANK` is set. */
  readonly size?: number | undefined;
  /** The host of rank 0. Default: `MASTER_ADDR`. */
  readonly address?: string | undefined;
  /** The port on which rank 0 listens. Default: `LOCKSTEP_PORT`, else `MASTER_PORT`. */
  readonly port?: number | undefined;
  /** A secret that all processes of the job share; others are not admitted. Default: `LOCKSTEP_JOB_TOKEN`. */
  readonly token?: string | undefined;
  /** How long to wait for other ranks, in milliseconds, when the group opens and in each operation. Default 600,000. */
  readonly timeoutMs?: number | undefined;
  /**
   * How data moves between processes. `device`: from GPU to GPU, by NCCL. `host`: through the hosts, with any backend. Default:
   * `device` if every rank supports it, else `host`. If any rank chooses `host`, all ranks use it.
   */
  readonly transport?: TransportName | undefined;
}

/** The transports between processes. */
export const TRANSPORTS = ["device", "host"] as const;

/** The name of a transport between processes. */
export type TransportName = (typeof TRANSPORTS)[number];

/** The rank of a process, and how it finds the others, complete. */
export interface Place {
  readonly rank: number;
  readonly size: number;
  readonly address: string;
  readonly port: number;
  readonly token: string;
  readonly timeoutMs: number;
}

const MOST_RANKS = 1024;
const size = integer(1, MOST_RANKS);
const port = integer(1, 65535);
const someText = domain((value) => typeof value === "string" && value !== "", "a text with something in it");

const checkProcessGroup = optionsOf<ProcessGroupOptions>({
  rank: integer(0),
  size,
  address: someText,
  port,
  token: someText,
  timeoutMs: timeout,
  transport: oneOf(TRANSPORTS),
});

/** The environment variables, from which missing options are read. */
export type Environment = Readonly<Record<string, string | undefined>>;

/** Returns undefined for a process without others. Throws `ArgumentError` if a value is missing or contradicts another. */
export function placeOf(
  user: string,
  options: ProcessGroupOptions,
  environment: Environment,
): Place | undefined {
  checkProcessGroup(user, options);
  const number = (name: string): number | undefined => {
    const given = environment[name];
    if (given === undefined || given === "") return undefined;
    if (/^\d{1,9}$/.test(given)) return Number(given);
    throw new ArgumentError(`${user}: ${name} is ${JSON.stringify(given)}; it must be a whole number from 0`);
  };
  const rank = options.rank ?? number("RANK");
  const count = options.size ?? number("WORLD_SIZE");
  if (rank === undefined && count === undefined) return undefined;
  if (rank === undefined) throw missing(user, "rank", "RANK");
  if (count === undefined) throw missing(user, "size", "WORLD_SIZE");
  size(user, "WORLD_SIZE", count);
  integer(0, count - 1)(user, "RANK", rank);
  if (count === 1) return undefined;
  const at = options.port ?? number("LOCKSTEP_PORT") ?? number("MASTER_PORT");
  if (at === undefined) throw missing(user, "port", "MASTER_PORT");
  port(user, "MASTER_PORT", at);
  const address = options.address ?? environment.MASTER_ADDR;
  if (!address) throw missing(user, "address", "MASTER_ADDR");
  const token = options.token ?? environment.LOCKSTEP_JOB_TOKEN;
  if (!token) throw missing(user, "token", "LOCKSTEP_JOB_TOKEN");
  const { timeoutMs = DEFAULT_TIMEOUT_MS } = options;
  return { rank, size: count, address, port: at, token, timeoutMs };
}

function missing(user: string, option: string, name: string): ArgumentError {
  return new ArgumentError(
    `${user}: ${name} is not set; lockstep launch sets it on one host, elsewhere set it or give the option ${option}`,
  );
}
