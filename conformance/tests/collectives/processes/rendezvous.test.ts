/** A process finds its rank in the environment variables of its launcher, and names missing ones. */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  type Environment,
  localRankIn,
  rendezvousOf,
} from "../../../../src/collectives/processes/rendezvous.js";
import { ArgumentError } from "../../../../src/errors.js";

/** The environment variables that each launcher sets for the process of a rank. */
const LAUNCHERS = {
  torchrun: (rank, size, local) => ({ RANK: rank, WORLD_SIZE: size, LOCAL_RANK: local }),
  "mpirun of Open MPI": (rank, size, local) => ({
    OMPI_COMM_WORLD_RANK: rank,
    OMPI_COMM_WORLD_SIZE: size,
    OMPI_COMM_WORLD_LOCAL_RANK: local,
  }),
  "mpiexec of MPICH": (rank, size, local) => ({ PMI_RANK: rank, PMI_SIZE: size, MPI_LOCALRANKID: local }),
  srun: (rank, size, local) => ({
    SLURM_PROCID: rank,
    SLURM_STEP_NUM_TASKS: size,
    SLURM_LOCALID: local,
    // of the job, which may have other tasks in addition to this step
    SLURM_NTASKS: "999",
  }),
} satisfies Record<string, (rank: string, size: string, local: string) => Environment>;
const OTHERS = { MASTER_ADDR: "host0", MASTER_PORT: "29500", LOCKSTEP_JOB_TOKEN: "of the job" };

const someRank = fc
  .record({ size: fc.integer({ min: 2, max: 1024 }), rank: fc.nat(1023), local: fc.nat(7) })
  .map(({ size, rank, local }) => ({ size, rank: rank % size, local }));
const environmentOf = (
  name: keyof typeof LAUNCHERS,
  rank: number,
  size: number,
  local: number,
): Environment => LAUNCHERS[name](String(rank), String(size), String(local));

describe.each(Object.keys(LAUNCHERS) as (keyof typeof LAUNCHERS)[])("a process that %s starts", (name) => {
  it("has the rank and the size that it gives, unless options say otherwise", () => {
    fc.assert(
      fc.property(someRank, ({ rank, size, local }) => {
        const environment = { ...environmentOf(name, rank, size, local), ...OTHERS };
        expect(rendezvousOf("test", {}, environment)).toMatchObject({
          rank,
          size,
          address: "host0",
          port: 29500,
        });
        expect(rendezvousOf("test", { rank: 0, size: 1024 }, environment)).toMatchObject({
          rank: 0,
          size: 1024,
        });
        expect(localRankIn(environment)).toBe(local);
      }),
    );
  });

  it("is one of several processes, so it needs the address of rank 0", () => {
    const environment = environmentOf(name, 1, 2, 1);
    for (const missingName of Object.keys(OTHERS)) {
      const { [missingName]: _, ...otherVariables } = { ...environment, ...OTHERS } as Record<string, string>;
      expect(() => rendezvousOf("test", {}, otherVariables)).toThrowError(ArgumentError);
      expect(() => rendezvousOf("test", {}, otherVariables)).toThrowError(`test: ${missingName} is not set`);
    }
  });

  it("says which variable has no number", () => {
    for (const [variable, value] of Object.entries(environmentOf(name, 1, 2, 1))) {
      if (value === "999") continue;
      for (const invalidRank of ["-1", "1.5", "two", " 1", "1e1"]) {
        const environment = { ...environmentOf(name, 1, 2, 1), ...OTHERS, [variable]: invalidRank };
        const readBoth = () => [rendezvousOf("test", {}, environment), localRankIn(environment)];
        expect(readBoth).toThrowError(
          `${variable} is ${JSON.stringify(invalidRank)}; it must be a whole number from 0`,
        );
      }
    }
  });

  it("is torchrun's if that was started by it", () => {
    const outerEnvironment = environmentOf(name, 1, 2, 1);
    const environment = { ...outerEnvironment, ...environmentOf("torchrun", 5, 8, 3), ...OTHERS };
    expect(rendezvousOf("test", {}, environment)).toMatchObject({ rank: 5, size: 8 });
    expect(localRankIn(environment)).toBe(3);
  });
});

