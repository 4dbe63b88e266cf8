/**
 * How a process finds its job: its rank, the number of ranks, and the address of rank 0, from options and from the environment
 * variables of launchers (torchrun and `lockstep launch`, mpirun, srun).
 */
import { ArgumentError } from "../../errors.js";
import { domain, integer, oneOf, optionsOf } from "../../options.js";
import { DEFAULT_TIMEOUT_MS, timeout } from "../timeout.js";

/** Options of `openProcessGroup`. An option that is left out is read from the environment. */
export interface ProcessGroupOptions {
  /** The rank of this process, from 0. Default: `RANK`, or the variable of mpirun or srun. */
  readonly rank?: number | undefined;
  /** The number of processes. Default: `WORLD_SIZE`, or the variable of mpirun or srun; 1 if none of them is set. */
  readonly size?: number | undefined;
  /** The host of rank 0. Default: `MASTER_ADDR`. */
  readonly address?: string | undefined;
  /** The port on which rank 0 listens. Default: `LOCKSTEP_PORT`, else `MASTER_PORT`. */
  readonly port?: number | undefined;
  /** A secret that all processes of the job share; others are not admitted. Default: `LOCKSTEP_JOB_TOKEN`. */
  readonly token?: string | undefined;
  /**
   * How long to wait for other ranks, in milliseconds. The limit holds for opening the group and for each operation. Default
   * 600,000.
   */
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

/** The complete settings by which a process joins its job. */
export interface Rendezvous {
  readonly rank: number;
  readonly size: number;
  readonly address: string;
  readonly port: number;
  readonly token: string;
  readonly timeoutMs: number;
}

const MAX_RANKS = 1024;
const size = integer(1, MAX_RANKS);
const port = integer(1, 65535);
/** The characters of host names and addresses, including IPv6. Other characters never reach a socket. */
const host = domain(
  (value) => typeof value === "string" && /^[\w.:%[\]-]+$/.test(value),
  "the name or the address of a host",
);
const nonEmptyString = domain((value) => typeof value === "string" && value !== "", "a non-empty string");

const checkProcessGroup = optionsOf<ProcessGroupOptions>({
  rank: integer(0),
  size,
  address: host,
  port,
  token: nonEmptyString,
  timeoutMs: timeout,
  transport: oneOf(TRANSPORTS),
});

/** The environment variables, from which missing options are read. */
export type Environment = Readonly<Record<string, string | undefined>>;

/**
 * The variables in which launchers give a process its rank, the number of processes, and its rank on this host. Open MPI and
 * MPICH (and its derivatives) come before srun, because srun may have started them. In a batch script of Slurm, outside of srun,
 * SLURM_PROCID is set and SLURM_STEP_NUM_TASKS is not: the job has one process.
 */
const LAUNCHERS = [
  { rank: "RANK", size: "WORLD_SIZE", local: "LOCAL_RANK" },
  { rank: "OMPI_COMM_WORLD_RANK", size: "OMPI_COMM_WORLD_SIZE", local: "OMPI_COMM_WORLD_LOCAL_RANK" },
  { rank: "PMI_RANK", size: "PMI_SIZE", local: "MPI_LOCALRANKID" },
  { rank: "SLURM_PROCID", size: "SLURM_STEP_NUM_TASKS", local: "SLURM_LOCALID" },
] as const;

/** The launcher whose variables are set; otherwise the first launcher. */
function launcherOf(environment: Environment): (typeof LAUNCHERS)[number] {
  const launcher = LAUNCHERS.find(({ size }) => environment[size]);
  return environment.RANK || !launcher ? LAUNCHERS[0] : launcher;
}

/** The number in a variable; undefined if it is not set. */
function numberIn(caller: string, environment: Environment, name: string): number | undefined {
  const value = environment[name];
  if (value === undefined || value === "") return undefined;
  if (/^\d{1,9}$/.test(value)) return Number(value);
  throw new ArgumentError(`${caller}: ${name} is ${JSON.stringify(value)}; it must be a whole number from 0`);
}

/**
 * Returns the number of this process among the job's processes on its host, from 0, as set by torchrun, `lockstep launch`, mpirun
 * or srun; 0 without such a launcher. It is for `openBackend("cuda", { device: localRank() })`.
 *
 * @throws `ArgumentError` if the environment variable is not a whole number.
 */
export function localRank(): number {
  return localRankIn(process.env);
}

/** `localRank` in an environment. */
export function localRankIn(environment: Environment): number {
  return numberIn("localRank", environment, launcherOf(environment).local) ?? 0;
}

/** Returns undefined for a job of one process. Throws `ArgumentError` if a value is missing or contradicts another. */
export function rendezvousOf(
  caller: string,
  options: ProcessGroupOptions,
  environment: Environment,
): Rendezvous | undefined {
  const ownOptions = checkProcessGroup(caller, options);
  const number = (name: string) => numberIn(caller, environment, name);
  const launcher = launcherOf(environment);
  const rank = ownOptions.rank ?? number(launcher.rank);
  const count = ownOptions.size ?? number(launcher.size);
  if (rank === undefined && count === undefined) return undefined;
  if (rank === undefined) throw missingOption(caller, "rank", launcher.rank);
  if (count === undefined) throw missingOption(caller, "size", launcher.size);
  size(caller, launcher.size, count);
  integer(0, count - 1)(caller, launcher.rank, rank);
  if (count === 1) return undefined;
  const portNumber = ownOptions.port ?? number("LOCKSTEP_PORT") ?? number("MASTER_PORT");
  if (portNumber === undefined) throw missingOption(caller, "port", "MASTER_PORT");
  port(caller, "MASTER_PORT", portNumber);
  const address = ownOptions.address ?? environment.MASTER_ADDR;
  if (!address) throw missingOption(caller, "address", "MASTER_ADDR");
  host(caller, "MASTER_ADDR", address);
  const token = ownOptions.token ?? environment.LOCKSTEP_JOB_TOKEN;
  if (!token) throw missingOption(caller, "token", "LOCKSTEP_JOB_TOKEN");
  const { timeoutMs = DEFAULT_TIMEOUT_MS } = ownOptions;
  return { rank, size: count, address, port: portNumber, token, timeoutMs };
}

function missingOption(caller: string, option: string, name: string): ArgumentError {
  return new ArgumentError(
    `${caller}: ${name} is not set; lockstep launch sets it on one host, elsewhere set it or give the option ${option}`,
  );
}