it("the port comes from the option, else from LOCKSTEP_PORT, else from MASTER_PORT", () => {
  const port = fc.option(fc.integer({ min: 1, max: 65535 }), { nil: undefined });
  const launcherEnvironment = environmentOf("torchrun", 1, 2, 1);
  fc.assert(
    fc.property(port, port, port, (option, ownPort, master) => {
      // an empty string counts as a variable that is not set
      const ports = { LOCKSTEP_PORT: String(ownPort ?? ""), MASTER_PORT: String(master ?? "") };
      const environment = { ...launcherEnvironment, ...OTHERS, ...ports };
      const expected = option ?? ownPort ?? master;
      const place = () => rendezvousOf("test", { port: option }, environment);
      if (expected === undefined) expect(place).toThrowError("MASTER_PORT is not set");
      else expect(place()?.port).toBe(expected);
    }),
  );
});

it("the address of rank 0 names a host", () => {
  const environment = { ...environmentOf("torchrun", 1, 2, 1), ...OTHERS };
  for (const invalidAddress of [
    "host0 ",
    " host0",
    "host0\n",
    "a\0b",
    "tcp://host0",
    "a/b",
    "*",
    "not a host",
    "höst",
  ]) {
    const reason = /MASTER_ADDR.*must be the name or the address of a host|address.*must be/s;
    expect(() => rendezvousOf("test", {}, { ...environment, MASTER_ADDR: invalidAddress })).toThrowError(
      reason,
    );
    expect(() => rendezvousOf("test", { address: invalidAddress }, environment)).toThrowError(ArgumentError);
  }
  for (const address of ["host0", "host-0.example.org", "10.0.0.1", "::1", "[fe80::1%eth0]", "host_0"])
    expect(rendezvousOf("test", { address }, environment)).toMatchObject({ address });
});

describe("a process is alone", () => {
  it("if no launcher started it, or one with a single process", () => {
    expect(rendezvousOf("test", {}, {})).toBeUndefined();
    expect(localRankIn({})).toBe(0);
    for (const name of Object.keys(LAUNCHERS) as (keyof typeof LAUNCHERS)[])
      expect(rendezvousOf("test", {}, environmentOf(name, 0, 1, 0))).toBeUndefined();
  });

  it("in a batch script of Slurm, outside of srun", () => {
    const environment = { SLURM_PROCID: "0", SLURM_NTASKS: "8", SLURM_LOCALID: "0" };
    expect(rendezvousOf("test", {}, environment)).toBeUndefined();
  });

  it("never with a rank and no size, or the other way round", () => {
    expect(() => rendezvousOf("test", {}, { RANK: "1" })).toThrowError("test: WORLD_SIZE is not set");
    expect(() => rendezvousOf("test", {}, { RANK: "1", OMPI_COMM_WORLD_SIZE: "2" })).toThrowError(
      "WORLD_SIZE is not set",
    );
    expect(() => rendezvousOf("test", {}, { WORLD_SIZE: "2" })).toThrowError("test: RANK is not set");
    expect(() => rendezvousOf("test", {}, { PMI_SIZE: "2" })).toThrowError("test: PMI_RANK is not set");
  });
});

it("mpirun's processes have its ranks where srun started mpirun", () => {
  const outerEnvironment = environmentOf("srun", 0, 2, 0);
  const innerEnvironment = environmentOf("mpirun of Open MPI", 3, 4, 1);
  expect(rendezvousOf("test", {}, { ...outerEnvironment, ...innerEnvironment, ...OTHERS })).toMatchObject({
    rank: 3,
    size: 4,
  });
  expect(localRankIn({ ...outerEnvironment, ...innerEnvironment })).toBe(1);
});
